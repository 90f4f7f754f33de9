"""A queue so old that a narrow field would have wrapped: docs/reference/limits.md names each.

Some of these wrap by themselves; the others start just before the end, by `first_position`.
"""

from __future__ import annotations

import fcntl
import os
import struct

import pytest

from holdfast import Closed, Empty, HoldfastError, Misuse, Queue, TooManyParticipants
from tests.kit.queue.queues import aged, drain, fill
from tests.kit.queue.segments import BELLS, CONTROLS, crc32c, patch, segment, write_mark

POSITION_MAX = (1 << 52) - 1
DELIVERIES_MAX = 1023
GRANULES = 8
LOCK_BASE = 1 << 40
F_OFD_SETLK = 37

LAPS = [1 << 8, 1 << 16, 1 << 32, 1 << 40, 1 << 48]


def test_131072_messages_through_512_bytes() -> None:
    """Padding is never marked: the mark before it may be 65,536 laps old."""
    q = Queue.create("q", capacity=64 * GRANULES)
    for _ in range(GRANULES):
        q.put(b"")
        q.get_bytes(timeout=0)
    large = b"x" * 160
    put, get = q.put, q.get_bytes
    for _ in range(2 * 65536 + 16):
        put(large)
        get()
    assert q.check() == []
    with Queue.open("q") as newcomer:
        newcomer.put(b"still works")
        assert drain(newcomer) == [b"still works"]
    q.detach()


@pytest.mark.parametrize("laps", LAPS)
def test_marks_of_many_laps_ago_say_nothing(laps: int) -> None:
    """All marks are that many laps old, and contradict the current blocks."""
    with aged((2 + laps) * GRANULES, GRANULES) as q:
        for granule in range(GRANULES):
            write_mark("aged", GRANULES, 2 * GRANULES + granule, 1 + granule % 2, DELIVERIES_MAX)
        for size in (100, 160, 10, 200, 160, 100, 20):
            q.put(b"x" * size)
            with q.get(timeout=0) as message:
                assert (len(message), message.redelivered) == (size, 0)
        assert q.check() == []
        q.close()
        with pytest.raises(Closed):
            q.get(timeout=0)
        assert q.check() == []


def test_positions_end_with_a_named_error() -> None:
    """At the last position puts end, all messages come out, and the stream ends."""
    with aged(POSITION_MAX + 1 - 4 * GRANULES, GRANULES) as q:
        assert q.stats().positions_left < 4 * GRANULES
        put, error = 0, ""
        while not error:
            try:
                q.put(b"%d" % put, timeout=0)
            except HoldfastError as refused:
                error = str(refused)
            else:
                put += 1
                if put > 4:
                    assert q.get_bytes(timeout=0) == b"%d" % (put - 5)
        assert "has used up its 52 bits of positions; create a new one" in error
        assert put > GRANULES
        assert drain(q) == [b"%d" % n for n in range(put - 4, put)]
        assert q.check() == []
        with pytest.raises(Empty):
            q.get(timeout=0)
        q.close()
        with pytest.raises(Closed):
            q.get(timeout=0)
        assert q.check() == []


@pytest.mark.parametrize("word", [3, 4], ids=["made", "scanned"])
def test_the_number_of_returns_wraps(q: Queue, word: int) -> None:
    """Returns are compared only for equality."""
    for each in (3, 4):
        patch("q", CONTROLS + 128 * each, (2**64 - 2).to_bytes(8, "little"))
    patch("q", CONTROLS + 128 * word, (2**64 - 1).to_bytes(8, "little"))
    for _ in range(5):
        q.put(b"x")
        for again in range(4):
            message = q.get(timeout=0)
            assert message.redelivered == again
            message.give_back()
        assert drain(q) == [b"x"]
    assert q.check() == []


def test_a_bell_wraps(q: Queue) -> None:
    for at in BELLS.values():
        patch("q", at, (2**32 - 2).to_bytes(4, "little"))
    for putting in (False, True):
        heard = q._listen(putting)
        assert heard == 2**32 - 1
        q.put(b"x")
        q.get_bytes(timeout=0)
        assert q._listen(putting) == 1, "it rang, and that is seen by one who remembers what it heard"


def test_deliveries_are_counted_up_to_1023(q: Queue) -> None:
    q.put(b"poison")
    for again in range(DELIVERIES_MAX + 5):
        message = q.get(timeout=0)
        assert message.redelivered == min(again, DELIVERIES_MAX)
        message.give_back()
    q.put(b"next")
    with q.get(timeout=0) as message:
        assert (bytes(message), message.redelivered) == (b"poison", DELIVERIES_MAX)
    with q.get(timeout=0) as message:
        assert (bytes(message), message.redelivered) == (b"next", 0)


