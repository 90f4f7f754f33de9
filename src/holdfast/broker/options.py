"""The options of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

from holdfast.errors import Misuse

SyncMode = Literal["group", "always", "os"]

COUNT_MOST = 1 << 62
"""The largest number of bytes, entries or messages in an option or a policy."""
SECONDS_MOST = 1e9
"""The longest time in an option or a policy. In ns, added to the time of now, it fits into 63 bits."""


_TYPES: Mapping[str, Any] = {"bool": bool, "int": int, "float": int | float, "str": str, "SyncMode": str}
_KINDS = {
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number of seconds",
    "str": "a text",
    "SyncMode": "'group', 'always' or 'os'",
}


def age_ns(seconds: float) -> int:
    """Convert an age to ns. Nothing is older than `SECONDS_MOST`.

    Example:
        >>> age_ns(0.5), age_ns(1e300)
        (500000000, 1000000000000000000)

    Raises:
        Misuse: the age is below 0, or not a number.
    """
    if not seconds >= 0:
        raise Misuse(f"an age of {seconds} s; use 0 or more")
    return int(min(seconds, SECONDS_MOST) * 1e9)


@dataclass(frozen=True)
class BrokerOptions:
    """The options of `Broker.open`, with units in the names.

    Example:
        >>> BrokerOptions(sync="os").sync
        'os'
    """

    sync: SyncMode = "group"
    """When a message counts as durable.

    `group`: after the `fdatasync` of its round; all that waits shares one. A power cut loses nothing that was
    confirmed. Acknowledgements without a receipt may be lost with the last 10 ms.
    `always`: the same, and every acknowledgement starts a round at once.
    `os`: after the write; the system is asked to sync once a second. A killed process loses nothing, a power
    cut loses up to a second of what was confirmed.
    """
    cluster: str = "standalone"
    """The label `cluster` in metrics."""
    create_topics: bool = True
    """Producers and consumers create missing topics."""
    require_namespaces: bool = False
    """Topics can be created only in namespaces that exist. Servers set this; embedded brokers need not."""
    deduplication: bool = False
    """Default of topics without their own setting."""
    deduplication_age_s: float = 7 * 24 * 3600.0
    """Unused time after which a producer's name expires; its sequence may then start again."""
    skip_damaged: bool = False
    """Skip entries that are damaged on disk: acknowledge and count them. By default consumers get an error
    with file and position."""
    roll_bytes: int = 256 << 20
    """Size at which a ledger is sealed and the next one opened."""
    roll_entries: int = 1 << 20
    """Number of entries at which a ledger is sealed."""
    roll_age_s: float = 4 * 3600.0
    """Age at which a ledger with entries is sealed."""
    retention_bytes: int = 0
    """Bytes kept of entries that all subscriptions have acknowledged; −1: no limit."""
    retention_s: float = 0.0
    """Time for which acknowledged entries are kept; −1: no limit. An entry within either limit stays."""
    snapshot_bytes: int = 64 << 20
    """Bytes of journal after which a snapshot is taken."""
    snapshot_s: float = 60.0
    """Time after which a snapshot is taken, if there were events."""
    journal_bytes: int = 16 << 20
    """Size of each journal file; there are always two."""
    reserve_bytes: int = 32 << 20
    """Reserved disk space, so that acknowledgements, deletes and snapshots continue on a full disk."""
    housekeeping_s: float = 5.0
    """Interval of the checks of ages: ledgers, messages, stages."""
    reset_timeout_s: float = 30.0
    """Time after which a reset with unknown outcome is fenced."""
    nack_first_s: float = 1.0
    """Delay of redelivery after the first negative acknowledgement of a message; doubles each time."""
    nack_most_s: float = 60.0
    """Largest delay of redelivery after negative acknowledgements."""
    unacked_max: int = 0
    """Unacknowledged messages of a consumer at which it gets no further ones; 0: no limit."""
    stage_age_s: float = 24 * 3600.0
    """Age at which an uncommitted stage is dropped."""
    sink_age_s: float = 90 * 24 * 3600.0
    """Time after its last commit at which a sink's progress expires; a batch sent again after that is new."""

    def conflicts(self) -> list[tuple[str, str]]:
        """List values that are not possible: (name, what is possible)."""
        found = []
        for each in fields(self):
            value = getattr(self, each.name)
            if not isinstance(value, _TYPES[str(each.type)]) or (
                isinstance(value, bool) and each.type != "bool"
            ):
                found.append((each.name, _KINDS[str(each.type)]))
                continue
            if each.name == "sync" and value not in get_args(SyncMode):
                found.append((each.name, _KINDS["SyncMode"]))
                continue
            if isinstance(value, bool | str) or (each.name.startswith("retention_") and value == -1):
                continue
            most = SECONDS_MOST if each.name.endswith("_s") else COUNT_MOST
            if not 0 <= value <= most:
                found.append((each.name, f"0 to {most:.0f}"))
        return found

    def require_sound(self) -> None:
        """Raise Misuse for a value that is not possible: later it would fail within housekeeping."""
        for name, possible in self.conflicts():
            raise Misuse(f"the option {name} is {getattr(self, name)!r}; use {possible}")


VISITING: Mapping[str, Any] = MappingProxyType(
    {
        "retention_bytes": -1,
        "retention_s": -1.0,
        "stage_age_s": 1e9,
        "sink_age_s": 1e9,
        "deduplication_age_s": 1e9,
    }
)
"""Options for a program that opens a directory for a moment: it expires and trims nothing by default.

The broker that serves the directory does that by its own options. Policies of topics and namespaces are in
the directory, and apply here, too.
"""
