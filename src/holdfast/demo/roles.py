"""The processes of the rig: `python -m holdfast.demo.roles ROLE JSON`. Any of them may be killed at any time.

A sensor pushes frames into its loop. Its numbers continue where the life before stopped. An analyser makes a
reading of each frame that it gets. It is a new producer in every life, numbered from 0. Messages that were
not confirmed when it died are stored once or not at all. A gateway keeps its name over its lives. The broker
tells its last number, the gateway continues behind it, and deduplication drops repeated messages.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.demo.frames import SAMPLES, FrameRecord, number_of, read_frames
from holdfast.demo.records import Record
from holdfast.demo.settings import DASHBOARD, TOPIC
from holdfast.demo.stage import Leaving
from holdfast.errors import Closed, Empty, NotFound, Timeout
from holdfast.pipeline.numbered import encode_json

if TYPE_CHECKING:
    from holdfast import Producer

TURN_S = 0.01
POP_S = 0.05
PATIENCE_S = 60.0
"""The broker may be away so long."""


T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """The arguments of a process."""

    role: str
    name: str
    """Of the producer, or of the consumer."""
    url: str
    data: str
    records: str
    rate: float
    seed: int
    parent: int
    loop: str = ""
    """Of a sensor and of its analyser: the sensor's name."""

    def command(self) -> list[str]:
        return [sys.executable, "-m", "holdfast.demo.roles", json.dumps(asdict(self))]


def measurement(job: Job, number: int, chance: random.Random) -> tuple[bytes, str]:
    """A reading, and its key: a slow wave with noise."""
    key = job.name.partition(".")[0]
    value = wave(number) + chance.gauss(0, 0.3)
    return encode_json(job.name, number, key, value=round(value, 3)), key


def wave(number: int) -> float:
    return 20 + 5 * math.sin(number / 500)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def due(began: float, rate: float, sent: int) -> int:
    """How many messages there are to send now."""
    return max(0, int((time.monotonic() - began) * rate) - sent)


def sensor(job: Job, leaving: Leaving) -> None:
    """Acquires frames into buffers of its loop, and offers its level as a service."""
    import numpy as np

    from holdfast import Loop
    from holdfast.demo.levels import LevelMeter, Sensor

    directory, chance = Path(job.records), np.random.default_rng(job.seed)
    number = first = max(read_frames(directory, job.loop, "acquired"), default=-1) + 1
    acquired, displaced = (FrameRecord(directory, job.loop, what) for what in ("acquired", "displaced"))
    with (
        Loop.open(job.loop) as loop,
        loop.producer() as producer,
        Sensor.offer(job.loop, application=job.loop) as skeleton,
    ):
        began, meter = time.monotonic(), LevelMeter(skeleton)
        while not leaving:
            for _ in range(due(began, job.rate, number - first)):
                frame: Any = producer.loan()
                frame[0] = (number, wave(number) + chance.normal(0, 0.3, SAMPLES))
                acquired.add(number)
                pushed = producer.push(frame)
                if pushed.displaced is not None:
                    with pushed.displaced as gone:
                        displaced.add(number_of(gone))
                number += 1
            meter.tell(wave(number))
            time.sleep(TURN_S)


def analyser(job: Job, leaving: Leaving) -> None:
    """Takes the frames of a sensor, and publishes a reading of each through shared memory."""
    from holdfast import Loop, Producer

    record, analysed = (
        Record(Path(job.records), job.name),
        FrameRecord(Path(job.records), job.loop, "analysed"),
    )
    waiting: deque[tuple[int, int]] = deque()
    number = 0

    def note(producer: Producer) -> None:
        confirmed, last = producer.confirmed, -1
        while waiting and waiting[0][0] <= confirmed:
            last = waiting.popleft()[1]
        if last >= 0:
            record.confirmed(last)

    with (
        patiently(lambda: Producer(TOPIC, data=job.data, timeout=1.0), leaving) as producer,
        Loop.open(job.loop) as loop,
        loop.consumer() as consumer,
    ):
        while True:
            try:
                item = consumer.pop(timeout=0 if leaving else POP_S)
            except (Empty, Timeout):
                note(producer)
                if leaving:
                    break
                continue
            with item:
                frame, value = number_of(item), float(item.array[0]["samples"].mean())
            data = encode_json(job.name, number, job.loop, value=round(value, 3))
            waiting.append((put_patiently(producer, data, job.loop), number))
            analysed.add(frame)
            number += 1
            note(producer)
        with contextlib.suppress(Timeout):
            producer.flush(timeout=PATIENCE_S)
        note(producer)


def put_patiently(producer: Producer, data: bytes, key: str) -> int:
    """Publish a reading. While the broker is away, the queue may be full."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return producer.put(data, key=key, event_time_ms=now_ms(), timeout=1.0)
        except Timeout:
            if time.monotonic() > until:
                raise


def gateway(job: Job, leaving: Leaving) -> None:
    """Publishes with the official Pulsar client."""
    import pulsar

    chance, record = random.Random(job.seed), Record(Path(job.records), job.name)
    client = pulsar_client(job)

    def opened() -> Any:
        return client.create_producer(
            TOPIC,
            producer_name=job.name,
            send_timeout_millis=0,  # for ever: a restarted broker gets it again
            block_if_queue_full=True,
            batching_enabled=True,
        )

    producer = patiently(opened, leaving, pulsar.PulsarException)
    number = producer.last_sequence_id() + 1
    began, first = time.monotonic(), number

    def sent(result: Any, _: Any, at: int) -> None:
        if result == pulsar.Result.Ok:
            record.confirmed(at)

    while not leaving:
        for _ in range(due(began, job.rate, number - first)):
            data, key = measurement(job, number, chance)
            producer.send_async(
                data,
                lambda result, message_id, at=number: sent(result, message_id, at),
                partition_key=key,
                sequence_id=number,
                event_timestamp=now_ms(),
            )
            number += 1
        time.sleep(TURN_S)
    producer.flush()
    client.close()


def consumer(job: Job, leaving: Leaving) -> None:
    """Takes messages from the shared subscription, and acknowledges them."""
    import pulsar

    client = pulsar_client(job)

    def opened() -> Any:
        return client.subscribe(TOPIC, DASHBOARD, pulsar.ConsumerType.Shared, consumer_name=job.name)

    receiver = patiently(opened, leaving, pulsar.PulsarException)
    while not leaving:
        try:
            message = receiver.receive(timeout_millis=200)
            receiver.acknowledge(message)
        except pulsar.PulsarException:  # nothing came, or the connection broke
            continue
    client.close()


def pulsar_client(job: Job) -> Any:
    import pulsar

    quiet = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    return pulsar.Client(job.url, operation_timeout_seconds=5, logger=quiet)


def patiently(make: Callable[[], T], leaving: Leaving, *errors: type[Exception]) -> T:
    """Try until it works: the broker may just be dead."""
    until = time.monotonic() + PATIENCE_S
    away: tuple[type[Exception], ...] = (NotFound, Closed, Timeout, *errors)
    while True:
        try:
            return make()
        except away:
            if leaving:
                raise SystemExit(0) from None
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def main() -> None:
    job = Job(**json.loads(sys.argv[1]))
    leaving = Leaving(job.parent)
    roles = {"sensor": sensor, "analyser": analyser, "gateway": gateway, "consumer": consumer}
    roles[job.role](job, leaving)


if __name__ == "__main__":
    main()
