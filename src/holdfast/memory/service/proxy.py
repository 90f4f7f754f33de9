"""A consumer's side of a service: subscriptions, values of fields, calls."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from holdfast import _core
from holdfast.arguments import checked_patience, checked_whole, require_function
from holdfast.errors import (
    Closed,
    Empty,
    HoldfastError,
    LayoutMismatch,
    Misuse,
    NotFound,
    PeerDied,
    Refused,
    Timeout,
    TooManyParticipants,
    Unsupported,
)
from holdfast.memory.forks import renew_locks_in_children
from holdfast.memory.service import discovery
from holdfast.memory.service.elements import EVENT, FIELD, KINDS, METHOD, SAMPLES_MAX, Element
from holdfast.memory.service.service_stats import ServiceStats, faults_of_service, service_stats_of
from holdfast.memory.service.skeleton import ANSWERED, RAISED, UNHANDLED
from holdfast.memory.service.subscribing import LOOK_S, Subscription
from holdfast.memory.waiter import wait_for_ring

DONE, LATE_UNEXECUTED, LATE_RUNNING, DIED_UNEXECUTED, DIED_RUNNING, CROWDED = range(6)
"""The outcome of a call, as the core tells it."""


class ProxyElement:
    """A proxy's end of one element."""

    def __init__(self, proxy: Proxy, name: str, number: int, element: Element) -> None:
        """Use element `number` of the proxy."""
        self._proxy, self.name, self._number, self._element = proxy, name, number, element
        self._owner = f"{name} of service {proxy.name}"
        self._words = f"{KINDS[element.kind]} {self._owner}"

    @property
    def _core(self) -> _core.ServiceProxy:
        return self._proxy._core

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._proxy.name!r}>"

    def _call(self, request: Any, timeout: float | None) -> bytes:
        """Call the provider; return the response.

        Raises:
            Timeout, PeerDied: `executed` of the error tells whether the call ran.
            Refused: the handler raised an exception.
        """
        proxy = self._proxy
        # Else the call itself finds out that no provider is there.
        if proxy._closed or not proxy._core.provided:
            proxy._follow()
        outcome, status, response = proxy._core.call(self._number, request, timeout)
        if outcome == DONE and status == ANSWERED:
            return response or b""
        if outcome == DIED_UNEXECUTED and proxy._follow():  # created anew
            outcome, status, response = proxy._core.call(self._number, request, timeout)
        return self._unusual(outcome, status, response, timeout)

    def _unusual(self, outcome: int, status: int, response: bytes | None, timeout: float | None) -> bytes:
        """Return the response of a call, or raise its error."""
        owner = self._owner
        if outcome == CROWDED:
            raise _ended(
                Timeout, f"{owner}: all {self._element.calls} calls are under way; raise `calls`", False
            )
        if outcome == LATE_UNEXECUTED:
            words = f"the provider did not take the call of {owner} in {timeout} s; it will not run"
            raise _ended(Timeout, words, False)
        if outcome == LATE_RUNNING:
            raise _ended(Timeout, f"{owner} did not return in {timeout} s; it runs, or did run", None)
        if outcome == DIED_UNEXECUTED:
            words = f"the provider of {owner} is not there; the call did not run. Call again when it is"
            raise _ended(PeerDied, words, False)
        if outcome == DIED_RUNNING:
            words = (
                f"the provider of {owner} died while the call ran; look at its effect before you repeat it"
            )
            raise _ended(PeerDied, words, None)
        assert outcome == DONE
        if status == UNHANDLED:
            raise Unsupported(f"the provider has no handler for {owner}")
        if status != ANSWERED:
            words = (response or b"").decode(errors="replace") if status == RAISED else "it gave no answer"
            raise Refused(f"{owner}: the provider refused the call: {words}")
        return response or b""


def _ended(kind: type[HoldfastError], words: str, executed: bool | None) -> HoldfastError:
    error = kind(words)
    error.executed = executed
    return error


class ProxyEvent(ProxyElement):
    """Subscribe to samples."""

    def subscribe(
        self,
        max_samples: int = 1,
        *,
        history: int = 0,
        handler: Callable[[_core.ServiceSample], object] | None = None,
    ) -> Subscription:
        """Subscribe to the samples from now on.

        Args:
            max_samples: samples that the program holds at once.
            history: how many of the newest samples that were sent before are wanted, too.
            handler: called with each sample, in a thread of the subscription.

        Raises:
            Full: the event has too few `samples`, after the dead were cleared.
            Misuse: this proxy has a subscription already, or an argument is not valid.

        Example:
            >>> from holdfast import Event, Service
            >>> class Clock(Service):
            ...     tick = Event(size=8)
            >>> with Clock.offer("c") as skeleton, Clock.find("c") as proxy:
            ...     for _ in range(5):
            ...         _ = skeleton.tick.send(b"tick")
            ...     with proxy.tick.subscribe(max_samples=2, history=4) as ticks:
            ...         [(sample.sequence, sample.missed) for sample in ticks.take_new()]
            [(4, 2), (5, 0)]
        """
        max_samples = checked_whole("max_samples", max_samples)
        if not 1 <= max_samples <= self._element.samples:
            raise Misuse(f"max_samples must be 1 to {self._element.samples}, not {max_samples}")
        history = checked_whole("history", history)
        if not 0 <= history <= SAMPLES_MAX:
            raise Misuse(f"history must be 0 to {SAMPLES_MAX}, not {history}")
        if handler is not None:
            require_function("a handler", handler)
        return Subscription(self._proxy, self._number, self._owner, max_samples, history, handler)


