"""Keep the options of a table in Spark's catalog: `CREATE TABLE t USING holdfast OPTIONS (…)`.

Spark (4.3) passes the options of a table to a source in Python once, when the table is created, among its own
properties. A later query gets only the table's columns. So the comment of the first column keeps the options.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.errors import BadConfiguration
from holdfast.pipeline.options import OPTIONS, Side

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_PROVIDER = "provider"
"""A property that only tables have."""
_OPTION = "option."
"""Prefix: the user's options are among the properties twice, once with it."""
_KEPT = "holdfast table "
_SECRET = ("token",)
_HOW = "SELECT … FROM t WITH (token = '…'), or spark.read.option('token', …).table('t')"


def is_table(given: Mapping[str, str]) -> bool:
    """Tell whether these are the properties of a table that is being created."""
    return any(name.lower() == _PROVIDER for name in given)


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """Select the user's options from the properties of a new table, also LOCATION as `path`.

    Raises:
        BadConfiguration: there is a token, which every reader of the table would see.
    """
    lowered = {name.lower(): value for name, value in given.items()}
    found = {name: value for name, value in lowered.items() if f"{_OPTION}{name}" in lowered}
    if "path" in lowered:  # also from LOCATION, as file:/srv/data
        path = lowered["path"]
        found["path"] = "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:/") else path
    if secret := [name for name in _SECRET if name in found]:
        raise BadConfiguration(
            f"a table cannot keep a {secret[0]}: its columns would show it; give it in each query: {_HOW}"
        )
    return found


def kept(options: Mapping[str, str]) -> str:
    """Return the options as the comment of a column."""
    return _KEPT + json.dumps(dict(sorted(options.items())))


def recalled(schema: StructType, given: Mapping[str, str], side: Side) -> dict[str, str]:
    """Return the options of a query: those of its table, overridden by its own."""
    found: dict[str, str] = {}
    for field in schema.fields:
        comment = str((field.metadata or {}).get("comment", ""))
        if comment.startswith(_KEPT):
            try:
                found = {str(name): str(value) for name, value in json.loads(comment[len(_KEPT) :]).items()}
            except (ValueError, AttributeError):
                raise BadConfiguration(
                    f"the comment of column {field.name} was changed; it keeps the options of the table: "
                    "create the table again"
                ) from None
            break
    own = {name.lower() for name in given}
    return {**{name: value for name, value in of_side(found, side).items() if name not in own}, **given}


def of_side(options: Mapping[str, str], side: Side) -> dict[str, str]:
    """Drop the options of the other side: a table is read and written."""
    known = {each.name.lower(): each.sides for each in OPTIONS}
    return {name: value for name, value in options.items() if side in known.get(name, (side,))}


def with_comment(ddl: str, comment: str) -> str:
    """Add a comment to the first column of a schema, which has a simple type."""
    first, comma, rest = ddl.partition(", ")
    text = comment.replace("\\", "\\\\").replace("'", "\\'")
    return f"{first} COMMENT '{text}'{comma}{rest}"


NO_OPTIONS = (
    ". Spark does not pass on the options of a table with columns of its own: create it without columns, "
    "CREATE TABLE t USING holdfast OPTIONS (…), or give the options in the query: "
    "SELECT … FROM t WITH (topic = '…')"
)
"""End of the error about missing options."""
