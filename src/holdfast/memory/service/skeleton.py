"""The provider's side of a service: it sends samples, updates fields and answers calls."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from holdfast import _core
from holdfast.arguments import require_function
from holdfast.errors import Closed, Empty, HoldfastError, Misuse, Timeout
from holdfast.memory.forks import renew_locks_in_children
from holdfast.memory.service.elements import ERROR_BYTES, FIELD, KINDS, METHOD, Element
from holdfast.memory.service.service_stats import ServiceStats, faults_of_service, service_stats_of
from holdfast.memory.typed import LoanedArray

logger = logging.getLogger("holdfast.service")

ANSWERED, RAISED, UNANSWERED, UNHANDLED = range(4)
"""The status of a response."""
GRACE_S = 1.0
"""How long after the offer a call waits for its handler to be set."""
LOOK_S = 0.5
"""How often the serving thread looks whether the skeleton was closed."""


@dataclass(frozen=True)
class Departed:
    """A process that died while it used the instance."""

    application: str
    pid: int
    since_ticks: int
    """The start of that process, in clock ticks after boot: with the pid it names one process."""


class SkeletonElement:
    """The provider's end of one element."""

    def __init__(self, skeleton: Skeleton, name: str, number: int, element: Element) -> None:
        """Serve element `number` of the skeleton."""
        self._skeleton, self.name, self._number, self._element = skeleton, name, number, element
        self._core = skeleton._core
        self._words = f"{KINDS[element.kind]} {name} of service {skeleton.name}"
        self._response_words = f"the response of {name} of service {skeleton.name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._skeleton.name!r}>"


class SkeletonEvent(SkeletonElement):
    """Send samples. No call here waits for a subscriber."""

    def send(self, data: Any) -> int:
        """Copy `data` into a sample and publish it; return its sequence number."""
        if self._element.sample.layout is not None:
            data = self._element.sample.pack(data, self._words)
        return self._core.send(self._number, data)

    def loan(self, size: int | None = None) -> Any:
        """Lend a sample to fill in place.

        The end of its `with` publishes it; an exception gives it back.

        Raises:
            Full: the program has as many as the event's `loans`.
        """
        loan = self._core.loan(self._number, size)
        return loan if self._element.sample.layout is None else LoanedArray(loan)

    @property
    def sequence(self) -> int:
        """The sequence number of the newest sample; 0 before the first."""
        return self._core.sequence(self._number)


