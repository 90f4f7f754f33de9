"""Whether a condition says the same of a row whenever it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.errors import Misuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FLEETING = ("Current", "Now", "LocalTimestamp", "Catalyst", "SparkVersion")
"""How the names of Spark's expressions begin that depend on when, or by whom, they are asked."""
_ELSEWHERE = ("Subquery", "ListQuery", "Exists", "InSubquery")


def require_lasting(rows: DataFrame, words: str) -> None:
    """The last thing that was done to these rows is a filter, and its condition is of the row alone.

    Raises:
        Misuse: it depends on the time of day, on chance, or on other tables.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    condition = plan.condition()
    for each in _within(condition):
        name = each.getClass().getSimpleName()
        if name.startswith(_FLEETING) or not each.deterministic():
            raise Misuse(
                f"the condition {words!r} has {each.prettyName()}(), which says something else each time; a "
                "replay that was killed goes on with the same rows: write the value itself"
            )
        if any(part in name for part in _ELSEWHERE):
            raise Misuse(
                f"the condition {words!r} asks another table, which may change; a replay that was killed "
                "goes on with the same rows: write the values themselves"
            )


def _within(expression: Any) -> Iterator[Any]:
    """It, and all that it is made of; the innermost first."""
    children = expression.children()
    for at in range(children.size()):
        yield from _within(children.apply(at))
    yield expression
