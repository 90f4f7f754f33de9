"""Clients of a server that is killed repeatedly (kit/server/kills.py), each in its own process.

A client works until SIGTERM, then finishes what is under way, and writes what it was promised to a JSON file.
The clients themselves are not killed, so they may keep it in memory until then.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from tests.kit.broker.judge import ID, content
from tests.kit.server.wire_raw import PATIENCE_S, Raw, Type, id_of

T = TypeVar("T")
QUIET_S = 4.0
"""A client that is to end, and has received nothing for this time, has everything."""
PAUSE_EVERY = 8
"""Messages between two pauses."""
PERMITS = 500
BATCH = 20


class Told:
    """Tells whether the client was told to end."""

    def __init__(self) -> None:
        self.end = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.end = True


def client_of(url: str) -> Any:
    import pulsar

    return pulsar.Client(
        url, operation_timeout_seconds=60, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )


def opened(make: Callable[[], T]) -> T:
    """Return the result of `make`; call it again if the server dies meanwhile."""
    import pulsar

    while True:
        try:
            return make()
        except pulsar.PulsarException as error:
            print(f"again: {error}", flush=True)
            time.sleep(0.1)


def produce(told: Told, url: str, topic: str, number: int, batched: bool, pause_s: float) -> dict[str, Any]:
    """Publish 1, 2, 3, …; return what was requested, and what was confirmed, with its id."""
    import pulsar

    client = client_of(url)
    producer = opened(
        lambda: client.create_producer(
            topic,
            producer_name=f"p{number}",
            send_timeout_millis=0,  # no limit: the client sends unanswered messages again
            max_pending_messages=300,
            block_if_queue_full=True,
            batching_enabled=batched,
            batching_max_publish_delay_ms=5,
            batching_max_messages=BATCH,
        )
    )
    confirmed: list[tuple[int, int, int, int]] = []
    failed: list[str] = []
    asked = 0

    def receipt(n: int, result: Any, at: Any) -> None:
        if result == pulsar.Result.Ok:
            confirmed.append((n, at.ledger_id(), at.entry_id(), at.batch_index()))
        else:
            failed.append(f"{n}: {result}")

    while not told.end:
        asked += 1
        producer.send_async(
            content(number, asked), lambda result, at, n=asked: receipt(n, result, at), sequence_id=asked
        )
        if asked % PAUSE_EVERY == 0:
            time.sleep(pause_s)
    producer.flush()
    until = time.monotonic() + PATIENCE_S
    while len(confirmed) + len(failed) < asked and time.monotonic() < until:
        time.sleep(0.01)
    client.close()
    return {"asked": asked, "confirmed": confirmed, "failed": failed}


def consume(told: Told, url: str, topic: str, subscription: str, shared: bool) -> dict[str, Any]:
    """Receive and acknowledge with the official client, which requests no receipts."""
    import pulsar

    client = client_of(url)
    consumer = opened(
        lambda: client.subscribe(
            topic,
            subscription,
            consumer_type=pulsar.ConsumerType.Shared if shared else pulsar.ConsumerType.Exclusive,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=PERMITS,
        )
    )
    got: list[tuple[int, int]] = []
    bad: list[str] = []
    last = time.monotonic()
    while not told.end or time.monotonic() - last < QUIET_S:
        try:
            message = consumer.receive(200)
        except pulsar.Timeout:
            if not consumer.is_connected():
                last = time.monotonic()  # it is not connected, and cannot receive
            continue
        last = time.monotonic()
        got.append(checked(message.data(), bad))
        # Not connected just now: the message will be redelivered.
        with contextlib.suppress(pulsar.AlreadyClosed, pulsar.NotConnected, pulsar.PulsarException):
            consumer.acknowledge(message)
    client.close()
    return {"got": got, "bad": bad}


def read(told: Told, url: str, topic: str) -> dict[str, Any]:
    """Read everything that the topic has."""
    import pulsar

    client = client_of(url)
    reader = opened(lambda: client.create_reader(topic, pulsar.MessageId.earliest))
    rows: list[tuple[int, int, int, int, int]] = []
    bad: list[str] = []
    while reader.has_message_available():
        message = reader.read_next(20_000)
        at = message.message_id()
        producer, number = checked(message.data(), bad)
        rows.append((at.ledger_id(), at.entry_id(), at.batch_index(), producer, number))
    client.close()
    return {"rows": rows, "bad": bad}


def checked(data: bytes, bad: list[str]) -> tuple[int, int]:
    """Return producer and number of a message; report other bytes than were sent in `bad`."""
    producer, number = ID.unpack_from(data)
    if data != content(producer, number):
        bad.append(f"message {number} of producer {producer} has other bytes: {data[:40]!r}")
    return producer, number


class Receipted:
    """A consumer that requests receipts, and reconnects whenever the server is gone.

    The official client for Python requests none.
    """

    def __init__(self, told: Told, url: str, topic: str, subscription: str) -> None:
        self.told, self.url, self.topic, self.subscription = told, url, topic, subscription
        self.receipted: set[tuple[int, int]] = set()
        """Ids whose acknowledgement was confirmed."""
        self.got: set[tuple[int, int]] = set()
        self.faults: list[str] = []
        self.heard = time.monotonic()

    def run(self) -> dict[str, Any]:
        while not self.done():
            try:
                with Raw(self.url) as raw:
                    self.serve(raw)
            except (OSError, EOFError, AssertionError):  # killed, or stopping, or not up yet
                time.sleep(0.05)
        return {
            "receipted": sorted(self.receipted),
            "got": sorted(self.got),
            "faults": self.faults[:20],
        }

    def done(self) -> bool:
        return self.told.end and time.monotonic() - self.heard > QUIET_S

    def serve(self, raw: Raw) -> None:
        raw.subscribe(self.topic, subscription=self.subscription, sub_type=0)
        raw.flow(PERMITS)
        self.heard = time.monotonic()  # from now on it can receive
        requests = iter(range(1_000_000, 1 << 40))
        asked: dict[int, list[tuple[int, int]]] = {}
        run: list[Any] = []
        while not self.done():
            # Not `hear` with a short timeout: it could leave half a frame behind.
            if not raw._buffer and not select.select([raw.socket], [], [], 0.002 if run else 0.2)[0]:
                if run:
                    self.acknowledge(raw, run, asked, next(requests))
                    run = []
                continue
            kind, message = raw.hear()
            if kind == Type.MESSAGE:
                self.take(message)
                run.append(message)
                if len(run) >= 20:
                    self.acknowledge(raw, run, asked, next(requests))
                    run = []
            elif kind == Type.ACK_RESPONSE:
                self.receipted.update(asked.pop(message.request_id))
            elif kind == Type.PING:
                raw.tell(Type.PONG)
            else:
                return  # the server stops: reconnect

    def take(self, message: Any) -> None:
        self.heard = time.monotonic()
        at = (message.message_id.ledgerId, message.message_id.entryId)
        if at in self.receipted:
            self.faults.append(f"{at} was acknowledged with a receipt, and was redelivered")
        self.got.add(at)

    def acknowledge(
        self, raw: Raw, run: list[Any], asked: dict[int, list[tuple[int, int]]], request: int
    ) -> None:
        asked[request] = [(each.message_id.ledgerId, each.message_id.entryId) for each in run]
        raw.ack(*(id_of(each) for each in run), request=request)
        raw.flow(len(run) * BATCH)  # permits count messages, and an entry may have this many
        raw.entries.clear()


def main() -> None:
    told = Told()
    work, answer, arguments = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    # A client that hangs must not wait without limit; its missing result is a finding.
    threading.Timer(arguments.pop("limit_s"), lambda: signal.raise_signal(signal.SIGKILL)).start()
    functions: dict[str, Any] = {
        "produce": produce,
        "consume": consume,
        "read": read,
        "receipted": lambda told, **given: Receipted(told, **given).run(),
    }
    try:
        found = functions[work](told, **arguments)
    except (HoldfastError, RuntimeError, OSError) as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    answer.with_suffix(".new").write_text(json.dumps(found))
    answer.with_suffix(".new").rename(answer)
    signal.raise_signal(signal.SIGKILL)  # do not wait for the threads of timer and client


if __name__ == "__main__":
    main()