class SkeletonField(SkeletonElement):
    """Update a value, and decide on the values that proxies set."""

    def update(self, value: Any) -> int:
        """Publish a new value; return its sequence number."""
        return self._core.send(self._number, self._element.sample.pack(value, self._words))

    @property
    def value(self) -> Any:
        """The newest value; None before the first."""
        data = self._core.newest(self._number)
        return None if data is None else self._element.sample.unpack(data)

    @value.setter
    def value(self, value: Any) -> None:
        self.update(value)

    def validate(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Let `function` decide on each value that a proxy sets; also as a decorator.

        It returns the value to store, or raises an exception, whose words the proxy gets. Without one, every
        value is stored.
        """
        self._skeleton._handle(self._number, function)
        return function


class SkeletonMethod(SkeletonElement):
    """Answer calls."""

    def handle(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Let `function` answer the calls; also as a decorator.

        It gets the request, if the method has one, and returns the response. If it raises an exception, the
        caller gets `Refused` with its words.
        """
        self._skeleton._handle(self._number, function)
        return function


class Skeleton:
    """A service instance as its provider has it; `Service.offer()` returns it.

    Its elements are attributes: `skeleton.frame.send(data)`. Calls are answered in a thread of its own.
    """

    def __init__(
        self,
        core: _core.ServiceProvider,
        elements: Mapping[str, Element],
        handlers: Mapping[str, Callable[..., Any]],
        on_departed: Callable[[Departed], object] | None,
    ) -> None:
        """Serve the elements of `core`."""
        if on_departed is not None:
            require_function("on_departed", on_departed)
        self._core = core
        self._name = core.name
        self._elements = dict(elements)
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._renew_locks()
        renew_locks_in_children(self)
        self._on_departed = on_departed
        self._closing = False
        self._grace_end = time.monotonic() + GRACE_S
        self._ends: dict[str, SkeletonElement] = {}
        makers = {METHOD: SkeletonMethod, FIELD: SkeletonField}
        core._as_array = [each.sample.as_array for each in elements.values()]
        for number, (name, element) in enumerate(elements.items()):
            self._ends[name] = makers.get(element.kind, SkeletonEvent)(self, name, number, element)
        self._by_number = [*self._ends.values()]
        for name, handler in handlers.items():
            self._set_handler(name, handler)
        self._set_initial_values()
        self._thread: threading.Thread | None = None
        for name, end in self._ends.items():
            self.__dict__.setdefault(name, end)  # quicker than __getattr__
        if on_departed is not None or any(element.calls for element in elements.values()):
            self._thread = threading.Thread(target=self._serve, name=f"holdfast-{self.name}", daemon=True)
            self._thread.start()

    def _renew_locks(self) -> None:
        self._changed = threading.Condition()

    def _set_handler(self, name: str, handler: Callable[..., Any]) -> None:
        end = self._ends.get(name)
        if isinstance(end, SkeletonMethod):
            end.handle(handler)
        elif isinstance(end, SkeletonField):
            end.validate(handler)
        else:
            known = ", ".join(each for each, element in self._elements.items() if element.calls) or "none"
            raise Misuse(f"service {self.name}: {name!r} cannot have a handler; elements with calls: {known}")

    def _set_initial_values(self) -> None:
        for end in self._ends.values():
            initial = getattr(end._element, "initial", None)
            if isinstance(end, SkeletonField) and initial is not None and end.value is None:
                end.update(initial)

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__.get("_ends", ()) and self.__dict__.get(name) is not None:
            raise Misuse(f"{name} is an element; use its methods, for example .update(value) or .send(data)")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        ends = self.__dict__.get("_ends", {})
        if name in ends:
            return ends[name]
        raise AttributeError(f"a skeleton of {self.__dict__.get('_name')} has no element {name!r}")

    @property
    def name(self) -> str:
        """Service and instance: "Camera.left"."""
        return self._name

    @property
    def reused(self) -> bool:
        """Proxies of the last provider are still connected, and go on with this one."""
        return self._core.reused

    @property
    def epoch(self) -> int:
        """How often this segment was offered."""
        return self._core.epoch

    @property
    def attached(self) -> bool:
        """False after `close()` and in a forked child."""
        return self._core.attached

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
        """Withdraw the offer. The memory goes, too, unless proxies are connected."""
        self._closing = True
        with self._changed:
            self._changed.notify_all()
        self._core.close()  # wakes the thread
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<holdfast.Skeleton {self.name!r}{'' if self.attached else ' (closed)'}>"

    # -- calls -----------------------------------------------------------------------------------------

    def _handle(self, number: int, function: Callable[..., Any]) -> None:
        require_function("a handler", function)
        with self._changed:
            self._handlers[number] = function
            self._changed.notify_all()

    def _serve(self) -> None:
        """Answer calls and deliver notices until the skeleton is closed."""
        while not self._closing:
            try:
                self._tell_departed()
                self._answer(self._core.run(LOOK_S))
            except (Timeout, Empty):
                continue
            except Closed:
                return
            except HoldfastError:
                logger.exception("service %s: calls are not answered any more", self.name)
                return

    def _answer(self, call: _core.ServiceCall) -> None:
        end = self._by_number[call.element]
        try:
            call.answer(ANSWERED, self._response(end, call.request))
            return
        except _NoHandlerError:
            status, response = UNHANDLED, b""
        except BaseException as error:  # also SystemExit: this thread answers the calls after this one
            words = _words_of(error)
            logger.info("service %s: a call of %s was refused: %s", self.name, end.name, words)
            status, response = RAISED, words.encode(errors="backslashreplace")[:ERROR_BYTES]
        with contextlib.suppress(HoldfastError):  # closed meanwhile, or lost: `run` tells
            call.answer(status, response)

    def _response(self, end: SkeletonElement, data: bytes) -> Any:
        element, number = end._element, end._number
        request = element.request.unpack(data)
        handler = self._handlers.get(number)
        if element.kind == FIELD:
            if handler is not None:
                request = handler(request)
            packed = element.sample.pack(request, end._words)
            self._core.send(number, packed)
            return packed
        if handler is None:
            handler = self._handler_of(number)
        result = handler(request) if element.request.size else handler()
        return element.response.pack(result, end._response_words)

    def _handler_of(self, number: int) -> Callable[..., Any]:
        """Return the handler; soon after the offer, wait for it to be set."""
        with self._changed:
            self._changed.wait_for(
                lambda: number in self._handlers or self._closing,
                max(0.0, self._grace_end - time.monotonic()),
            )
            if number not in self._handlers:
                raise _NoHandlerError
            return self._handlers[number]

    def _tell_departed(self) -> None:
        """Deliver the notices about dead processes. One that fails is delivered again."""
        if self._on_departed is None:
            return
        for place, pid, since, application in self._core.notices():
            try:
                self._on_departed(Departed(application, pid, since))
            except BaseException:  # also SystemExit: this thread goes on
                logger.exception("service %s: on_departed failed for pid %d", self.name, pid)
                continue
            self._core.notice_taken(place)


def _words_of(error: BaseException) -> str:
    """Return the words of an exception; only its name if its text cannot be made."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # of its __str__
        return type(error).__name__


class _NoHandlerError(Exception):
    """The method has no handler."""
