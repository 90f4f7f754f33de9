"""Avro definitions as column types, and as types for the decoders of values.

| Avro                            | Spark                  |
|---------------------------------|------------------------|
| boolean, int, long, float, double | BOOLEAN, INT, BIGINT, FLOAT, DOUBLE |
| string, enum; bytes, fixed      | STRING; BINARY         |
| record, array, map              | STRUCT, ARRAY, MAP     |
| date, timestamp-*, local-timestamp-*, decimal | DATE, TIMESTAMP, TIMESTAMP_NTZ, DECIMAL |
| union with null                 | the other type         |
| int and long, float and double  | BIGINT, DOUBLE         |

Everything can be null. Other unions, null alone and types that contain themselves have no column type.
Other logical types are the type beneath.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, TypedDict, cast

import msgspec
import pyarrow as pa

from holdfast.errors import BadSchema

Convert = Callable[[Any], Any]
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1
DIGITS_MAX = 38
PARTS_MAX = 5_000
"""Fields of a type, with those inside. Types that name others twice could have any number of them."""
MICROS_IN_MILLI = 1000
_PRIMITIVES = {
    "null": "null", "boolean": "boolean", "int": "int", "long": "bigint", "float": "float",
    "double": "double", "bytes": "binary", "string": "string",
}  # fmt: skip
_LOGICAL = {
    ("int", "date"): "date",
    ("bigint", "timestamp-millis"): "timestamp ms",
    ("bigint", "timestamp-micros"): "timestamp us",
    ("bigint", "local-timestamp-millis"): "timestamp_ntz ms",
    ("bigint", "local-timestamp-micros"): "timestamp_ntz us",
}
_WIDER = ({"int", "bigint"}, "bigint"), ({"float", "double"}, "double")


@dataclass(frozen=True)
class Shape:
    """A type of an Avro definition."""

    kind: str
    """The name of Spark's type; of times with the unit. `none`: it has no column type."""
    fields: tuple[tuple[str, Shape], ...] = ()
    item: Shape | None = None
    """Type of an array's elements, or of a map's values."""
    digits: tuple[int, int] = (0, 0)
    """Precision and scale of a decimal."""
    size_min: int = 1
    """The fewest bytes that a value takes in Avro."""
    why: str = ""
    """Why it has no column type."""
    parts: int = 1

    @property
    def ddl(self) -> str:
        """The type in Spark's SQL."""
        if self.kind == "struct":
            inside = (f"{quoted(name)}: {each.ddl}" for name, each in self.fields)
            return f"struct<{', '.join(inside)}>"
        if self.item is not None:
            return f"array<{self.item.ddl}>" if self.kind == "array" else f"map<string, {self.item.ddl}>"
        if self.kind == "decimal":
            return "decimal({},{})".format(*self.digits)
        return "string" if self.kind == "enum" else self.kind.partition(" ")[0]

    def untyped(self, path: str = "value") -> str | None:
        """Return which part has no column type, and why; None: all have one.

        Example:
            >>> Definition(b'{"type": "record", "name": "R", "fields": []}').shape.untyped()
            'value has no fields'
        """
        if self.kind == "none":
            return f"{path} {self.why}"
        if self.kind == "struct" and not self.fields:
            return f"{path} has no fields"
        inside = list(self.fields) if self.item is None else [("element", self.item)]
        return next((why for name, each in inside if (why := each.untyped(f"{path}.{name}"))), None)


def quoted(name: str) -> str:
    """Quote the name of a field for SQL."""
    return "`" + name.replace("`", "``") + "`"


def _none(why: str, size_min: int = 1) -> Shape:
    return Shape("none", why=why, size_min=size_min)


