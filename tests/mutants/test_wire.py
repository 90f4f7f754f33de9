"""The tests of the server can fail: each of these mistakes, put into it, is noticed by the test beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.server import wire_raw
from tests.kit.server.wire_raw import Raw
from tests.kit.server.wire_server import MUTANTS
from tests.kit.server.wire_world import ServerProcess
from tests.pulsar import test_flow as flow
from tests.pulsar import test_raw as frames
from tests.pulsar import test_watch as watch
from tests.unit.server import test_wire_cursor as cursor

NOTICED: dict[str, Callable[..., None]] = {
    "seek leaves the consumers": cursor.test_the_order_of_a_seek,
    "answers overtake": cursor.test_who_subscribes_during_a_seek_is_answered_first,
    "a rewind takes the permits": cursor.test_a_consumer_with_permits_left_is_rewound,
    "a reset leaves the client's queue": cursor.test_a_reset_of_others_closes_the_consumer,
    "a slow client is sent more": flow.test_a_client_that_does_not_read,
    "a slow client is read": flow.test_a_client_that_does_not_read_its_answers,
    "a slow disk is given more": flow.test_a_disk_that_stands_still,
    "everybody lives": frames.test_a_dead_holder_gives_way,
    "a reader's place is forgotten": cursor.test_a_reader_that_has_sought_by_time_finds_its_place,
    "the end is not told": cursor.test_the_end_of_a_topic,
    "nobody is pinged": frames.test_keep_alive,
    "a watch hears only of what comes": watch.test_topics_that_come_and_go,
    "a watch is told nothing more": watch.test_many_come_at_once,
    "all that is watched stays": watch.test_watches_of_one_pattern_are_one,
}

HASTY = {"handshake_s": 0.4, "keep_alive_s": 0.4, "liveness_s": 0.3}
MORE: dict[str, Any] = {"count": 64, "size": 1 << 20}


def test_every_mutant_has_its_test() -> None:
    assert set(NOTICED) == set(MUTANTS)


@pytest.mark.parametrize("mutant", NOTICED)
def test_it_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    test = NOTICED[mutant]
    wanted = test.__code__.co_varnames[: test.__code__.co_argcount]
    process = ServerProcess(server=HASTY if "hasty" in wanted else {})
    monkeypatch.setattr(wire_raw, "PATIENCE_S", 1.0)
    for module in (cursor, watch):
        monkeypatch.setattr(module, "server", lambda: process)
    try:
        process.admin.break_it(mutant)
        with Raw(process.url) as raw:
            given = {
                "raw": raw,
                "url": process.url,
                "topic": "t",
                "hasty": process,
                "process": process,
                **MORE,
            }
            with pytest.raises((AssertionError, TimeoutError, EOFError, ConnectionError)):
                test(**{name: given[name] for name in wanted})
    finally:
        process.end()
