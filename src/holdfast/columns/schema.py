"""The columns of the source, with types for Spark and Arrow. Names are a contract."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadConfiguration

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "messageId": "struct<ledger: bigint, entry: bigint, batchIndex: int>",
    "publishTime": "timestamp",
    "eventTime": "timestamp",
    "producer": "string",
    "sequenceId": "bigint",
    "properties": "map<string, string>",
    "position": "bigint",
    "storedTime": "timestamp",
}
"""The columns unless the user gives a schema. `position`: the number of the entry in its topic, without gaps;
all messages of a client's batch have the same. `storedTime`: the broker's log time, as stored in every block.
"""
EXTRA = {
    "encryption": "binary",
    "corrupt": "string",
    "keyEncoding": "string",
    "orderingKey": "binary",
    "uniqueId": "string",
    "deliverAt": "timestamp",
    "schemaVersion": "bigint",
}
"""Columns that must be asked for. `encryption`: MessageMetadata of an encrypted message, with the keys that
its reader needs. `corrupt`: the fault of a damaged entry, which then has its own row (mode=permissive).
`keyEncoding`: `base64` for a key of bytes, as the producer marked it. `uniqueId`: ledger, entry and index in
the batch, with colons; unique in a broker. `deliverAt`: the delivery time. Shared and Key_Shared
subscriptions get the message only then, the source has it at once. null: no delay. `schemaVersion`: the
version of the topic's schema that the producer had. null: it had none.
"""


def schema_text(options: dict[str, Any], registered: Callable[[dict[str, Any]], str] | None = None) -> str:
    """Return the default schema, as DDL.

    Args:
        options: of the source, parsed.
        registered: returns the type of `value` by the registry, for valueFormat=schema.

    Raises:
        BadConfiguration: valueFormat is given without valueSchema.
    """
    if options["valueFormat"] == "json" and options["valueSchema"] is None:
        raise BadConfiguration("valueFormat=json needs valueSchema, such as 'id BIGINT, name STRING'")
    found = _own(options)
    if options["valueSchema"] is not None:
        found["value"] = f"struct<{options['valueSchema']}>"
    if options["valueFormat"] == "schema" and registered is not None:
        found["value"] = registered(options)
    return ", ".join(f"`{name}` {kind}" for name, kind in found.items())


def _own(options: dict[str, Any]) -> dict[str, str]:
    """Return the columns of the default schema, with binary values."""
    return {**COLUMNS, **({"encryption": EXTRA["encryption"]} if options["includeHeaders"] else {})}


def require_columns(schema: StructType, options: dict[str, Any]) -> list[str]:
    """Return the names of a schema's columns, after a check that the source has them.

    Raises:
        BadConfiguration: a column is unknown, has another type, or contradicts the options.
    """
    from pyspark.sql.types import StructType

    known = {**COLUMNS, **EXTRA}
    if options["valueSchema"] is not None and schema.fieldNames() != [*_own(options)]:
        raise BadConfiguration(
            "your own schema sets the type of value, with valueFormat=json for JSON: leave out valueSchema"
        )
    json = options["valueFormat"] == "json" or options["valueSchema"] is not None
    for field in schema.fields:
        if field.name not in known:
            near = difflib.get_close_matches(field.name, known, 1, 0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise BadConfiguration(
                f"the source of holdfast has no column {field.name!r}{meant}. It has: {', '.join(known)}"
            )
        told = field.dataType.simpleString()
        _require_nullable(field, field.name)
        if field.name == "value" and (json or options["valueFormat"] == "schema"):
            if not isinstance(field.dataType, StructType):
                form = options["valueFormat"] or "json"
                raise BadConfiguration(f"with valueFormat={form} the column value is a struct, not {told}")
            _require_decodable(field.dataType, "value")
        elif field.name == "value" and isinstance(field.dataType, StructType):
            raise BadConfiguration(
                "the column value is binary; for a struct, give valueFormat=json or schema"
            )
        elif told != known[field.name].replace(", ", ",").replace(": ", ":"):
            raise BadConfiguration(
                f"the column {field.name} is {known[field.name]}, not {told}; cast it in Spark"
            )
    return schema.fieldNames()


def _require_nullable(field: StructField, place: str) -> None:
    """Raise BadConfiguration for NOT NULL: Spark would not look for nulls then."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    if not field.nullable:
        raise BadConfiguration(f"{place} must be able to be null: leave out NOT NULL")
    kind = field.dataType
    inside = kind.fields if isinstance(kind, StructType) else []
    if isinstance(kind, ArrayType):
        inside = [StructField("element", kind.elementType, kind.containsNull)]
    elif isinstance(kind, MapType):
        inside = [StructField("value", kind.valueType, kind.valueContainsNull)]
    for each in inside:
        _require_nullable(each, f"{place}.{each.name}")


_DECODABLE = {"string", "boolean", "byte", "short", "integer", "long", "float", "double", "decimal"} | {
    "timestamp", "timestamp_ntz", "date", "binary"
}  # fmt: skip
"""Types that JSON can become (`json_values`), beside structs, arrays, and maps from strings."""


def _require_decodable(kind: DataType, place: str) -> None:
    """Raise BadConfiguration for types that JSON cannot become."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        names = kind.fieldNames()
        if twice := [name for name in names if names.count(name) > 1]:
            raise BadConfiguration(f"the schema has {place}.{twice[0]} twice")
        for field in kind.fields:
            _require_decodable(field.dataType, f"{place}.{field.name}")
    elif isinstance(kind, ArrayType):
        _require_decodable(kind.elementType, f"{place}.element")
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        _require_decodable(kind.valueType, f"{place}.value")
    elif kind.typeName() not in _DECODABLE:
        raise BadConfiguration(f"{place} is {kind.simpleString()}, which JSON cannot become")
