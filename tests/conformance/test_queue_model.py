"""Random calls on several attachments, compared with a model after every call.

Order, exactly one owner, delivery counts, `Full`, `Empty` and `Closed`, positions, figures: all exact.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast import Closed, Empty, Full, Message, Misuse, Queue
from tests.kit.examples import examples
from tests.kit.queue.model import GRANULE, Block, Model
from tests.kit.queue.queues import drain

ATTACHMENTS_MAX = 4
names = (f"model-{i}" for i in itertools.count())
# A small size in bytes, or a fraction of the largest message.
sizes = st.one_of(st.integers(0, 40), st.integers(0, 96), st.floats(0, 1), st.just(1.0))
some = st.integers(0, 1000)
"""Index of an attachment, or of a message that was received."""


@dataclass
class Held:
    """A message that was received and not settled."""

    message: Message
    block: Block
    queue: Queue
    wish: str = ""
    views: list[memoryview] = field(default_factory=list)


class QueueMachine(RuleBasedStateMachine):
    @initialize(
        capacity=st.sampled_from([256, 512, 1024, 4096]),
        at_most_once=st.sampled_from([False, False, False, True]),
        max_deliveries=st.sampled_from([0, 0, 1, 2]),
        full_checksum=st.booleans(),
    )
    def create(self, capacity: int, at_most_once: bool, max_deliveries: int, full_checksum: bool) -> None:
        limit = 0 if at_most_once else max_deliveries
        self.name = next(names)
        self.dead = Queue.create(f"{self.name}.dead", capacity=1 << 20)  # never full: that depends on time
        first = Queue.create(
            self.name,
            capacity=capacity,
            participants=ATTACHMENTS_MAX,
            delivery="at-most-once" if at_most_once else "at-least-once",
            max_deliveries=limit or None,
            dead_letter=f"{self.name}.dead" if limit else None,
            checksum="full" if full_checksum else "header",
        )
        self.queues = [first]
        self.held: list[Held] = []
        self.model = Model(capacity // GRANULE, at_most_once, limit)
        self.serial = 0

    def teardown(self) -> None:
        if not hasattr(self, "queues"):
            return
        for held in self.held:
            for view in held.views:
                view.release()
        for q in [*self.queues, self.dead]:
            q.detach()
        Queue.unlink(self.name)
        Queue.unlink(f"{self.name}.dead")

    def queue(self, which: int) -> Queue:
        return self.queues[which % len(self.queues)]

    def payload(self, size: int | float) -> bytes:
        """Return payloads that differ, as far as the size allows."""
        limit = self.queues[0].message_size_max
        self.serial += 1
        stamp = b"%08d" % self.serial
        return (stamp * (limit // 8 + 1))[
            : min(size, limit) if isinstance(size, int) else round(size * limit)
        ]

    # -- putting

    @rule(which=some, size=sizes)
    def put(self, which: int, size: int | float) -> None:
        data = self.payload(size)
        expected, _ = self.model.put_many([data])
        outcome = "ok"
        try:
            self.queue(which).put(data, timeout=0)
        except Full:
            outcome = "full"
        except Closed:
            outcome = "closed"
        assert outcome == expected

    @rule(which=some, chosen=st.lists(sizes, max_size=8))
    def put_many(self, which: int, chosen: list[int | float]) -> None:
        messages = [self.payload(size) for size in chosen]
        expected = self.model.put_many(messages)
        outcome = ("ok", len(messages))
        try:
            self.queue(which).put_many(messages, timeout=0)
        except Full as error:
            outcome = ("full", error.done)
        except Closed as error:
            outcome = ("closed", error.done)
        assert outcome == expected

    @precondition(lambda self: self.serial % 7 == 6)
    @rule(which=some)
    def put_too_much(self, which: int) -> None:
        q = self.queue(which)
        with pytest.raises(Misuse):
            q.put(bytes(q.message_size_max + 1), timeout=0)

    # -- getting

    def expect(self, q: Queue, wanted: int) -> list[Block] | type[Exception]:
        found = self.model.deliver(wanted, q.slot)
        return found if not isinstance(found, str) else {"empty": Empty, "closed": Closed}[found]

    # Mostly when there is something to get: otherwise most histories would use an empty queue.
    def worth_getting(self) -> bool:
        return bool(self.model.count("ready") + self.model.count("returned")) or self.serial % 5 == 1

    @precondition(worth_getting)
    @rule(which=some)
    def get(self, which: int) -> None:
        q = self.queue(which)
        expected = self.expect(q, 1)
        if not isinstance(expected, list):
            with pytest.raises(expected):
                q.get(timeout=0)
            return
        message = q.get(timeout=0)
        self.compare(message, expected[0])
        self.held.append(Held(message, expected[0], q))

    @precondition(worth_getting)
    @rule(which=some, wanted=st.integers(1, 8))
    def get_many(self, which: int, wanted: int) -> None:
        q = self.queue(which)
        expected = self.expect(q, wanted)
        if not isinstance(expected, list):
            with pytest.raises(expected):
                q.get_many(wanted, timeout=0)
            return
        batch = q.get_many(wanted, timeout=0)
        assert len(batch) == len(expected)
        for message, block in zip(batch, expected, strict=True):
            self.compare(message, block)
            self.held.append(Held(message, block, q))

    @precondition(worth_getting)
    @rule(which=some)
    def get_bytes(self, which: int) -> None:
        q = self.queue(which)
        expected = self.expect(q, 1)
        if not isinstance(expected, list):
            with pytest.raises(expected):
                q.get_bytes(timeout=0)
            return
        assert q.get_bytes(timeout=0) == expected[0].data
        self.model.settle(expected[0])

    @precondition(worth_getting)
    @rule(which=some, missing=st.integers(0, 1))
    def get_into(self, which: int, missing: int) -> None:
        q = self.queue(which)
        found = self.model.take(1, q.slot)
        if isinstance(found, str):
            with pytest.raises(Empty if found == "empty" else Closed):
                q.get_into(bytearray(8), timeout=0)
            return
        (block,) = found
        buffer = bytearray(max(0, len(block.data) - missing))
        if len(buffer) < len(block.data):
            with pytest.raises(Misuse):
                q.get_into(buffer, timeout=0)
            self.model.put_aside(block)
            return
        assert q.get_into(buffer, timeout=0) == len(block.data)
        assert bytes(buffer) == block.data
        self.model.figures.delivered += 1
        self.model.figures.redelivered += block.deliveries > 0
        self.model.settle(block)

    def compare(self, message: Message, block: Block) -> None:
        assert bytes(message) == block.data
        assert (message.position, message.redelivered) == (block.position, block.deliveries)

    # -- settling received messages

    @precondition(lambda self: self.held)
    @rule(which=some, by_with=st.booleans())
    def settle(self, which: int, by_with: bool) -> None:
        self.decide(self.held[which % len(self.held)], "settle", by_with)

    @precondition(lambda self: self.held)
    @rule(which=some, by_with=st.booleans())
    def give_back(self, which: int, by_with: bool) -> None:
        self.decide(self.held[which % len(self.held)], "give_back", by_with)

    def decide(self, held: Held, fate: str, by_with: bool) -> None:
        if not by_with:
            getattr(held.message, fate)()
        else:
            with contextlib.suppress(ZeroDivisionError), held.message:
                if fate == "give_back":
                    raise ZeroDivisionError
        held.wish = held.wish or fate  # the first decision stands
        self.finish(held)

    @precondition(lambda self: self.held)
    @rule(which=some)
    def view(self, which: int) -> None:
        held = self.held[which % len(self.held)]
        if held.wish:
            with pytest.raises(Misuse):
                _ = held.message.data
        else:
            held.views.append(held.message.data)

    @precondition(lambda self: any(held.views for held in self.held))
    @rule(which=some)
    def release(self, which: int) -> None:
        viewed = [held for held in self.held if held.views]
        held = viewed[which % len(viewed)]
        held.views.pop().release()
        self.finish(held)

    def finish(self, held: Held) -> None:
        if held.wish and not held.views:
            (self.model.settle if held.wish == "settle" else self.model.give_back)(held.block)
            self.held.remove(held)

    # -- the queue as a whole

    @precondition(lambda self: not self.model.closed and self.serial > 60)
    @rule(which=some)
    def close(self, which: int) -> None:
        self.queue(which).close()
        self.model.closed = True

    @precondition(lambda self: self.serial % 11 == 10)
    @rule(which=some)
    def purge(self, which: int) -> None:
        q = self.queue(which)
        assert q.purge() == self.model.purge(q.slot)

    @precondition(lambda self: len(self.queues) < ATTACHMENTS_MAX)
    @rule()
    def attach(self) -> None:
        self.queues.append(Queue.open(self.name))

    @precondition(lambda self: len(self.queues) > 1 and self.serial % 5 == 4)
    @rule(which=some)
    def detach(self, which: int) -> None:
        q = self.queue(which)
        mine = [held for held in self.held if held.queue is q]
        if any(held.views for held in mine):
            with pytest.raises(Misuse):
                q.detach()
            return
        q.detach()
        self.queues.remove(q)
        for held in mine:
            self.model.give_back(held.block)
            self.held.remove(held)

    # -- after every call

    @invariant()
    def nothing_in_hand_was_overwritten(self) -> None:
        for held in getattr(self, "held", []):
            for view in held.views or ([] if held.wish else [held.message.data]):
                assert bytes(view) == held.block.data
            if not held.wish and not held.views:
                assert len(held.message) == len(held.block.data)

    @invariant()
    def the_queue_is_sound_and_its_figures_are_exact(self) -> None:
        if not hasattr(self, "queues"):
            return
        q, model = self.queues[-1], self.model
        assert q.check() == []
        stats = q.stats()
        for name, value in vars(model.figures).items():
            assert (name, getattr(stats, name)) == (name, value)
        assert (stats.ready, stats.taken) == (model.count("ready"), model.count("taken"))
        assert (stats.returned, stats.closed) == (model.count("returned"), model.closed)
        assert (stats.writing, stats.fenced_blocks, stats.corrupt) == (0, 0, 0)
        held = Counter(each.queue.slot for each in self.held)
        assert {holder.slot: holder.taken for holder in stats.holders} == held
        assert sorted(each.slot for each in stats.participants) == sorted(each.slot for each in self.queues)
        model.reclaim()
        assert GRANULE * (model.head - model.tail) <= stats.used_bytes <= stats.capacity_bytes
        assert drain(self.dead) == model.dead_letters
        model.dead_letters.clear()


TestQueue = QueueMachine.TestCase
TestQueue.settings = examples(40, 3000, stateful_step_count=80, suppress_health_check=[HealthCheck.too_slow])