class ProxyField(ProxyEvent):
    """Get, set and subscribe to a value."""

    def get(self, timeout: float | None = 0) -> Any:
        """Return a copy of the newest value.

        It is the last value of a provider that is gone, until another one updates it.

        Raises:
            Empty: there is no value yet. With another timeout `Timeout`, when it is over.
        """
        end = time.monotonic() + checked_patience(timeout)
        while True:
            self._proxy._follow()
            bell = self._core.bell(self._number)
            heard = bell._listen(False)
            data = self._core.read(self._number)
            if data is not None:
                return self._element.sample.unpack(data)
            words = f"field {self._owner} has no value yet: the provider has not updated it"
            if timeout == 0:
                raise Empty(words)
            left = end - time.monotonic()
            if left <= 0:
                raise Timeout(f"{words} (waited {timeout} s)")
            wait_for_ring(bell, heard, min(left, LOOK_S))

    def set(self, value: Any, timeout: float | None = None) -> Any:
        """Ask the provider to store a value; return the value that it stored.

        Raises:
            Refused: the provider did not accept it.
            Timeout, PeerDied: `executed` of the error tells whether the provider saw it.
            Unsupported: the field is not settable.
        """
        if not self._element.calls:
            raise Unsupported(f"field {self._owner} is not settable")
        packed = self._element.request.pack(value, self._words)
        return self._element.response.unpack(self._call(packed, timeout))

    def subscribe(
        self,
        max_samples: int = 1,
        *,
        history: int = 1,
        handler: Callable[[_core.ServiceSample], object] | None = None,
    ) -> Subscription:
        """Subscribe to the values, beginning with the newest; see `ProxyEvent.subscribe`.

        `subscription.value(sample)` returns the value of a sample.
        """
        subscription = super().subscribe(max_samples, history=history, handler=handler)
        subscription._value = self._element.sample
        return subscription


class ProxyMethod(ProxyElement):
    """Call the provider."""

    def __call__(self, request: Any = None, timeout: float | None = None) -> Any:
        """Call the method and wait for its response.

        Raises:
            Refused: the handler raised an exception; the text has its words.
            Timeout: the time is over. `error.executed` is False if the call will not run, else None.
            PeerDied: no provider is there, or it died. `error.executed` is False if the call did not run.
        """
        packed = self._element.request.pack(request, self._words)
        return self._element.response.unpack(self._call(packed, timeout))

    async def acall(self, request: Any = None, timeout: float | None = None) -> Any:
        """Call as `__call__` does, without blocking the event loop.

        A cancelled `acall` is not undone: the call may still run. It does not hold up the end of the loop.
        """
        return await _in_thread(lambda: self(request, timeout))


