"""`holdfast.Service`: a class declares the elements; a provider offers, consumers find."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self

from holdfast import _core
from holdfast.arguments import checked_patience, require_text
from holdfast.errors import Busy, Corrupt, HoldfastError, Misuse, NotFound, Stale
from holdfast.memory.places import checked_mode, gid_of, place
from holdfast.memory.service import discovery
from holdfast.memory.service.elements import Element
from holdfast.memory.service.proxy import Proxy
from holdfast.memory.service.skeleton import Departed, Skeleton

Place = str | os.PathLike[str] | None


class Service:
    """A service: one provider offers an instance, and many consumers use it.

    A subclass declares events, fields and methods. `offer()` makes this process the provider of an instance,
    `find()` connects to one. Samples are in shared memory and are read in place. If the provider dies,
    proxies stay connected, and the next provider goes on with them. If a proxy dies, the samples that it held
    come back.

    Example:
        >>> from holdfast import Event, Field, Method, Service
        >>> class Camera(Service):
        ...     frame = Event(size=1 << 10, samples=8)
        ...     gain = Field("f8", initial=1.0)
        ...     reset = Method()
        >>> with Camera.offer("left", handlers={"reset": lambda: None}) as skeleton:
        ...     with Camera.find("left", timeout=5) as proxy:
        ...         frames = proxy.frame.subscribe(max_samples=2)
        ...         _ = skeleton.frame.send(b"pixels")
        ...         for sample in frames:
        ...             print(bytes(sample.data), sample.missed)
        ...             break
        ...         proxy.gain.set(2.0)
        ...         proxy.reset()
        b'pixels' 0
        2.0
    """

    _elements: ClassVar[Mapping[str, Element]] = {}
    _name: ClassVar[str] = ""

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        """Collect the elements. `name` is that of the service, by default the class's."""
        super().__init_subclass__(**options)
        own = {key: value for key, value in vars(cls).items() if isinstance(value, Element)}
        service = _checked_part("the name of a service", cls.__name__ if name is None else name, dots=False)
        for each in own:
            if any(hasattr(kind, each) for kind in (Service, Proxy, Skeleton)) or each.startswith("_"):
                raise Misuse(f"service {service}: an element cannot be named {each!r}; use another name")
        cls._name = service
        cls._elements = {**cls._elements, **own}

    def __new__(cls, *_: object) -> Self:
        """Refuse: a service has no objects of its own."""
        raise Misuse(f"{cls.__name__}() is not used: call {cls.__name__}.offer() or {cls.__name__}.find()")

    @classmethod
    def offer(
        cls,
        instance: str,
        *,
        handlers: Mapping[str, Callable[..., Any]] | None = None,
        on_departed: Callable[[Departed], object] | None = None,
        application: str | None = None,
        mode: int = 0o600,
        group: str | int | None = None,
        directory: Place = None,
    ) -> Skeleton:
        """Offer an instance; this process is its provider until `close()`.

        If proxies of an earlier provider are connected, their memory is used on, and they go on.

        Args:
            instance: 1 to 100 of `A-Z a-z 0-9 . _ -`, together with the name of the service.
            handlers: functions for methods, and validators for fields, by name.
            on_departed: called for each consumer that died, at least once. Notices wait for a provider.
            application: the name of this program in notices. Default: the program's name and the uid.
            mode, group, directory: as in `Queue.create`.

        Raises:
            Exists: a living process offers this instance.
            LayoutMismatch: consumers use the instance with other elements.
            Misuse: an argument is not valid.
            NoSpace: no room for the samples.
        """
        name = cls._full(instance)
        if not cls._elements:
            raise Misuse(f"service {cls._name} has no elements; declare an Event, a Field or a Method")
        core = _core.ServiceProvider(
            place(directory),
            name,
            _application(application),
            [element.tuple_of(each) for each, element in cls._elements.items()],
            checked_mode(mode),
            gid_of(group),
        )
        try:
            return Skeleton(core, cls._elements, handlers or {}, on_departed)
        except BaseException:
            core.close()
            raise

    @classmethod
    def find(
        cls,
        instance: str,
        timeout: float | None = None,
        *,
        application: str | None = None,
        directory: Place = None,
    ) -> Proxy:
        """Connect to an instance; wait until it is offered.

        Args:
            instance: its name.
            timeout: seconds; None waits without end, 0 raises `NotFound` at once.
            application: the name of this program in notices. Default: the program's name and the uid.
            directory: as in `Queue.open`.

        Raises:
            Timeout: no provider offered it in time.
            LayoutMismatch: it has other elements than this class.
            TooManyParticipants: 62 proxies are connected.
        """
        return cls._connect(instance, timeout, application, directory, tracer=False)

    @classmethod
    async def afind(
        cls,
        instance: str,
        timeout: float | None = None,
        *,
        application: str | None = None,
        directory: Place = None,
    ) -> Proxy:
        """Connect as `find` does, without blocking the event loop."""
        where = place(directory)
        name = cls._full(instance)

        def attempt() -> Proxy | None:
            return cls._attempt(where, name, _application(application), tracer=False)

        end = time.monotonic() + checked_patience(timeout)
        while (proxy := attempt()) is None:
            if time.monotonic() >= end:
                raise discovery.not_offered(where, name, timeout)
            await asyncio.sleep(discovery.LOOK_S / 5)
        return proxy

    @classmethod
    def trace(
        cls,
        instance: str,
        timeout: float | None = None,
        *,
        application: str | None = None,
        directory: Place = None,
    ) -> Proxy:
        """Connect as the one tracer of an instance, to which the provider hands every sample.

        A subscription of a tracer with `max_samples` gets each sample while it is at most that many behind;
        else `sample.missed` tells the gap. The provider does not wait for it.

        Raises:
            TooManyParticipants: there is a tracer.
            Timeout, LayoutMismatch: as in `find`.

        Example:
            >>> from holdfast import Event, Service
            >>> class Clock(Service):
            ...     tick = Event(size=8, samples=16)
            >>> with Clock.offer("c") as skeleton, Clock.trace("c") as tracer:
            ...     ticks = tracer.tick.subscribe(max_samples=4)
            ...     for n in range(3):
            ...         _ = skeleton.tick.send(b"%d" % n)
            ...     for _ in range(3):
            ...         with ticks.take() as sample:
            ...             print(bytes(sample.data), sample.missed)
            b'0' 0
            b'1' 0
            b'2' 0
        """
        return cls._connect(instance, timeout, application, directory, tracer=True)

    @classmethod
    def find_all(cls, *, directory: Place = None) -> list[str]:
        """Return the names of the instances that are offered now."""
        return [name.partition(".")[2] for name in discovery.offered(place(directory), cls._name or None)]

    @classmethod
    def watch(cls, timeout: float | None = None, *, directory: Place = None) -> Iterator[tuple[str, bool]]:
        """Yield `(instance, offered)`: the instances of now, then each change, until the time is over."""
        for name, offered in discovery.changes(place(directory), cls._name or None, timeout):
            yield name.partition(".")[2], offered

    @classmethod
    def unlink(cls, instance: str, *, directory: Place = None) -> None:
        """Delete the memory of an instance that no process offers or uses.

        A provider that ends before its proxies leaves it. The next offer creates it anew, too.

        Raises:
            NotFound: there is no such instance.
            Busy: a living process offers or uses it.

        Example:
            >>> from holdfast import Event, Service
            >>> class Clock(Service):
            ...     tick = Event(size=8)
            >>> skeleton, proxy = Clock.offer("c"), Clock.find("c")
            >>> skeleton.close(); proxy.close()
            >>> Clock.unlink("c")
        """
        name = cls._full(instance)
        if not _core.remove_service(place(directory), name):
            raise Busy(f"service {name} is offered or used by a living process; end it first")

    @staticmethod
    def of(name: str, *, directory: Place = None) -> type[Service]:
        """Return a class for an existing instance, from the description in its segment.

        Args:
            name: service and instance: "Camera.left".
            directory: as in `find`.

        Raises:
            NotFound: there is no such instance.
            Corrupt: its segment is damaged.

        Example:
            >>> from holdfast import Event, Service
            >>> class Clock(Service):
            ...     tick = Event(size=8)
            >>> with Clock.offer("c"):
            ...     sorted(Service.of("Clock.c")._elements)
            ['tick']
        """
        require_text("the name of an instance", name)
        service, dot, instance = name.partition(".")
        if not dot:
            raise Misuse(f"{name!r} is not the name of an instance; write SERVICE.INSTANCE, like Camera.left")
        _checked_part("the name of a service", service, dots=False)
        _checked_part("the name of an instance", instance, dots=True)
        seen = _core.inspect_service(place(directory), name)
        if "params" not in seen:
            raise Corrupt(f"service {name} cannot be read: {'; '.join(seen['faults'])}")
        elements = dict(Element.parse(each) for each in seen["params"]["elements"])
        return type(service, (Service,), elements, name=service)

    @classmethod
    def _full(cls, instance: str) -> str:
        if cls is Service:
            raise Misuse("Service itself has no elements; declare a subclass, or use Service.of(name)")
        return f"{cls._name}.{_checked_part('the name of an instance', instance, dots=True)}"

    @classmethod
    def _connect(
        cls, instance: str, timeout: float | None, application: str | None, directory: Place, tracer: bool
    ) -> Proxy:
        where, name = place(directory), cls._full(instance)
        as_ = _application(application)
        return discovery.wait_for(where, name, timeout, lambda: cls._attempt(where, name, as_, tracer))

    @classmethod
    def _attempt(cls, directory: str, name: str, application: str, tracer: bool) -> Proxy | None:
        """Connect, if a living provider offers the instance."""
        try:
            if not _core.provider_of(directory, name):
                return None
            proxy = Proxy(directory, name, application, cls._elements, tracer)
        except (NotFound, Stale):
            return None  # not created yet, or removed meanwhile
        try:
            if proxy.offered:
                return proxy
        except HoldfastError:
            proxy.close()
            raise
        proxy.close()
        return None


def _application(given: str | None) -> str:
    if given is None:
        return discovery.default_application()
    require_text("application", given)
    if not given or len(given.encode()) > 127:
        raise Misuse(f"application must have 1 to 127 bytes, not {len(given.encode())}")
    return given


def _checked_part(what: str, text: str, dots: bool) -> str:
    require_text(what, text)
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-" + ("." if dots else ""))
    if not text or not set(text) <= allowed:
        raise Misuse(f"{what} must be of A-Z a-z 0-9 {'. ' if dots else ''}_ -, not {text!r}")
    return text
