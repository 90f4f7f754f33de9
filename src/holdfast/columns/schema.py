"""The columns of the source: their names and types for Spark and for Arrow. The names are a contract."""

from __future__ import annotations

import difflib
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
"""What is read unless the user gives a schema. `position`: the number of the entry in its topic, dense; all
messages of a client's batch have the same. `storedTime`: the broker's log time, which stands in every block.
"""
EXTRA = {
    "encryption": "binary",
    "corrupt": "string",
    "keyEncoding": "string",
    "orderingKey": "binary",
    "uniqueId": "string",
}
"""Only when asked for. `encryption`: an encrypted message's MessageMetadata, with the keys and all that its
reader needs. `corrupt`: what is wrong with a damaged entry, which is a row of its own then (mode=permissive).
`keyEncoding`: `base64` where the producer's key is bytes, which travel so, and clients tell that from text.
`uniqueId`: ledger, entry and index in the batch, with colons: no two messages of a broker have the same.
"""


def schema_text(options: dict[str, Any]) -> str:
    """The schema without a user's own, as DDL.

    Raises:
        BadConfiguration: a value's format without its schema.
    """
    if options["valueFormat"] == "json" and options["valueSchema"] is None:
        raise BadConfiguration("valueFormat=json needs valueSchema, such as 'id BIGINT, name STRING'")
    found = _own(options)
    if options["valueSchema"] is not None:
        found["value"] = f"struct<{options['valueSchema']}>"
    return ", ".join(f"`{name}` {kind}" for name, kind in found.items())


def _own(options: dict[str, Any]) -> dict[str, str]:
    """The columns without a user's schema, their values bytes."""
    return {**COLUMNS, **({"encryption": EXTRA["encryption"]} if options["includeHeaders"] else {})}


def require_columns(schema: StructType, options: dict[str, Any]) -> list[str]:
    """The names of a schema's columns, all of which the source has.

    Raises:
        BadConfiguration: a column is unknown, or of another type, or the options say another one.
    """
    from pyspark.sql.types import StructType

    known = {**COLUMNS, **EXTRA}
    if options["valueSchema"] is not None and schema.fieldNames() != [*_own(options)]:
        raise BadConfiguration(
            "with a schema of your own, the type of value stands there, and JSON is valueFormat=json: leave "
            "out valueSchema"
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
        if field.name == "value" and json:
            if not isinstance(field.dataType, StructType):
                raise BadConfiguration(f"with valueFormat=json the column value is a struct, not {told}")
            _require_decodable(field.dataType, "value")
        elif field.name == "value" and isinstance(field.dataType, StructType):
            raise BadConfiguration("the column value is binary; for a struct, give valueFormat=json")
        elif told != known[field.name].replace(", ", ",").replace(": ", ":"):
            raise BadConfiguration(
                f"the column {field.name} is {known[field.name]}, not {told}; cast it in Spark"
            )
    return schema.fieldNames()


def _require_nullable(field: StructField, place: str) -> None:
    """Raises BadConfiguration: Spark would believe that there is no null, and not look for any."""
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
"""What JSON can become (`json_values`), beside structs, arrays, and maps from strings."""


def _require_decodable(kind: DataType, place: str) -> None:
    """Raises BadConfiguration: JSON cannot be this, or it would be another thing than it says."""
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
        raise BadConfiguration(f"{place} is {kind.simpleString()}, and no JSON becomes that")
