"""I49: `apply` depends on event and state alone, not on refused frames or on Python."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import names
from holdfast.broker import events, state
from holdfast.broker.events import (
    LedgerTrim,
    ProducerOpen,
    SubscriptionCreate,
    SubscriptionDelete,
    TopicCreate,
)
from holdfast.broker.machine import Machine
from holdfast.errors import HoldfastError, Misuse
from holdfast.names import checked_name, namespace_name, tenant_name, topic_name
from tests.kit.broker.events import ME, SECOND, Publish, Rig, frame_of
from tests.kit.slices import pick

YEAR = 365 * 24 * 3600 * SECOND

# -- log time ------------------------------------------------------------------------------------------


def rig_with_topic() -> tuple[Rig, int, int]:
    rig = Rig()
    topic = rig.topic(deduplication=True)
    session = rig.producer(topic, "p").session
    rig.do(Publish(topic.id, session, [b"a", b"b"], producer="p"))
    return rig, topic.id, session


def traceless(topic: int, session: int) -> dict[str, object]:
    """Events that are refused, or change nothing."""
    return {
        "refused": TopicCreate(topic_name("orders"), bytes(16)),
        "nothing to trim": LedgerTrim(topic),
        "no such subscription": SubscriptionDelete(99),
        "a duplicate": Publish(topic, session, [b"a"], producer="p"),
        "no such session": Publish(topic, 99, [b"x"], producer="q"),
        "taken": ProducerOpen(topic, "p", "exclusive", ME),
    }


@pytest.mark.parametrize("what", traceless(1, 1))
def test_a_frame_that_is_not_kept_does_not_move_log_time(what: str) -> None:
    rig, topic, session = rig_with_topic()
    before = rig.machine.log.time
    rig.time += YEAR
    event = traceless(topic, session)[what]
    applied = rig.apply(event)  # type: ignore[arg-type]
    assert applied.first_d == 0
    assert rig.machine.log.time == before
    # A restart knows the journal alone: at the next position that is kept, both are the same.
    again = Machine()
    for view, index, frame in rig.journal:
        again.redo(view, index, frame)
    rig.time = before
    for machine in (rig.machine, again):
        machine.apply(
            rig.view, rig.index + 1, ME, frame_of([SubscriptionCreate(topic, "s")], before + SECOND)
        )
    assert again.digest() == rig.machine.digest()


def test_a_frame_that_is_kept_in_part_moves_it() -> None:
    rig, topic, _ = rig_with_topic()
    rig.apply(SubscriptionDelete(99), SubscriptionCreate(topic, "s"))
    assert rig.machine.log.time == rig.time
    assert rig.restarted().digest() == rig.machine.digest()


def test_time_of_a_frame_counts_for_its_own_events() -> None:
    """An event sees the frame's time before it is known whether the frame is durable."""
    rig, _, _ = rig_with_topic()
    rig.time += YEAR
    made = rig.do(TopicCreate(topic_name("later"), bytes(16)))
    assert rig.state.topics[made.topic].created == rig.time == rig.machine.log.time


# -- names ---------------------------------------------------------------------------------------------


CODES = [*range(0x3000), *range(0x3000, 0x110000, pick(test=13, nightly=1))]
"""All code points in `make nightly`; in `make check` those of most scripts, and some of the rest."""


def verdicts(judge: Callable[[str], object]) -> str:
    """A digest of what a rule says of the code points."""
    taken = bytearray(0x110000 // 8)
    for code in CODES:
        try:
            judge(chr(code))
        except HoldfastError:
            continue
        taken[code // 8] |= 1 << code % 8
    return hashlib.blake2b(taken, digest_size=8).hexdigest()


def test_names_are_judged_the_same_by_every_python() -> None:
    """The digests are constants: a Python with other Unicode tables must find the same."""

    def plain(code: int) -> bool:
        never = code < 0x20 or 0x7F <= code <= 0x9F or 0x2028 <= code <= 0x202E or 0x2066 <= code <= 0x2069
        return not never and not 0xD800 <= code <= 0xDFFF

    def by_ranges(text: str) -> None:
        if not plain(ord(text)):
            raise Misuse("not a name")

    def by_ranges_or_ascii(text: str) -> None:
        by_ranges(text)
        if (
            text.isascii()
            and text not in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.=:-"
        ):
            raise Misuse("not a tenant")

    assert verdicts(lambda text: checked_name(text, "a topic")) == verdicts(by_ranges)
    assert verdicts(tenant_name) == verdicts(by_ranges_or_ascii)


class Printable:
    """A mutant's rule: what this Python's tables call printable."""

    @staticmethod
    def fullmatch(text: str) -> bool:
        return bool(text) and text.isprintable()


def test_names_judged_by_tables_of_python_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former fault."""
    monkeypatch.setattr(names, "_NAME", Printable)
    with pytest.raises(AssertionError):
        test_names_are_judged_the_same_by_every_python()


def test_names_that_were_taken_before_are_taken() -> None:
    """Names that an earlier version accepted in its journal are accepted again."""
    for code in CODES:
        text = chr(code)
        if text.isprintable():
            checked_name(text, "a topic")
            if re.fullmatch(r"[\w.=:-]+", text):
                tenant_name(text)


@pytest.mark.parametrize("name", ["", "a\nb", "\x7f", "tab\t", "\u202eevil", "half \ud800", "line\u2028"])
def test_these_are_no_names(name: str) -> None:
    for judge in (tenant_name, lambda name: namespace_name(f"{name}/x"), topic_name):
        with pytest.raises(HoldfastError):
            judge(name)


def test_apply_asks_nothing_of_the_python_version() -> None:
    """Events, names and state do not depend on Unicode tables, a clock, or chance."""
    forbidden = re.compile(
        r"\.isprintable\(|\.isalnum\(|\.isalpha\(|\.isdigit\(|\.isidentifier\(|\.casefold\(|\.lower\(|\.upper\("
        r"|unicodedata|(?<!`)\\[wWdDsSbB](?!`)|time\.time|monotonic|random|\bhash\(|\bid\("
    )
    files = [
        *Path(inspect.getfile(events)).parent.glob("*.py"),
        Path(inspect.getfile(names)),
        Path(inspect.getfile(state)),
    ]
    assert {Path(inspect.getfile(kind)) for kind in events.kinds().values()} < set(files)
    for file in files:
        code = re.sub(r'"""[\s\S]*?"""|#.*', "", file.read_text())
        found = forbidden.search(code)
        assert found is None, f"{file.name}: {found.group()} in what is applied"
