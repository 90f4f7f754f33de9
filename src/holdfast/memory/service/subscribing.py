"""A subscription to samples: it outlives the provider, and goes on with the next one."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

from holdfast.arguments import checked_patience, checked_timeout
from holdfast.errors import Closed, Empty, HoldfastError, Misuse, Timeout
from holdfast.memory.waiter import ring

if TYPE_CHECKING:
    from holdfast._core import ServiceProxy, ServiceSample
    from holdfast.memory.service.elements import Value
    from holdfast.memory.service.proxy import Proxy

logger = logging.getLogger("holdfast.service")

LOOK_S = 0.25
"""How often a wait looks whether the instance was created anew."""
FIRST_LOOK_S = 0.001
"""The time until its first look."""


class Subscription:
    """Samples of one event or field, in the order of their sequence numbers.

    The newest samples come first into reach: if the provider was faster, `sample.missed` tells how many were
    passed over. An iteration keeps the newest `max_samples` samples valid, and releases the one before them.

    Example:
        >>> from holdfast import Event, Service
        >>> class Clock(Service):
        ...     tick = Event(size=8)
        >>> with Clock.offer("c") as skeleton, Clock.find("c") as proxy:
        ...     ticks = proxy.tick.subscribe()
        ...     for n in range(3):
        ...         _ = skeleton.tick.send(b"%d" % n)
        ...     with ticks.take(timeout=1.0) as sample:
        ...         bytes(sample.data), sample.missed
        (b'2', 2)
    """

    def __init__(
        self,
        proxy: Proxy,
        number: int,
        owner: str,
        max_samples: int,
        history: int,
        handler: Callable[[ServiceSample], object] | None,
    ) -> None:
        """Subscribe to element `number` of the proxy."""
        self._proxy, self._number, self._owner = proxy, number, owner
        self.max_samples = max_samples
        self.moves = 0
        """How often the instance was created anew; samples in between are not counted as missed."""
        self._value: Value | None = None
        self._closed = False
        self._ready: deque[ServiceSample] = deque()
        self._yielded: deque[weakref.ref[ServiceSample]] = deque()
        self._thread: threading.Thread | None = None  # before another thread or a child can close it
        with proxy._lock:  # no other thread moves the proxy meanwhile
            proxy._follow()
            proxy._core.subscribe(number, max_samples, history)
            self._take = proxy._core.take
            proxy._subscriptions.append(self)
        if handler is not None:
            self._thread = threading.Thread(
                target=self._run, args=(handler,), name=f"holdfast-{owner}", daemon=True
            )
            try:
                self._thread.start()
            except BaseException:  # no thread to be had: the caller gets no subscription to close
                self._thread = None
                self.close()
                raise

    def take(self, timeout: float | None = None) -> ServiceSample:
        """Take the next sample. The program holds it until it is released, left or dropped.

        Raises:
            Empty: `timeout` is 0 and there is no new sample. With another one `Timeout`, when it is over.
            Misuse: the program holds `max_samples` samples.
        """
        if self._closed or self._ready:
            self._proxy_or_closed()
            with contextlib.suppress(IndexError):  # another thread may be faster
                return self._ready.popleft()
        # A look at the file costs more than a take. With a provider, it comes only after a wait in vain.
        proxy = self._proxy
        if not proxy._core.provided:
            proxy._follow()
        patience = FIRST_LOOK_S if timeout is None else checked_patience(timeout)
        try:
            taken = self._take(self._number, self.max_samples, min(patience, FIRST_LOOK_S))
        except (Timeout, Empty):
            if not self._proxy_or_closed()._follow() and timeout == 0:
                raise
            return self._take_slowly(timeout)
        except Misuse:
            if (ready := self._ready_of_others()) is None:
                raise
            return ready
        return taken[0] if len(taken) == 1 and not self._closed else self._first(taken)

    def _first(self, taken: list[ServiceSample]) -> ServiceSample:
        """Return the first of the samples; keep the others for later."""
        first = taken.pop(0)
        self._ready.extend(taken)
        if self._closed:  # by another thread meanwhile: the program does not get them
            self._ready.clear()
            del first, taken
            self._proxy_or_closed()
        return first

    def _ready_of_others(self) -> ServiceSample | None:
        """Return a sample that another thread has taken for this one, too; None without one."""
        self._proxy_or_closed()  # another thread may have closed it meanwhile
        time.sleep(0)  # or may be about to add samples
        with contextlib.suppress(IndexError):
            return self._ready.popleft()
        return None

    def _take_slowly(self, timeout: float | None) -> ServiceSample:
        """Wait further for the next sample; follow an instance that is created anew."""
        end = time.monotonic() + max(0.0, checked_patience(timeout) - FIRST_LOOK_S)
        while True:
            if self._ready:
                with contextlib.suppress(IndexError):
                    return self._ready.popleft()
            left = max(0.0, end - time.monotonic())
            try:
                return self._first(self._take(self._number, self.max_samples, min(left, LOOK_S)))
            except (Timeout, Empty) as error:
                if timeout == 0:
                    raise
                if left <= LOOK_S:
                    raise self._late(error, timeout) from None
            except Misuse:
                if (ready := self._ready_of_others()) is None:
                    raise
                return ready
            self._proxy_or_closed()._follow()

    def take_new(self) -> list[ServiceSample]:
        """Take all new samples, perhaps none, up to `max_samples` in the program's hands."""
        self._proxy_or_closed()
        taken = []
        with contextlib.suppress(IndexError):  # each goes to one thread
            while True:
                taken.append(self._ready.popleft())
        core = self._proxy._core
        if taken and core.held(self._number) >= self.max_samples:
            return taken
        try:
            if core.provided or not self._proxy._follow():
                return taken + self._take(self._number, self.max_samples, 0)
        except Empty:
            if not self._proxy_or_closed()._follow():
                return taken
        with contextlib.suppress(Empty):  # created anew: the samples taken before are the last of the old one
            return taken + self._take(self._number, self.max_samples, 0)
        return taken

    async def atake(self, timeout: float | None = None) -> ServiceSample:
        """Take as `take` does, without blocking the event loop. A cancelled call has taken nothing."""
        limit = checked_timeout(timeout)
        end = time.monotonic() + checked_patience(timeout)
        while True:
            bell = self._proxy_or_closed()._core.bell(self._number)
            heard = bell._listen(False)
            try:
                return self.take(0)
            except Empty as error:
                left = end - time.monotonic()
                if limit == 0:
                    raise
                if left <= 0:
                    raise self._late(error, timeout) from None
            await ring(bell, False, heard, False, min(left, LOOK_S))

    def __iter__(self) -> Iterator[ServiceSample]:
        """Yield samples until the subscription is closed. A provider that dies is waited for."""
        while not self._closed:
            self._make_room()
            try:
                sample = self.take()
            except Closed:
                return
            self._yielded.append(weakref.ref(sample))
            yield sample

    async def __aiter__(self) -> AsyncIterator[ServiceSample]:
        """Yield as `__iter__` does, in `async for`."""
        while not self._closed:
            self._make_room()
            try:
                sample = await self.atake()
            except Closed:
                return
            self._yielded.append(weakref.ref(sample))
            yield sample

    def value(self, sample: ServiceSample) -> Any:
        """Return the value of a field's sample."""
        if self._value is None:
            raise Misuse(f"{self._owner} is an event; use sample.data or sample.array")
        return self._value.unpack(bytes(sample.data))

    def close(self) -> None:
        """End the subscription. Samples that the program has stay valid until they are released."""
        with self._proxy._lock:
            if self._closed:
                return
            self._closed = True
            if self in self._proxy._subscriptions:
                self._proxy._subscriptions.remove(self)
        self._ready.clear()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with contextlib.suppress(HoldfastError):  # closed, lost, or the child of a fork
            self._proxy._core.unsubscribe(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<holdfast.Subscription to {self._owner}{' (closed)' if self._closed else ''}>"

    def _proxy_or_closed(self) -> Proxy:
        if self._closed:
            raise Closed(f"this subscription to {self._owner} was closed; subscribe again")
        return self._proxy

    def _make_room(self) -> None:
        """Release the oldest sample of an iteration, if the program holds `max_samples`."""
        while self._yielded and (self._yielded[0]() is None):
            self._yielded.popleft()
        if self._ready or self._proxy._core.held(self._number) < self.max_samples:
            return
        while self._yielded:
            oldest = self._yielded.popleft()()
            if oldest is None:
                continue
            with contextlib.suppress(Misuse):  # the program has released it, and keeps the object
                oldest.release()
                return

    def _late(self, error: HoldfastError, timeout: float | None) -> Timeout:
        state = "" if self._proxy._core.offered else "; no provider offers it now"
        return Timeout(f"no new sample of {self._owner} (waited {timeout} s){state}")

    def _move(self, core: ServiceProxy) -> None:
        """Subscribe again in the segment that the proxy moves to, under the proxy's lock."""
        self._ready.clear()
        self._yielded.clear()
        self.moves += 1
        logger.info("service %s was created anew; %s goes on there", self._proxy.name, self._owner)
        try:
            core.subscribe(self._number, self.max_samples, self.max_samples)
            self._take = core.take
        except HoldfastError:
            self._closed = True
            self._proxy._subscriptions.remove(self)
            raise

    def _run(self, handler: Callable[[ServiceSample], object]) -> None:
        """Call the handler with each sample, until the subscription is closed."""
        while not self._closed:
            try:
                sample = self.take(LOOK_S)
            except Timeout:
                continue
            except Closed:
                return
            except HoldfastError:
                logger.exception("%s: the handler gets no more samples", self._owner)
                return
            try:
                with sample:
                    handler(sample)
            except BaseException:  # also SystemExit: the next samples are handed over, too
                logger.exception("%s: the handler failed for a sample", self._owner)
            del sample