async def _in_thread(call: Callable[[], Any]) -> Any:
    """Return the result of a call that blocks.

    It has a thread of its own. The end of an event loop waits for all threads of its executor, and so
    without end for a call that is never answered.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():  # cancelled
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop was closed: no task waits there any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="holdfast-call", daemon=True).start()
    return await future


class Proxy:
    """A service instance as a consumer has it; `Service.find()` returns it.

    Its elements are attributes: `proxy.frame.subscribe()`. When the provider dies, the proxy stays connected,
    and goes on with the next provider.
    """

    def __init__(
        self,
        directory: str,
        name: str,
        application: str,
        elements: Mapping[str, Element] | None,
        tracer: bool,
    ) -> None:
        """Connect to an instance. Without `elements`, those that the segment describes are used.

        Raises:
            NotFound: there is no such instance.
            LayoutMismatch: it has other elements.
        """
        self._name = name
        self._directory, self._application, self._tracer = directory, application, tracer
        self._closed = False
        self._renew_locks()
        renew_locks_in_children(self)
        try:
            self._core = _core.ServiceProxy(directory, name, application, tracer)
        except TooManyParticipants as error:
            limit = "1 tracer, which is" if tracer else "62 proxies, which are"
            pids = _pids(directory, name, tracer)
            if not pids:
                raise  # no proxy has the slots: a process locks them to remove the segment
            raise TooManyParticipants(
                f"service {name} can have {limit} connected: {pids}; close one"
            ) from error
        try:
            found = dict(Element.parse(each) for each in self._core.elements)
            self._elements = dict(found if elements is None else elements)
            self._require_same(self._core)
        except BaseException:
            self._core.close()
            raise
        self._subscriptions: list[Subscription] = []
        self._ends: dict[str, ProxyElement] = {}
        makers = {EVENT: ProxyEvent, FIELD: ProxyField, METHOD: ProxyMethod}
        for number, (each, element) in enumerate(self._elements.items()):
            self._ends[each] = makers[element.kind](self, each, number, element)
        self._use_arrays(self._core)
        for each, end in self._ends.items():
            self.__dict__.setdefault(each, end)  # quicker than __getattr__

    def _renew_locks(self) -> None:
        self._lock = threading.RLock()

    def _require_same(self, core: _core.ServiceProxy) -> None:
        wanted = [element.tuple_of(each) for each, element in self._elements.items()]
        found = list(core.elements)
        if found == wanted:
            return
        there = {each[0]: each for each in found}
        differing = [each[0] for each in wanted if there.get(each[0]) != each]
        differing += [each for each in there if each not in self._elements]
        what = ", ".join(differing) or "their order"
        raise LayoutMismatch(
            f"service {self.name} is offered with other elements than this class has: {what}. Use the "
            "class of the provider, or `Service.of(name)`, which takes them from the instance"
        )

    def _use_arrays(self, core: _core.ServiceProxy) -> None:
        core._as_array = [element.sample.as_array for element in self._elements.values()]

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__.get("_ends", ()) and self.__dict__.get(name) is not None:
            raise Misuse(f"{name} is an element; use its methods, for example .set(value)")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        ends = self.__dict__.get("_ends", {})
        if name in ends:
            return ends[name]
        raise AttributeError(f"a proxy of {self.__dict__.get('_name')} has no element {name!r}")

    @property
    def name(self) -> str:
        """Service and instance: "Camera.left"."""
        return self._name

    @property
    def elements(self) -> Mapping[str, Element]:
        """The elements by name."""
        return dict(self._elements)

    @property
    def offered(self) -> bool:
        """A living provider offers the instance now."""
        self._follow()
        return self._core.offered

    @property
    def provider_pid(self) -> int | None:
        """The pid of the provider; None without a living one."""
        return self._core.provider_pid if self.offered else None

    @property
    def epoch(self) -> int:
        """How often the segment was offered. It rises when the provider comes back."""
        return self._core.epoch

    @property
    def attached(self) -> bool:
        """False after `close()` and in a forked child."""
        return not self._closed and self._core.attached

    def wait_offered(self, timeout: float | None = None) -> None:
        """Wait until a living provider offers the instance.

        Raises:
            NotFound: `timeout` is 0, and none does.
            Timeout: the time is over.
        """
        discovery.wait_for(self._directory, self.name, timeout, lambda: self.offered or None)

    def _follow(self) -> bool:
        """Connect to the new segment, if the instance was created anew; return whether it was.

        Subscriptions go on there. It asks the file system, so it is not for the usual path of a call.
        """
        if self._closed:
            raise Closed(f"this proxy of service {self.name} was closed; find it again")
        if self._core.has_name or not self._core.attached:
            return False
        with self._lock:
            core = self._core
            if core.has_name or not self.attached:
                return True  # another thread has moved or closed it
            try:
                fresh = _core.ServiceProxy(self._directory, self.name, self._application, self._tracer)
            except NotFound:
                return False  # not offered yet
            try:
                self._require_same(fresh)
            except LayoutMismatch:
                fresh.close()
                raise
            self._use_arrays(fresh)
            failures: list[HoldfastError] = []
            for subscription in [*self._subscriptions]:
                try:
                    subscription._move(fresh)
                except HoldfastError as error:  # the others go on
                    failures.append(error)
            # After the moves: another thread that takes finds its subscription. The old core is not closed: a
            # thread may wait in it. It ends with its last user.
            self._core = fresh
        if failures:
            raise failures[0]
        return True

    def reap(self) -> int:
        """Free what dead proxies held; return how many there were."""
        return self._core.reap()

    def stats(self) -> ServiceStats:
        """Return the figures of the instance."""
        return service_stats_of(self.name, self._core.inspect())

    def check(self) -> list[str]:
        """Return the faults of the segment in words; empty if it is sound."""
        return faults_of_service(self._core.inspect())

    def close(self) -> None:
        """Disconnect. Samples that the program has stay valid until they are released.

        The memory of an instance without a provider stays for the next offer, or for `holdfast service rm`.
        """
        with self._lock:  # not while another thread moves it
            if self._closed:
                return
            self._closed = True
        for subscription in [*self._subscriptions]:
            subscription.close()
        self._core.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<holdfast.Proxy {self.name!r}{'' if self.attached else ' (closed)'}>"


def _pids(directory: str, name: str, tracer: bool) -> str:
    """Name the processes that are connected, at most 8 of them."""
    role = "tracer" if tracer else "proxy"
    people = _core.inspect_service(directory, name).get("people", [])
    pids = sorted(
        {each["pid"] for each in people if each["role"] == role and each["alive"] and each["active"]}
    )
    more = f" and {len(pids) - 8} more" if len(pids) > 8 else ""
    return "pid " + ", ".join(map(str, pids[:8])) + more if pids else ""
