"""The broker for programs without an event loop: the same names, and calls that block.

The broker runs on a loop of its own, in a thread. Every call is run there, and may come from any thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from holdfast._core import TopicMessage
from holdfast.broker.api.consumer import Consumer, Reader, Receiver, Start
from holdfast.broker.api.producer import Producer
from holdfast.broker.api.stage import Stage, StageReceipt
from holdfast.errors import Closed, Misuse

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.key_shared import KeyShared
    from holdfast.broker.state import Access, SubscriptionType
    from holdfast.broker.telemetry.stats import BrokerStats

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
Twin = TypeVar("Twin", bound=Producer | Receiver)


class Runner:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="holdfast broker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._cancel_all())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        """Cancel calls of other threads that are still under way."""
        await asyncio.sleep(0)  # calls that were passed on just now become tasks
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def __call__(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine on the loop, and wait for it. Ctrl-C cancels it.

        Raises:
            Misuse: this process is a child of the one that opened the broker.
            Closed: the broker was closed.
        """
        if self.forked:
            work.close()
            raise Misuse("the broker was opened before fork(); use it in the parent, which has its thread")
        if threading.current_thread() is self._thread:
            work.close()
            raise Closed("the blocking broker was called from inside its own loop; use the async form there")
        with self._lock:
            if self._stopped:
                work.close()
                raise Closed("the broker was closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Closed("the broker was closed") from None
        except BaseException:
            future.cancel()
            raise

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one that opened the broker."""
        return os.getpid() != self._pid

    def finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, and stop the loop. In a child process, do nothing."""
        if self.forked:
            work.close()
            return
        try:
            self(work)
        finally:
            self.stop()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _waiting(
    method: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Answer]],
) -> Callable[Concatenate[Any, Arguments], Answer]:
    """Make the blocking form of a method of the twin."""

    def call(self: Any, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Answer:
        answer: Answer = self._run(getattr(self._twin, method.__name__)(*arguments, **options))
        return answer

    functools.update_wrapper(call, method)
    return call


class _Blocking(Generic[Twin]):
    """The blocking form of a producer, consumer or reader: opens and closes its asynchronous twin."""

    def __init__(self, run: Runner, twin: Twin) -> None:
        self._run = run
        self._twin = twin

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """As entering the `with` block; a second `open` is `Misuse`."""
        self._run(self._twin.open())

    def close(self) -> None:
        """As leaving the `with` block."""
        if not self._run.forked:  # a child has nothing to leave
            self._run(self._twin.close())


class BlockingProducer(_Blocking[Producer]):
    """The blocking form of `Producer`."""

    send = _waiting(Producer.send)
    send_many = _waiting(Producer.send_many)
    post = _waiting(Producer.post)
    flush = _waiting(Producer.flush)

    @property
    def name(self) -> str:
        return self._twin.name

    @property
    def last_sequence(self) -> int:
        """As `Producer.last_sequence`."""
        return self._twin.last_sequence


class _BlockingReceiver(_Blocking[Twin]):
    receive = _waiting(Receiver.receive)
    receive_many = _waiting(Receiver.receive_many)
    seek = _waiting(Receiver.seek)

    def __iter__(self) -> Iterator[TopicMessage]:
        while True:
            try:
                yield self.receive()
            except Closed:
                return


class BlockingConsumer(_BlockingReceiver[Consumer]):
    """The blocking form of `Consumer`."""

    ack = _waiting(Consumer.ack)
    ack_many = _waiting(Consumer.ack_many)
    ack_cumulative = _waiting(Consumer.ack_cumulative)
    reject = _waiting(Consumer.reject)

    @property
    def name(self) -> str:
        return self._twin.name

    @property
    def active(self) -> bool:
        """As `Consumer.active`."""
        return self._run(_call(lambda: self._twin.active))

    def nack(self, message: TopicMessage, delay: float | None = None) -> None:
        """As `Consumer.nack`."""
        self._run(_call(lambda: self._twin.nack(message, delay)))

    def redeliver(self) -> None:
        """As `Consumer.redeliver`."""
        self._run(_call(self._twin.redeliver))


class BlockingReader(_BlockingReceiver[Reader]):
    """The blocking form of `Reader`."""

    read = _waiting(Reader.read)
    has_more = _waiting(Reader.has_more)


class BlockingStage:
    """The blocking form of `Stage`. `BlockingBroker.stage` opens one."""

    append = _waiting(Stage.append)
    close = _waiting(Stage.close)
    drop = _waiting(Stage.drop)

    def __init__(self, run: Runner, twin: Stage) -> None:
        self._run = run
        self._twin = twin
        self.id = twin.id


async def _call(function: Callable[[], Answer]) -> Answer:
    return function()


class BlockingAdmin:
    """The blocking form of `Admin`: all its methods, by the same names."""

    def __init__(self, run: Runner, broker: Broker) -> None:
        self._run = run
        self._twin = broker.admin

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._twin, name)

        def call(*arguments: Any, **options: Any) -> Any:
            async def work() -> Any:
                answer = method(*arguments, **options)
                return await answer if asyncio.iscoroutine(answer) else answer

            return self._run(work())

        call.__doc__ = method.__doc__
        return call


