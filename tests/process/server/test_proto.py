"""Check the protocol's description: generated code fits its sources, and the official client agrees."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from holdfast import _core
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit import module_command
from tests.kit.ledger.entry_bytes import decode_frame, decode_publish
from tests.kit.server import pulsar_recorder
from tests.kit.server.generate_proto import FILES, SOURCE, generate
from tests.kit.server.pulsar_recorder import Recorder


def test_the_generated_code_is_that_of_its_sources(tmp_path: Path) -> None:
    assert [path.name for path in FILES] == ["common.proto", "extensions.proto", "pulsar.proto"]
    for made in generate(tmp_path):
        assert (tmp_path / made).read_bytes() == (SOURCE / made).read_bytes(), (
            f"{made} is old: run `python -m tests.kit.server.generate_proto`"
        )


def test_each_type_of_command_has_its_field_under_the_same_number() -> None:
    command = pb.BaseCommand.DESCRIPTOR
    types = {value.number for value in pb.BaseCommand.Type.DESCRIPTOR.values}
    assert types == {field.number for field in command.fields} - {1}
    for field in command.fields:
        assert field.number == 1 or field.message_type is not None


# -- what the official client sends -------------------------------------------------------------------


@dataclass(frozen=True)
class Sent:
    command: bytes
    entry: bytes


@pytest.fixture(scope="module")
def recorded() -> list[bytes]:
    """The bytes of each connection that the client's program has made."""
    recorder = Recorder()
    try:
        command = [*module_command(pulsar_recorder.__file__), recorder.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        recorder.close()
    return [bytes(stream) for stream in recorder.streams]


def frames(stream: bytes) -> Iterator[Sent]:
    at = 0
    while at < len(stream):
        total, size = struct.unpack_from(">II", stream, at)
        yield Sent(stream[at + 8 : at + 8 + size], stream[at + 8 + size : at + 4 + total])
        at += 4 + total


def unknown_fields(message: Message) -> list[str]:
    unknown = UnknownFieldSet(message)
    found = [f"{message.DESCRIPTOR.name}: {unknown[i].field_number}" for i in range(len(unknown))]
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                found += unknown_fields(each)
    return found


def metadata_of(entry: bytes) -> pb.MessageMetadata:
    magic, _, size = struct.unpack_from(">HII", entry)
    assert magic == 0x0E01
    return pb.MessageMetadata.FromString(entry[10 : 10 + size])


def test_the_client_sends_nothing_that_we_do_not_know(recorded: list[bytes]) -> None:
    types = set()
    for sent in (each for stream in recorded for each in frames(stream)):
        command = pb.BaseCommand.FromString(sent.command)
        assert command.IsInitialized()
        assert command.SerializeToString() == sent.command
        assert [field.number for field, _ in command.ListFields()] == [1, command.type]
        assert unknown_fields(command) == []
        types.add(command.type)
        if command.type == pb.BaseCommand.SEND:
            metadata = metadata_of(sent.entry)
            assert metadata.IsInitialized()
            assert unknown_fields(metadata) == []
        else:
            assert sent.entry == b""
    command_types = pb.BaseCommand
    assert types >= {
        command_types.CONNECT,
        command_types.PARTITIONED_METADATA,
        command_types.LOOKUP,
        command_types.PRODUCER,
        command_types.SEND,
        command_types.SUBSCRIBE,
        command_types.FLOW,
        command_types.ACK,
        command_types.REDELIVER_UNACKNOWLEDGED_MESSAGES,
        command_types.SEEK,
        command_types.UNSUBSCRIBE,
        command_types.GET_LAST_MESSAGE_ID,
        command_types.CLOSE_PRODUCER,
        command_types.CLOSE_CONSUMER,
    }


def test_the_client_says_what_it_was_told_to_say(recorded: list[bytes]) -> None:
    sent = [each for stream in recorded for each in frames(stream)]
    commands = [pb.BaseCommand.FromString(each.command) for each in sent]
    producers = [each.producer for each in commands if each.type == pb.BaseCommand.PRODUCER]
    assert (producers[0].topic, producers[0].producer_name) == (
        "persistent://public/default/recorded",
        "plain",
    )
    assert [(each.key, each.value) for each in producers[0].metadata] == [("of", "the producer")]
    subscribed = [each.subscribe for each in commands if each.type == pb.BaseCommand.SUBSCRIBE]
    assert subscribed[0].subType == pb.CommandSubscribe.Shared
    assert subscribed[0].initialPosition == pb.CommandSubscribe.Earliest
    assert [each.durable for each in subscribed] == [True, False, True]
    entries = [metadata_of(each.entry) for each in sent if each.entry]
    assert [(each.key, each.value) for each in entries[0].properties] == [("a", "b"), ("c", "")]
    assert (entries[0].partition_key, entries[0].event_time) == ("key", 1)
    assert (entries[1].ordering_key, entries[1].deliver_at_time) == (b"order", 1)
    assert (entries[2].compression, entries[2].num_messages_in_batch) == (pb.ZSTD, 7)
    assert [(each.chunk_id, each.num_chunks_from_msg) for each in entries[4:]] == [(0, 3), (1, 3), (2, 3)]


def test_the_core_reads_what_the_client_sends(recorded: list[bytes]) -> None:
    for stream in recorded:
        sent = list(frames(stream))
        commands = [pb.BaseCommand.FromString(each.command) for each in sent]
        reader, frame = _core.WireReader(), _core.Frame()
        for producer in {each.send.producer_id for each in commands if each.HasField("send")}:
            reader.set_producer(producer, 1, producer, 0, f"p{producer}")
        items = reader.feed(stream, frame)
        assert {item[0] for item in items} == {0, 1, 3, 4}
        assert (reader.pending, reader.stalled, reader.broken) == (0, False, False)

        _, events = decode_frame(frame.take(0))
        stored = [decode_publish(body) for _, _, body in events]
        assert [entry for each in stored for _, _, entry in each.entries] == [
            s.entry for s in sent if s.entry
        ]
        spans = [span for each in stored for _, span, _ in each.entries]
        # A batch has as many numbers as messages; the last chunk of three stands for all of them.
        assert spans == [1, 1, 7, 3, 0, 0, 1]
        others = [each.command for each, c in zip(sent, commands, strict=True) if c.type not in (6, 10, 11)]
        assert [item[2] for item in items if item[0] == 0] == others
        acks = [each.ack for each in commands if each.type == pb.BaseCommand.ACK]
        told = [item for item in items if item[0] == 3]
        for consumer in {each.consumer_id for each in acks}:
            mine = [each for each in acks if each.consumer_id == consumer]
            ids = [item[3] for item in told if item[1] == consumer]
            whole = [each for ack in mine for each in ack.message_id if not any(each.ack_set)]
            parts = [each for ack in mine for each in ack.message_id if any(each.ack_set)]
            ranges = [each for some in ids for each in some.ranges]
            assert [(5, number) for _, first, end in ranges for number in range(first, end)] == [
                (each.ledgerId, each.entryId) for each in whole
            ]
            assert [(part[1], part[3]) for some in ids for part in some.parts] == [
                (each.entryId, each.ack_set[0]) for each in parts
            ]
        assert {item[2] for item in told} == {0, 1}
