"""Malformed requests, and topics of other roles, get an error of the right kind."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.flight as flight
import pytest

from holdfast import Broker
from holdfast.columns import files as column_files
from holdfast.columns.remote import RemotePlace, RemoteTopic
from holdfast.columns.tickets import AMONG_MAX, BODY_BYTES_MAX, Opened
from holdfast.errors import Denied, HoldfastError, Misuse, NotFound, Outdated, Unsupported
from holdfast.server.flight import service
from holdfast.server.flight.link import Setup, Told
from tests.kit.slices import seeds

COUNT = 40
MINE = ["persistent://public/default/open-news", "persistent://public/default/open-partition-0"]
THEIRS = [
    "persistent://public/default/orders",
    "persistent://public/other/open-news",
    "persistent://other/default/open-news",
    "persistent://public/default/open",
]
NOWHERE = ["persistent://public/default/none", "persistent://public/none/none", "persistent://none/none/none"]
GRANT = "it needs a grant of consume on this topic (authorization.grants)"
ACTIONS = ("plan", "time", "weights", "chunks", "rows")


class Rules:
    """Replaces the server: every caller may read the topics in MINE."""

    def ask(self, header: str | None, topics: list[str]) -> Told:
        return Told(1, "guest", [each in MINE for each in topics])


@pytest.fixture(scope="module")
def reads(shared_path: Path) -> service.Reads:
    path = shared_path / "data"
    with Broker.open(str(path), roll_entries=9, retention_s=-1) as broker:
        for name in MINE + THEIRS:
            tenant, namespace = name.removeprefix("persistent://").split("/")[:2]
            if tenant not in broker.admin.tenants():
                broker.admin.create_tenant(tenant)
            if f"{tenant}/{namespace}" not in broker.admin.namespaces(tenant):
                broker.admin.create_namespace(f"{tenant}/{namespace}")
            with broker.producer(name) as producer:
                producer.send_many([b"%d" % i for i in range(COUNT)], key="k")
        broker.admin.compact(MINE[1], wait=True)
    setup = Setup(str(path), "127.0.0.1", None, None, "", "", "", 4, 60.0, 2 << 30, "info", "text")
    made: Any = Rules()
    return service.Reads(path, made, service.Service(setup, made).places)


def ask(reads: service.Reads, action: str, body: bytes) -> Any:
    """As Flight does. Raises HoldfastError, and nothing else."""
    if action != "rows":
        return reads.act(None, flight.Action(action, body))
    _, rows = reads.rows(None, body)
    return sum(batch.num_rows for batch, _ in rows)


def request(action: str, topic: str, **change: Any) -> bytes:
    more: dict[str, dict[str, Any]] = {
        "plan": {},
        "time": {"time_ms": 0},
        "weights": {"start": 0, "stop": COUNT},
        "chunks": {"start": 0, "stop": COUNT},
        "rows": {"start": 0, "stop": COUNT, "columns": ["value"]},
    }
    return json.dumps({"topic": topic, **more[action], **change}).encode()


@pytest.mark.parametrize("action", ACTIONS)
def test_topics_of_others_are_as_if_they_were_not_there(reads: service.Reads, action: str) -> None:
    """I161: no action reveals topics of other roles, or their incarnations."""
    for name in MINE:
        ask(reads, action, request(action, name))
    told = set()
    for name in THEIRS + NOWHERE:
        for incarnation in ("", "00" * 16, "zz"):
            with pytest.raises(HoldfastError) as refused:
                ask(reads, action, request(action, name, incarnation=incarnation))
            told.add((type(refused.value).__name__, str(refused.value).replace(name, "it")))
    assert told == {("Denied", f"the role 'guest' may not consume from it: {GRANT}")}


def topics(reads: service.Reads, *among: str) -> list[str]:
    found: list[str] = ask(reads, "topics", json.dumps({"among": among}).encode())
    return found


def test_lists_have_ones_own_topics(reads: service.Reads) -> None:
    """I161."""
    for body in (b"", b"{}"):
        assert ask(reads, "topics", body) == sorted(MINE)
    for among in ([MINE[0]], [*THEIRS, *NOWHERE, MINE[0]], ["open-news", "none"], [MINE[0]] * 3):
        assert topics(reads, *among) == [MINE[0]]
    assert topics(reads, *MINE) == sorted(MINE)
    assert topics(reads, *THEIRS, *NOWHERE) == []


class Heard(Rules):
    """The same, and what was asked; one role reads the whole namespace."""

    def __init__(self) -> None:
        self.questions: list[list[str]] = []

    def ask(self, header: str | None, topics: list[str]) -> Told:
        self.questions.append(topics)
        return Told(1, "guest", [each.startswith("persistent://public/default/open") for each in topics])


def test_who_looks_for_a_topic_asks_for_that_alone(
    reads: service.Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request names few topics of thousands. The server gets the same questions whether
    another role's topic exists or not."""
    heard = Heard()
    monkeypatch.setattr(reads, "_link", heard)
    open_, partition = f"{MINE[0].removesuffix('-news')}", MINE[1]

    def questions(*among: str) -> list[list[str]]:
        heard.questions.clear()
        topics(reads, *among)
        return [each for each in heard.questions if each]

    assert questions(MINE[0]) == [[MINE[0]]]
    assert questions(open_) == [[open_], [partition]], "its partitions are meant, too"
    assert topics(reads, open_) == [open_, partition]
    there, nowhere = THEIRS[0], NOWHERE[0]
    assert (questions(there), questions(nowhere)) == ([[there]], [[nowhere]])
    assert len(questions()[0]) == len(MINE + THEIRS), "all are asked for where all are looked for"


