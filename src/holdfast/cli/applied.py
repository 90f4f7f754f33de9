"""Show settings: the value set at a place, the value that applies, and its level."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from holdfast.cli.data import is_remote
from holdfast.formatting import text_table

if TYPE_CHECKING:
    from holdfast.broker import Broker

HEAD = ("SETTING", "SET HERE", "APPLIES", "FROM")
UNKNOWN = "as the server has it"


def word(value: Any) -> str:
    """Return a value as people read it.

    Example:
        >>> word(True), word(3600.0), word(("shared", "failover")), word(None)
        ('yes', '3600', 'shared, failover', '-')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)


def table(
    broker: Broker, of: str, names: Iterable[str], show: Callable[[Any], str] = word
) -> tuple[dict[str, Any], list[str]]:
    """Return settings by name, with `applied` and `from`; and the lines of a table.

    A directory does not know the options of the server that has it. So what they decide is None there.
    """
    values, served = broker.admin.policy_values(of), is_remote(broker)
    own: dict[str, Any] = {}
    applied: dict[str, Any] = {}
    places: dict[str, str | None] = {}
    rows = []
    for name in names:
        here, there, place = values[name]
        hidden = place == "broker" and not served
        own[name], applied[name], places[name] = here, None if hidden else there, place
        rows.append((name, show(here), UNKNOWN if hidden else show(there), place or "-"))
    return {**own, "applied": applied, "from": places}, text_table(HEAD, rows)
