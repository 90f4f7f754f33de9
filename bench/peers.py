"""The transports that users choose today, each in its fastest natural form for bytes.

Where a peer has several forms, the fastest is measured. faster-fifo runs without pickling. pyzmq sends one
pickled list per batch, not a multipart message. A Pipe has `send_bytes` for one message and one list for a
batch.
"""

from __future__ import annotations

import ctypes
import os
import queue as std_queue
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from bench.links import Kind, Receiver, Sender, Setting


class Calls:
    """An end with calls for one message and for one list. A subclass binds them."""

    def calls(
        self,
    ) -> tuple[Callable[[Any], Any], Callable[[], Any], Callable[[Any], Any], Callable[[], Any]]:
        """Return four calls: put one, get one, put a list, get a list."""
        raise NotImplementedError

    def put(self, data: bytes, count: int) -> None:
        put = self.calls()[0]
        for _ in range(count):
            put(data)

    def get(self, count: int, reading: str) -> bytes:
        get = self.calls()[1]
        for _ in range(count):
            data = get()
        return bytes(data)

    def put_many(self, batch: list[bytes], count: int) -> None:
        put = self.calls()[2]
        for _ in range(count):
            put(batch)

    def get_many(self, length: int, count: int, reading: str) -> list[bytes]:
        get = self.calls()[3]
        for _ in range(count):
            batch = get()
        return list(batch)

    def prepare(self, spinning: bool) -> None:
        pass

    def close(self) -> None:
        pass


class Both(Calls):
    """A transport with one object for both ends, inherited by the workers."""

    def sender(self) -> Sender:
        return self  # type: ignore[return-value]

    def receiver(self) -> Receiver:
        return self  # type: ignore[return-value]

    def destroy(self) -> None:
        pass


class MpQueue(Both):
    """multiprocessing.Queue; a batch is one list."""

    def __init__(self, setting: Setting) -> None:
        self.queue: Any = setting.context.Queue()

    def calls(self) -> Any:
        return self.queue.put, self.queue.get, self.queue.put, self.queue.get

    def send(self, data: bytes) -> None:
        self.queue.put(data)

    rouse = send

    def wait(self) -> bytes:
        return bytes(self.queue.get())

    def spin(self) -> bytes:
        while True:
            try:
                return bytes(self.queue.get_nowait())
            except std_queue.Empty:
                pass

    def destroy(self) -> None:
        self.queue.close()


class Pipe(Both):
    """multiprocessing.Pipe; a batch is one list."""

    def __init__(self, setting: Setting) -> None:
        self.reader: Connection
        self.writer: Connection
        self.reader, self.writer = setting.context.Pipe(duplex=False)

    def calls(self) -> Any:
        return self.writer.send_bytes, self.reader.recv_bytes, self.writer.send, self.reader.recv

    def send(self, data: bytes) -> None:
        self.writer.send_bytes(data)

    rouse = send

    def wait(self) -> bytes:
        return self.reader.recv_bytes()

    def spin(self) -> bytes:
        while not self.reader.poll(0):
            pass
        return self.reader.recv_bytes()

    def destroy(self) -> None:
        self.reader.close()
        self.writer.close()


class FasterFifo(MpQueue):
    """faster_fifo.Queue, with bytes instead of its default pickling."""

    def __init__(self, setting: Setting) -> None:
        self.queue: Any = import_module("faster_fifo").Queue(setting.capacity, loads=bytes, dumps=bytes)

    def calls(self) -> Any:
        return self.queue.put, self.queue.get, self.queue.put_many, None

    def get_many(self, length: int, count: int, reading: str) -> list[bytes]:
        q = self.queue
        left = length * count
        while left > 0:
            batch = q.get_many(max_messages_to_get=length)
            left -= len(batch)
        return list(batch)

    def destroy(self) -> None:
        pass


