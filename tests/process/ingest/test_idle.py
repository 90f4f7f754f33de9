"""Idle queues of local ingest are removed; a producer that arrives then loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast import Closed, Queue
from holdfast.local import producer as producing
from holdfast.local.account import Account
from holdfast.local.drain import Segment
from tests.kit.processes import PATIENCE_S, Start, hear, tell, until
from tests.kit.server.ingest_world import World, serving

ORDERS = "persistent://public/default/orders"


def segment_of(world: World) -> Segment:
    (segment,) = world.ingest._segments.values()
    return segment


def withdraw(world: World, segment: Segment) -> bool:
    async def now() -> bool:
        return segment.withdraw()

    return world.runner(now())


def queues() -> list[str]:
    return [name for name in Queue.list() if not name.endswith(".door")]


def test_what_nobody_uses_goes(data: Path, runtime_directory: Path) -> None:
    with serving(data, {"idle_s": 0.05}) as world:
        with holdfast.Producer("orders") as p:
            p.put(b"1")
        until(lambda: not world.ingest.topics)
        until(lambda: not queues() and not list(runtime_directory.glob("*.account")))
        topic = world.broker.topic(ORDERS).state
        until(lambda: world.broker.machine.log.sequences(topic.id) == [])
        until(lambda: not topic.producers)
        with holdfast.Producer("orders") as p:
            p.put(b"2")
        assert world.stored() == [b"1", b"2"]
        assert len(world.ingest._bells) == 1


def test_what_somebody_uses_stays(data: Path) -> None:
    """Silent for long, and attached."""
    with serving(data, {"idle_s": 0.02}) as world:
        p = holdfast.Producer("orders")
        segment = segment_of(world)
        looked = segment.used
        until(lambda: segment.used > looked)  # it was looked at
        first = segment.used
        until(lambda: segment.used > first)
        assert segment_of(world) is segment
        p.put(b"1")
        p.close()
        assert world.stored() == [b"1"]
        until(lambda: not world.ingest.topics)


def test_a_producer_that_was_killed_does_not_keep_it(data: Path, start: Start) -> None:
    def child() -> None:
        p = holdfast.Producer("orders")
        p.put(b"1")
        tell("put")
        hear()

    with serving(data, {"idle_s": 0.02}) as world:
        dying = start(child)
        assert dying.hear() == "put"
        until(lambda: world.stored() == [b"1"])
        assert world.ingest.topics == [ORDERS]
        dying.kill()
        until(lambda: not world.ingest.topics)


def test_many_topics_one_after_another(data: Path) -> None:
    """At most three have a queue at once; idle ones make room."""
    with serving(data, {"idle_s": 0.02, "topics_max": 3}) as world:
        for number in range(8):
            until(lambda: len(world.ingest.topics) < 3)
            with holdfast.Producer(f"t{number}") as p:
                p.put(b"x")
        for number in range(8):
            assert world.stored(f"t{number}") == [b"x"]


def meanwhile(patch: pytest.MonkeyPatch, owner: Any, name: str, what: Callable[[], None]) -> None:
    """Before `owner.name` is called, once."""
    real, done = getattr(owner, name), False

    def call(*given: Any, **more: Any) -> Any:
        nonlocal done
        if not done:
            done = True
            what()
        return real(*given, **more)

    patch.setattr(owner, name, call)


class Attaching:
    """Start a producer in a thread, and stop it after it opened the queue.

    It has not read the account yet.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.opened, self.go_on = threading.Event(), threading.Event(), threading.Event()
        self.asked = 0
        self.made: holdfast.Producer | None = None
        real = Queue.open

        def opening(name: str, **options: Any) -> Queue:
            if name.endswith(".door"):
                return real(name, **options)
            self.asked += 1
            self.begun.set()
            if self.asked == 1:
                assert self.go_on.wait(PATIENCE_S)
            queue = real(name, **options)
            self.opened.set()
            return queue

        patch.setattr(producing, "Queue", SimpleNamespace(open=opening))
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        assert self.begun.wait(PATIENCE_S)

    def _run(self) -> None:
        self.made = holdfast.Producer("orders", timeout=PATIENCE_S)

    def attach(self) -> None:
        """Now it opens the queue that it was told of."""
        self.go_on.set()
        assert self.opened.wait(PATIENCE_S)

    def producer(self) -> holdfast.Producer:
        self.thread.join(PATIENCE_S)
        assert self.made is not None
        return self.made


