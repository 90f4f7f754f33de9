"""Whether a condition says the same of a row whenever it is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.errors import Misuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FLEETING = ("Current", "Now", "LocalTimestamp", "Catalyst", "SparkVersion")
"""How the names of Spark's expressions begin that depend on when, or by whom, they are asked."""
_ELSEWHERE = ("Subquery", "ListQuery", "Exists", "InSubquery")
_MOMENT = r"\s*(now|today|yesterday|tomorrow)\b"
_LITERAL = re.compile(rf"\b(date|timestamp\w*)\s*r?['\"]({_MOMENT}[^'\"]*)", re.IGNORECASE)
"""DATE 'today': Spark's parser has made a day of it already."""
_CAST = re.compile(_MOMENT, re.IGNORECASE)
_TIMES = ("date", "timestamp", "timestamp_ntz")
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)


def require_lasting(rows: DataFrame, words: str) -> None:
    """The last thing that was done to these rows is a filter, and its condition is of the row alone.

    Raises:
        Misuse: it depends on the time of day, on chance, or on other tables.
    """
    for text in (words, _COMMENT.sub(" ", words)):
        if found := _LITERAL.search(text):
            raise Misuse(_fleeting(words, repr(found[2])))
    plan: Any = rows._jdf.queryExecution().analyzed()
    condition = plan.condition()
    for each in _within(condition):
        name = each.getClass().getSimpleName()
        if name.startswith(_FLEETING) or not each.deterministic():
            raise Misuse(_fleeting(words, f"{each.prettyName()}()"))
        for moment in _texts(each) if each.dataType().typeName() in _TIMES else ():
            if _CAST.match(moment):
                raise Misuse(_fleeting(words, repr(moment)))
        if any(part in name for part in _ELSEWHERE):
            raise Misuse(
                f"the condition {words!r} asks another table, which may change; a replay that was killed "
                "goes on with the same rows: write the values themselves"
            )


def _fleeting(words: str, what: str) -> str:
    return (
        f"the condition {words!r} has {what}, which says something else each time; a replay that was killed "
        "goes on with the same rows: write the value itself"
    )


def _texts(expression: Any) -> Iterator[str]:
    """Those that it makes something of, and that depend on no row."""
    for child in _children(expression):
        if child.foldable() and child.dataType().typeName() == "string":
            yield str(child.eval(None))


def _children(expression: Any) -> Iterator[Any]:
    children = expression.children()
    for at in range(children.size()):
        yield children.apply(at)


def _within(expression: Any) -> Iterator[Any]:
    """It, and all that it is made of; the innermost first."""
    for child in _children(expression):
        yield from _within(child)
    yield expression
