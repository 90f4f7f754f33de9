"""Mutants of Flight's access rules: a judge notices each, and has no complaint without them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

from holdfast import Broker
from holdfast.columns import NEWEST
from holdfast.columns.files import FilePlace, FileTopic
from holdfast.errors import AuthenticationFailed
from holdfast.server.flight import service
from holdfast.server.flight.link import Setup, Told

OPEN, SECRET = "persistent://public/default/open", "persistent://public/default/secret"


class Rules:
    """A stand-in for a server: `guest` may read one topic."""

    def ask(self, header: str | None, topics: list[str]) -> Told:
        if header != "Bearer guest":
            raise AuthenticationFailed("unknown credentials")
        return Told(1, "guest", [each == OPEN for each in topics])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mutants") / "data"
    with Broker.open(str(path)) as broker:
        for name in (OPEN, SECRET):
            for key in "ab":  # view 1 stands for ten entries, view 2 for twenty
                with broker.producer(name) as producer:
                    producer.send_many([b"%d" % i for i in range(10)], key=key)
                broker.admin.compact(name, wait=True)
    return path


@contextlib.contextmanager
def serving(directory: Path) -> Iterator[str]:
    setup = Setup(str(directory), "127.0.0.1", 0, None, "", "", "", 4, 60.0, 2 << 30, "info", "text")
    made = service.Service(setup, Rules())  # type: ignore[arg-type]
    try:
        yield f"grpc://127.0.0.1:{made.port}"
    finally:
        for each in made._listeners:
            each.shutdown()


def complaints(directory: Path) -> set[str]:
    """Return the faults of Flight, in words."""
    found = set()
    incarnation = FilePlace(str(directory)).open(OPEN).incarnation.hex()

    def refused(kind: str, call: Any) -> bool:
        try:
            call()
        except flight.FlightError as error:
            return bool(json.loads(error.extra_info or "{}").get("kind") == kind)
        return False

    with serving(directory) as url, flight.FlightClient(url) as client:
        guest = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer guest")], timeout=20)
        nobody = flight.FlightCallOptions(timeout=20)

        def read(options: Any, topic: str, stop: int = 20, **more: Any) -> int:
            ticket = {"topic": topic, "start": 0, "stop": stop, "columns": ["value"]} | more
            rows: int = client.do_get(flight.Ticket(json.dumps(ticket).encode()), options).read_all().num_rows
            return rows

        def act(options: Any, action: str, **body: Any) -> Any:
            [answer] = client.do_action(flight.Action(action, json.dumps(body).encode()), options)
            return json.loads(answer.body.to_pybytes())

        if not refused("AuthenticationFailed", lambda: list(client.list_actions(nobody))):
            found.add("a stranger is told something")
        if act(guest, "topics") != [OPEN]:
            found.add("a topic is listed")
        if not refused("Denied", lambda: read(guest, SECRET)):
            found.add("a topic is read")
        if not refused("Denied", lambda: act(guest, "plan", topic=SECRET)):
            found.add("a topic is planned")
        if not refused("Misuse", lambda: read(guest, OPEN, 21)):
            found.add("something is read beyond visible")
        if not refused("NotFound", lambda: read(guest, OPEN, incarnation="00" * 16)):
            found.add("another topic is read under its name")
        if read(guest, OPEN, incarnation=incarnation) != 20:
            found.add("rows are missing")
        if (read(guest, OPEN, view=1), read(guest, OPEN, view=2)) != (11, 2):
            found.add("another view is read than the planned one")
        if not refused("Misuse", lambda: read(guest, OPEN, view=-1)):
            found.add("a view is read that was not planned")
        if act(guest, "plan", topic=OPEN, view=-1)["view"] != 2:
            found.add("an older view is planned")
        if not refused("Outdated", lambda: read(guest, OPEN, view=3)):
            found.add("a view is read that does not exist")
    return found


def newest_always(self: Any, header: Any, asked: Any, newest: bool = False) -> Any:
    """Opens the newest view, whichever is planned."""
    if asked.view:
        asked.view = NEWEST
    return OPENS(self, header, asked, newest=True)


OPENS = service.Reads._open


def opens_any(self: Any, header: Any, asked: Any, newest: bool = False) -> Any:
    """Opens what it is asked for."""
    topic = FileTopic(self._directory, asked.topic, self._incarnation)
    return topic.through(asked.view) if asked.view else topic


def test_the_judge_has_nothing_to_say(directory: Path) -> None:
    """I161, I162, I163."""
    assert complaints(directory) == set()


MUTANTS: dict[str, tuple[str, Any, set[str]]] = {
    "the gate does not authenticate": (
        "_Gate.start_call",
        lambda self, info, headers: service._Caller("Bearer guest"),
        {"a stranger is told something"},
    ),
    "opens what it may not": (
        "Reads._open",
        opens_any,
        {
            "a topic is read",
            "a topic is planned",
            "another topic is read under its name",
            "a view is read that was not planned",
        },
    ),
    "opens the newest view": (
        "Reads._open",
        newest_always,
        {
            "another view is read than the planned one",
            "a view is read that was not planned",
            "a view is read that does not exist",
        },
    ),
    "lists what it may not": (
        "Reads._topics",
        lambda self, header, body: self._place.topics(),
        {"a topic is listed"},
    ),
    "does not check positions": (
        "require_inside",
        lambda asked, first, visible: None,
        {"something is read beyond visible"},
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_holes_are_noticed(directory: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    where, hole, expected = MUTANTS[name]
    owner, _, member = f"holdfast.server.flight.service.{where}".rpartition(".")
    monkeypatch.setattr(f"{owner}.{member}", hole)
    assert complaints(directory) == expected