@dataclass(frozen=True)
class Zmq:
    """pyzmq PUSH/PULL over ipc; a batch is one pickled list.

    That is four to ten times faster than multipart.
    """

    directory: str

    @staticmethod
    def make(setting: Setting) -> Zmq:
        return Zmq(tempfile.mkdtemp(prefix="holdfast-bench-"))

    def sender(self) -> Sender:
        return ZmqEnd(self.directory, "PUSH")

    def receiver(self) -> Receiver:
        return ZmqEnd(self.directory, "PULL")

    def destroy(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class ZmqEnd(Calls):
    def __init__(self, directory: str, role: str) -> None:
        zmq = import_module("zmq")
        self.context: Any = zmq.Context()
        self.socket: Any = self.context.socket(getattr(zmq, role))
        self.again: Any = zmq.Again
        self.no_block: int = zmq.NOBLOCK
        address = f"ipc://{directory}/socket"
        if role == "PULL":
            self.socket.bind(address)
        else:
            self.socket.connect(address)

    def calls(self) -> Any:
        return self.socket.send, self.socket.recv, self.socket.send_pyobj, self.socket.recv_pyobj

    def send(self, data: bytes) -> None:
        self.socket.send(data)

    rouse = send

    def wait(self) -> bytes:
        return bytes(self.socket.recv())

    def spin(self) -> bytes:
        while True:
            try:
                return bytes(self.socket.recv(self.no_block))
            except self.again:
                pass

    def close(self) -> None:
        self.socket.close(linger=0)
        self.context.term()


@dataclass(frozen=True)
class Iceoryx2:
    """iceoryx2 publish-subscribe of byte slices, without overflow, copied in and copied out.

    Throughput and `spin` poll the subscriber; `wait` sleeps on an event service that the sender notifies.
    """

    name: str
    size: int
    depth: int
    subscribers: int = 1
    overflow: bool = False  # the publisher replaces what a subscriber has not taken

    @staticmethod
    def make(setting: Setting) -> Iceoryx2:
        # As many samples as the ring would hold, at most 1024, so that the pool stays small.
        depth = max(4, min(1024, setting.capacity // (setting.size + 64)))
        name = f"holdfast-bench-{os.getpid()}-{setting.size}-{os.urandom(4).hex()}"
        return Iceoryx2(name, setting.size, depth)

    def sender(self) -> Sender:
        return IceoryxSender(self)

    def receiver(self) -> Receiver:
        return IceoryxReceiver(self)

    def destroy(self) -> None:
        pass


class IceoryxEnd:
    def __init__(self, transport: Iceoryx2) -> None:
        iox2: Any = import_module("iceoryx2")
        iox2.set_log_level(iox2.LogLevel.Fatal)
        self.iox2 = iox2
        self.size = transport.size
        self.node = (
            iox2.NodeBuilder.new()
            .signal_handling_mode(iox2.SignalHandlingMode.Disabled)
            .create(iox2.ServiceType.Ipc)
        )
        name = iox2.ServiceName.new
        self.service = (
            self.node.service_builder(name(transport.name))
            .publish_subscribe(iox2.Slice[ctypes.c_uint8])
            .enable_safe_overflow(transport.overflow)
            .subscriber_max_buffer_size(transport.depth)
            .max_publishers(1)
            .max_subscribers(transport.subscribers)
            .open_or_create()
        )
        self.event = self.node.service_builder(name(transport.name + "-event")).event().open_or_create()


class IceoryxSender(IceoryxEnd):
    def __init__(self, transport: Iceoryx2) -> None:
        super().__init__(transport)
        self.publisher = (
            self.service.publisher_builder()
            .initial_max_slice_len(transport.size)
            .backpressure_strategy(self.iox2.BackpressureStrategy.RetryUntilDelivered)
            .create()
        )
        self.notifier = self.event.notifier_builder().create()

    def put(self, data: bytes, count: int) -> None:
        publisher = self.publisher
        size = len(data)
        memmove = ctypes.memmove
        for _ in range(count):
            sample = publisher.loan_slice_uninit(size)
            memmove(sample.payload_ptr, data, size)
            sample.assume_init().send()

    def put_many(self, batch: list[bytes], count: int) -> None:
        raise NotImplementedError("iceoryx2 has no batches")

    def send(self, data: bytes) -> None:
        self.put(data, 1)

    def rouse(self, data: bytes) -> None:
        self.put(data, 1)
        self.notifier.notify()

    def close(self) -> None:
        pass


class IceoryxReceiver(IceoryxEnd):
    def __init__(self, transport: Iceoryx2) -> None:
        super().__init__(transport)
        self.subscriber = self.service.subscriber_builder().create()
        self.listener = self.event.listener_builder().create()

    def get(self, count: int, reading: str) -> bytes:
        receive = self.subscriber.receive
        size = self.size
        string_at = ctypes.string_at
        for _ in range(count):
            while (sample := receive()) is None:
                pass
            data = string_at(sample.payload_ptr, size)
        return data

    def get_many(self, length: int, count: int, reading: str) -> list[bytes]:
        raise NotImplementedError("iceoryx2 has no batches")

    def prepare(self, spinning: bool) -> None:
        pass

    def spin(self) -> bytes:
        return self.get(1, "copy")

    def wait(self) -> bytes:
        while (sample := self.subscriber.receive()) is None:
            self.listener.blocking_wait()
        return ctypes.string_at(sample.payload_ptr, self.size)

    def close(self) -> None:
        pass


PEERS: tuple[Kind, ...] = (
    Kind("multiprocessing.Queue", MpQueue),
    Kind("multiprocessing.Pipe", Pipe),
    Kind("faster-fifo", FasterFifo, module="faster_fifo"),
    Kind("pyzmq ipc", Zmq.make, module="zmq"),
    Kind("iceoryx2", Iceoryx2.make, module="iceoryx2", batches=False),
)