class Definition:
    """A definition as the decoders need it.

    Example:
        >>> found = Definition(b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
        >>> found.shape.ddl
        'struct<`a`: int>'

    Raises:
        BadSchema: it is not the definition of a record.
    """

    def __init__(self, data: bytes) -> None:
        self._known: dict[str, tuple[str, Shape]] = {}
        self._open: set[str] = set()
        self._count = 0
        self.refused = ""
        """Why values in Avro cannot be decoded safely; empty: they can."""
        try:
            self.shape, self.avro = self._type(json.loads(data), "")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadSchema(f"its definition is not valid as Avro: {error!r}") from None
        if self.shape.kind != "struct":
            raise BadSchema(f"its definition is {self.shape.kind}, and not a record")

    def _type(self, tree: Any, space: str) -> tuple[Shape, Any]:
        if isinstance(tree, str):
            if tree in _PRIMITIVES:
                return _primitive(tree), tree
            return self._named(tree, space)
        if isinstance(tree, list):
            return self._union(tree, space)
        kind = tree["type"]
        if isinstance(kind, str) and kind in ("record", "error", "enum", "fixed"):
            return self._new(kind, tree, space)
        if kind == "array":
            return self._array(tree, space)
        if kind == "map":
            item, avro = self._type(tree["values"], space)
            return Shape("map", item=item), {"type": "map", "values": avro}
        if isinstance(kind, str) and kind in _PRIMITIVES:
            return _logical(_primitive(kind), kind, tree)
        return self._type(kind, space)

    def _array(self, tree: Any, space: str) -> tuple[Shape, Any]:
        item, avro = self._type(tree["items"], space)
        if item.size_min == 0:  # a few bytes could claim any number of them
            self.refused = self.refused or "it has an array of elements without content"
        return Shape("array", item=item), {"type": "array", "items": avro}

    def _named(self, name: str, space: str) -> tuple[Shape, Any]:
        full = name if "." in name or not space else f"{space}.{name}"
        full = full if full in self._known or full in self._open else name
        if full in self._open:
            self.refused = "it contains itself"
            return _none("contains itself"), "null"
        alias, shape = self._known[full]
        return shape, alias

    def _new(self, kind: str, tree: Any, space: str) -> tuple[Shape, Any]:
        """Return a named type under a plain name.

        Names of Java are not all valid as Avro.
        """
        name = str(tree["name"])
        own = tree.get("namespace")
        space = space if own is None else str(own)  # an empty one is none
        space = name.rpartition(".")[0] if "." in name else space
        full = name if "." in name or not space else f"{space}.{name}"
        alias, self._count = f"t{self._count}", self._count + 1
        avro: dict[str, Any] = {"type": kind, "name": alias}
        if kind == "enum":
            avro["symbols"] = list(tree["symbols"])
            shape = Shape("enum")
        elif kind == "fixed":
            avro["size"] = int(tree["size"])
            shape, avro = _logical(Shape("binary", size_min=avro["size"]), avro, tree)
        else:
            self._open.add(full)
            fields = []
            avro["fields"] = []
            for each in tree["fields"]:
                inner, inner_avro = self._type(each["type"], space)
                fields.append((str(each["name"]), inner))
                avro["fields"].append({"name": str(each["name"]), "type": inner_avro})
            self._open.discard(full)
            size_min, parts = (
                1 + sum(getattr(each, name) for _, each in fields) for name in ("size_min", "parts")
            )
            shape = Shape("struct", tuple(fields), size_min=size_min - 1, parts=parts)
            if parts > PARTS_MAX:
                shape = _none(f"has more than {PARTS_MAX:,} parts", size_min - 1)
        self._known[full] = alias, shape
        return shape, avro

    def _union(self, branches: list[Any], space: str) -> tuple[Shape, Any]:
        found = [self._type(each, space) for each in branches]
        avro = [each for _, each in found]
        shapes = [shape for shape, _ in found if shape.kind != "none" or shape.why != _NULL]
        if len(shapes) == 1:
            shape = shapes[0]
            return (shape if shape.size_min else Shape(shape.kind, shape.fields, shape.item)), avro
        kinds = {each.kind for each in shapes}
        for narrow, wide in _WIDER:
            if kinds and kinds <= narrow:
                return Shape(wide), avro
        told = " and ".join(sorted(kinds)) or "null"
        return _none(f"is a union of {told}, which has no column type"), avro


_NULL = "is always null, which has no column type"


def _primitive(name: str) -> Shape:
    kind = _PRIMITIVES[name]
    return _none(_NULL, 0) if kind == "null" else Shape(kind)


def _logical(shape: Shape, avro: Any, tree: Mapping[str, Any]) -> tuple[Shape, Any]:
    """Apply the logical type of a definition.

    Only decimals are left to the decoder of Avro.
    """
    logical = tree.get("logicalType")
    if logical == "decimal" and shape.kind == "binary":
        precision, scale = int(tree["precision"]), int(tree.get("scale") or 0)
        if not 0 <= scale <= precision <= DIGITS_MAX or precision < 1:
            return _none(f"is a decimal of {precision} digits; columns have at most {DIGITS_MAX}"), avro
        also = {"logicalType": "decimal", "precision": precision, "scale": scale}
        plain = avro if isinstance(avro, dict) else {"type": avro}
        made = Shape("decimal", digits=(precision, scale), size_min=shape.size_min)
        return made, {**plain, **also}
    kind = _LOGICAL.get((shape.kind, str(logical)))
    return (Shape(kind) if kind else shape), avro


# -- into Arrow ----------------------------------------------------------------------------------------

_TARGETS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "boolean": (pa.types.is_boolean,),
    "int": (pa.types.is_int32, pa.types.is_int64, pa.types.is_float32, pa.types.is_float64),
    "bigint": (pa.types.is_int64, pa.types.is_float32, pa.types.is_float64),
    "float": (pa.types.is_float32, pa.types.is_float64),
    "double": (pa.types.is_float64,),
    "string": (pa.types.is_string, pa.types.is_large_string),
    "enum": (pa.types.is_string, pa.types.is_large_string),
    "binary": (pa.types.is_binary, pa.types.is_large_binary),
    "date": (pa.types.is_date32,),
}


