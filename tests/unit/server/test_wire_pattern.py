"""Patterns of names against Python's `re`, and against what makes `re` run for years."""

from __future__ import annotations

import random
import re

import pytest

from holdfast import HoldfastError, Misuse, Unsupported
from holdfast.server.pulsar import patterns
from holdfast.server.pulsar.patterns import NamePattern, TopicPattern
from tests.kit.slices import seeds

ATOMS = [
    *("a", "b", "-", "\\.", "é", ".", "\\d", "\\w", "\\W", "\\S", "_", "]", "}"),
    *("[a-c]", "[^a]", "[\\d-]", "[a\\-b]", "[^\\w]", "[é-ü.]", "\\Qa.b\\E", "[-a]", "[a^]"),
]
REPEATS = ["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "{3,4}?", "{0}"]


def made(rnd: random.Random, depth: int = 0) -> str:
    """A pattern of any kind; not too deep, since `re` has to match it, too."""
    kind = rnd.random()
    if depth > 2 or kind < 0.35:
        return rnd.choice(ATOMS)
    if kind < 0.6:
        return made(rnd, depth + 1) + made(rnd, depth + 1)
    if kind < 0.68:
        return f"({made(rnd, depth + 1)}|{made(rnd, depth + 1)})"
    if kind < 0.75:
        return f"(?:{made(rnd, depth + 1)}|)"
    if kind < 0.8:
        return rnd.choice("^$") + made(rnd, depth + 1)
    if kind < 0.83:
        return made(rnd, depth + 1) + "$"
    return f"({made(rnd, depth + 1)}){rnd.choice(REPEATS)}"


@pytest.mark.parametrize("seed", seeds("patterns", test=1))
def test_it_is_as_re(seed: int) -> None:
    rnd = random.Random(seed)
    for _ in range(800):
        text = made(rnd)
        same = re.sub(r"\\Q(.*?)\\E", lambda found: re.escape(found[1]), text)
        expected = re.compile(same, re.ASCII | re.DOTALL)
        names = ["".join(rnd.choices("ab-.1é_ü", k=rnd.randrange(7))) for _ in range(20)]
        assert NamePattern(text).select(names) == [each for each in names if expected.fullmatch(each)], text


@pytest.mark.parametrize(
    "text",
    [
        *("(", "a)", "a)|(?:b", "[", "[]", "[^]", "a**", "\\", "[z-a]", "+", "{2}", "[a-", "[a-[b]]", "|*"),
        "x" * 1025,
    ],
)
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(Misuse):
        NamePattern(text)


@pytest.mark.parametrize(
    "text",
    [
        *("(?=a)", "(a)\\1", "a*+", "[\\Qa\\E]", "\\Aa", "a\\z", "\\C", "(?i-m)a", "\\pL{20}", "x{2,1}"),
        *("a{2}+", "\\p{Alpha}", "[\\p{Lower}]", "[a-z&&[^b]]", "[a&&b]", "[^ab[c]]", "[[:alpha:]]"),
        *("a{1001}", "((a{100}){100}){100}", "(((){1000}){1000}){1000}", "(a{0,60}){0,60}", ".{0,900}"),
    ],
)
def test_what_cannot_be_had(text: str) -> None:
    with pytest.raises(Unsupported):
        NamePattern(text)


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a*)*b", "(a?){30}a{30}b", "(.*.*.*x){5}", "((a*)*)*b"]
)
def test_what_takes_others_years(text: str) -> None:
    assert NamePattern(text).select(["a" * 1000, "aaaa"]) == []


def test_a_program_is_bounded() -> None:
    """Time is at most the name's length times the program, whose size is limited."""
    ways = NamePattern("(a|a|a|a|a|a|a|a)*" * 50 + "b")
    assert ways.select(["ab", "x", "a" * 1000]) == ["ab"]
    assert 100 < len(ways) < len(NamePattern(".{0,200}")) < patterns.PROGRAM_BYTES_MAX / 16


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("(?i)A", ["a"]),
        ("(?s).*", ["a", "ab", "b"]),
        ("[^x]*", ["a", "ab", "b"]),
        ("a\\s*", ["a"]),
        ("(?:.|\\n)*b", ["ab", "b"]),
        ("\\W*a\\W*b?", ["a", "ab"]),
        ("a|b", ["a", "b"]),
        ("^a$|^ab$", ["a", "ab"]),
        ("\\bb", ["b"]),
        ("\\Qab", ["ab"]),
        ("\\Qa\\E\\Qb", ["ab"]),
        ("a|\\Qb)\\", ["a"]),
        ("a|\\\\Qb", ["a"]),
        ("a|\\[&&\\[b", ["a"]),
        ("\\Q[[&&\\E|[ab]|[&a]&&[b]", ["a", "b"]),
    ],
)
def test_each_name_is_matched_alone(text: str, matched: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are matched as lines of one text: no pattern sees the name beside."""
    assert NamePattern(text).select(["a", "ab", "b"]) == matched
    monkeypatch.setattr(patterns, "NAMES_AT_ONCE", 2)
    assert NamePattern(text).select(["a", "ab", "b"]) == matched


@pytest.mark.parametrize("seed", seeds("pattern noise", test=1))
def test_noise(seed: int) -> None:
    """Random text is a pattern, or an error that says why not."""
    rnd = random.Random(seed)
    reasons = []
    for _ in range(5000):
        text = "".join(rnd.choices("ab(|)[]{}*+?.^$\\-,:&dwQE019é", k=rnd.randrange(20)))
        try:
            NamePattern(text).select(["", "ab", "aab-é", "a" * 30])
        except HoldfastError as error:
            reasons.append(str(error))
    assert 1000 < len(reasons) < 5000
    assert all(reasons)


def test_names_of_topics() -> None:
    names = [f"persistent://public/default/{each}" for each in ("orders", "orders-partition-3", "bills")]
    orders = names[:2]
    assert TopicPattern("public/default/ord.*").select(names) == orders
    assert TopicPattern("persistent://public/default/orders").select(names) == orders
    assert TopicPattern("^persistent://public/default/orders$").select(names) == orders
    assert TopicPattern("\\Qpersistent://public/default/\\E.*").select(names) == names
    assert TopicPattern("orders").select(names) == []
    assert TopicPattern("non-persistent://.*").select(names) == []
