"""Whether a reader's Avro types decode what a writer's encode, by Avro's rules of resolution.

Types may contain themselves. So all pairs of types that can meet are found first, each once. Then those that
do not fit spread to the pairs that need them. The order of pairs has no influence on the verdict, and no
comparison runs within another one: names can chain hundreds of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.server.registry.avro_definition import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Type,
    Union,
)

SHOWN_MAX = 64
"""Names of fields, one in the other, that an explanation shows."""
NAME_SHOWN_MAX = 128
"""Characters of each."""
FIELDS_IN_STEP = 10
BRANCHES_IN_STEP = 3
"""Each is noted with what it is needed for, which takes longer than a look at a field."""

_PROMOTED: dict[str, frozenset[str]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""Primitive types that a reader of another one understands."""


class _Pair(NamedTuple):
    reader: Type
    writer: Type


class _Need:
    """Pairs of which one must fit, so that another pair can."""

    __slots__ = ("left", "of")

    def __init__(self, of: _Pair) -> None:
        self.of = of
        self.left = 0
        """How many of them still can."""


class _Path(NamedTuple):
    """The field in which types are compared, and those around it."""

    outer: _Path | None
    """None: it is the schema itself."""
    name: str


_Reason = tuple[_Path, _Pair | str]
_TOP = _Path(None, "")


class Resolution:
    """Verdicts about pairs of types of a reader and a writer.

    `take` counts steps, and may raise. A pair is a step, and another one for ten fields or three branches.

    Example:
        >>> int_, optional = Primitive("int"), Union([Primitive("null"), Primitive("long")])
        >>> found = Resolution(lambda steps: None)
        >>> found.fits(optional, int_), found.fits(int_, optional)
        (True, False)
    """

    def __init__(self, take: Callable[[int], None]) -> None:
        self._take = take
        self._fits: dict[_Pair, bool] = {}
        self._needs: dict[_Pair, list[_Need]] = {}
        """By the pair that is needed."""

    def fits(self, reader: Type, writer: Type) -> bool:
        """Return whether a reader decodes all that a writer may write."""
        pair = _Pair(reader, writer)
        if pair not in self._fits:
            self._spread(self._found(pair))
        return self._fits[pair]

    def _found(self, first: _Pair) -> list[_Pair]:
        """Note all pairs that can meet, and return those that do not fit by themselves."""
        self._note(first)
        ahead, misfits = [first], list[_Pair]()
        while ahead:
            pair = ahead.pop()
            needs = _needs(pair)
            if needs is None:
                misfits.append(pair)
                continue
            for alternatives in needs:
                need = _Need(pair)
                for each in alternatives:
                    if each not in self._fits:
                        self._note(each)
                        ahead.append(each)
                    if self._fits[each]:
                        need.left += 1
                        self._needs.setdefault(each, []).append(need)
                if not need.left:
                    misfits.append(pair)
        return misfits

    def _note(self, pair: _Pair) -> None:
        self._take(1 + _more_steps(pair))
        self._fits[pair] = True

    def _spread(self, misfits: list[_Pair]) -> None:
        while misfits:
            pair = misfits.pop()
            if not self._fits[pair]:
                continue
            self._fits[pair] = False
            for need in self._needs.pop(pair, ()):
                need.left -= 1
                if not need.left:
                    misfits.append(need.of)

    # -- words -----------------------------------------------------------------------------------------

    def explained(self, reader: Type, writer: Type) -> str:
        """Return what does not fit, from the outside inwards, to the first field."""
        left: list[Iterator[_Reason]] = [iter([(_TOP, _Pair(reader, writer))])]
        """Reasons of types, and of those in which they are. Only the first texts are made."""
        seen: set[_Pair] = set()
        while True:
            reason = next(left[-1], None)
            if reason is None:
                left.pop()
                continue
            path, found = reason
            if isinstance(found, str):
                return found
            for each in self._parts(found):
                if each not in seen:
                    seen.add(each)
                    left.append(self._reasons(path, each))

    def _parts(self, misfit: _Pair) -> Iterator[_Pair]:
        """Yield a union if it is a reason itself, and then what is in it."""
        reader, writer = misfit
        inside = _Pair(_only(reader), _only(writer))
        if (
            inside == misfit
            or self.fits(*inside)
            or (
                isinstance(writer, Union)
                and any(each is not inside.writer and not self.fits(reader, each) for each in writer.branches)
            )
        ):
            yield misfit
        if inside != misfit and not self.fits(*inside):
            yield inside

    def _reasons(self, path: _Path, pair: _Pair) -> Iterator[_Reason]:
        """Yield what makes a pair a misfit: texts, or pairs inside."""
        reader, writer = pair
        if isinstance(reader, Record) and isinstance(writer, Record):
            yield from self._reasons_of_fields(path, reader, writer)
            if not _same_name(reader, writer):
                names = f"{_cut(reader.fullname)}, and {_cut(writer.fullname)}"
                yield path, f"{_where(path)}: the record is named {names} for the writer"
            return
        if isinstance(reader, Array | Map) and type(reader) is type(writer):
            yield _Path(path.outer or _TOP, f"{path.name}[]"), _Pair(reader.inner, writer.inner)
            return
        if isinstance(reader, Enum) and isinstance(writer, Enum) and _same_name(reader, writer):
            missing = sorted(writer.symbols - reader.symbols)
            yield path, f"{_where(path)}: the reader has no symbol {_cut(', '.join(missing))}, and no default"
            return
        yield path, f"{_where(path)}: a reader of {_type(reader)} cannot decode {_type(writer)}"

    def _reasons_of_fields(self, path: _Path, reader: Record, writer: Record) -> Iterator[_Reason]:
        for field in reader.fields:
            inner, other = _Path(path, field.name), _written(field, writer.written)
            if other is not None:
                if not self.fits(field.type, other):
                    yield inner, _Pair(field.type, other)
            elif not field.has_default:
                yield (
                    inner,
                    f"{_where(inner)}: the reader has no default for it, and the writer does not have it",
                )


