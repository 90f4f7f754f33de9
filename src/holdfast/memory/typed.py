"""Typed channels and services: each datum is a numpy array.

numpy is loaded only for them.
"""

from __future__ import annotations

import ast
import contextlib
import math
from typing import TYPE_CHECKING, Any, Self

from holdfast.errors import Corrupt, Misuse, Unsupported

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

    from holdfast._core import Loan, Pushed, ServiceLoan


ANEW = "remove the segment with `holdfast channel rm` or `holdfast service rm` and create it anew"


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise Unsupported("typed data need numpy; install it with `pip install numpy`") from None
    return numpy


def _parsed(dtype: str) -> Any:
    return _numpy().dtype(ast.literal_eval(dtype) if dtype[0] in "[{" else dtype)


class Layout:
    """The dtype and shape of typed data."""

    def __init__(self, dtype: Any, shape: tuple[int, ...]) -> None:
        """Describe arrays of a numpy dtype and a shape."""
        self.dtype, self.shape = dtype, shape
        self.size: int = dtype.itemsize * math.prod(shape)
        self.shape_text = ",".join(map(str, shape))

    @classmethod
    def of(cls, dtype: Any, shape: int | tuple[int, ...] | None) -> Self | None:
        """Return the layout for the arguments of `Channel.create`; None without a dtype.

        Raises:
            Misuse: they are not the type and shape of an array.
        """
        if dtype is None:
            if shape is not None:
                raise Misuse("shape needs dtype: without dtype the data are bytes")
            return None
        numpy = _numpy()
        try:
            kind = numpy.dtype(dtype)
            sizes = (shape,) if isinstance(shape, int) else tuple(shape or ())
            sizes = tuple(int(each) for each in sizes)
        except (TypeError, ValueError) as error:
            raise Misuse(f"dtype {dtype!r} with shape {shape!r} is not possible: {error}") from None
        if kind.hasobject:
            raise Misuse(f"dtype {kind} has Python objects in it, which other processes cannot use")
        kind, sizes = kind.base, sizes + kind.shape  # of a type that is an array itself
        if any(each < 1 for each in sizes) or kind.itemsize == 0:
            raise Misuse(f"dtype {kind} with shape {sizes} has no bytes; use sizes of at least 1")
        layout = cls(kind, sizes)
        if _parsed(layout.dtype_text) != kind:
            raise Misuse(f"dtype {kind} cannot be stored: a field in a field has gaps; use one without gaps")
        return layout

    @classmethod
    def parse(cls, dtype: str, shape: str, slot_size: int | None) -> Self:
        """Return the layout that a segment's parameters describe.

        Raises:
            Corrupt: they are not those of an array, or not of one that fills a buffer.
        """
        try:
            kind = _parsed(dtype)
            made = cls(kind, tuple(int(each) for each in shape.split(",") if each))
        except (TypeError, ValueError, SyntaxError, MemoryError, RecursionError) as error:
            raise Corrupt(f"dtype {dtype!r} with shape {shape!r} is not possible: {error}; {ANEW}") from None
        if kind.hasobject or slot_size not in (None, made.size):
            raise Corrupt(f"dtype {dtype!r} with shape ({shape}) does not fit its buffers; {ANEW}")
        return made

    @property
    def dtype_text(self) -> str:
        """The dtype as text that `parse` reads."""
        kind = self.dtype
        if not kind.names:
            return str(kind.str)
        with contextlib.suppress(ValueError):  # of fields that overlap
            if _numpy().dtype(kind.descr) == kind:
                return str(kind.descr)
        # Fields with gaps, as those of a C struct.
        fields = [kind.fields[name][:2] for name in kind.names]
        formats = [each.descr if each.names else (each.base.str, each.shape) for each, _ in fields]
        offsets = [offset for _, offset in fields]
        return str(
            {"names": [*kind.names], "formats": formats, "offsets": offsets, "itemsize": kind.itemsize}
        )

    def array(self, buffer: Buffer) -> Any:
        """Return the bytes of a buffer in place, as an array.

        Raises:
            Corrupt: they are fewer than an array has.
        """
        bytes_ = memoryview(buffer)
        if bytes_.nbytes != self.size:
            raise Corrupt(f"a typed datum has {bytes_.nbytes} bytes, not {self.size}; {ANEW}")
        return _numpy().frombuffer(bytes_, self.dtype).reshape(self.shape)

    def checked(self, data: Any, owner: str) -> Any:
        """Return an array's bytes, to be copied. `owner` is named in errors: "channel c".

        Raises:
            Misuse: `data` is of another type or shape.
        """
        numpy = _numpy()
        array = numpy.asarray(data) if hasattr(data, "__array__") or isinstance(data, list) else None
        if array is None:
            bytes_ = memoryview(data)
            if bytes_.nbytes != self.size:
                raise Misuse(f"{owner} has data of {self.size} bytes, not {bytes_.nbytes}")
            return data
        if array.shape != self.shape or not numpy.can_cast(array.dtype, self.dtype, "same_kind"):
            raise Misuse(
                f"{owner} has arrays of {self.dtype} with shape {self.shape}, not {array.dtype} with "
                f"{array.shape}"
            )
        return numpy.ascontiguousarray(array, self.dtype).reshape(-1).view("u1").data


class LoanedArray:
    """A loan of a typed channel or event, used like an array.

    It is pushed or published when its `with` ends.

    It is not an array itself: a variable would keep an array, and with it the buffer, after the push.
    """

    def __init__(self, loan: Loan | ServiceLoan) -> None:
        """Use `loan` as an array."""
        self.loan = loan

    @property
    def array(self) -> Any:
        """The array in place. Delete it before the `with` ends: else nothing is pushed."""
        return self.loan.array

    @property
    def pushed(self) -> Pushed | None:
        """The result of the push to a channel; None before it."""
        return getattr(self.loan, "pushed", None)

    @property
    def sequence(self) -> int | None:
        """The sequence number of a sample that was published; None before it."""
        return getattr(self.loan, "sequence", None)

    def release(self) -> None:
        """Give the buffer back without pushing it."""
        self.loan.release()

    def __getitem__(self, key: Any) -> Any:
        return self.array[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.array[key] = value

    def __len__(self) -> int:
        return len(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = self.array
        return array if dtype is None and not copy else array.astype(dtype or array.dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.array, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.loan.__exit__(kind, value, traceback)