def test_who_attaches_before_the_word_is_written_is_seen(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I124: the broker looks again after it has written."""
    coming = Attaching(monkeypatch)
    segment = segment_of(world)
    meanwhile(monkeypatch, Account, "withdraw", coming.attach)
    assert not withdraw(world, segment)
    with coming.producer() as p:
        p.put(b"1")
    assert world.stored() == [b"1"]
    assert segment_of(world) is segment


def test_who_attaches_after_the_word_is_written_asks_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I124: a producer attached to a closing queue notices it and gets another queue."""
    coming = Attaching(monkeypatch)
    segment = segment_of(world)
    meanwhile(monkeypatch, segment.queue, "close", coming.attach)
    assert withdraw(world, segment)
    with coming.producer() as p:
        assert coming.asked >= 2
        p.put(b"1")
    assert world.stored() == [b"1"]
    assert segment_of(world) is not segment


def test_without_that_look_it_would_be_turned_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a producer that does not look at the account."""
    monkeypatch.setattr(Account, "withdrawn", False)
    coming = Attaching(monkeypatch)
    segment = segment_of(world)
    meanwhile(monkeypatch, segment.queue, "close", coming.attach)
    assert withdraw(world, segment)
    p = coming.producer()
    with pytest.raises(Closed):
        p.put(b"1")
    p._leave()
    assert world.stored() == []


def test_what_was_put_before_it_is_closed_is_stored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing and putting are ordered, even for a producer that ignores the account."""
    first = holdfast.Producer("orders")
    segment = segment_of(world)
    entry = first._encoded([b"at the last moment"], 1, None, None, None, 0)[0]
    first.close()
    late: list[Queue] = []

    def put() -> None:
        late.append(Queue.open(segment.queue_name))
        late[0].put(entry)

    meanwhile(monkeypatch, segment.queue, "close", put)
    assert withdraw(world, segment)
    with pytest.raises(Closed):
        late[0].put(entry)
    until(lambda: world.stored() == [b"at the last moment"])
    until(lambda: not world.ingest.topics)
    late[0].detach()
    with holdfast.Producer("orders") as p:
        p.put(b"2")
    assert world.stored() == [b"at the last moment", b"2"]


def test_who_asks_while_it_is_drained_waits_for_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old queue is closed but not drained: no producer may attach to it."""
    holdfast.Producer("orders").close()
    segment = segment_of(world)
    segment.closing = True  # as if it were being drained
    answers: list[Any] = []
    real = holdfast.Producer._ask

    def asking(self: holdfast.Producer, *given: Any) -> Any:
        answers.append(real(self, *given))
        return answers[-1]

    monkeypatch.setattr(holdfast.Producer, "_ask", asking)
    made: list[holdfast.Producer] = []
    thread = threading.Thread(target=lambda: made.append(holdfast.Producer("orders", timeout=PATIENCE_S)))
    thread.start()
    until(lambda: any("again" in each for each in answers))
    assert not made
    with Queue.open(segment.queue_name) as its:
        its.close()
    thread.join(PATIENCE_S)
    assert segment_of(world) is not segment
    made[0].put(b"1")
    made[0].close()
    assert world.stored() == [b"1"]


def test_a_broker_that_was_killed_while_it_withdrew(data: Path) -> None:
    """The word is written and the broker is gone: the next one takes it back."""
    with serving(data, {"idle_s": 1e6}) as world:
        p = holdfast.Producer("orders")
        segment = segment_of(world)
        assert segment.account is not None
        segment.account.withdraw(True)
    assert p._account.withdrawn
    with serving(data, {"idle_s": 1e6}) as world:
        assert not p._account.withdrawn
        p.put(b"1")
        with holdfast.Producer("orders") as other:
            other.put(b"2")
        p.close()
        assert world.stored() == [b"1", b"2"]


def test_nobody_else_is_in_the_way(world: World) -> None:
    """A reader of the same user is attached: the queue stays."""
    holdfast.Producer("orders").close()
    segment = segment_of(world)
    with Queue.open(segment.queue_name):
        assert not withdraw(world, segment)
    assert withdraw(world, segment)
    until(lambda: not world.ingest.topics)