def misfit(shape: Shape, target: pa.DataType, path: str = "value") -> str | None:
    """Return why values of a shape cannot become this column; None: they can.

    Fields that the shape does not have are null, and those that only it has are left out.
    """
    if pa.types.is_struct(target) and shape.kind == "struct":
        inside = dict(shape.fields)
        parts = [(inside.get(each.name), each.type, f"{path}.{each.name}") for each in target]
    elif pa.types.is_list(target) and shape.kind == "array":
        parts = [(shape.item, target.value_type, f"{path}.element")]
    elif pa.types.is_map(target) and shape.kind == "map":
        parts = [(shape.item, target.item_type, f"{path}.value")]
    else:
        return None if _is_target(shape, target) else _words(shape, target, path)
    return next(
        (why for each, kind, at in parts if each is not None and (why := misfit(each, kind, at))), None
    )


def is_exact(shape: Shape, target: pa.DataType) -> bool:
    """Return whether a column has only fields of the shape, in its own types.

    Then Arrow decodes JSON as the shape's own decoder does. A FLOAT would be rounded twice there.
    """
    if pa.types.is_struct(target) and shape.kind == "struct":
        inside = dict(shape.fields)
        return all(each.name in inside and is_exact(inside[each.name], each.type) for each in target)
    if pa.types.is_list(target) and shape.item is not None:
        return shape.kind == "array" and is_exact(shape.item, target.value_type)
    return shape.kind in ("boolean", "int", "bigint", "double", "string") and _TARGETS[shape.kind][0](target)


def _is_target(shape: Shape, target: pa.DataType) -> bool:
    if shape.kind.startswith("timestamp"):
        return bool(pa.types.is_timestamp(target)) and (target.tz is None) == ("_ntz" in shape.kind)
    if shape.kind == "decimal":
        precision, scale = shape.digits
        wide = bool(pa.types.is_decimal(target)) and target.scale >= scale
        return wide and target.precision - target.scale >= precision - scale
    return any(is_one(target) for is_one in _TARGETS.get(shape.kind, ()))


def _words(shape: Shape, target: pa.DataType, path: str) -> str:
    found = shape.why if shape.kind == "none" else f"is {shape.ddl}"
    return f"{path} {found}, and the column is {target}"


def converter(shape: Shape, target: pa.DataType) -> Convert | None:
    """Return a function from a decoded value to one that Arrow takes for this type.

    None: the value needs no change. The shape must fit.
    """
    if shape.kind == "struct":
        inside = dict(shape.fields)
        made = {
            each.name: convert
            for each in target
            if each.name in inside and (convert := converter(inside[each.name], each.type)) is not None
        }
        return _struct(made) if made else None
    if shape.kind == "array":
        assert shape.item is not None
        return _list(converter(shape.item, target.value_type))
    if shape.kind == "map":
        assert shape.item is not None
        item = converter(shape.item, target.item_type) or _same
        return lambda found: [(key, None if x is None else item(x)) for key, x in found.items()]
    if pa.types.is_floating(target) and shape.kind in ("int", "bigint"):
        return float
    if shape.kind.endswith(" ms"):
        return lambda found: found * MICROS_IN_MILLI
    return str if shape.kind == "enum" else None


def _list(item: Convert | None) -> Convert | None:
    return None if item is None else lambda found: [None if x is None else item(x) for x in found]


def _same(found: Any) -> Any:
    return found


def _struct(made: dict[str, Convert]) -> Convert:
    def convert(found: dict[str, Any]) -> dict[str, Any]:
        out = dict(found)
        for name, each in made.items():
            if out.get(name) is not None:
                out[name] = each(out[name])
        return out

    return convert


# -- out of JSON ---------------------------------------------------------------------------------------

_JSON: dict[str, Any] = {
    "boolean": bool,
    "int": Annotated[int, msgspec.Meta(ge=-INT_MAX - 1, le=INT_MAX)],
    "bigint": Annotated[int, msgspec.Meta(ge=-LONG_MAX - 1, le=LONG_MAX)],
    "float": float,
    "double": float,
    "string": str,
    "enum": str | int,
    "binary": bytes,
    "date": Annotated[int, msgspec.Meta(ge=-INT_MAX - 1, le=INT_MAX)] | date,
    "decimal": Decimal,
}


def _nullable(kind: Any) -> Any:
    return kind | None


def json_type(shape: Shape) -> Any:
    """Return the type by which a value in JSON is checked.

    Parts without a column type are left out.
    """
    if shape.kind == "struct":
        fields = {name: _nullable(json_type(each)) for name, each in shape.fields if each.kind != "none"}
        return cast(Any, TypedDict)("Record", fields, total=False)
    if shape.item is not None:
        item = Any if shape.item.kind == "none" else _nullable(json_type(shape.item))
        return list.__class_getitem__(item) if shape.kind == "array" else dict.__class_getitem__((str, item))
    return _JSON.get(shape.kind, _JSON["bigint"])
