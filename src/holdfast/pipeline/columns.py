"""The columns of the source: their names and types for Spark and for Arrow. The names are a contract."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadConfiguration

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

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
}
"""What is read unless the user gives a schema. `position`: the number of the entry in its topic, dense."""
EXTRA = {"encryption": "binary", "corrupt": "string", "keyEncoding": "string", "orderingKey": "binary"}
"""Only when asked for. `encryption`: an encrypted message's MessageMetadata, with the keys and all that its
reader needs. `corrupt`: what is wrong with a damaged entry, which is a row of its own then (mode=permissive).
`keyEncoding`: `base64` where the producer's key is bytes, which travel so, and clients tell that from text.
"""


def schema_text(options: dict[str, Any]) -> str:
    """The schema without a user's own, as DDL.

    Raises:
        BadConfiguration: a value's format without its schema, or the other way round.
    """
    if (options["valueFormat"] or "json") != "json" and options["valueSchema"] is not None:
        raise BadConfiguration("valueSchema is for valueFormat=json; leave one of them out")
    if options["valueFormat"] == "json" and options["valueSchema"] is None:
        raise BadConfiguration("valueFormat=json needs valueSchema, such as 'id BIGINT, name STRING'")
    found = dict(COLUMNS)
    if options["valueSchema"] is not None:
        found["value"] = f"struct<{options['valueSchema']}>"
    if options["includeHeaders"]:
        found["encryption"] = EXTRA["encryption"]
    return ", ".join(f"`{name}` {kind}" for name, kind in found.items())


def require_columns(schema: StructType, options: dict[str, Any]) -> list[str]:
    """The names of a schema's columns, all of which the source has.

    Raises:
        BadConfiguration: a column is unknown, or of another type.
    """
    from pyspark.sql.types import StructType

    known = {**COLUMNS, **EXTRA}
    for field in schema.fields:
        if field.name not in known:
            near = difflib.get_close_matches(field.name, known, 1, 0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise BadConfiguration(
                f"the source of holdfast has no column {field.name!r}{meant}. It has: {', '.join(known)}"
            )
        told = field.dataType.simpleString()
        if field.name == "value" and options["valueSchema"] is not None:
            if not isinstance(field.dataType, StructType):
                raise BadConfiguration(f"with valueSchema the column value is a struct, not {told}")
            _require_decodable(field.dataType, "value")
        elif told != known[field.name].replace(", ", ",").replace(": ", ":"):
            raise BadConfiguration(
                f"the column {field.name} is {known[field.name]}, not {told}; cast it in Spark"
            )
    return schema.fieldNames()


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
            if not field.nullable:
                raise BadConfiguration(f"{place}.{field.name} must be able to be null: leave out NOT NULL")
            _require_decodable(field.dataType, f"{place}.{field.name}")
    elif isinstance(kind, ArrayType):
        _require_decodable(kind.elementType, f"{place}.element")
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        _require_decodable(kind.valueType, f"{place}.value")
    elif kind.typeName() not in _DECODABLE:
        raise BadConfiguration(f"{place} is {kind.simpleString()}, and no JSON becomes that")
