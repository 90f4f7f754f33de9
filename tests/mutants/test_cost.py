"""Mutants of clients' costs: each restores an old fault, and a check notices."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.types import DispatchOptions
from holdfast.broker.dispatch.volatile import VolatileSubscriptions
from holdfast.broker.quota import Gauge, Quota
from holdfast.broker.topic import Topic
from holdfast.errors import Closed
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.budget import Budget
from holdfast.server.logs import Refusals
from holdfast.server.pace import Appetite, Pace
from holdfast.server.pulsar.connection import Connection
from holdfast.server.pulsar.delivery import WireConsumer
from holdfast.server.pulsar.listener import Server
from holdfast.server.pulsar.listing import Listings
from holdfast.server.pulsar.turns import Pending
from holdfast.server.pulsar.watching import Subject, Watching
from tests.kit.server import cost_checks as tests
from tests.kit.server import cost_commands_checks as singles
from tests.kit.server import quota_checks as quota
from tests.kit.server.cost_mutants import (
    Patch,
    a_list_each_time,
    answers_without_a_reader,
    any_pace_will_do,
    nobody_is_refused,
    refusals_are_silent,
    require_noticed,
    stats_of_all,
)

LOOKUP: dict[str, Any] = {"kind": pb.BaseCommand.LOOKUP, "fields": {"topic": "x" * (129 << 10)}}
PRODUCER: dict[str, Any] = {
    "kind": pb.BaseCommand.PRODUCER,
    "fields": {"topic": "t", "producer_id": 1, "metadata": [{"key": "", "value": ""}] * 1001},
}


def all_at_once(patch: Patch) -> None:
    """A connection starts all of its requests before another has its turn."""

    def add(self: Pending, request: Any, message: Any, size: int) -> None:
        self._waiting.append((request, message, size))
        self._large = None
        self.begin()

    patch.setattr(Pending, "add", add)


def bytes_do_not_count(patch: Patch) -> None:
    """As many large requests as small ones start in a turn."""
    patch.setattr("holdfast.server.pulsar.turns.LARGE_BYTES", 1 << 40)


def any_bytes_wait(patch: Patch) -> None:
    """As it was: a thousand requests may wait, of any size."""
    patch.setattr("holdfast.server.pulsar.turns.REQUESTS_BYTES", 1 << 40)


def any_number_of_acks(patch: Patch) -> None:
    """As it was: all ACKs that were read are carried out in one turn."""
    patch.setattr("holdfast.server.pulsar.connection.TURN_ITEMS", 1 << 40)


def one_slice_alone(patch: Patch) -> None:
    """Entries beyond the first slice are dropped."""
    real = WireConsumer._ack_slice

    def whole(self: WireConsumer, at: int, ranges: Any, parts: Any, *more: Any) -> Any:
        return real(self, at, ranges, parts, *more) if at == 0 else []

    patch.setattr(WireConsumer, "_ack_slice", whole)


def lists_of_old(patch: Patch) -> None:
    """A list that was encoded once is never renewed."""
    real = Listings.of
    patch.setattr(Listings, "of", functools.cache(real))


def readers_are_looked_for(patch: Patch) -> None:
    """A reader that leaves is searched among all readers."""

    def end(self: VolatileSubscriptions, topic: Any, dispatcher: Any) -> None:
        for id_, each in list(topic.dispatchers.items()):
            if each is dispatcher and id_ < 0:
                topic.forget(id_)
                dispatcher.close(Closed("its last consumer has left"))
        for name, each in list(topic.volatile.items()):
            if each is dispatcher:
                del topic.volatile[name]

    patch.setattr(VolatileSubscriptions, "_end", end)


def half_frames_stay(patch: Patch) -> None:
    """The frame of a closed connection waits for the garbage collector."""
    real = Connection._ended

    def ended(self: Connection) -> None:
        reader = self.reader
        real(self)
        self.reader = reader

    patch.setattr(Connection, "_ended", ended)


def nobody_counts(patch: Patch) -> None:
    patch.setattr(Budget, "hold", lambda self, holder, size, close=None: None)


def frames_are_all_one(patch: Patch) -> None:
    """A new frame is as old as the first of its connection."""
    real = Connection._note_frame
    patch.setattr(Connection, "_note_frame", lambda self, taken: real(self, False))


def pauses_count(patch: Patch) -> None:
    """Time in which a connection is not read counts against its client."""
    real = Pace.rest
    patch.setattr(Pace, "rest", lambda self, seconds: real(self, min(seconds, 0.0)))


def every_refusal_is_said(patch: Patch) -> None:
    real = Refusals.say

    def say(self: Refusals, text: str, why: object, **fields: Any) -> bool:
        self._left = 9.0
        return real(self, text, why, **fields)

    patch.setattr(Refusals, "say", say)


def no_quota(patch: Patch) -> None:
    patch.setattr(Quota, "_guard", lambda self, event: None)


def what_comes_does_not_count(patch: Patch) -> None:
    """Only existing objects are counted: many requests at once pass."""
    real = Gauge.take

    def take(self: Gauge, name: Any, size: int = 1) -> Any:
        self._coming = 0
        return real(self, name, size)

    patch.setattr(Gauge, "take", take)


def counted_when_nothing_comes(patch: Patch) -> None:
    """As it was: deletions are counted only when no request is under way."""

    def recount(self: Gauge) -> None:
        if not self._coming:
            self._there = self._count()

    patch.setattr(Gauge, "_recount", recount)


def judged_in_one_go(patch: Patch) -> None:
    """As it was: a commit's parts, and staged entries, are judged in one turn."""
    patch.setattr("holdfast.server.steps.STEP_ITEMS", 1 << 40)