def _more_steps(pair: _Pair) -> int:
    """Return what it takes to find the needs of a pair."""
    reader, writer = pair
    if isinstance(writer, Union):
        return len(writer.branches) // BRANCHES_IN_STEP
    if isinstance(reader, Union):
        return len(reader.branches) // BRANCHES_IN_STEP
    if isinstance(reader, Record) and isinstance(writer, Record):
        return len(reader.fields) // FIELDS_IN_STEP
    return 0


def _needs(pair: _Pair) -> list[list[_Pair]] | None:
    """Return which pairs must fit, one of each list; None: it is a misfit anyway."""
    reader, writer = pair
    if isinstance(writer, Union):
        return [[_Pair(reader, each)] for each in writer.branches]
    if isinstance(reader, Union):
        return [[_Pair(each, writer) for each in reader.branches]]
    if isinstance(reader, Array | Map):
        return [[_Pair(reader.inner, writer.inner)]] if type(reader) is type(writer) else None
    if isinstance(reader, Primitive):
        fits = isinstance(writer, Primitive) and (
            writer.kind == reader.kind or writer.kind in _PROMOTED.get(reader.kind, ())
        )
        return [] if fits else None
    if not isinstance(writer, Named) or not _same_name(reader, writer):
        return None
    if isinstance(reader, Fixed):
        return [] if isinstance(writer, Fixed) and reader.size == writer.size else None
    if isinstance(reader, Enum):
        if not isinstance(writer, Enum):
            return None
        return [] if reader.default is not None or reader.symbols >= writer.symbols else None
    return _needs_of_fields(reader, writer) if isinstance(writer, Record) else None


def _needs_of_fields(reader: Record, writer: Record) -> list[list[_Pair]] | None:
    found: list[list[_Pair]] = []
    for field in reader.fields:
        other = _written(field, writer.written)
        if other is not None:
            found.append([_Pair(field.type, other)])
        elif not field.has_default:
            return None
    return found


def _written(field: Field, written: dict[str, Type]) -> Type | None:
    """Return what the writer writes for a reader's field; None: nothing."""
    return next((written[name] for name in (field.name, *field.aliases) if name in written), None)


def _same_name(reader: Named, writer: Named) -> bool:
    """Return whether types have the same name without namespace, or the reader knows the writer's."""
    return reader.name == writer.name or writer.fullname in reader.aliases


def _only(type_: Type) -> Type:
    """Return the branch of an optional value, so that its fields can be named."""
    branches = type_.branches if isinstance(type_, Union) else [type_]
    there = [each for each in branches if not (isinstance(each, Primitive) and each.kind == "null")]
    return there[0] if len(there) == 1 else type_


def _type(type_: Type) -> str:
    if isinstance(type_, Union):
        return _cut("a union of " + ", ".join(_type(each) for each in type_.branches))
    if isinstance(type_, Primitive):
        return type_.kind
    return _cut(type_.fullname) if isinstance(type_, Named) else type(type_).__name__.lower()


def _where(path: _Path) -> str:
    return f"field {_shown(path)}" if path.outer else "the schema"


def _shown(path: _Path) -> str:
    """Return the name of a field behind those of the fields around it."""
    names: list[str] = []
    while path.outer is not None and len(names) < SHOWN_MAX:
        names.append(_cut(path.name))
        path = path.outer
    return ("…" if path.outer is not None else "") + ".".join(reversed(names))


def _cut(text: str) -> str:
    return text if len(text) <= NAME_SHOWN_MAX else f"{text[:NAME_SHOWN_MAX]}…"
