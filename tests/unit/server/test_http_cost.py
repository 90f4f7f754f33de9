"""Bound the cost of HTTP clients for others (I91).

A page is made once for all, a slow body delays no other request, and answers leave as they are read."""

from __future__ import annotations

import asyncio
import gc
import weakref
from unittest import mock

import pytest

from holdfast.ledger.acks import AckState
from holdfast.server.http import positions
from holdfast.server.http.routing import PIECE_BYTES, Call
from holdfast.server.steps import Steps
from tests.kit.server import http_cost_checks as checks


def test_open_bodies_take_nobodys_place() -> None:
    checks.open_bodies_take_nobodys_place()


def test_health_has_a_place_in_any_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.health_has_a_place_in_any_crowd(monkeypatch)


def test_a_body_has_its_time(caplog: pytest.LogCaptureFixture) -> None:
    checks.a_body_has_its_time(caplog)


def test_bodies_count_for_what_is_held() -> None:
    checks.bodies_count_for_what_is_held()


def test_scrapes_at_the_same_time_share_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.scrapes_at_the_same_time_share_a_page(monkeypatch)


def test_slow_scrapers_keep_two_pages_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.slow_scrapers_keep_two_pages_in_memory(monkeypatch)


def test_making_a_page_lets_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.making_a_page_lets_others_work(monkeypatch)


@pytest.mark.parametrize("path", ["namespaces/public/default/topics", "persistent/public/default"])
def test_large_answers_leave_as_they_are_read(path: str) -> None:
    checks.large_answers_leave_as_they_are_read(path)


def test_who_goes_in_the_middle_of_an_answer_is_no_mistake(caplog: pytest.LogCaptureFixture) -> None:
    checks.who_goes_in_the_middle_of_an_answer_is_no_mistake(caplog)


def test_answers_that_are_too_much_for_all_are_refused() -> None:
    checks.answers_that_are_too_much_for_all_are_refused()


def test_a_client_that_reads_its_answer_byte_by_byte_is_closed() -> None:
    checks.a_client_that_reads_its_answer_byte_by_byte_is_closed()


def test_refusals_of_http_are_logged_with_their_reason_and_throttled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    checks.refusals_of_http_are_logged_with_their_reason_and_throttled(caplog)


def test_others_have_a_turn_between_the_pieces_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast client never makes the server wait: 15 MB took 88 ms at once."""

    class Taken:
        """A response whose client reads faster than the server writes."""

        def __init__(self, headers: object) -> None:
            self.content_length = 0

        async def prepare(self, request: object) -> None: ...

        async def write(self, piece: object) -> None: ...

        async def write_eof(self) -> None: ...

    async def work() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        await Call.send(mock.Mock(), [memoryview(bytes(40 * PIECE_BYTES))], 40 * PIECE_BYTES, {})
        counting.cancel()
        return turns

    monkeypatch.setattr("aiohttp.web.StreamResponse", Taken)
    assert asyncio.run(work()) >= 40


def test_a_look_at_a_crowd_takes_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.a_look_at_a_crowd_takes_small_steps(monkeypatch)


def test_a_topic_may_be_deleted_while_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """internalStats answered 412 with words of the core: `topic 5 is not known to the log`."""
    checks.a_topic_may_be_deleted_while_it_is_shown(monkeypatch)


def test_steps_do_not_keep_loops_alive() -> None:
    """Each loop with a long answer stayed in memory: its line referred to it."""
    loops = list[weakref.ref[asyncio.AbstractEventLoop]]()

    async def answer() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await asyncio.gather(*(Steps().pause() for _ in range(3)))

    for _ in range(3):
        asyncio.run(answer())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


def test_acknowledgements_may_come_while_ranges_are_counted() -> None:
    """All ranges go in the first pause; the count raised when it missed one."""
    acks, end = AckState(), 40 * positions.SPAN
    acks.ack_ranges([(number, number + 1) for number in range(1, end, 5000)], end)

    async def work() -> tuple[int, int]:
        before = await positions.count_ranges(acks, Steps())
        counting = asyncio.ensure_future(positions.count_ranges(acks, steps := Steps()))
        while not steps.pauses:
            await asyncio.sleep(0)
        acks.ack_cumulative(end, end)
        return before, await counting

    before, meanwhile = asyncio.run(work())
    assert before == len(range(1, end, 5000))
    assert 0 < meanwhile < before
