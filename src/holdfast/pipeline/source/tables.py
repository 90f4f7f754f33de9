"""Tables of Spark's catalog: `CREATE TABLE t USING holdfast OPTIONS (…)`.

Spark (4.3) tells a source in Python the options of a table once, when the table is made, among properties of
its own; whoever reads or writes the table later is told none of them, but for the table's columns. So the
options are kept where they come back: in the comment of the first column.
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
"""Spark says it of tables alone."""
_OPTION = "option."
"""What the user gave stands among Spark's properties twice, once behind this."""
_KEPT = "holdfast table "
_SECRET = ("token",)
_HOW = "SELECT … FROM t WITH (token = '…'), or spark.read.option('token', …).table('t')"


def is_table(given: Mapping[str, str]) -> bool:
    """Whether these are the properties of a table that is being made."""
    return any(name.lower() == _PROVIDER for name in given)


def table_options(given: Mapping[str, str]) -> dict[str, str]:
    """What the user gave, out of the properties of a table that is being made; and `path`, also as LOCATION.

    Raises:
        BadConfiguration: a token, which everybody would see who sees the table.
    """
    lowered = {name.lower(): value for name, value in given.items()}
    found = {name: value for name, value in lowered.items() if f"{_OPTION}{name}" in lowered}
    if "path" in lowered:  # also as LOCATION; Spark makes file:/srv/data of it
        path = lowered["path"]
        found["path"] = "/" + path.removeprefix("file:").lstrip("/") if path.startswith("file:/") else path
    if secret := [name for name in _SECRET if name in found]:
        raise BadConfiguration(
            f"a table keeps no {secret[0]}, because it would be seen with its columns; give it in each "
            f"query: {_HOW}"
        )
    return found


def kept(options: Mapping[str, str]) -> str:
    """The options as the comment of a column."""
    return _KEPT + json.dumps(dict(sorted(options.items())))


def recalled(schema: StructType, given: Mapping[str, str], side: Side) -> dict[str, str]:
    """The options of a query: those of its table, if it reads or writes one, and over them its own."""
    found: dict[str, str] = {}
    for field in schema.fields:
        comment = str((field.metadata or {}).get("comment", ""))
        if comment.startswith(_KEPT):
            try:
                found = {str(name): str(value) for name, value in json.loads(comment[len(_KEPT) :]).items()}
            except (ValueError, AttributeError):
                raise BadConfiguration(
                    f"the comment of column {field.name} was changed: it keeps the options of the table; "
                    "make the table again"
                ) from None
            break
    own = {name.lower() for name in given}
    return {**{name: value for name, value in of_side(found, side).items() if name not in own}, **given}


def of_side(options: Mapping[str, str], side: Side) -> dict[str, str]:
    """Without what only the other side knows: a table is read and written."""
    known = {each.name.lower(): each.sides for each in OPTIONS}
    return {name: value for name, value in options.items() if side in known.get(name, (side,))}


def with_comment(ddl: str, comment: str) -> str:
    """A schema as DDL whose first column has this comment. The column is of a simple type."""
    first, comma, rest = ddl.partition(", ")
    text = comment.replace("\\", "\\\\").replace("'", "\\'")
    return f"{first} COMMENT '{text}'{comma}{rest}"


NO_OPTIONS = (
    "; Spark does not pass on the options of a table with its own columns: create it without columns, CREATE "
    "TABLE t USING holdfast OPTIONS (…), or give the options in the query: SELECT … FROM t WITH (topic = '…')"
)
"""Where none was given at all."""
