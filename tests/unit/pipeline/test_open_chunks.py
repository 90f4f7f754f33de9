"""How far a subscription may move while chunked messages are open: `holdfast.columns.open_chunks`."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Corrupt
from holdfast.columns import open_chunks
from holdfast.columns.open_chunks import OPEN_MAX, Floor, OpenChunks, digest, scan, scan_for
from holdfast.columns.tickets import Chunks, parsed
from tests.kit.ledger.entry_bytes import METADATA, Fields, entry
from tests.kit.ledger.topic_bytes import FIRST, MemoryTopic
from tests.kit.pipeline.streams import read_beside_an_open_message
from tests.kit.slices import seeds


def part(uuid: str, chunk: int, chunks: int, size: int = 10) -> bytes:
    """One part of a chunked message; `plain()` is an entry between them."""
    fields: Fields = [
        (METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1), (METADATA["publish_time"], 1),
        (METADATA["uuid"], uuid.encode()), (METADATA["num_chunks_from_msg"], chunks),
        (METADATA["total_chunk_msg_size"], size * chunks), (METADATA["chunk_id"], chunk),
    ]  # fmt: skip
    return entry(fields, b"%d" % chunk * size)


def plain() -> bytes:
    fields: Fields = [
        (METADATA["producer_name"], b"p"),
        (METADATA["sequence_id"], 1),
        (METADATA["publish_time"], 1),
    ]
    return entry(fields, b"x" * 10)


BEGAN_S = 1_700_000_000.0
NOW = int(BEGAN_S * 1e9)
"""The broker's log time when tests ask."""


class Topic(MemoryTopic):
    """Fill a topic with an entry per second, and trim some of it."""

    def __init__(self, entries: list[bytes]) -> None:
        super().__init__(entries, run_entries=3)
        self.first, self.visible, self.began = FIRST, FIRST + len(entries), BEGAN_S
        self.scanned: list[tuple[int, int]] = []

    def plan(self) -> tuple[int, int]:
        return self.first, self.visible

    def at_time(self, time_ms: int) -> int:
        return max(self.first, min(self.visible, FIRST + int(time_ms / 1000 - self.began)))

    def weights(self, start: int, stop: int) -> list[tuple[int, int]]:
        return [(at, 100 * (at - start)) for at in range(start, stop + 1)]

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
        self.scanned.append((start, stop))
        this: Any = self
        return scan(this, start, stop, before)


def random_topic(seed: int) -> tuple[Topic, list[tuple[int, int]]]:
    """Also return where each chunked message begins and ends; without an end: infinity."""
    choose = random.Random(seed)
    left: dict[str, tuple[int, int, int]] = {}
    entries, spans = [], list[tuple[int, int]]()
    for number in range(60):
        kind = choose.random()
        if kind < 0.2:
            chunks = choose.randrange(2, 5)
            left[f"u{number}"] = (1, chunks, FIRST + number)
            entries.append(part(f"u{number}", 0, chunks))
        elif kind < 0.7 and left:
            uuid = choose.choice(list(left))
            chunk, chunks, begin = left.pop(uuid)
            entries.append(part(uuid, chunk, chunks))
            if chunk < chunks - 1:
                left[uuid] = (chunk + 1, chunks, begin)
            else:
                spans.append((begin, FIRST + number))
        else:
            entries.append(plain())
    spans += [(begin, 1 << 40) for _, _, begin in left.values()]
    return Topic(entries), spans


@pytest.mark.parametrize("seed", seeds("open chunks", test=20))
def test_nothing_that_is_open_is_let_go(seed: int) -> None:
    """Compare with the definition: the oldest open beginning below a position, in steps and anew."""
    topic, spans = random_topic(seed)
    choose, floor, since = random.Random(seed), Floor(), FIRST
    position = FIRST
    while position < topic.visible:
        position = min(topic.visible, position + choose.randrange(1, 15))
        wanted = min([position, *(begin for begin, end in spans if begin < position <= end)])
        assert floor.below(topic, since, position, NOW) == wanted
        assert Floor().below(topic, since, position, NOW) == wanted, (
            "after a restart, from the subscription on"
        )
        since = topic.first = wanted  # all below is trimmed


def test_each_entry_is_looked_at_once() -> None:
    topic = Topic([part("long", 0, 9), *[plain()] * 50])
    floor = Floor()
    for position in range(FIRST + 10, FIRST + 51, 10):
        assert floor.below(topic, FIRST, position, NOW) == FIRST
    assert topic.scanned == [(at, at + 10) for at in range(FIRST, FIRST + 50, 10)]
    assert floor.below(topic, FIRST, FIRST + 50, NOW) == FIRST
    assert len(topic.scanned) == 5, "nothing new, nothing read"


def test_a_reset_or_another_topic_begins_anew() -> None:
    topic = Topic([plain(), part("a", 0, 2), plain(), plain(), part("a", 1, 2), plain()])
    floor = Floor()
    assert floor.below(topic, FIRST, FIRST + 3, NOW) == FIRST + 1
    assert floor.below(topic, FIRST + 1, FIRST + 6, NOW) == FIRST + 6
    assert floor.below(topic, FIRST, FIRST + 2, NOW) == FIRST + 1, "the subscription was set back"
    other = Topic([plain()] * 6)
    other.incarnation = b"other" * 3 + b"!"
    assert floor.below(other, FIRST, FIRST + 4, NOW) == FIRST + 4