class BlockingBroker:
    """The blocking form of `Broker`: `with Broker.open(path) as broker` enters one.

    Example:
        >>> import holdfast, tempfile
        >>> with tempfile.TemporaryDirectory() as path, holdfast.Broker.open(path) as broker:
        ...     with broker.consumer("orders", "billing") as c, broker.producer("orders") as p:
        ...         id = p.send(b"nails")
        ...         message = c.receive(timeout=5)
        ...         c.ack(message)
        ...         print(id == message.id, message.data)
        True b'nails'
    """

    def __init__(self, run: Runner, broker: Broker) -> None:
        self._run = run
        self._twin = broker
        self.admin = BlockingAdmin(run, broker)

    def producer(
        self, topic: str, *, name: str | None = None, access: Access = "shared", batch: int = 1
    ) -> BlockingProducer:
        """As `Broker.producer`."""
        return BlockingProducer(self._run, self._twin.producer(topic, name=name, access=access, batch=batch))

    def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType = "exclusive",  # noqa: A002
        start: Start = "latest",
        receiver_queue: int = 1000,
        priority: int = 0,
        name: str | None = None,
        ack_timeout: float | None = None,
        receipts: bool = False,
        durable: bool = True,
        keys: KeyShared | None = None,
        compacted: bool = False,
    ) -> BlockingConsumer:
        """As `Broker.consumer`."""
        return BlockingConsumer(
            self._run,
            self._twin.consumer(
                topic,
                subscription,
                type=type,
                start=start,
                receiver_queue=receiver_queue,
                priority=priority,
                name=name,
                ack_timeout=ack_timeout,
                receipts=receipts,
                durable=durable,
                keys=keys,
                compacted=compacted,
            ),
        )

    def reader(
        self, topic: str, *, start: Start = "earliest", receiver_queue: int = 1000, compacted: bool = False
    ) -> BlockingReader:
        """As `Broker.reader`."""
        of: Any = {"start": start, "receiver_queue": receiver_queue, "compacted": compacted}
        return BlockingReader(self._run, self._twin.reader(topic, **of))

    def stats(self) -> BrokerStats:
        """As `Broker.stats`."""
        return self._run(_call(self._twin.stats))

    def metrics(self) -> str:
        """As `Broker.metrics`."""
        return self._run(_call(self._twin.metrics))

    def stage(self) -> BlockingStage:
        """As `Broker.stage`."""
        return BlockingStage(self._run, self._run(self._twin.stage()))

    def sink_commit(self, key: str, batch: int, receipts: Sequence[StageReceipt]) -> bool:
        """As `Broker.sink_commit`."""
        return self._run(self._twin.sink_commit(key, batch, receipts))
