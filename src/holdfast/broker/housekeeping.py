"""Housekeeping of a broker: roll and trim ledgers, expire messages, stages, sinks and producers' names.

Each action is an event whose condition is checked when it is applied: a second one changes nothing. Growth is
checked when a topic has grown, ages every few seconds. In a cluster a topic's owner does it, and one member
what concerns no topic.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.broker.ageing import Ageing
from holdfast.broker.events import DeduplicationExpire, Event, LedgerRoll, RingTrim, SinkForget, StageDrop
from holdfast.broker.last_value import LastValueTopics
from holdfast.broker.options import age_ns
from holdfast.broker.policy import limits, trim_event
from holdfast.broker.topic_kinds import ring_floor
from holdfast.errors import HoldfastError
from holdfast.names import INGEST

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import SubscriptionState
    from holdfast.broker.topic import Topic


NAMES_LOOKS = 168
"""Number of checks of producers' names in the time that they are kept: for a week, one per hour."""

GRACE_S = 3600.0
"""Time after a start in which the outage before does not count as age: producers and sinks return."""

TOPICS_A_TURN = 20
"""Topics that are checked before other tasks get the loop."""


class Housekeeping:
    """Submits the events that time and growth make due."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._under_way: set[tuple[str, int]] = set()
        self._names_at_ns = 0
        self._names_due = False
        """Whether names of producers are checked in this turn."""
        self._holding: dict[int, SubscriptionState] = {}
        """By topic: a subscription that needs the front ledger. While it does, others are not checked."""
        self._task: asyncio.Task[None] | None = None
        self._last_values = LastValueTopics(broker)
        self._ageing = Ageing(broker)
        self._outage_ns = 0
        """Time from the last frame of the broker before this one to the start."""
        self._grace_ends_ns = 0

    def start(self) -> None:
        log_time, now_ns = self._broker.machine.log.time, self._broker.engine.log_clock.now_ns()
        self._outage_ns = max(0, now_ns - log_time) if log_time else 0  # a new directory had no outage
        self._grace_ends_ns = self._broker.clock.monotonic_ns() + int(GRACE_S * 1e9)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="housekeeping")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._last_values.stop()

    def grown(self, topic: Topic) -> None:
        """Roll the open ledger of a topic that has grown, if it is full.

        Rings and last-value topics drop old entries.
        """
        self._thin(topic)
        info = topic.state.ledgers.last
        if info is None or info.sealed:
            return
        policies = limits(self._broker, topic)
        if info.size >= policies.roll_bytes or info.entries >= policies.roll_entries:
            self._once("roll", topic.state.id, LedgerRoll(topic.state.id, info.id))

    def _thin(self, topic: Topic) -> None:
        """Drop old entries of a ring, and superseded ones of a last-value topic."""
        state, policies = topic.state, self._broker.machine.state.effective(topic.state)
        is_ring = policies.ring_entries is not None or policies.ring_bytes is not None
        if not (is_ring or policies.last_value) or not self._broker.membership.owns(topic):
            return
        self._last_values.grown(topic)
        if not is_ring:
            return
        floor = ring_floor(state.ledgers, policies.ring_entries, policies.ring_bytes)
        front = state.ledgers.front
        kept = floor if state.compaction is None else state.compaction.keeps(floor)
        if any(each.acks.acked_to < floor for each in state.subscriptions.values()) or (
            front is not None and front.sealed and front.end <= kept
        ):
            self._once("ring", state.id, RingTrim(state.id))

    def acknowledged(self, topic: Topic) -> None:
        """Trim a topic after an acknowledgement, if a whole ledger is no longer needed."""
        front = topic.state.ledgers.front
        if front is None or not front.sealed or self._is_held(topic, front.end):
            return
        compaction = topic.state.compaction
        if (compaction is None or compaction.view is None) and self._broker.compactions.threshold(topic):
            return  # until its first view everything is kept
        event = trim_event(self._broker, topic)
        now, inherited = (
            self._broker.engine.log_clock.now_ns(),
            self._broker.machine.state.inherited(topic.state),
        )
        if topic.state.trimmable(now, event.retention_bytes, event.retention_ns, inherited):
            self._once("trim", topic.state.id, event)

    def _is_held(self, topic: Topic, end: int) -> bool:
        """Return whether a subscription needs an entry below `end`.

        The subscription that did last is checked first. So an acknowledgement costs the same however many
        subscriptions stand still.
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
        """Forget a topic that was deleted."""
        self._holding.pop(topic, None)
        self._last_values.gone(topic)

    def show_all(self, state: str) -> None:
        """Publish the state of every topic with entries to processes that read the files."""
        for topic in self._broker.topics.values():
            if topic.visible > topic.first:
                self._broker.show(topic, state)

    async def _show_all(self) -> None:
        """Publish all topics after a start, some at a time; until then earlier tables hold."""
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
        for topic in list(self._broker.topics.values()):
            if topic.state.compaction is not None:  # the last owner has left it, or the last process
                self._broker.compactions.look_at(topic)
        while True:
            await self._broker.clock.sleep(self._broker.options.housekeeping_s)
            await self.turn()

    async def turn(self) -> None:
        """Look once at all topics, ages, counters and members."""
        with self._continuing("producers' names"):
            self._names_due = self._is_time_for_names()
        for count, topic in enumerate(list(self._broker.topics.values()), 1):
            with self._continuing(topic.name):
                await self._look_at(topic)
            if count % TOPICS_A_TURN == 0:
                await asyncio.sleep(0)
        if self._names_due:
            for topic in list(self._broker.exchanges.values()):
                with self._continuing(topic.name):
                    self._forget_producers(topic)
        with self._continuing("ages"):
            self._ageing.tick()
        with self._continuing("counters"):
            self._broker.rates.tick()
        with self._continuing("stages and sinks"):
            for event in self._old() if self._broker.membership.leads else ():
                self._submit(event)
        with self._continuing("the membership"):
            self._broker.membership.tend()

    @contextlib.contextmanager
    def _continuing(self, what: str) -> Iterator[None]:
        """Continue after an error in one step: the next turn tries it again."""
        try:
            yield
        except HoldfastError:
            pass  # a reset came between, a topic was deleted, or the broker stops
        except Exception as error:  # for instance a disk that fails
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"housekeeping of {what} failed; it tries again", "exception": error}
            )

    async def _look_at(self, topic: Topic) -> None:
        if self._broker.membership.owns(topic):
            await self._age(topic)
        self._ageing.look_at_readers(topic)
        if topic.state.id in self._broker.unshown:  # files of this member
            self._broker.show(topic)

    async def _age(self, topic: Topic) -> None:
        """Submit what is due by age for a topic that this member owns."""
        state, policies = topic.state, limits(self._broker, topic)
        front, info = state.ledgers.front, state.ledgers.last
        now_ns = self._broker.log_time_now()  # once: in a turn of many topics it costs
        if info is not None and not info.sealed and (now_ns - info.opened_time) / 1e9 >= policies.roll_age_s:
            self._once("roll", state.id, LedgerRoll(state.id, info.id))
        if policies.ttl_s and front is not None and now_ns - front.opened_time >= age_ns(policies.ttl_s):
            for subscription in list(state.subscriptions.values()):
                if topic.backlog(subscription):
                    await self._broker.expire(topic, subscription, policies.ttl_s)
        await self._broker.limiting.check(topic, now_ns)
        self._ageing.look_at(topic, now_ns)
        self._broker.compactions.look_at(topic)
        if self._names_due:
            self._forget_producers(topic)
        self._thin(topic)
        self.acknowledged(topic)

    def _is_time_for_names(self) -> bool:
        """Return whether names of producers are due: they are many, and age slowly."""
        now_ns = self._broker.clock.monotonic_ns()
        if now_ns < self._names_at_ns:
            return False
        self._names_at_ns = now_ns + int(self._broker.decided.deduplication_age_s * 1e9) // NAMES_LOOKS
        return True

    def _forget_producers(self, topic: Topic) -> None:
        """Expire names of producers of a topic that were not used for long.

        Names of local ingest stay: they end with their segment.
        """
        id, oldest = topic.state.id, self._unused_since(self._broker.decided.deduplication_age_s)  # noqa: A001
        attached = {each.name for each in topic.state.producers.values()}
        for name, _, time in self._broker.machine.log.sequence_times(id):
            if time < oldest and name not in attached and not name.startswith(INGEST):
                self._once("forget", id, DeduplicationExpire(id, oldest))
                break

    def _unused_since(self, age_s: float) -> int:
        """Return the log time such that anything last used before it is too old.

        An outage does not count: producers and sinks could not use anything meanwhile.
        """
        spared_ns = self._outage_ns if self._broker.clock.monotonic_ns() < self._grace_ends_ns else 0
        return self._broker.engine.log_clock.now_ns() - int(age_s * 1e9) - spared_ns

    def _old(self) -> Iterable[Event]:
        """Yield events that drop abandoned stages, and sinks without a recent commit."""
        state, options = self._broker.machine.state, self._broker.decided
        oldest = self._unused_since(options.stage_age_s)
        for stage in list(state.stages.values()):
            if stage.time < oldest:
                yield StageDrop(stage.id, older_than=oldest)
        oldest = self._unused_since(options.sink_age_s)
        if any(sink.time < oldest for sink in state.sinks.last.values()):
            yield SinkForget(oldest)

    def _once(self, what: str, topic: int, event: Event) -> None:
        """Submit an event for an own topic, unless one of its kind is under way.

        Growth is noticed many times before the first event is applied, and by every member.
        """
        known = self._broker.topics.get(topic)
        if (what, topic) in self._under_way or known is None or not self._broker.membership.owns(known):
            return
        self._under_way.add((what, topic))
        self._submit(event, (what, topic))

    def _submit(self, event: Event, key: tuple[str, int] | None = None) -> None:
        def done(future: asyncio.Future[Any]) -> None:
            if key is not None:
                self._under_way.discard(key)
            if not future.cancelled():
                future.exception()  # a condition no longer holds, or the broker has stopped

        try:
            self._broker.engine.submit(event).add_done_callback(done)
        except HoldfastError:
            if key is not None:
                self._under_way.discard(key)