@pytest.mark.parametrize("lap", [65535, 65536, (1 << 32) - 1, (1 << 48) - 1])
def test_a_queue_of_any_age_works(lap: int) -> None:
    for granule in range(GRANULES):
        with aged(lap * GRANULES + granule, GRANULES) as q:
            for _ in range(3):
                count = fill(q, b"x" * 40)
                assert len(drain(q)) == count
            assert q.check() == []
        Queue.unlink("aged")


def test_counters_of_a_slot_wrap(q: Queue) -> None:
    """Counters are for people: no decision depends on them, and sums have no width."""
    patch("q", slot_of_mine("q") + 32, (2**64 - 1).to_bytes(8, "little") * 12)
    for _ in range(3):
        q.put(b"x")
        assert q.get_bytes(timeout=0) == b"x"
    stats = q.stats()
    assert stats.put == 2
    assert q.check() == []


def test_counts_and_timeouts_beyond_every_width(q: Queue) -> None:
    """All of them, however long it takes."""
    for count in (1 << 31, 1 << 32, 1 << 63, 1 << 80):
        q.put_many([b"a", b"b"])
        with q.get_many(count, timeout=10**400) as messages:
            assert len(messages) == 2
    for count in (0, -1, -(1 << 80)):
        with pytest.raises(Misuse, match="a count of at least 1"):
            q.get_many(count, timeout=0)
    for timeout in (-(10**400), -1, float("nan")):
        with pytest.raises(Misuse, match="timeout must be None or at least 0 seconds"):
            q.get(timeout=timeout)


def slot_of_mine(name: str) -> int:
    """Return the offset of this process's participant entry in the file."""
    data = segment(name).read_bytes()
    mine = struct.pack("<I", os.getpid())
    return next(
        at for at in range(CONTROLS + 1024, 8192, 128) if data[at : at + 4] == mine and data[at + 7] & 0x80
    )


def test_the_last_slot_is_an_owner_like_others() -> None:
    """1,023 participants: one lock on the first 1,022 slots stands for their processes."""
    create = Queue.create("many", capacity=64 * GRANULES, participants=DELIVERIES_MAX)
    create.detach()
    with segment("many").open("r+b") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, LOCK_BASE, DELIVERIES_MAX - 1, 0)
        fcntl.fcntl(file.fileno(), F_OFD_SETLK, lock)
        with Queue.open("many") as last:
            (me,) = [each for each in last.stats().participants if each.attached]
            assert me.slot == DELIVERIES_MAX - 1
            with pytest.raises(TooManyParticipants, match="all 1023 participants are alive"):
                Queue.open("many")
            last.put_many([b"a", b"b"])
            held = last.get(timeout=0)
            assert [(each.slot, each.taken) for each in last.stats().holders] == [(me.slot, 1)]
            held.give_back()
            assert drain(last) == [b"a", b"b"]
            assert last.check() == []


@pytest.mark.parametrize("time", [0, 2**63, 2**64 - 1])
def test_times_and_pids_for_people_have_every_value(time: int) -> None:
    """Times of a message, a claim, an attachment and a process decide nothing.

    Each is set to the last and the first value.
    """
    with aged(0, GRANULES) as q:
        at = slot_of_mine("aged")
        q.put(b"x")
        ring = segment("aged").read_bytes().index(struct.pack("<H", 0x4648), 8192)
        header = bytearray(segment("aged").read_bytes()[ring : ring + 32])
        header[16:28] = struct.pack("<QI", time, 0)
        header[24:28] = crc32c(bytes(header)).to_bytes(4, "little")
        patch("aged", ring, bytes(header))
        with q.get(timeout=0) as message:
            assert (bytes(message), message.time) == (b"x", time)
            patch("aged", 8192 + 4096 + 8, time.to_bytes(8, "little"))  # when it was claimed
            patch("aged", at + 8, struct.pack("<QQ", time, time))
            patch("aged", at, (time & 0xFFFFFFFF).to_bytes(4, "little"))
            stats = q.stats()
            assert [each.taken for each in stats.holders] == [1]
            (me,) = stats.participants
            assert (me.pid, me.joined_ms, me.alive) == (time & 0xFFFFFFFF, time, True)
        assert fill(q, b"y") == GRANULES - 1
        assert len(drain(q)) == GRANULES - 1
        assert q.check() == []


def test_the_shortest_and_the_longest_stall_limit() -> None:
    for limit in (0.001, 1e6):
        with Queue.create(f"stall-{limit}", capacity=256, stall_limit=limit) as q:
            q.put(b"x")
            assert q.get_bytes(timeout=0) == b"x"
    for limit in (0.0009, 1e6 + 0.001, float("nan"), float("inf")):
        with pytest.raises(Misuse, match=r"stall_limit must be 0\.001 to 1000000 seconds"):
            Queue.create("stall", capacity=256, stall_limit=limit)
