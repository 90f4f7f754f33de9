"""Elements of a service as a class declares them: `Event`, `Field` and `Method`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.arguments import checked_whole
from holdfast.errors import Corrupt, Misuse
from holdfast.memory.typed import Layout

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from holdfast._core import ElementTuple

EVENT: Final = 1
FIELD: Final = 2
METHOD: Final = 3
KINDS: Final = {EVENT: "event", FIELD: "field", METHOD: "method"}
ERROR_BYTES: Final = 512
"""Room in each response for the words of an error."""
SUBSCRIBERS_MAX: Final = 62
SAMPLES_MAX: Final = 4096
SAMPLE_BYTES_MAX: Final = 1 << 31
MESSAGE_BYTES_MAX: Final = 1 << 24
"""Of a request or a response."""
CALLS: Final = 8


class Value:
    """Values as bytes: nothing, bytes up to a size, or a numpy array.

    Example:
        >>> Value.of(16).pack(b"abc", "method m")
        b'abc'
        >>> number = Value.of("f8")
        >>> number.unpack(number.pack(1.5, "field gain"))
        1.5
    """

    def __init__(self, size: int, layout: Layout | None) -> None:
        """Describe bytes up to `size`, or arrays of a layout."""
        self.size, self.layout = size, layout

    @classmethod
    def of(cls, kind: Any) -> Value:
        """Return the values that a declaration names.

        Args:
            kind: None for nothing, a number for bytes up to that size, a dtype, or `(dtype, shape)`.

        Raises:
            Misuse: it is something else.
        """
        if kind is None:
            return cls(0, None)
        if isinstance(kind, int) and not isinstance(kind, bool):
            if kind < 1:
                raise Misuse(f"a size must be at least 1 byte, not {kind}; use None for nothing")
            return cls(kind, None)
        dtype, shape = kind if isinstance(kind, tuple) and len(kind) == 2 else (kind, None)
        layout = Layout.of(dtype, shape)
        assert layout is not None
        return cls(layout.size, layout)

    def pack(self, value: Any, owner: str) -> Any:
        """Return a value as bytes or a buffer; `owner` is named in errors.

        Raises:
            Misuse: the value is of another type or too large.
        """
        if self.layout is not None:
            if value is None:  # numpy would make it nan
                raise Misuse(f"{owner} needs a value, not None")
            if not hasattr(value, "__array__") and not isinstance(value, bytes | bytearray | memoryview):
                value = self._array_of(value, owner)
            return self.layout.checked(value, owner)
        if self.size == 0:
            if value is not None and value != b"":
                raise Misuse(f"{owner} takes no value, not {value!r}")
            return b""
        if value is None:
            raise Misuse(f"{owner} needs bytes, not None")
        try:
            size = len(value) if type(value) is bytes else memoryview(value).nbytes
        except TypeError:
            raise Misuse(f"{owner} takes bytes, not {value!r}") from None
        if size > self.size:
            raise Misuse(f"{owner} takes at most {self.size} bytes, not {size}; declare a larger size")
        return value

    def _array_of(self, value: Any, owner: str) -> Any:
        import numpy

        assert self.layout is not None
        try:
            return numpy.asarray(value, self.layout.dtype)
        except (TypeError, ValueError, OverflowError) as error:
            raise Misuse(f"{owner} takes {self.layout.dtype}, not {value!r}: {error}") from None

    def unpack(self, data: bytes) -> Any:
        """Return the value that was packed.

        Raises:
            Corrupt: there are fewer bytes than an array has.
        """
        if self.layout is None:
            return data if self.size else None
        array = self.layout.array(data)
        return array.item() if array.shape == () and not array.dtype.names else array

    @property
    def as_array(self) -> Callable[[Buffer], Any] | None:
        """The function that makes an array of a buffer; None for bytes."""
        return None if self.layout is None else self.layout.array

    @property
    def about(self) -> list[str] | int:
        """The value's kind, for the description in the segment."""
        return self.size if self.layout is None else [self.layout.dtype_text, self.layout.shape_text]

    @classmethod
    def parse(cls, about: Any) -> Value:
        """Return the values that a segment's description names.

        Raises:
            Corrupt: the description is not possible.
        """
        if isinstance(about, int):
            return cls(about, None)
        if isinstance(about, list) and len(about) == 2 and all(isinstance(each, str) for each in about):
            layout = Layout.parse(about[0], about[1], None)
            return cls(layout.size, layout)
        raise Corrupt(f"{about!r} does not describe a type; stop all its processes, then offer it again")


