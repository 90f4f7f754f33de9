"""Limits of producers, consumers and watched topic lists per connection: exactly the setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BadConfiguration
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server import ServerOptions, settings
from holdfast.server.auth.access import Access, server_options
from tests.kit.server.wire_programs import refused, until
from tests.kit.server.wire_raw import Raw, Type, full
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar, shared

MOST = 3
NAMES = ("producers_per_connection", "consumers_per_connection", "watchers_per_connection")


@pytest.fixture
def process() -> ServerProcess:
    return shared(server=dict.fromkeys(NAMES, MOST))


def asked(kind: int, number: int) -> dict[str, Any]:
    """The arguments of a request of this kind."""
    if kind == Type.PRODUCER:
        return {"topic": full("t"), "producer_id": number}
    if kind == Type.SUBSCRIBE:
        return {"topic": full("t"), "consumer_id": number, "subscription": f"s{number}", "subType": 0}
    return {"namespace": "public/default", "topics_pattern": "public/default/x", "watcher_id": number}


KINDS = [
    (Type.PRODUCER, Type.PRODUCER_SUCCESS, Type.CLOSE_PRODUCER, "producer_id"),
    (Type.SUBSCRIBE, Type.SUCCESS, Type.CLOSE_CONSUMER, "consumer_id"),
    (Type.WATCH_TOPIC_LIST, Type.WATCH_TOPIC_LIST_SUCCESS, Type.WATCH_TOPIC_LIST_CLOSE, "watcher_id"),
]


@pytest.mark.parametrize(("kind", "success", "close", "name"), KINDS)
def test_so_many_and_no_more(process: ServerProcess, kind: int, success: int, close: int, name: str) -> None:
    with Raw(process.url) as raw, Raw(process.url) as other:
        for number in range(MOST):
            raw.ask(kind, success, **asked(kind, number))
        error = raw.ask(kind, Type.ERROR, **asked(kind, MOST))
        assert error.error == pb.NotAllowedError
        assert "limits." in error.message
        assert "allows; " in error.message
        other.ask(kind, success, **asked(kind, MOST + 1))  # another connection has its own
        raw.ask(close, **{name: 0})
        raw.ask(kind, success, **asked(kind, MOST))


@pytest.mark.parametrize("kind", [Type.PRODUCER, Type.SUBSCRIBE, Type.WATCH_TOPIC_LIST])
def test_those_on_their_way_count_too(process: ServerProcess, kind: int) -> None:
    """All at once: as many as there may be are answered, the others refused."""
    with Raw(process.url) as raw:
        for number in range(3 * MOST):
            raw.tell(kind, request_id=number, **asked(kind, number))
        heard = [raw.hear()[0] for _ in range(3 * MOST)]
        assert heard.count(Type.ERROR) == 2 * MOST


@program
def too_many(client: Any, topic: str) -> None:
    """The official client is told at once, and what it has goes on."""
    producers = [client.create_producer(topic) for _ in range(MOST)]
    refused(pulsar.NotAllowedError, lambda: client.create_producer(topic))
    consumer = client.subscribe(topic, "s")
    readers = [client.create_reader(topic, pulsar.MessageId.earliest) for _ in range(MOST - 1)]
    refused(pulsar.NotAllowedError, lambda: client.subscribe(topic, "another"))
    producers[0].send(b"x")
    assert consumer.receive(20_000).data() == b"x"
    readers[0].close()
    client.subscribe(topic, "another").close()


def test_the_official_client(process: ServerProcess) -> None:
    client().run(job_of(too_many, process))
    until(lambda: process.admin.connections() == 0)


@pytest.mark.parametrize("key", NAMES)
def test_the_settings(key: str, tmp_path: Path) -> None:
    """As everywhere: a flag over a variable over the file."""
    file = tmp_path / "holdfast.toml"
    file.write_text(f"[limits]\n{key} = 7\n")
    variable = {f"HOLDFAST_LIMITS_{key.upper()}": "8"}
    flag = ("--set", f"limits.{key}", "9")
    for loaded, wanted in (
        (settings.load(), getattr(ServerOptions(), key)),
        (settings.load(file), 7),
        (settings.load(file, variable), 8),
        (settings.load(file, variable, [flag]), 9),
    ):
        assert getattr(server_options(loaded.config, Access(loaded.config)), key) == wanted
    file.write_text(f"[limits]\n\n{key} = 0\n")
    with pytest.raises(
        BadConfiguration, match=rf"holdfast.toml:3: limits\.{key}: .* is too small; use at least 1"
    ):
        settings.load(file)