def test_parts_that_come_again_and_damage() -> None:
    again = [part("a", 0, 3), part("a", 0, 3), part("a", 1, 3), part("a", 1, 3), plain(), part("a", 2, 3)]
    topic = Topic([*again, part("a", 2, 3), part("b", 1, 3)])
    for stop in range(1, 6):
        assert Floor().below(topic, FIRST, FIRST + stop, NOW) == FIRST, "kept from its first beginning"
    for stop in (6, 7, 8):
        assert Floor().below(topic, FIRST, FIRST + stop, NOW) == FIRST + stop
    topic.damaged = {FIRST + 1, FIRST + 4}
    assert Floor().below(topic, FIRST, FIRST + 5, NOW) == FIRST


def test_times_that_cannot_be_read_let_nothing_go() -> None:
    class Damaged(Topic):
        def at_time(self, time_ms: int) -> int:
            raise Corrupt("64 damaged entries in a row")

    topic = Damaged([part("dead", 0, 3), plain()])
    assert Floor().below(topic, FIRST, FIRST + 2, NOW) == FIRST


def test_what_will_never_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = Topic([plain(), part("dead", 0, 3), part("dead", 1, 3), *[plain()] * 20])
    end = FIRST + 23
    floor = Floor()
    assert floor.below(topic, FIRST, end, NOW) == FIRST + 1
    assert Floor().below(topic, FIRST, end, (1 << 63) - 1) == end, "where log time ends"
    assert Floor().below(topic, FIRST, end, (1 << 64) - 1) == end, "and where its field ends"
    topic.began -= open_chunks.WAIT_S + 1
    assert Floor().below(topic, FIRST, end - 1, NOW) == FIRST + 1, (
        "behind: its end may stand in what is not read"
    )
    assert Floor().below(topic, FIRST, end, NOW) == FIRST + 1, (
        "its second part came an hour ago less a second"
    )
    topic.began -= 5
    assert Floor().below(topic, FIRST, end, 0) == FIRST + 1, "a broker that does not tell its time"
    assert floor.below(topic, FIRST, end, NOW) == end
    topic.began += 1000
    monkeypatch.setattr(open_chunks, "LOOK_BACK_BYTES", 1000)
    assert Floor().below(topic, FIRST, FIRST + 11, NOW) == FIRST + 1
    assert Floor().below(topic, FIRST, FIRST + 12, NOW) == FIRST + 12, "no reader looks back so far"
    topic.scanned.clear()
    Floor().below(topic, FIRST, FIRST + 22, NOW)
    assert topic.scanned[0][0] >= FIRST + 11, "nor is it looked for there"


def test_names_and_numbers_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk id of a megabyte, or thousands of incomplete messages, do not block it."""
    named, many = part("u" * 900_000, 0, 2), [part(f"m{i}", 0, 2) for i in range(OPEN_MAX + 900)]
    topic: Any = Topic([part("first", 0, 3), named, named, *many])
    topic._run_entries = 1000
    found = scan(topic, FIRST, topic.visible, [])
    assert len(found) == OPEN_MAX
    asked = Chunks("orders", start=0, stop=1, before=[(each.uuid, each.first, each.newest) for each in found])
    assert len(parsed(msgspec.json.encode(asked), Chunks).before) == OPEN_MAX
    assert found[-1].first == topic.visible - 1, "those of which nothing came for longest are let go"
    assert scan(topic, FIRST + 1, FIRST + 3, []) == [OpenChunks(digest(b"u" * 900_000), FIRST + 1, FIRST + 2)]
    monkeypatch.setattr(open_chunks, "OPEN_MAX", 2)
    busy: Any = Topic([part("a", 0, 5), part("b", 0, 5), part("a", 1, 5), part("c", 0, 5), part("a", 2, 5)])
    assert [each.first for each in scan(busy, FIRST, FIRST + 5, [])] == [FIRST, FIRST + 3]
    assert Floor().below(busy, FIRST, FIRST + 5, NOW) == FIRST


@pytest.mark.parametrize("seed", seeds("open chunks slowly", test=5))
def test_looked_through_a_little_at_a_time(seed: int) -> None:
    """Each call makes progress in any time limit, and together they give one result."""
    topic: Any = random_topic(seed)[0]
    topic.damaged = {FIRST, FIRST + 17, FIRST + 18}
    at, stop = topic.plan()
    found: list[OpenChunks] = []
    steps = [at]
    while at < stop:
        found, at = scan_for(0.0, topic, at, stop, found)
        steps.append(at)
    assert found == scan(topic, FIRST, stop, [])
    assert all(0 < high - low <= 3 for low, high in pairwise(steps))


@pytest.mark.parametrize("years", [-1, 0, 1])
def test_an_open_message_is_judged_by_the_brokers_time(years: int, tmp_path: Path) -> None:
    """For any clock of the driver, also if no entry follows."""
    assert read_beside_an_open_message(str(tmp_path / "data"), years * 365 * 86_400.0) == [1, 1, 2]