def test_many_topics_that_are_looked_for(reads: service.Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question names at most `AMONG_MAX` topics; a client with more sends several."""
    heard = Heard()
    monkeypatch.setattr(reads, "_link", heard)
    many = [f"persistent://public/default/none-{number}" for number in range(AMONG_MAX)]
    assert topics(reads, *many) == []
    assert max(map(len, heard.questions)) == service.NAMES_AN_ASK
    with pytest.raises(Misuse, match="request is malformed"):
        topics(reads, *many, MINE[0])
    place: Any = object.__new__(RemotePlace)
    place.call = lambda action, body, kind: ask(reads, action, msgspec.json.encode(body))
    assert place.topics([*many, *MINE, MINE[0]]) == sorted(MINE)


VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        "",
        "x",
        "x" * 5000,
        "\0",
        "\ud800",
        "../../x",
        [],
        {},
        [[]],
        [None],
        ["value"] * 40,
    ),
    *(0, 1, -1, COUNT, COUNT + 1, 1 << 31, 1 << 53, (1 << 62) - 1, 1 << 62, 1 << 64, -(1 << 64), 1e300, 0.5),
    *(
        ["value", "position", "corrupt"],
        ["key"],
        "a2V5",
        ["a2V5"],
        [""],
        ["!"],
        [["", 0, 0]],
        [["a2V5", 1, 9]],
    ),
]
FIELDS = (
    *("topic", "incarnation", "time_ms", "start", "stop", "skip", "columns", "keys", "permissive", "whole"),
    *("publish_min_us", "publish_max_us", "before", "among", "more", "view"),
)


@pytest.mark.parametrize("seed", seeds("flight requests", test=8))
def test_requests_with_anything_in_them(reads: service.Reads, seed: int) -> None:
    """I163: a request is refused with a documented error, or answered within the topic's range."""
    choose = random.Random(seed)
    for _ in range(400):
        action = choose.choice((*ACTIONS, "topics", "nonsense"))
        body = request(action, choose.choice(MINE)) if action in ACTIONS else b"{}"
        asked = json.loads(body)
        for _ in range(choose.randrange(3)):
            asked[choose.choice(FIELDS)] = choose.choice(VALUES)
        body = json.dumps(asked).encode()
        for _ in range(choose.choice((0, 0, 0, 1, 5))):  # and broken on the way
            at = choose.randrange(len(body))
            body = choose.choice((body[:at], body[:at] + choose.randbytes(3) + body[at + 1 :], body * 2))
            body = body or b"x"
        try:
            answer = ask(reads, action, body)
        except (Misuse, NotFound, Denied, Unsupported, Outdated):
            continue
        assert action != "nonsense"
        if action == "rows":
            assert answer <= COUNT


def test_requests_that_are_too_large(reads: service.Reads) -> None:
    for action in (*ACTIONS, "topics"):
        for body in (b" " * (BODY_BYTES_MAX + 1), b"[" * 100_000, b'{"topic":' * 10_000, bytes(1000)):
            with pytest.raises(HoldfastError, match=r"request (has|is malformed)"):
                ask(reads, action, body)


def test_a_question_for_a_whole_topic_is_answered_in_part(
    reads: service.Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I163: one call has a time limit; the client calls again for the rest."""
    whole = ask(reads, "chunks", request("chunks", MINE[0], stop=COUNT + 7))
    assert (whole.open, whole.to) == ([], COUNT + 7)
    monkeypatch.setattr(service, "SCAN_S", 0.0)
    monkeypatch.setattr(column_files, "RUN_ENTRIES", 9)
    assert ask(reads, "chunks", request("chunks", MINE[0])).to == 9

    class Here:
        """Instead of a connection."""

        url, asked = "here", 0

        def call(self, action: str, body: msgspec.Struct, kind: Any) -> Any:
            self.asked += 1
            return ask(reads, action, msgspec.json.encode(body))

    place: Any = Here()
    assert RemoteTopic(place, MINE[0], b"").open_chunks(0, COUNT, []) == []
    assert place.asked == 5, "of nine entries each"
    monkeypatch.setitem(reads.actions, "chunks", lambda *_: Opened([], 0))
    with pytest.raises(HoldfastError, match="makes no progress"):
        RemoteTopic(place, MINE[0], b"").open_chunks(0, COUNT, [])
