"""Avro definitions: types with their names resolved.

A definition is hostile input. So an error has only a short text, of the innermost type that is wrong, and
logical types and comments are not looked at. Names are not checked: Java's clients write `Outer$Inner`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from holdfast.errors import BadSchema

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_ORDERS = ("ascending", "descending", "ignore")
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_MAX = 64
"""Characters of a text of the client in an error."""


@dataclass(eq=False)
class Primitive:
    """A type without parts."""

    kind: str


_SHARED = {kind: Primitive(kind) for kind in PRIMITIVES}
"""One object for each: all fields of two types are one pair to compare."""


@dataclass(eq=False)
class Named:
    """A type with a name. Its full name has the namespace in front."""

    name: str
    fullname: str
    aliases: frozenset[str]
    """Full names of writers whose type this one reads."""


@dataclass(eq=False)
class Fixed(Named):
    """A number of bytes."""

    size: int


@dataclass(eq=False)
class Enum(Named):
    """One of some symbols."""

    symbols: frozenset[str]
    default: str | None
    """The symbol that a reader takes for one that it does not know; None: nothing."""


@dataclass(eq=False)
class Field:
    """A field of a record."""

    name: str
    aliases: tuple[str, ...]
    type: Type
    has_default: bool


@dataclass(eq=False)
class Record(Named):
    """Fields, each with a type. They may contain the record itself."""

    fields: list[Field] = field(default_factory=list)

    @cached_property
    def written(self) -> dict[str, Type]:
        """Types of fields by name. It is asked for when the record is complete."""
        return {each.name: each.type for each in self.fields}


@dataclass(eq=False)
class Array:
    """Values of one type."""

    inner: Type


@dataclass(eq=False)
class Map:
    """Values of one type, by text."""

    inner: Type


@dataclass(eq=False)
class Union:
    """A value of one of some types."""

    branches: list[Type]


Type: TypeAlias = Primitive | Fixed | Enum | Record | Array | Map | Union


def parsed(tree: Any) -> Type:
    """Return the type that a definition describes; it is not nested deeply.

    Example:
        >>> parsed({"type": "array", "items": "int"})
        Array(inner=Primitive(kind='int'))

    Raises:
        BadSchema: it is not valid as Avro. The text says what is wrong.
    """
    return _Parser().type(tree, "")


class _Parser:
    def __init__(self) -> None:
        self._names: dict[str, Named] = {}
        """By full name. A definition knows the names that stand before it, and those around it."""

    def type(self, part: Any, space: str) -> Type:
        if isinstance(part, str):
            return self._called(part, space)
        if isinstance(part, list):
            return self._union(part, space)
        if not isinstance(part, Mapping):
            raise BadSchema(f"a type is {_shown(part)}; it is a name, an object or a list")
        kind = part.get("type")
        if kind in ("record", "error"):
            return self._record(part, space)
        if kind == "enum":
            return self._enum(part, space)
        if kind == "fixed":
            return self._fixed(part, space)
        if kind == "array":
            return Array(self.type(_part(part, "items", "an array"), space))
        if kind == "map":
            return Map(self.type(_part(part, "values", "a map"), space))
        if kind == "error_union":
            return self._union(["string", *_list(part, "declared_errors", "an error_union")], space)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _SHARED[kind]
        raise BadSchema(f"there is no type {_shown(kind)}")

    def _called(self, name: str, space: str) -> Type:
        if name in PRIMITIVES:  # also where a namespace has a type of this name
            return _SHARED[name]
        inside = None if "." in name or not space else self._names.get(f"{space}.{name}")
        found = inside or self._names.get(name)  # Java's clients write a name without namespace alone
        if found is None:
            raise BadSchema(f"the name {_shown(name)} is not of a type that was defined before")
        assert isinstance(found, Fixed | Enum | Record)
        return found

    def _union(self, parts: list[Any], space: str) -> Union:
        branches: list[Type] = []
        unnamed: set[str] = set()
        for each in parts:
            branch = self.type(each, space)
            if isinstance(branch, Union):
                raise BadSchema("a union is directly in another union")
            if not isinstance(branch, Named):
                kind = branch.kind if isinstance(branch, Primitive) else type(branch).__name__.lower()
                if kind in unnamed:
                    raise BadSchema(f"a union has two branches of the type {kind}")
                unnamed.add(kind)
            branches.append(branch)
        return Union(branches)

    def _record(self, part: Mapping[str, Any], space: str) -> Record:
        found = Record(*_names(part, space))
        self._define(found)
        inside, known = found.fullname.rpartition(".")[0], set[str]()
        for each in _list(part, "fields", f"the record {_shown(found.fullname)}"):
            if not isinstance(each, Mapping):
                raise BadSchema(f"a field is {_shown(each)}; it is an object")
            name = _text(each, "name", "a field")
            if name in known:
                raise BadSchema(f"the record {_shown(found.fullname)} has two fields {_shown(name)}")
            known.add(name)
            if each.get("order") is not None and each["order"] not in _ORDERS:
                raise BadSchema(f"the field {_shown(name)} has the order {_shown(each['order'])}")
            type_ = self.type(_part(each, "type", f"the field {_shown(name)}"), inside)
            found.fields.append(Field(name, _texts(each.get("aliases")), type_, "default" in each))
        return found

    def _enum(self, part: Mapping[str, Any], space: str) -> Enum:
        names = _names(part, space)
        what = f"the enum {_shown(names[1])}"
        symbols = _list(part, "symbols", what)
        for each in symbols:
            if not isinstance(each, str) or not _SYMBOL.fullmatch(each):
                raise BadSchema(f"{what} has the symbol {_shown(each)}, which is not a name")
        if len({*symbols}) < len(symbols):
            raise BadSchema(f"{what} has a symbol twice")
        default = part.get("default")
        if "default" in part and default not in symbols:
            raise BadSchema(f"{what} has the default {_shown(default)}, which is not one of its symbols")
        found = Enum(*names, symbols=frozenset(symbols), default=default)
        self._define(found)
        return found

    def _fixed(self, part: Mapping[str, Any], space: str) -> Fixed:
        names, size = _names(part, space), part.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise BadSchema(f"the fixed type {_shown(names[1])} has the size {_shown(size)}")
        found = Fixed(*names, size=size)
        self._define(found)
        return found

    def _define(self, found: Named) -> None:
        if found.fullname in PRIMITIVES or found.fullname in self._names:
            raise BadSchema(f"the name {_shown(found.fullname)} is in use already")
        self._names[found.fullname] = found


def _names(part: Mapping[str, Any], space: str) -> tuple[str, str, frozenset[str]]:
    """Return name, full name and aliases of a named type."""
    name, own = _text(part, "name", "a named type"), part.get("namespace")
    if own is not None and not isinstance(own, str):
        raise BadSchema(f"the type {_shown(name)} has the namespace {_shown(own)}; it is a text")
    space = space if own is None else own  # an empty one is none
    full = name if "." in name or not space else f"{space}.{name}"
    around = full.rpartition(".")[0]
    given = _texts(part.get("aliases"))
    aliases = frozenset(each if "." in each or not around else f"{around}.{each}" for each in given)
    return full.rpartition(".")[2], full, aliases


def _part(part: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in part:
        raise BadSchema(f"{what} has no {name}")
    return part[name]


def _list(part: Mapping[str, Any], name: str, what: str) -> list[Any]:
    found = _part(part, name, what)
    if not isinstance(found, list):
        raise BadSchema(f"{what} has the {name} {_shown(found)}; it is a list")
    return found


def _text(part: Mapping[str, Any], name: str, what: str) -> str:
    found = part.get(name)
    if not isinstance(found, str) or not found:
        raise BadSchema(f"{what} has the {name} {_shown(found)}; it is a text that is not empty")
    return found


def _texts(given: Any) -> tuple[str, ...]:
    """Return the texts of a list; anything else has no effect, as in other parsers."""
    return tuple(each for each in given if isinstance(each, str)) if isinstance(given, list) else ()


def _shown(value: Any) -> str:
    """Return what a client sent, short: an object or a list by its kind."""
    if isinstance(value, str):
        return repr(value if len(value) <= _SHOWN_MAX else f"{value[:_SHOWN_MAX]}…")
    if isinstance(value, int) and value.bit_length() > 64:  # its digits could be thousands
        return "a long number"
    return {dict: "an object", list: "a list", type(None): "missing"}.get(type(value), str(value))
