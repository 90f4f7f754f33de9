"""I240, I241, I242, I243: exchanges route as a plain model does, also after a restart."""

from __future__ import annotations

import itertools
import random

import pytest

from holdfast._core import encode_messages, parse_entry
from holdfast.broker.batches import (
    KEY_BYTES_MAX,
    METADATA_BYTES_MAX,
    OPENED_MAX,
    UNPACKED_MAX,
    keys_of,
    split,
)
from holdfast.broker.exchanges import Patterns
from holdfast.errors import HoldfastError, Misuse, Unsupported
from tests.kit.broker.routing_model import KEYS, PATTERNS, World, matches, words
from tests.kit.slices import pick, seeds


@pytest.mark.parametrize("seed", seeds("routing", test=6, nightly=300))
def test_exchanges_route_as_the_model_does(seed: int) -> None:
    world = World(seed)
    world.run(pick(250, 600))
    world.check()
    assert sum(map(len, world.topics.values())) > 20


def test_patterns_match_as_brute_force_does() -> None:
    """All patterns and keys of up to four words of a small alphabet."""
    letters = ("a", "b")
    keys = [".".join(each) for size in range(5) for each in itertools.product(letters, repeat=size)]
    patterns = [
        ".".join(each) for size in range(4) for each in itertools.product((*letters, "*", "#"), repeat=size)
    ]
    tree = Patterns((pattern, number) for number, pattern in enumerate(patterns))
    for key in keys:
        wanted = [n for n, pattern in enumerate(patterns) if matches(words(pattern), words(key))]
        assert tree.match(key) == wanted, key


def test_words_of_keys_are_not_patterns() -> None:
    """A star or a hash in a message's key is a word like others."""
    tree = Patterns([("a.*", 1), ("a.b", 2), ("#", 3), ("x.#.y", 4)])
    assert tree.match("a.*") == [1, 3]
    assert tree.match("a.#") == [1, 3]
    assert tree.match("#") == [3]
    assert tree.match("x.#.y") == [3, 4]
    assert tree.match("a..b") == [3], "an empty word is a word"


def test_many_hashes_cost_little() -> None:
    """A pattern of many hashes visits each of its nodes once per word."""
    tree = Patterns([(".".join(["#"] * 30), 1), (".".join(["#", "a"] * 15), 2)])
    assert tree.match(".".join(["a"] * 200)) == [1, 2]
    assert tree.match(".".join(["a"] * 14)) == [1]


# -- batches -------------------------------------------------------------------------------------------


def batch(payloads: list[bytes], **more: object) -> bytes:
    [entry] = encode_messages(payloads, "p", 7, 1000, batch=len(payloads), **more)  # type: ignore[arg-type]
    return entry


def test_messages_of_a_batch_keep_what_they_have() -> None:
    entry = batch([b"a", b"", b"c"], key="k", properties={"x": "y"}, event_time_ms=55, ordering_key=b"\x00o")
    found = [(key, parse_entry(each)) for key, each in split(entry)]
    assert [(key, each.payload) for key, each in found] == [("k", b"a"), ("k", b""), ("k", b"c")]
    for _, each in found:
        assert not each.batch
        assert (each.producer, each.publish_time_ms, each.event_time_ms) == ("p", 1000, 55)
        assert (each.properties, each.key, each.ordering_key) == ({"x": "y"}, "k", b"\x00o")
    assert keys_of(entry) == ["k"] * 3


def test_an_entry_that_is_not_a_batch_stays_as_it_is() -> None:
    [entry] = encode_messages([b"a"], "p", 0, 0, key="k")
    assert split(entry) == [("k", entry)]
    assert keys_of(entry) == ["k"]
    [plain] = encode_messages([b"a"], "p", 0, 0)
    assert keys_of(plain) == [""]


def test_a_key_of_bytes_is_compared_as_text() -> None:
    [text], [other] = (encode_messages([b"a"], "p", 0, 0, key=key) for key in (b"red", b"\xff\xfe"))
    assert keys_of(text) == ["red"]
    assert keys_of(other) == ["\udcff\udcfe"], "bytes that are no text equal no key of a binding"


@pytest.mark.parametrize("seed", seeds("entries", test=3, nightly=200))
def test_damaged_entries_are_refused(seed: int) -> None:
    """Events parse bytes of a client: only a refusal may come of it."""
    rng = random.Random(seed)
    whole = batch([b"a" * 20, b"b"], key="key", properties={"x": "y"})
    for _ in range(pick(300, 3000)):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.3 else data
        try:
            found = split(bytes(data))
        except HoldfastError:
            continue
        assert len(found) <= UNPACKED_MAX


def test_large_batches_and_long_keys_are_refused() -> None:
    """A client cannot make the broker's loop stand still."""
    assert len(split(batch([b""] * OPENED_MAX))) == OPENED_MAX
    with pytest.raises(Unsupported, match="at most"):
        keys_of(batch([b""] * (OPENED_MAX + 1)))
    assert keys_of(encode_messages([b""], "p", 0, 0, key="k" * KEY_BYTES_MAX)[0]) == ["k" * KEY_BYTES_MAX]
    for long in (
        encode_messages([b""], "p", 0, 0, properties={"x": "y" * METADATA_BYTES_MAX}),
        encode_messages([b""] * 1000, "p", 0, 0, properties={"x": "y" * 1000}, batch=1000),
    ):
        with pytest.raises(Unsupported, match="metadata"):
            keys_of(long[0])
    with pytest.raises(Misuse, match="4096 bytes"):
        keys_of(encode_messages([b""], "p", 0, 0, key="k" * (KEY_BYTES_MAX + 1))[0])


def test_a_batch_that_says_too_much_is_refused() -> None:
    whole = batch([b"a", b"b"])
    for cut in range(len(whole) - 1, 10, -1):
        with pytest.raises(Misuse):
            split(whole[:cut])


def test_the_model_meets_every_key_and_pattern() -> None:
    """A model that never routes proves nothing."""
    routed = {key for key in KEYS if any(matches(words(each), words(key)) for each in PATTERNS)}
    assert routed == set(KEYS)
    world = World(1)
    world.run(250)
    assert world.exchanges
    assert any(each.dropped for each in world.exchanges.values())
