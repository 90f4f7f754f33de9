"""Broken brokers, each a function that breaks the real one: tests must notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast._core import Batch, TopicMessage
from holdfast.broker import key_shared
from holdfast.broker.api.consumer import Receiver
from holdfast.broker.api.producer import Producer
from holdfast.broker.broker import Broker
from holdfast.broker.dispatch import keys
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.keys import Keys
from holdfast.broker.dispatch.read_loops import Reading
from holdfast.broker.dispatch.redelivery import Redelivery
from holdfast.broker.dispatch.reset import Resetting
from holdfast.broker.dispatch.revision import Revision, RevisionController
from holdfast.broker.dispatch.schedule import AT_ONCE, Scheduling
from holdfast.broker.engine import Engine
from holdfast.broker.events import Ack, Context, Event, Reset, TopicCreate, ViewChange
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.machine import Applied
from holdfast.broker.state import BrokerState, TopicState
from holdfast.broker.topic import Topic
from holdfast.group import Position
from holdfast.ledger.acks import AckState

Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTANTS[break_it.__name__] = break_it
    return break_it


def done(result: Any = None) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


# -- acknowledgements, resets, permits ----------------------------------------------------------------


@mutant
def reset_keeps_the_acked_holes(patch: Patch) -> None:
    def reset(self: AckState, to: int) -> None:
        self.acked_to = to
        self._holes.remove_range(0, to)
        self._bits.clear()
        self._partial.clear()
        self.advance(to)

    patch.setattr(AckState, "reset", reset)


@mutant
def permits_never_decremented(patch: Patch) -> None:
    deliver = Dispatcher._deliver

    def generous(self: Dispatcher, consumer: Any, batch: Batch) -> None:
        self._table.flow(consumer.id, batch.permits)
        deliver(self, consumer, batch)

    patch.setattr(Dispatcher, "_deliver", generous)


@mutant
def seek_reports_success_and_does_nothing(patch: Patch) -> None:
    async def seek(self: Receiver, to: object, timeout: float | None = None) -> None:
        pass

    patch.setattr(Receiver, "seek", seek)


@mutant
def cumulative_treated_as_individual(patch: Patch) -> None:
    def one(
        self: Acking,
        ordinal: int,
        reset_number: int,
        receipt: bool,
        index: int = -1,
        size: int = 1,
        **_: bool,
    ) -> object:
        if index < 0:
            return self.ranges([(ordinal, ordinal + 1)], reset_number, receipt)
        return self.all_but([(ordinal, ((1 << size) - 1) & ~(1 << index))], reset_number, receipt)

    patch.setattr(Acking, "cumulative", one)


def recount(batch: Batch, count: Callable[[int], int]) -> Batch:
    """Return the batch with other redelivery counts."""
    first = batch.entries.first_ordinal
    places: dict[int, int] = {}
    counts: dict[int, int] = {}
    whole: dict[int, bool] = {}
    for message in batch:
        at = message.ordinal - first
        places[at] = places.get(at, 0) | 1 << max(0, message.batch_index)
        counts[at] = count(message.redelivery_count)
        whole[at] = message.batch_index < 0
    left = [None if whole[at] else places[at] for at in places]
    return Batch(batch.entries, [*places], [*counts.values()], batch.reset_number, left, batch.topic)


def with_counts(patch: Patch, count: Callable[[int], int]) -> None:
    deliver = Dispatcher._deliver
    patch.setattr(
        Dispatcher,
        "_deliver",
        lambda self, consumer, batch: deliver(self, consumer, recount(batch, count)),
    )


@mutant
def redelivery_count_stuck(patch: Patch) -> None:
    with_counts(patch, lambda count: 0)


@mutant
def redelivery_count_stuck_at_one(patch: Patch) -> None:
    with_counts(patch, lambda count: min(count, 1))


@mutant
def acks_ignored(patch: Patch) -> None:
    def deaf(self: Acking, messages: Sequence[TopicMessage], receipt: bool) -> object:
        return done() if receipt else None

    patch.setattr(Acking, "messages", deaf)


@mutant
def a_reset_is_undone_by_a_later_mark_delete(patch: Patch) -> None:
    """An acknowledgement from before a reset counts as a current one."""
    cumulative = Acking.cumulative

    def late(
        self: Acking,
        ordinal: int,
        reset_number: int,
        receipt: bool,
        index: int = -1,
        size: int = 1,
        exact: bool = False,
    ) -> object:
        if reset_number == self._revision.reset_number:
            return cumulative(self, ordinal, reset_number, receipt, index, size, exact)
        turn = self._collect()
        turn.cumulative = max(turn.cumulative, ordinal + 1)
        turn.high = max(turn.high, ordinal + 1)
        self._table.release(0, ordinal + 1)
        return self._answer(turn, receipt, 0)

    patch.setattr(Acking, "cumulative", late)


@mutant
def an_id_is_shown_before_it_is_durable(patch: Patch) -> None:
    """Everything counts as durable as soon as it is applied."""
    track = Engine._track

    def hasty(self: Engine, pos: Position, applied: Applied, *rest: Any) -> None:
        self._durable_d = max(self._durable_d, applied.last_d)
        track(self, pos, applied, *rest)

    patch.setattr(Engine, "_track", hasty)


# -- more of durability -------------------------------------------------------------------------------


@mutant
def messages_are_visible_before_they_are_durable(patch: Patch) -> None:
    track = Engine._track

    def eager(self: Engine, pos: Position, applied: Applied, *rest: Any) -> None:
        track(self, pos, applied, *rest)
        for tail in applied.tails:
            assert isinstance(self._observer, Broker)
            if tail.topic in self._observer.topics:
                self._observer.topics[tail.topic].grow(tail.end)

    patch.setattr(Engine, "_track", eager)


def answered_at_once(patch: Patch, kind: type[Event], answer: Callable[[Engine, Any], Any]) -> None:
    submit = Engine.submit

    def hasty(self: Engine, event: Event) -> asyncio.Future[Any]:
        future = submit(self, event)
        return done(answer(self, event)) if isinstance(event, kind) else future

    patch.setattr(Engine, "submit", hasty)


@mutant
def an_ack_is_receipted_before_it_is_durable(patch: Patch) -> None:
    answered_at_once(patch, Ack, lambda engine, event: None)


def forgotten_by_recovery(patch: Patch, kind: type[Event]) -> None:
    apply = kind.apply

    def forgetful(self: Event, state: BrokerState, context: Context) -> Any:
        if context.member is None and isinstance(state, BrokerState):  # the frame is from the journal
            state.touch()
            return None
        return apply(self, state, context)

    patch.setattr(kind, "apply", forgetful)


@mutant
def recovery_forgets_acks(patch: Patch) -> None:
    forgotten_by_recovery(patch, Ack)


@mutant
def recovery_forgets_resets(patch: Patch) -> None:
    forgotten_by_recovery(patch, Reset)


@mutant
def a_snapshot_forgets_individual_acks(patch: Patch) -> None:
    pack = AckState.pack
    patch.setattr(AckState, "pack", lambda self: (pack(self)[0], b"", pack(self)[2]))


@mutant
def a_snapshot_forgets_batch_index_acks(patch: Patch) -> None:
    pack = AckState.pack
    patch.setattr(AckState, "pack", lambda self: (pack(self)[0], pack(self)[1], []))


@mutant
def an_unclean_restart_goes_on_in_the_open_ledger(patch: Patch) -> None:
    apply = ViewChange.apply
    patch.setattr(
        ViewChange, "apply", lambda self, state, context: apply(replace(self, unclean=False), state, context)
    )


@mutant
def trim_forgets_a_subscription(patch: Patch) -> None:
    patch.setattr(TopicState, "acked_to", property(lambda self: self.ledgers.end))


# -- more of cursors and dispatch ---------------------------------------------------------------------


@mutant
def part_of_a_batch_acknowledges_all_of_it(patch: Patch) -> None:
    patch.setattr(
        Acking, "_leave_open", lambda self, turn, ordinal, _: self._take(turn, [(ordinal, ordinal + 1)])
    )


@mutant
def skip_stops_one_short(patch: Patch) -> None:
    after = AckState.after_unacked
    patch.setattr(AckState, "after_unacked", lambda self, count, end: after(self, count - 1, end))


@mutant
def deduplication_forgotten(patch: Patch) -> None:
    apply = TopicCreate.apply

    def plain(self: TopicCreate, state: BrokerState, context: Context) -> Any:
        created = apply(self, state, context)
        state.log.set_topic(created.topic, deduplicate=False)
        return created

    patch.setattr(TopicCreate, "apply", plain)


@mutant
def a_negative_ack_acknowledges(patch: Patch) -> None:
    def nack(self: Dispatcher, consumer: int, ordinals: Sequence[int], delay_s: float | None = None) -> None:
        for ordinal in ordinals:
            self._table.release(ordinal, ordinal + 1)

    patch.setattr(Dispatcher, "nack", nack)


@mutant
def a_negative_ack_comes_at_once(patch: Patch) -> None:
    nack = Dispatcher.nack
    patch.setattr(
        Dispatcher, "nack", lambda self, consumer, ordinals, delay_s=None: nack(self, consumer, ordinals, 0.0)
    )


@mutant
def the_ack_timeout_forgotten(patch: Patch) -> None:
    patch.setattr(Redelivery, "watch", lambda self, consumer: None)


@mutant
def nobody_wakes_the_dispatcher(patch: Patch) -> None:
    def grow(self: Topic, visible: int) -> None:
        self.visible = max(self.visible, visible)

    patch.setattr(Topic, "grow", grow)


@mutant
def the_standby_is_not_told(patch: Patch) -> None:
    choose = Dispatcher._choose_active

    def silent(self: Dispatcher, before: int, joined: Any) -> None:
        if joined is not None:
            choose(self, before, joined)

    patch.setattr(Dispatcher, "_choose_active", silent)


@mutant
def a_reset_leaves_the_inbox(patch: Patch) -> None:
    patch.setattr(Dispatcher, "_clear_all", lambda self: None)


@mutant
def a_reset_leaves_the_read_position(patch: Patch) -> None:
    put = Resetting._put_at

    def put_at(self: Resetting, target: int) -> None:
        before = self._reading.position
        put(self, target)
        self._reading.position = max(before, target)

    patch.setattr(Resetting, "_put_at", put_at)


@mutant
def a_time_is_found_one_late(patch: Patch) -> None:
    find = Topic.ordinal_at

    async def late(self: Topic, time_ns: int) -> int:
        return min(await find(self, time_ns) + 1, self.visible)

    patch.setattr(Topic, "ordinal_at", late)


@mutant
def the_backlog_counts_individual_acks(patch: Patch) -> None:
    patch.setattr(Topic, "backlog", lambda self, of: max(0, self.visible - of.acks.acked_to))


@mutant
def reads_of_an_older_revision_are_used(patch: Patch) -> None:
    """Three rules guard this: revision, abandoned reads, resets that are not stable. All are broken."""

    def is_outdated(self: RevisionController, revision: Revision) -> bool:
        return False

    patch.setattr(RevisionController, "is_outdated", is_outdated)
    patch.setattr(Reading, "leave_behind", lambda self: None)
    patch.setattr(Reading, "_is_moving", lambda self: False)


@mutant
def reset_known_in_memory_alone(patch: Patch) -> None:
    """A restart forgets which messages were received before the reset."""
    apply = Reset.apply

    def forgetful(self: Reset, state: BrokerState, context: Context) -> object:
        outcome = apply(self, state, context)
        subscription = state.require_subscription(self.subscription)
        subscription.target = subscription.reach = 0
        return outcome

    patch.setattr(Reset, "apply", forgetful)


# -- keys, delivery times ------------------------------------------------------------------------------


@mutant
def key_shared_ignores_keys(patch: Patch) -> None:
    def begin(self: Keys, keys: KeyShared, ahead_max: int) -> None:
        self._table.single = False

    patch.setattr(Keys, "begin", begin)


@mutant
def a_join_lets_a_key_go_to_two_consumers(patch: Patch) -> None:
    """A key moves before its earlier messages are acknowledged."""

    def begin(self: Keys, keys: KeyShared, ahead_max: int) -> None:
        self._table.set_keyed(True)
        self._table.set_ahead_max(ahead_max)

    patch.setattr(Keys, "begin", begin)


@mutant
def sticky_consumers_get_other_hashes(patch: Patch) -> None:
    split = key_shared.split
    anew = [KeyShared()]
    patch.setattr(keys, "split", lambda seats: split([(name, *anew) for name, _ in seats]))


@mutant
def the_ordering_key_is_lost(patch: Patch) -> None:
    send = Producer.send

    async def lost(self: Producer, data: bytes, *, ordering_key: bytes | None = None, **more: Any) -> Any:
        return await send(self, data, **more)

    patch.setattr(Producer, "send", lost)


@mutant
def a_delayed_message_comes_early(patch: Patch) -> None:
    patch.setattr(Scheduling, "now_ms", AT_ONCE)


@mutant
def a_delayed_message_never_comes_after_a_restart(patch: Patch) -> None:
    log_time_now = Broker.log_time_now

    def stopped(self: Broker) -> int:
        return log_time_now(self) if self.recovered.fresh else 0

    patch.setattr(Broker, "log_time_now", stopped)
