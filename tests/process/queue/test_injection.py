"""Kill real processes at every named point of the queue, and check the survivors.

There are five ways to die while writing. Here they are `put_begin` (a), `put_claimed` (b), `put_magic` (c),
`put_size` and `put_payload` (d), `put_checksum` (e). The other points are the steps of taking, settling,
giving back, reclaiming, recovering, fencing, closing, attaching, detaching and creating. For each of them:

- the victim really died there: by SIGKILL, which it sent to itself at that very point;
- every confirmed message is delivered exactly once, or again with a mark;
- afterwards the queue is sound (`check()`), and every granule of it can be used again.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import Closed, Empty, Full, NotFound, Queue, Timeout, _core
from tests.kit.processes import Child, hear, tell

Start = Callable[..., Child]

GRANULES = 32
PARTICIPANTS = 12
KILLED = -signal.SIGKILL

PUT_SKIPPED = ["put_claimed", "put_moved", "put_magic", "put_size", "put_payload", "put_checksum"]
TAKE = ["take_claimed", "take_moved", "settle_begin", "settled"]
GIVE_BACK = ["back_begin", "back_returned", "back_announced"]
RECOVER = [
    "recover_begin",
    "recover_block",
    "recover_blocking",
    "recover_decided",
    "recover_scanned",
    "recover_announced",
    "recover_end",
]
ATTACH = ["attach_locked", "attach_recovered", "attach_active"]
DETACH = ["detach_begin", "detach_inactive"]
CREATE_NOTHING = ["create_file", "create_allocated", "create_initialised"]
MANY_SKIPPED = [
    ("put_claimed", 1),
    ("put_checksum", 1),
    ("put_checksum", 3),
    ("many_inner", 1),
    ("many_inner", 2),
]
MANY_PUT = ["put_committed"]
SINGLE = [
    "put_begin",
    "put_committed",
    "pad_claimed",
    "reclaimed",
    "fence_done",
    "close_marked",
    "create_linked",
]


def test_every_point_is_covered() -> None:
    groups = (PUT_SKIPPED, TAKE, GIVE_BACK, RECOVER, ATTACH, DETACH, CREATE_NOTHING, MANY_PUT, SINGLE)
    covered = {point for group in groups for point in group} | {point for point, _ in MANY_SKIPPED}
    assert covered == {*_core.points()}


# -- what survivors see -------------------------------------------------------------------------------


def make(**options: object) -> Queue:
    return Queue.create("q", capacity=64 * GRANULES, participants=PARTICIPANTS, **options)  # type: ignore[arg-type]


def drain(q: Queue) -> list[tuple[bytes, int]]:
    """All that can be had now, with how often each was delivered before."""
    got = []
    with suppress(Empty, Closed):
        while True:
            with q.get(timeout=0) as message:
                got.append((bytes(message.data), message.redelivered))
    return got


def require_sound(q: Queue) -> None:
    """The queue is sound and empty, and all of the ring is usable several times."""
    assert q.check() == []
    assert drain(q) == []
    q.recover()
    assert q.check() == []
    stats = q.stats()
    assert (stats.holders, stats.ready, stats.returned, stats.taken) == ((), 0, 0, 0)
    for lap in range(3):
        sent: list[bytes] = []
        with suppress(Full):
            while True:
                sent.append(b"%d/%d" % (lap, len(sent)))
                q.put(sent[-1], timeout=0)
        sent.pop()
        assert len(sent) == GRANULES - 1  # one granule is kept free for the end of the stream
        assert drain(q) == [(data, 0) for data in sent]
        largest = bytes([lap]) * q.message_size_max
        q.put(largest, timeout=0)
        assert drain(q) == [(largest, 0)]
    assert q.check() == []


# -- victims ------------------------------------------------------------------------------------------
# Each attaches, says so, and waits for the word: one that came after another's death would get its slot, and
# recover it by attaching.


def attached(start: Start, victim: Callable[..., None], *args: object) -> Child:
    child = start(victim, *args)
    assert child.hear() == "attached"
    return child


def go(victim: Child) -> None:
    victim.tell("go")
    victim.wait(KILLED)


def victim_put(point: str, countdown: int, action: str = "kill", first: bytes | None = b"first") -> None:
    q = Queue.open("q")
    if first is not None:
        q.put(first)
    tell("attached")
    hear()
    _core.arm(point, action, countdown)
    q.put(b"victim" * 10)
    tell("survived")


def victim_put_many(point: str, countdown: int) -> None:
    q = Queue.open("q")
    _core.arm(point, "kill", countdown)
    q.put_many([b"one", b"two" * 20, b"three"])


def victim_get(point: str, countdown: int, count: int) -> None:
    q = Queue.open("q")
    _core.arm(point, "kill", countdown)
    with q.get_many(count) as messages:
        messages.tobytes()


def victim_give_back(point: str, countdown: int) -> None:
    q = Queue.open("q")
    message = q.get()
    _core.arm(point, "kill", countdown)
    message.give_back()


def victim_detach(point: str, countdown: int) -> None:
    q = Queue.open("q")
    message = q.get()
    _core.arm(point, "kill", countdown)
    q.detach()
    del message


def victim_holding(count: int) -> None:
    """Takes messages, then dies as a writer in case e, with both kinds of blocks."""
    q = Queue.open("q")
    tell("attached")
    hear()
    messages = q.get_many(count)
    assert len(messages) == count
    _core.arm("put_checksum", "kill", 1)
    q.put(b"never")


def victim_recover(point: str, countdown: int, by_getting: bool) -> None:
    q = Queue.open("q")
    tell("attached")
    hear()
    _core.arm(point, "kill", countdown)
    if by_getting:
        q.get(timeout=10)
    else:
        q.recover()


def victim_close(point: str) -> None:
    q = Queue.open("q")
    _core.arm(point, "kill", 1)
    q.close()


def victim_attach(point: str) -> None:
    _core.arm(point, "kill", 1)
    Queue.open("q")


def victim_create(point: str, granules: int) -> None:
    _core.arm(point, "kill", 1)
    Queue.create("q", capacity=64 * granules, participants=8)


# -- put ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["put_begin", *PUT_SKIPPED, "put_committed"])
@pytest.mark.parametrize("checksum", ["header", "full"])
def test_death_of_a_writer(start: Start, point: str, checksum: str) -> None:
    """Cases a to e: consumers skip the unfinished put; earlier and later messages arrive."""
    q = make(checksum=checksum)
    q.put(b"before")
    victim = attached(start, victim_put, point, 1)
    go(victim)
    q.put(b"after")
    delivered = [(b"before", 0), (b"first", 0), (b"victim" * 10, 0), (b"after", 0)]
    if point != "put_committed":
        del delivered[2]
    assert drain(q) == delivered
    assert q.stats().skipped == (point in PUT_SKIPPED)
    require_sound(q)


@pytest.mark.parametrize("point", PUT_SKIPPED)
def test_many_writers_die_in_a_row(start: Start, point: str) -> None:
    """Without a consumer the next writers pass over the dead; the space is reused."""
    q = make()
    victims = [start(victim_put, point, 1, "kill", None) for _ in range(4)]
    for victim in victims:
        assert victim.hear() == "attached"
    for victim in victims:
        go(victim)
    q.put(b"after")
    assert drain(q) == [(b"after", 0)]
    assert q.stats().skipped == 4
    require_sound(q)


@pytest.mark.parametrize(("point", "countdown"), MANY_SKIPPED)
def test_death_within_put_many_puts_nothing(start: Start, point: str, countdown: int) -> None:
    q = make()
    q.put(b"before")
    start(victim_put_many, point, countdown).wait(KILLED)
    q.put(b"after")
    assert drain(q) == [(b"before", 0), (b"after", 0)]
    require_sound(q)


@pytest.mark.parametrize("point", MANY_PUT)
def test_death_after_put_many_loses_nothing(start: Start, point: str) -> None:
    q = make()
    start(victim_put_many, point, 1).wait(KILLED)
    q.put(b"after")
    assert drain(q) == [(b"one", 0), (b"two" * 20, 0), (b"three", 0), (b"after", 0)]
    require_sound(q)


def to_the_end_of_the_ring(q: Queue, rest: int) -> None:
    """Leaves `rest` granules before the end of the ring, all of it free."""
    for _ in range(GRANULES - rest):
        q.put(b"")
        q.get_bytes(timeout=0)


def test_death_with_padding_claimed(start: Start) -> None:
    q = make()
    to_the_end_of_the_ring(q, 1)
    go(attached(start, victim_put, "pad_claimed", 1, "kill", None))
    q.put(b"after" * 20)
    assert drain(q) == [(b"after" * 20, 0)]
    require_sound(q)


def test_death_after_reclaiming(start: Start) -> None:
    q = make()
    for n in range(GRANULES - 1):
        q.put(b"%d" % n)
    for n in range(5):
        assert q.get_bytes(timeout=0) == b"%d" % n
    go(attached(start, victim_put, "reclaimed", 1, "kill", None))
    q.put(b"after")
    assert drain(q) == [(b"%d" % n, 0) for n in range(5, GRANULES - 1)] + [(b"after", 0)]
    require_sound(q)


@pytest.mark.parametrize("point", ["put_begin", *PUT_SKIPPED])
def test_a_stopped_writer_is_waited_for(start: Start, point: str) -> None:
    """Without a stall limit no process passes a living writer: slow is not dead."""
    q = make()
    victim = attached(start, victim_put, point, 1, "stop", None)
    victim.tell("go")
    victim.wait_stopped()
    q.put(b"after")
    if point in PUT_SKIPPED:
        with pytest.raises(Timeout) as error:
            q.get(timeout=0.02)
        assert error.value.pid == victim.pid
    victim.go_on()
    assert victim.hear() == "survived"
    expected = [(b"victim" * 10, 0), (b"after", 0)]
    assert drain(q) == (expected if point in PUT_SKIPPED else expected[::-1])
    victim.wait()
    require_sound(q)


@pytest.mark.parametrize("point", ["put_begin", "put_checksum", "put_committed"])
def test_leaving_without_destructors_is_a_death(start: Start, point: str) -> None:
    q = make()
    victim = attached(start, victim_put, point, 1, "exit", None)
    victim.tell("go")
    victim.wait(86)
    q.put(b"after")
    expected = [(b"victim" * 10, 0)] if point == "put_committed" else []
    assert drain(q) == [*expected, (b"after", 0)]
    require_sound(q)


# -- take, settle, give back --------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("point", TAKE)
def test_death_of_a_reader(start: Start, point: str, delivery: str, count: int) -> None:
    q = make(delivery=delivery)
    sent = [b"%d" % n for n in range(5)]
    q.put_many(sent)
    start(victim_get, point, 1, count).wait(KILLED)
    settled = int(point == "settled")
    again = sent[settled:count] if delivery == "at-least-once" else []
    got = drain(q)
    assert sorted(got) == [(data, 1) for data in again] + [(data, 0) for data in sent[count:]]
    stats = q.stats()
    assert (stats.handed_on, stats.released) == (
        (count - settled, 0) if delivery == "at-least-once" else (0, count - settled)
    )
    require_sound(q)


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("point", GIVE_BACK)
def test_death_while_giving_back(start: Start, point: str, delivery: str) -> None:
    """The count returns with the message in one step: it is exact after any death."""
    q = make(delivery=delivery)
    q.put(b"returned")
    if delivery == "at-most-once":  # to give back is to let go: the only steps are those of settling
        start(victim_give_back, "settled", 1).wait(KILLED)
        assert drain(q) == []
    else:
        start(victim_give_back, point, 1).wait(KILLED)
        assert drain(q) == [(b"returned", 1)]
    require_sound(q)


# -- recovery -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("deaths", [1, 3])
@pytest.mark.parametrize("point", RECOVER)
def test_death_during_recovery(start: Start, point: str, deaths: int) -> None:
    """A recoverer may die at any step, again and again: the next one finishes."""
    q = make()
    sent = [b"%d" % n for n in range(6)]
    holder = start(victim_holding, 6)
    writers = [start(victim_put, "put_claimed", 1, "kill", None) for _ in range(4)]
    # A waiting process checks the block in its way; any newcomer checks the others.
    recoverers = [
        start(victim_recover, point, 1, n == 0 or point == "recover_blocking") for n in range(deaths)
    ]
    for child in (holder, *writers, *recoverers):
        assert child.hear() == "attached"
    q.put_many(sent)
    go(holder)  # six messages taken, one block reserved
    for writer in writers:
        go(writer)
    q.put(b"after the writers")
    for recoverer in recoverers:
        go(recoverer)
    q.put(b"after")
    got = drain(q)
    assert [each for each in got if not each[1]] == [(b"after the writers", 0), (b"after", 0)]
    assert sorted(data for data, again in got if again) == sent
    assert q.stats().redelivered == len(sent)
    require_sound(q)


@pytest.mark.parametrize("point", RECOVER)
def test_death_during_recovery_at_most_once(start: Start, point: str) -> None:
    q = make(delivery="at-most-once")
    q.put_many([b"0", b"1", b"2"])
    recoverer = attached(start, victim_recover, point, 1, True)
    go(attached(start, victim_holding, 3))
    go(recoverer)
    q.put(b"after")
    assert drain(q) == [(b"after", 0)]
    require_sound(q)


# -- fencing, closing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("writer_dies", [False, True])
def test_death_after_fencing(start: Start, writer_dies: bool) -> None:
    """The fenced writer puts its message anew; if it dies, its space is freed."""
    q = make(stall_limit=0.01)
    writer = attached(start, victim_put, "put_checksum", 1, "stop", None)
    writer.tell("go")
    writer.wait_stopped()
    go(attached(start, victim_recover, "fence_done", 1, True))
    q.put(b"after")
    assert drain(q) == [(b"after", 0)]
    assert q.stats().fenced_blocks == 1  # its space is not free while it lives: it may still write there
    if writer_dies:
        writer.kill()
        assert drain(q) == []
    else:
        writer.go_on()
        assert writer.hear() == "survived"
        assert drain(q) == [(b"victim" * 10, 0)]
        assert q.stats().fenced == 1
        writer.wait()
    require_sound(q)


def test_death_after_closing(start: Start) -> None:
    q = make()
    q.put(b"before")
    start(victim_close, "close_marked").wait(KILLED)
    with pytest.raises(Closed):
        q.put(b"late", timeout=0)
    assert q.get_bytes(timeout=0) == b"before"
    with pytest.raises(Closed):
        q.get(timeout=0)
    assert q.check() == []
    assert q.stats().used_bytes <= 64


# -- attaching, leaving, creating ---------------------------------------------------------------------


@pytest.mark.parametrize("point", ATTACH)
def test_death_while_attaching(start: Start, point: str) -> None:
    """A newcomer gets the slot, and the duties, of a participant that died with messages."""
    q = make()
    q.put_many([b"0", b"1", b"2"])
    go(attached(start, victim_holding, 3))
    for _ in range(3):
        start(victim_attach, point).wait(KILLED)
    got = drain(q)
    assert [data for data, _ in got] == [b"0", b"1", b"2"]
    assert all(again >= 1 for _, again in got)
    others = [Queue.open("q") for _ in range(PARTICIPANTS - 1)]  # every slot is free but ours
    assert sorted(other.slot for other in others) == list(range(1, PARTICIPANTS))
    for other in others:
        other.detach()
    require_sound(q)


def test_what_attaching_recovers_is_counted(start: Start) -> None:
    q = make()
    q.put_many([b"0", b"1", b"2"])
    go(attached(start, victim_holding, 3))
    Queue.open("q").detach()
    stats = q.stats()
    assert (stats.handed_on, stats.skipped) == (3, 1)


@pytest.mark.parametrize("point", DETACH)
def test_death_while_leaving(start: Start, point: str) -> None:
    q = make()
    q.put(b"held")
    start(victim_detach, point, 1).wait(KILLED)
    assert drain(q) == [(b"held", 1)]
    require_sound(q)


@pytest.mark.parametrize("point", CREATE_NOTHING)
def test_death_while_creating_leaves_nothing(start: Start, runtime_directory: Path, point: str) -> None:
    start(victim_create, point, GRANULES).wait(KILLED)
    assert list(runtime_directory.iterdir()) == []
    with pytest.raises(NotFound):
        Queue.open("q")
    require_sound(make())


def test_death_after_creating_leaves_a_queue(start: Start) -> None:
    start(victim_create, "create_linked", GRANULES).wait(KILLED)
    q = Queue.open("q")
    q.put(b"x")
    assert drain(q) == [(b"x", 0)]
    require_sound(q)