@dataclass(frozen=True)
class Element:
    """The common part of the elements: sizes, as the segment has them."""

    kind: int
    sample: Value
    request: Value
    response: Value
    samples: int = 0
    loans: int = 0
    max_subscribers: int = 0
    calls: int = 0

    @property
    def is_field(self) -> bool:
        """It has a newest value, which a new subscriber gets."""
        return self.kind == FIELD

    def tuple_of(self, name: str) -> ElementTuple:
        """Return the element as the core takes it."""
        about = {"sample": self.sample.about, "request": self.request.about, "response": self.response.about}
        return (
            name,
            self.kind,
            self.samples,
            self.loans,
            self.max_subscribers,
            self.calls,
            self.sample.size if self.samples else 0,
            self.request.size if self.calls else 0,
            max(self.response.size, ERROR_BYTES) if self.calls else 0,
            json.dumps(about, separators=(",", ":")),
        )

    @staticmethod
    def parse(found: ElementTuple) -> tuple[str, Element]:
        """Return name and element from the description in a segment.

        Raises:
            Corrupt: the description is not possible.
        """
        name, kind, samples, loans, max_subscribers, calls, *_, about = found
        try:
            types: Mapping[str, Any] = json.loads(about)
            sample, request, response = (Value.parse(types[key]) for key in ("sample", "request", "response"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Corrupt(f"element {name}: its description {about!r} is not possible: {error}") from None
        return name, Element(kind, sample, request, response, samples, loans, max_subscribers, calls)


def _sample_sizes(samples: int, loans: int, max_subscribers: int) -> tuple[int, int, int]:
    samples = checked_whole("samples", samples)
    loans = checked_whole("loans", loans)
    max_subscribers = checked_whole("max_subscribers", max_subscribers)
    if not 1 <= max_subscribers <= SUBSCRIBERS_MAX:
        raise Misuse(f"max_subscribers must be 1 to {SUBSCRIBERS_MAX}, not {max_subscribers}")
    if loans < 1:
        raise Misuse(f"loans must be at least 1, not {loans}")
    if not loans + 3 <= samples <= SAMPLES_MAX:
        raise Misuse(
            f"samples must be {loans + 3} to {SAMPLES_MAX}, not {samples}: {loans} for loans, 1 for the "
            "newest, and max_samples + 1 for each subscriber"
        )
    return samples, loans, max_subscribers


class Event(Element):
    """A stream of samples, which subscribers read in place.

    Args:
        size: bytes of a sample; one may have fewer. Not needed with `dtype`.
        samples: how many there are in all. The provider needs `loans + 1`, a subscriber `max_samples + 1`.
        max_subscribers: at most 62.
        dtype, shape: each sample is a numpy array.
        loans: samples that the provider's program fills at once.

    Example:
        >>> from holdfast import Event, Service
        >>> class Camera(Service):
        ...     frame = Event(dtype="u1", shape=(2, 3), samples=8)
        >>> with Camera.offer("left") as skeleton, Camera.find("left") as proxy:
        ...     frames = proxy.frame.subscribe(max_samples=2)
        ...     with skeleton.frame.loan() as frame:
        ...         frame[:] = 7
        ...     with frames.take() as sample:
        ...         int(sample.array.sum()), sample.sequence, sample.missed
        (42, 1, 0)
    """

    def __init__(
        self,
        size: int | None = None,
        samples: int = 8,
        max_subscribers: int = 8,
        *,
        dtype: Any = None,
        shape: int | tuple[int, ...] | None = None,
        loans: int = 1,
    ) -> None:
        """Declare an event."""
        layout = Layout.of(dtype, shape)
        if (size is None) == (layout is None):
            raise Misuse("an event needs either size or dtype: the bytes of its samples")
        if size is not None and checked_whole("size", size) < 1:
            raise Misuse(f"size must be at least 1 byte, not {size}")
        nothing = Value(0, None)
        sample = Value(layout.size if layout is not None else size or 0, layout)
        _require_size("a sample", sample, SAMPLE_BYTES_MAX)
        super().__init__(EVENT, sample, nothing, nothing, *_sample_sizes(samples, loans, max_subscribers))


class Field(Element):
    """A value that has a newest state: get it, subscribe to it, set it.

    A set goes to the provider, which may refuse or change the value. The last value stays when the provider
    restarts, as long as a proxy is connected.

    Args:
        kind: a dtype, `(dtype, shape)`, or a number for bytes up to that size.
        initial: the value after an offer, if the field has no value yet.
        settable: False refuses `set`.
        samples, max_subscribers: as in `Event`; a `get` needs one more sample for a moment.

    Example:
        >>> from holdfast import Field, Service
        >>> class Amplifier(Service):
        ...     gain = Field("f8", initial=1.0)
        >>> with Amplifier.offer("a") as skeleton, Amplifier.find("a") as proxy:
        ...     before = proxy.gain.get()
        ...     _ = proxy.gain.set(2.5)
        ...     before, skeleton.gain.value
        (1.0, 2.5)
    """

    def __init__(
        self,
        kind: Any,
        *,
        initial: Any = None,
        settable: bool = True,
        samples: int = 32,
        max_subscribers: int = 8,
        calls: int = CALLS,
    ) -> None:
        """Declare a field."""
        value = Value.of(kind)
        if value.size == 0:
            raise Misuse("a field needs a type: a dtype, or a number of bytes")
        _require_size("a value", value, MESSAGE_BYTES_MAX if settable else SAMPLE_BYTES_MAX)
        nothing = Value(0, None)
        super().__init__(
            FIELD,
            value,
            value if settable else nothing,
            value if settable else nothing,
            *_sample_sizes(samples, 1, max_subscribers),
            _calls(calls) if settable else 0,
        )
        object.__setattr__(self, "initial", initial)
        if initial is not None:
            value.pack(initial, "the initial value of a field")

    initial: Any = None


class Method(Element):
    """A call to the provider. It runs at most once, and its end is told.

    Args:
        request, response: None for nothing, a number for bytes up to that size, a dtype, or `(dtype, shape)`.
        calls: how many calls may be under way at once.

    Example:
        >>> from holdfast import Method, Service
        >>> class Calculator(Service):
        ...     double = Method("i8", "i8")
        >>> with Calculator.offer("c", handlers={"double": lambda n: 2 * n}):
        ...     with Calculator.find("c") as proxy:
        ...         proxy.double(21)
        42
    """

    def __init__(self, request: Any = None, response: Any = None, *, calls: int = CALLS) -> None:
        """Declare a method."""
        values = Value.of(request), Value.of(response)
        for what, value in zip(("a request", "a response"), values, strict=True):
            _require_size(what, value, MESSAGE_BYTES_MAX)
        super().__init__(METHOD, Value(0, None), *values, calls=_calls(calls))


def _require_size(what: str, value: Value, most: int) -> None:
    if value.size > most:
        raise Misuse(f"{what} has at most {most} bytes, not {value.size}")


def _calls(calls: int) -> int:
    if not 1 <= checked_whole("calls", calls) <= 256:
        raise Misuse(f"calls must be 1 to 256, not {calls}")
    return calls
