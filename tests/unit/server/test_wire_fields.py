"""Nothing differs in silence: every field is listed, every refusal is logged.

Frame by frame, with a server in this process, for its log.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server import pulsar
from holdfast.server.logs import Refusals
from holdfast.server.pulsar import fields
from holdfast.server.pulsar.requests import REQUESTS
from tests.kit.server import refusal_checks as checks
from tests.kit.server.http_world import HttpWorld
from tests.kit.server.wire_raw import Raw, Type, full


@pytest.fixture(scope="module")
def world() -> Iterator[HttpWorld]:
    with HttpWorld(wire=True) as found:
        yield found


@pytest.fixture
def raw(world: HttpWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Raw]:
    monkeypatch.setattr(Refusals, "PER_S", 1e9)  # many tests, one server
    assert world.wire is not None
    with closing(Raw(f"pulsar://127.0.0.1:{world.wire.port}")) as found:
        yield found


# -- the table -----------------------------------------------------------------------------------------

EXTENSIONS = "Stage Sink Progress Http"
"""Commands of holdfast's own client."""


def test_every_field_is_in_the_table_once() -> None:
    for name, words in fields.HONOURED.items():
        known = {field.name for field in getattr(pb, name).DESCRIPTOR.fields}
        lists = [words.split(), [f for of, f in fields.IGNORED if of == name]]
        lists.append([field for of, field in fields.REFUSED if of == name])
        listed = [each for some in lists for each in some]
        assert sorted(listed) == sorted(known), name
    assert all(of in fields.HONOURED for of, _ in (*fields.IGNORED, *fields.REFUSED))


def test_every_command_of_clients_is_in_the_table() -> None:
    known = pb.BaseCommand.DESCRIPTOR.fields_by_name
    served = {message.name for each in REQUESTS.values() if (message := known[each.name].message_type)}
    assert served <= fields.HONOURED.keys()


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", checks.REFUSALS, ids=lambda case: case.__name__)
def test_a_refusal_has_words_and_a_line(
    raw: Raw, caplog: pytest.LogCaptureFixture, case: Callable[[Raw], str]
) -> None:
    """I292: the client gets the reason, and the log keeps it."""
    checks.has_words_and_a_line(raw, caplog, case)


def test_clients_defaults_are_not_refused(raw: Raw) -> None:
    """The official clients send these fields with these values."""
    raw.produce("defaults", encrypted=False, txn_enabled=False)
    raw.subscribe(
        "defaults",
        read_compacted=False,
        replicate_subscription_state=False,
        priority_level=0,
        consumer_epoch=0,
        start_message_rollback_duration_sec=0,
        force_topic_creation=True,
    )


def test_a_compacted_read_of_a_topic_that_is_not_compacted(raw: Raw) -> None:
    """All messages come, as from Pulsar before the first compaction: tables of clients read so."""
    raw.publish("table", 3)
    raw.subscribe("table", read_compacted=True, durable=False)
    raw.flow(10)
    assert len(raw.messages(3)) == 3


def test_ignored_fields_do_no_harm(raw: Raw) -> None:
    raw.produce("ignored", encrypted=True, txn_enabled=True)
    answer = raw.ask(
        Type.LOOKUP,
        Type.LOOKUP_RESPONSE,
        topic=full("ignored"),
        original_auth_data="x",
        original_auth_method="y",
        properties=[{"key": "a", "value": "b"}],
    )
    assert answer.response == pb.CommandLookupTopicResponse.Connect


def test_a_field_that_is_not_known_is_logged_once(
    raw: Raw, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fields, "_told", set())
    caplog.set_level(logging.WARNING, "holdfast.wire")
    for number in (1, 2):
        command = pb.CommandLookupTopic(topic=full("x"), request_id=number)
        body = command.SerializeToString() + bytes([0x98, 0x06, 0x01])  # field 99, a number
        lookup = pb.BaseCommand.DESCRIPTOR.fields_by_name["lookupTopic"].number
        inner = bytes([8, Type.LOOKUP, *_tag(lookup), len(body)]) + body
        raw.socket.sendall((len(inner) + 4).to_bytes(4, "big") + len(inner).to_bytes(4, "big") + inner)
        assert raw.expect(Type.LOOKUP_RESPONSE).request_id == number
    found = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert found == [{"command": "CommandLookupTopic", "field": 99}]


def _tag(number: int) -> bytes:
    tag = number << 3 | 2
    return bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])


@pytest.mark.parametrize(("kind", "words"), [(50, "transactions"), (62, "transactions"), (200, "type 200")])
def test_commands_that_are_not_known_are_named(
    raw: Raw, caplog: pytest.LogCaptureFixture, kind: int, words: str
) -> None:
    caplog.set_level(logging.INFO, "holdfast.wire")
    number = bytes([kind]) if kind < 128 else bytes([kind & 127 | 128, kind >> 7])
    inner = b"\x08" + number
    raw.socket.sendall((len(inner) + 4).to_bytes(4, "big") + len(inner).to_bytes(4, "big") + inner)
    error = raw.expect(Type.ERROR)
    assert words in error.message
    assert any(words in checks.line(record) for record in caplog.records)


def test_messages_that_are_refused_leave_the_lines_of_requests(
    raw: Raw, world: HttpWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that floods with bad acknowledgements hides no other refusal."""
    assert world.wire is not None
    monkeypatch.setattr(world.wire.refused_messages, "PER_S", 0.0, raising=False)
    monkeypatch.setattr(world.wire.refused_messages, "_left", 5.0)
    caplog.set_level(logging.INFO, "holdfast.wire")
    for _ in range(100):
        raw.tell(Type.ACK, consumer_id=77, ack_type=0, message_id=[{"ledgerId": 1, "entryId": 1}])
    checks.has_words_and_a_line(raw, caplog, checks.compacted_reads)
    lines = [checks.line(record) for record in caplog.records]
    assert 0 < sum("was closed; nothing was acknowledged" in each for each in lines) <= 5


def test_every_place_that_refuses_logs() -> None:
    """A function that encodes a refusal also logs it: new ones cannot forget it."""
    encoders = {"send_error", "error", "ack_response", "refuse"}
    found = 0
    for path in sorted(Path(pulsar.__file__).parent.glob("*.py")):
        if path.name == "commands.py":
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name != "shut":
                calls = {
                    node.func.attr
                    for node in ast.walk(function)
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                }
                if calls & encoders and not (calls & encoders == {"error"} and "send" not in calls):
                    found += 1
                    logs = {"say", "tell_refused", "_tell_refused"}
                    assert calls & logs, f"{path.name}: {function.name} refuses, and logs nothing"
    assert found >= 5