def all_in_one_turn(patch: Patch) -> None:
    """Each task pauses for a turn of the loop, and all continue in the next."""
    patch.setattr("holdfast.server.steps.Line.wait", lambda self: asyncio.sleep(0))


def refused_readers_stay(patch: Patch) -> None:
    patch.setattr(VolatileSubscriptions, "release", lambda self, topic, dispatcher, keep_s=None: None)


def what_is_deleted_counts(patch: Patch) -> None:
    patch.setattr(Quota, "settled", lambda self, applied: None)


def masks_are_believed(patch: Patch) -> None:
    patch.setattr("holdfast.server.pulsar.delivery.MASK_BITS", 1 << 30)


def long_masks_are_dropped(patch: Patch) -> None:
    """As it was: those beyond the ones that are checked are confirmed, and forgotten."""
    real = WireConsumer._ack_part

    def ack_part(self: WireConsumer, *of: Any) -> Any:
        return None if self._checking >= 4 else real(self, *of)

    patch.setattr(WireConsumer, "_ack_part", ack_part)


def a_seek_believes_masks(patch: Patch) -> None:
    async def any_size(self: Topic, ordinal: int) -> int:
        return 1 << 24

    patch.setattr(Topic, "messages_at", any_size)


def any_number_of_parts(patch: Patch) -> None:
    patch.setattr(Dispatcher, "partial_batches", 0)


def large_reads(patch: Patch) -> None:
    """As it was: 4 MB are read for a client that reads nothing."""
    real = DispatchOptions.__init__

    def init(self: DispatchOptions, **options: Any) -> None:
        real(self, **{"read_bytes": 4 << 20, **options})

    patch.setattr(DispatchOptions, "__init__", init)


def lists_are_free(patch: Patch) -> None:
    patch.setattr(Watching, "_hold", lambda self, subject: None)


def changes_for_each(patch: Patch) -> None:
    """Each watch computes the changes by itself."""

    def since(self: Subject, before: frozenset[str]) -> tuple[list[str], list[str]]:
        return sorted(self.topics - before), sorted(before - self.topics)

    patch.setattr(Subject, "since", since)


def in_one_go(patch: Patch) -> None:
    """All ids of a command are handled at once."""

    def redeliver(self: WireConsumer, command: Any) -> None:
        self._redeliver(command.message_ids)

    patch.setattr(WireConsumer, "redeliver", redeliver)


def any_size(patch: Patch) -> None:
    patch.setattr("holdfast.server.pulsar.commands.COMMAND_BYTES_MAX", 1 << 40)


def any_program(patch: Patch) -> None:
    patch.setattr("holdfast.server.pulsar.patterns.PROGRAM_BYTES_MAX", 1 << 30)


def programs_do_not_count(patch: Patch) -> None:
    patch.setattr("holdfast.server.pulsar.patterns.TopicPattern.size_bytes", 0)


def any_number(patch: Patch) -> None:
    patch.setattr("holdfast.server.pulsar.commands.REPEATED_MAX", 1 << 40)


def asks_each_time(patch: Patch) -> None:
    """Each request for a held object makes the server ping the holder again."""
    real = Connection.lives

    async def lives(self: Connection) -> bool:
        if self._answers:
            self._ping(self.loop.time())
        return await real(self)

    patch.setattr(Connection, "lives", lives)


def the_last_is_forgotten(patch: Patch) -> None:
    patch.setattr(Server, "last_indexes", property(lambda self: {}, lambda self, value: None), raising=False)


def the_same_appetite(patch: Patch) -> None:
    patch.setattr(Appetite, "took", lambda self, seconds: None)


