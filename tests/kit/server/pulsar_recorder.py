"""A stand-in for a broker that records every frame of a Pulsar client.

It knows one topic, keeps sent messages in a list and delivers them. It uses only the generated code, so that
it can judge the core's codec. A program with the official client is at the end.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from contextlib import suppress
from typing import Any

from holdfast.protocol import pulsar_pb2 as pb

LEDGER = 5
Command = pb.BaseCommand


def frame_of(command: pb.BaseCommand, entry: bytes = b"") -> bytes:
    body = command.SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(entry), len(body)) + body + entry


class Recorder:
    """Listens on loopback, with a thread per connection; `streams` has what each received."""

    def __init__(self) -> None:
        self.streams: list[bytearray] = []
        self.entries: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.streams.append(bytearray())
                served = threading.Thread(
                    target=self._serve, args=(connection, self.streams[-1]), daemon=True
                )
                self._threads.append(served)
                served.start()

    def _serve(self, connection: socket.socket, stream: bytearray) -> None:
        talk = Talk(self)
        at = 0
        with connection, suppress(ConnectionError):
            while data := connection.recv(1 << 16):
                stream += data
                while len(stream) - at >= 4 and len(stream) - at >= 4 + (
                    total := int.from_bytes(stream[at : at + 4], "big")
                ):
                    size = int.from_bytes(stream[at + 4 : at + 8], "big")
                    command = Command.FromString(bytes(stream[at + 8 : at + 8 + size]))
                    entry = bytes(stream[at + 8 + size : at + 4 + total])
                    at += 4 + total
                    for answer in talk.answers(command, entry):
                        connection.sendall(answer)


class Talk:
    """The answers to one connection."""

    def __init__(self, recorder: Recorder) -> None:
        self.entries = recorder.entries
        self.url = recorder.url
        self.sent: dict[int, int] = {}  # the next message of each consumer
        self.permits: dict[int, int] = {}

    def answers(self, command: pb.BaseCommand, entry: bytes) -> list[bytes]:
        name = next(field.name for field, _ in command.ListFields() if field.number == command.type)
        body = getattr(command, name)
        answer = getattr(self, f"on_{name}", None)
        if answer is not None:
            made: list[bytes] = answer(body, entry)
            return made
        if hasattr(body, "request_id") and name != "ack":
            return [self.command(Command.SUCCESS, success=pb.CommandSuccess(request_id=body.request_id))]
        return []

    @staticmethod
    def command(kind: Any, **body: Any) -> bytes:
        return frame_of(Command(type=kind, **body))

    def on_connect(self, body: pb.CommandConnect, _: bytes) -> list[bytes]:
        connected = pb.CommandConnected(
            server_version="recorder",
            protocol_version=body.protocol_version,
            max_message_size=20_000,
            feature_flags=pb.FeatureFlags(supports_auth_refresh=True),
        )
        return [self.command(Command.CONNECTED, connected=connected)]

    def on_partitionMetadata(self, body: pb.CommandPartitionedTopicMetadata, _: bytes) -> list[bytes]:  # noqa: N802
        found = pb.CommandPartitionedTopicMetadataResponse(
            partitions=0,
            request_id=body.request_id,
            response=pb.CommandPartitionedTopicMetadataResponse.Success,
        )
        return [self.command(Command.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=found)]

    def on_lookupTopic(self, body: pb.CommandLookupTopic, _: bytes) -> list[bytes]:  # noqa: N802
        found = pb.CommandLookupTopicResponse(
            brokerServiceUrl=self.url,
            request_id=body.request_id,
            response=pb.CommandLookupTopicResponse.Connect,
            authoritative=True,
        )
        return [self.command(Command.LOOKUP_RESPONSE, lookupTopicResponse=found)]

    def on_getTopicsOfNamespace(self, body: pb.CommandGetTopicsOfNamespace, _: bytes) -> list[bytes]:  # noqa: N802
        found = pb.CommandGetTopicsOfNamespaceResponse(
            request_id=body.request_id, topics=["persistent://public/default/recorded"]
        )
        return [self.command(Command.GET_TOPICS_OF_NAMESPACE_RESPONSE, getTopicsOfNamespaceResponse=found)]

    def on_producer(self, body: pb.CommandProducer, _: bytes) -> list[bytes]:
        made = pb.CommandProducerSuccess(
            request_id=body.request_id, producer_name=body.producer_name or "made", schema_version=b"\0" * 8
        )
        return [self.command(Command.PRODUCER_SUCCESS, producer_success=made)]

    def on_send(self, body: pb.CommandSend, entry: bytes) -> list[bytes]:
        self.entries.append(entry)
        receipt = pb.CommandSendReceipt(
            producer_id=body.producer_id,
            sequence_id=body.sequence_id,
            message_id=pb.MessageIdData(ledgerId=LEDGER, entryId=len(self.entries) - 1),
        )
        return [self.command(Command.SEND_RECEIPT, send_receipt=receipt), *self.deliver()]

    def on_subscribe(self, body: pb.CommandSubscribe, _: bytes) -> list[bytes]:
        self.sent[body.consumer_id] = 0
        self.permits[body.consumer_id] = 0
        return [self.command(Command.SUCCESS, success=pb.CommandSuccess(request_id=body.request_id))]

    def on_flow(self, body: pb.CommandFlow, _: bytes) -> list[bytes]:
        self.permits[body.consumer_id] += body.messagePermits
        return self.deliver()

    def on_ack(self, body: pb.CommandAck, _: bytes) -> list[bytes]:
        if not body.HasField("request_id"):
            return []
        done = pb.CommandAckResponse(consumer_id=body.consumer_id, request_id=body.request_id)
        return [self.command(Command.ACK_RESPONSE, ackResponse=done)]

    def on_redeliverUnacknowledgedMessages(  # noqa: N802
        self, body: pb.CommandRedeliverUnacknowledgedMessages, _: bytes
    ) -> list[bytes]:
        return [self.message(body.consumer_id, each.entryId, 1) for each in body.message_ids]

    def on_getLastMessageId(self, body: pb.CommandGetLastMessageId, _: bytes) -> list[bytes]:  # noqa: N802
        last = pb.CommandGetLastMessageIdResponse(
            last_message_id=pb.MessageIdData(ledgerId=LEDGER, entryId=len(self.entries) - 1),
            request_id=body.request_id,
        )
        return [self.command(Command.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=last)]

    def on_consumerStats(self, body: pb.CommandConsumerStats, _: bytes) -> list[bytes]:  # noqa: N802
        stats = pb.CommandConsumerStatsResponse(request_id=body.request_id, msgBacklog=3, type="Shared")
        return [self.command(Command.CONSUMER_STATS_RESPONSE, consumerStatsResponse=stats)]

    def on_ping(self, body: pb.CommandPing, _: bytes) -> list[bytes]:
        return [self.command(Command.PONG, pong=pb.CommandPong())]

    def message(self, consumer: int, number: int, redeliveries: int) -> bytes:
        message = pb.CommandMessage(
            consumer_id=consumer,
            message_id=pb.MessageIdData(ledgerId=LEDGER, entryId=number),
            redelivery_count=redeliveries,
        )
        return frame_of(Command(type=Command.MESSAGE, message=message), self.entries[number])

    def deliver(self) -> list[bytes]:
        out = []
        for consumer, at in self.sent.items():
            while at < len(self.entries) and self.permits[consumer] > 0:
                out.append(self.message(consumer, at, 0))
                at += 1
                self.permits[consumer] -= 1
            self.sent[consumer] = at
        return out


# -- the client's program -----------------------------------------------------------------------------


def program(url: str) -> None:
    """Use the parts of the official client that a server meets most."""
    import pulsar

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    plain = client.create_producer("recorded", producer_name="plain", properties={"of": "the producer"})
    plain.send(b"alone", partition_key="key", properties={"a": "b", "c": ""}, event_timestamp=1)
    plain.send(b"later", ordering_key="order", deliver_at=1)
    batched = client.create_producer(
        "recorded",
        batching_enabled=True,
        batching_max_publish_delay_ms=1000,
        compression_type=pulsar.CompressionType.ZSTD,
        initial_sequence_id=40,
    )
    for i in range(7):
        batched.send_async(b"in a batch %d" % i, None, properties={"i": str(i)}, partition_key=f"k{i}")
    batched.flush()
    open_batch = client.create_producer("recorded", batching_enabled=True, batching_max_publish_delay_ms=1000)
    for i in range(3):
        open_batch.send_async(b"open %d" % i, None)
    open_batch.flush()
    chunked = client.create_producer("recorded", chunking_enabled=True)
    chunked.send(bytes(range(256)) * 200)

    consumer = client.subscribe(
        "recorded",
        "sub",
        pulsar.ConsumerType.Shared,
        batch_index_ack_enabled=True,
        negative_ack_redelivery_delay_ms=100,
        initial_position=pulsar.InitialPosition.Earliest,
        properties={"of": "the consumer"},
    )
    received = [consumer.receive(10_000) for _ in range(2 + 7 + 3 + 1)]
    for message in received[1:6]:
        consumer.acknowledge(message)
    consumer.negative_acknowledge(received[0])
    assert consumer.receive(10_000).data() == b"alone"
    consumer.seek(pulsar.MessageId.earliest)
    consumer.unsubscribe()
    reader = client.create_reader("recorded", pulsar.MessageId.earliest)
    assert reader.read_next(10_000).data() == b"alone"
    reader.close()
    exclusive = client.subscribe(
        "recorded", "exclusive", schema=pulsar.schema.StringSchema(), start_message_id_inclusive=True
    )
    exclusive.acknowledge_cumulative(exclusive.receive(10_000))
    exclusive.get_last_message_id()
    exclusive.close()
    client.get_topic_partitions("recorded")
    client.close()


if __name__ == "__main__":
    program(sys.argv[1])
