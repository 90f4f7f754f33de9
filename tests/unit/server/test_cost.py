"""Bound the cost of a client for others (I89, I91).

Requests take turns, answers that cannot be written are not computed, and memory per client is limited."""

from __future__ import annotations

import pytest

from tests.kit.server import cost_checks as checks


def test_no_answers_are_computed_for_a_client_that_does_not_read() -> None:
    checks.no_answers_are_computed_for_a_client_that_does_not_read()


def test_requests_of_one_connection_let_those_of_others_pass() -> None:
    checks.requests_of_one_connection_let_those_of_others_pass()


def test_large_requests_begin_one_per_turn() -> None:
    checks.large_requests_begin_one_per_turn()


def test_requests_that_wait_count_for_what_is_held() -> None:
    checks.requests_that_wait_count_for_what_is_held()


def test_the_program_is_left_out_of_garbage_collections() -> None:
    checks.the_program_is_left_out_of_garbage_collections()


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_a_list_that_is_asked_for_again_costs_no_look_at_the_topics(mode: int) -> None:
    checks.a_list_that_is_asked_for_again_costs_no_look_at_the_topics(mode)


@pytest.mark.parametrize("patterned", [False, True])
def test_a_list_follows_what_is_created_and_deleted(patterned: bool) -> None:
    checks.a_list_follows_what_is_created_and_deleted(patterned)


def test_a_list_follows_non_persistent_topics() -> None:
    checks.a_list_follows_non_persistent_topics()


def test_the_stats_of_each_consumer_look_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.the_stats_of_each_consumer_look_at_one(monkeypatch)


@pytest.mark.parametrize("durable", [False, True])
def test_consumers_that_leave_together_cost_each_the_same(durable: bool) -> None:
    checks.consumers_that_leave_together_cost_each_the_same(durable)


def test_key_shared_consumers_that_leave_together_cost_each_the_same() -> None:
    checks.consumers_that_leave_together_cost_each_the_same(durable=True, sub_type=3)


def test_patterns_are_compiled_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.patterns_are_compiled_beside_the_loop(monkeypatch)


def test_one_client_is_closed_at_a_time_for_memory() -> None:
    checks.one_client_is_closed_at_a_time_for_memory()


def test_watched_lists_count_for_what_is_held() -> None:
    checks.watched_lists_count_for_what_is_held()


def test_a_pattern_is_small_or_refused() -> None:
    checks.a_pattern_is_small_or_refused()


def test_who_watches_the_same_is_told_the_same() -> None:
    checks.who_watches_the_same_is_told_the_same()


def test_a_reader_that_is_refused_leaves_nothing() -> None:
    checks.a_reader_that_is_refused_leaves_nothing()


def test_a_closed_connection_holds_no_half_frame() -> None:
    checks.a_closed_connection_holds_no_half_frame()


def test_half_frames_have_a_limit_for_all_connections(caplog: pytest.LogCaptureFixture) -> None:
    checks.half_frames_have_a_limit_for_all_connections(caplog)


def test_the_broker_of_a_lost_member_is_collected() -> None:
    checks.the_broker_of_a_lost_member_is_collected()


def test_a_client_that_keeps_pace_is_not_the_oldest() -> None:
    checks.a_client_that_keeps_pace_is_not_the_oldest()


def test_a_byte_now_and_then_does_not_keep_a_frame_open() -> None:
    checks.a_byte_now_and_then_does_not_keep_a_frame_open()


def test_a_slow_client_that_keeps_pace_is_not_closed() -> None:
    checks.a_slow_client_that_keeps_pace_is_not_closed()


@pytest.mark.parametrize("durable", [False, True])
def test_a_reader_that_does_not_read_costs_its_buffer_and_one_read(durable: bool) -> None:
    checks.a_reader_that_does_not_read_costs_its_buffer_and_one_read(durable)


def test_a_client_that_reads_a_byte_now_and_then_is_closed() -> None:
    checks.a_client_that_reads_a_byte_now_and_then_is_closed()


def test_refusals_are_logged_with_their_reason_and_throttled(caplog: pytest.LogCaptureFixture) -> None:
    checks.refusals_are_logged_with_their_reason_and_throttled(caplog)


def test_a_client_cannot_have_the_memory_of_all_by_its_sessions() -> None:
    checks.a_client_cannot_have_the_memory_of_all_by_its_sessions()