NOTICED: list[tuple[Callable[[Patch], None], Callable[..., None], dict[str, Any]]] = [
    (answers_without_a_reader, tests.no_answers_are_computed_for_a_client_that_does_not_read, {}),
    (all_at_once, tests.requests_of_one_connection_let_those_of_others_pass, {}),
    (bytes_do_not_count, tests.large_requests_begin_one_per_turn, {}),
    (any_bytes_wait, tests.requests_that_wait_count_for_what_is_held, {}),
    (nobody_counts, tests.requests_that_wait_count_for_what_is_held, {}),
    (a_list_each_time, tests.a_list_that_is_asked_for_again_costs_no_look_at_the_topics, {}),
    (lists_of_old, tests.a_list_follows_what_is_created_and_deleted, {"patterned": False}),
    (any_program, tests.a_pattern_is_small_or_refused, {}),
    (programs_do_not_count, tests.a_pattern_is_small_or_refused, {}),
    (stats_of_all, tests.the_stats_of_each_consumer_look_at_one, {}),
    (readers_are_looked_for, tests.consumers_that_leave_together_cost_each_the_same, {"durable": False}),
    (refused_readers_stay, tests.a_reader_that_is_refused_leaves_nothing, {}),
    (half_frames_stay, tests.a_closed_connection_holds_no_half_frame, {}),
    (frames_are_all_one, tests.a_client_that_keeps_pace_is_not_the_oldest, {}),
    (nobody_counts, tests.half_frames_have_a_limit_for_all_connections, {}),
    (nobody_is_refused, tests.a_client_cannot_have_the_memory_of_all_by_its_sessions, {}),
    (
        large_reads,
        tests.a_reader_that_does_not_read_costs_its_buffer_and_one_read,
        {"durable": False},
    ),
    (lists_are_free, tests.watched_lists_count_for_what_is_held, {}),
    (changes_for_each, tests.who_watches_the_same_is_told_the_same, {}),
    (any_pace_will_do, tests.a_byte_now_and_then_does_not_keep_a_frame_open, {}),
    (any_pace_will_do, tests.a_client_that_reads_a_byte_now_and_then_is_closed, {}),
    (pauses_count, tests.a_slow_client_that_keeps_pace_is_not_closed, {}),
    (every_refusal_is_said, tests.refusals_are_logged_with_their_reason_and_throttled, {}),
    (refusals_are_silent, tests.refusals_are_logged_with_their_reason_and_throttled, {}),
    (any_number_of_acks, singles.acknowledgements_are_taken_a_few_per_turn, {}),
    (one_slice_alone, singles.many_entries_are_acknowledged_in_slices, {}),
    (all_in_one_turn, singles.one_of_many_takes_a_step_in_a_turn, {}),
    (judged_in_one_go, singles.what_a_sink_sends_is_judged_in_small_steps, {}),
    (in_one_go, singles.many_ids_are_redelivered_in_slices, {}),
    (any_size, singles.a_command_that_is_too_large_costs_its_connection, LOOKUP),
    (any_number, singles.a_command_that_is_too_large_costs_its_connection, PRODUCER),
    (asks_each_time, singles.who_is_asked_for_a_sign_of_life_is_asked_once, {}),
    (the_last_is_forgotten, singles.the_last_message_is_read_once, {}),
    (the_same_appetite, singles.less_is_read_of_a_client_whose_commands_take_long, {}),
    *(
        (no_quota, quota.so_many_and_no_more, {"setting": setting, "make": make, "there": there})
        for setting, make, there in quota.COUNTS
    ),
    (no_quota, quota.properties_and_schemas_have_a_size, {}),
    (no_quota, quota.names_properties_and_schemas_have_a_limit_in_all, {}),
    (what_comes_does_not_count, quota.many_at_once_are_counted_exactly, {}),
    *(
        (what_comes_does_not_count, quota.many_at_once_are_counted_for_their_topic, {"setting": setting})
        for setting in ("subscriptions_per_topic", "schemas_per_topic")
    ),
    (counted_when_nothing_comes, quota.what_is_deleted_makes_room_on_a_busy_server, {}),
    (what_is_deleted_counts, quota.names_properties_and_schemas_have_a_limit_in_all, {}),
    (what_is_deleted_counts, quota.what_is_deleted_is_not_held, {}),
    (masks_are_believed, quota.a_false_mask_is_not_kept, {"size": 100}),
    (long_masks_are_dropped, quota.every_mask_of_a_confirmed_request_counts, {}),
    (a_seek_believes_masks, quota.a_seek_with_a_false_mask_keeps_nothing, {}),
    (any_number_of_parts, quota.so_many_batches_are_acknowledged_in_part, {}),
]


@pytest.mark.parametrize(("mutant", "test", "given"), NOTICED, ids=lambda each: getattr(each, "__name__", ""))
def test_it_is_noticed(
    mutant: Callable[[Patch], None],
    test: Callable[..., None],
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(tests.until, "__defaults__", (1.0,))
    monkeypatch.setattr("tests.kit.server.wire_raw.PATIENCE_S", 1.0)
    mutant(monkeypatch)
    require_noticed(test, given, monkeypatch, caplog)
