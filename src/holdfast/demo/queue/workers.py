"""The producers and consumers of the demo, and the records of their work.

A producer writes a number down after its put returned; a consumer writes down what it got before it settles.
Each has its own file and uses nothing but `os.write`, so that a SIGKILL can only cut the file's end. So there
are puts that took effect and were never written down (unconfirmed), and never the other way round.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
import traceback
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from holdfast import Closed, Messages, Queue, Timeout
from holdfast.demo.records import open_record
from holdfast.demo.stage import Leaving

HEAD = struct.Struct("<IIQ")
"""In front of each payload: checksum of the rest, producer, number."""
PUT = struct.Struct("<Q")
"""In a producer's file: a number whose put returned."""
GOT = struct.Struct("<IIQ")
"""In a consumer's file: producer, redelivered, number. Producer 0 stands for a wrong checksum."""
BATCH = 32
"""Messages in one `put_many` or `get_many` at most; as many may be unconfirmed when a producer dies."""

PAUSE_S = 0.005
FILLER = bytes(range(256)) * 1024
FILLER_SIZES = (0, 40, 40, 100, 200, 1000, 4000)
BIG_EVERY = 200
"""One message in so many has the size of `FILLER`: copying it takes long enough to be killed meanwhile."""


@dataclass(frozen=True)
class Job:
    """The work of a process. `ident` is new for every process; 0 is not used."""

    kind: str
    ident: int
    queue: str
    directory: str
    records: Path
    rate: float
    """Messages per second of this producer; 0 is as fast as it can."""

    @property
    def record(self) -> Path:
        """The file in which it writes down what it did."""
        return self.records / f"{self.kind}.{self.ident}"


def payload(producer: int, number: int, filler: bytes) -> bytes:
    rest = HEAD.pack(0, producer, number)[4:] + filler
    return struct.pack("<I", zlib.crc32(rest)) + rest


def read_payload(data: memoryview) -> tuple[int, int]:
    """Producer and number; (0, 0) if these are not the bytes that a producer put."""
    if len(data) < HEAD.size:
        return 0, 0
    checksum, producer, number = HEAD.unpack_from(data)
    return (producer, number) if zlib.crc32(data[4:]) == checksum else (0, 0)


def start(job: Job) -> int:
    """Fork a process for the job; return its pid.

    The caller has one thread and no open queue.
    """
    # Ctrl-C goes to all processes of the terminal. The parent takes it, and asks the others to leave.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _child(job, parent, held)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return pid


def _child(job: Job, parent: int, mask: set[signal.Signals | int]) -> NoReturn:
    status = 1
    try:
        leaving = Leaving(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        record = open_record(job.record)
        work = produce if job.kind == "producer" else consume
        with Queue.open(job.queue, directory=job.directory) as queue:
            work(job, queue, record, leaving)
        status = 0
    except BaseException:
        job.record.with_suffix(f".{job.ident}.error").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        os._exit(status)


def produce(job: Job, queue: Queue, record: int, leaving: Leaving) -> None:
    """Put numbered messages, alone and in batches, until the process must end."""
    choose = random.Random(job.ident)
    number = 0
    began = time.monotonic()
    while not leaving:
        due = (time.monotonic() - began) * job.rate if job.rate else number + BATCH
        if due < number + 1:
            time.sleep(PAUSE_S)
            continue
        count = min(choose.choice((1, BATCH)), int(due) - number)
        sizes = [
            len(FILLER) if choose.randrange(BIG_EVERY) == 0 else choose.choice(FILLER_SIZES)
            for _ in range(count)
        ]
        batch = [payload(job.ident, number + i, FILLER[:size]) for i, size in enumerate(sizes)]
        done = 0
        while done < count and not leaving:
            try:
                if count == 1:
                    queue.put(batch[0], timeout=0.1)
                else:
                    queue.put_many(batch[done:], timeout=0.1)
                more = count - done
            except Timeout as error:
                more = error.done
            os.write(record, b"".join(PUT.pack(number + i) for i in range(done, done + more)))
            done += more
        number += done


def consume(job: Job, queue: Queue, record: int, leaving: Leaving) -> None:
    """Get messages in batches until the queue is closed."""
    choose = random.Random(job.ident)
    while not leaving:
        try:
            messages = queue.get_many(choose.choice((1, BATCH)), timeout=0.1)
        except Timeout:
            continue
        except Closed:
            return
        with messages:
            os.write(record, _receipt(messages))
            if choose.randrange(10) == 0:
                time.sleep(PAUSE_S)  # as if it worked on them: a kill now finds them in its hands


def _receipt(messages: Messages) -> bytes:
    records = []
    for message in messages:
        with message.data as data:
            producer, number = read_payload(data)
        records.append(GOT.pack(producer, message.redelivered, number))
    return b"".join(records)
