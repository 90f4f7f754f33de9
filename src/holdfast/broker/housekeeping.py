"""What a broker does by itself: ledgers roll, old messages expire, what nobody needs goes.

Each action is an event with a condition, decided when it is applied: whoever comes second changes nothing.
What grows is looked at when it has grown; what ages is looked at every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from holdfast.broker.events import DeduplicationExpire, Event, LedgerRoll, SinkForget, StageDrop
from holdfast.broker.policy import limits, trim_event
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import SubscriptionState
    from holdfast.broker.topic import Topic


INGEST = "holdfast.ingest."
"""Names of local ingest: they are forgotten with their segment."""

NAMES_LOOKS = 168
"""How often names of producers are looked at in the time that they are kept: of a week, once an hour."""

GRACE_S = 3600.0
"""After a start, how long the time without a broker counts for no age: producers and sinks come back."""

TOPICS_A_TURN = 20
"""How many are looked at before others have the loop."""


class Housekeeping:
    """Submits the events that time and growth make due."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._under_way: set[tuple[str, int]] = set()
        self._names_at_ns = 0
        self._names_due = False
        """In this turn, names of producers are looked at."""
        self._holding: dict[int, SubscriptionState] = {}
        """By topic: a subscription that needs the front ledger. While it does, nobody else is asked."""
        self._task: asyncio.Task[None] | None = None
        self._outage_ns = 0
        """How long there was no broker before this one: from the last frame to the start."""
        self._grace_ends_ns = 0

    def start(self) -> None:
        log_time, now_ns = self._broker.machine.log.time, self._broker.engine.log_clock.now_ns()
        self._outage_ns = max(0, now_ns - log_time) if log_time else 0  # a new directory has had none
        self._grace_ends_ns = self._broker.clock.monotonic_ns() + int(GRACE_S * 1e9)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="housekeeping")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def grown(self, topic: Topic) -> None:
        """Something was published: is the open ledger full?"""
        info = topic.state.ledgers.last
        if info is None or info.sealed:
            return
        policies = limits(self._broker, topic)
        if info.size >= policies.roll_bytes or info.entries >= policies.roll_entries:
            self._once("roll", topic.state.id, LedgerRoll(topic.state.id, info.id))

    def acknowledged(self, topic: Topic) -> None:
        """Somebody acknowledged: is a whole ledger done with?"""
        front = topic.state.ledgers.front
        if front is None or not front.sealed or self._is_held(topic, front.end):
            return
        event = trim_event(self._broker, topic)
        now, inherited = (
            self._broker.engine.log_clock.now_ns(),
            self._broker.machine.state.inherited(topic.state),
        )
        if topic.state.trimmable(now, event.retention_bytes, event.retention_ns, inherited):
            self._once("trim", topic.state.id, event)

    def _is_held(self, topic: Topic, end: int) -> bool:
        """Does a subscription need anything below? The one that did last is asked first, then all of them.

        So an acknowledgement costs the same however many subscriptions stand still.
        """
        known = self._holding.get(topic.state.id)
        if known is not None:
            attached = topic.state.subscriptions.get(known.name) is known
            if attached and known.acks.acked_to < end:
                return True
            del self._holding[topic.state.id]
        for each in topic.state.subscriptions.values():
            if each.acks.acked_to < end:
                self._holding[topic.state.id] = each
                return True
        return False

    def gone(self, topic: int) -> None:
        """The topic was deleted."""
        self._holding.pop(topic, None)

    def show_all(self, state: str) -> None:
        """Tell readers of the files of every topic that has anything to read."""
        for topic in self._broker.topics.values():
            if topic.visible > topic.first:
                self._broker.show(topic, state)

    async def _show_all(self) -> None:
        """After a start, some at a time: what views say is of before, and right as far as it goes."""
        shown = self._broker.publications
        if shown is None:
            return
        for count, topic in enumerate(list(self._broker.topics.values()), 1):
            if topic.visible > topic.first or shown.is_there(topic.state.id):
                self._broker.show(topic)
            if count % TOPICS_A_TURN == 0:
                await self._broker.clock.sleep(0.001)
        with contextlib.suppress(OSError):
            shown.sweep({topic.state.id: topic.name for topic in self._broker.topics.values()})

    async def _run(self) -> None:
        await self._show_all()
        while True:
            await self._broker.clock.sleep(self._broker.options.housekeeping_s)
            self._names_due = self._is_time_for_names()
            for count, topic in enumerate(list(self._broker.topics.values()), 1):
                try:
                    await self._look_at(topic)
                except HoldfastError:
                    pass  # a reset came between, or the end: the next turn looks again
                except Exception as error:  # a disk that fails, say: this task goes on
                    asyncio.get_running_loop().call_exception_handler(
                        {
                            "message": f"housekeeping of {topic.name} failed; it tries again",
                            "exception": error,
                        }
                    )
                if count % TOPICS_A_TURN == 0:
                    await asyncio.sleep(0)
            self._broker.rates.tick()
            for event in self._old():
                self._submit(event)

    async def _look_at(self, topic: Topic) -> None:
        state, info, policies = topic.state, topic.state.ledgers.last, limits(self._broker, topic)
        if info is not None and not info.sealed:
            age_s = (self._broker.engine.log_clock.now_ns() - info.opened_time) / 1e9
            if age_s >= policies.roll_age_s:
                self._once("roll", state.id, LedgerRoll(state.id, info.id))
        if policies.ttl_s is not None:
            for subscription in list(state.subscriptions.values()):
                if topic.backlog(subscription):
                    await self._broker.expire(topic, subscription, policies.ttl_s)
        if self._names_due:
            self._forget_producers(topic)
        self.acknowledged(topic)
        if state.id in self._broker.unshown:
            self._broker.show(topic)

    def _is_time_for_names(self) -> bool:
        """Names are many, and age slowly: now and then is often enough."""
        now_ns = self._broker.clock.monotonic_ns()
        if now_ns < self._names_at_ns:
            return False
        self._names_at_ns = now_ns + int(self._broker.options.deduplication_age_s * 1e9) // NAMES_LOOKS
        return True

    def _forget_producers(self, topic: Topic) -> None:
        """Of a topic that deduplicates: names that nobody has used for long."""
        id, oldest = topic.state.id, self._unused_since(self._broker.options.deduplication_age_s)  # noqa: A001
        attached = {each.name for each in topic.state.producers.values()}
        for name, _, time in self._broker.machine.log.sequence_times(id):
            if time < oldest and name not in attached and not name.startswith(INGEST):
                self._once("forget", id, DeduplicationExpire(id, oldest))
                break

    def _unused_since(self, age_s: float) -> int:
        """Return the log time before which something must have been used last, to be too old now.

        An outage makes nothing old at once: no producer and no sink could use anything meanwhile.
        """
        spared_ns = self._outage_ns if self._broker.clock.monotonic_ns() < self._grace_ends_ns else 0
        return self._broker.engine.log_clock.now_ns() - int(age_s * 1e9) - spared_ns

    def _old(self) -> Iterable[Event]:
        """Stages that nobody came back to, and sinks that have not committed for long."""
        state, options = self._broker.machine.state, self._broker.options
        oldest = self._unused_since(options.stage_age_s)
        for stage in list(state.stages.values()):
            if stage.time < oldest:
                yield StageDrop(stage.id, older_than=oldest)
        oldest = self._unused_since(options.sink_age_s)
        if any(sink.time < oldest for sink in state.sinks.last.values()):
            yield SinkForget(oldest)

    def _once(self, what: str, topic: int, event: Event) -> None:
        """One of a kind under way per topic: growth is noticed many times before the first is applied."""
        if (what, topic) in self._under_way:
            return
        self._under_way.add((what, topic))
        self._submit(event, (what, topic))

    def _submit(self, event: Event, key: tuple[str, int] | None = None) -> None:
        def done(future: asyncio.Future[Any]) -> None:
            if key is not None:
                self._under_way.discard(key)
            if not future.cancelled():
                future.exception()  # a condition that no longer holds, or the end of the broker

        try:
            self._broker.engine.submit(event).add_done_callback(done)
        except HoldfastError:
            if key is not None:
                self._under_way.discard(key)
