"""The options of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, get_args

from holdfast.broker.limit_options import QUOTA_ACTIONS, LimitOptions
from holdfast.broker.partitions import PARTITIONS_MAX
from holdfast.broker.policy_options import STRATEGIES, TYPES, PolicyOptions, types_of
from holdfast.errors import Misuse
from holdfast.ledger import StoreOptions, SyncMode, journal_missed
from holdfast.names import checked_name

COUNT_MOST = 1 << 62
"""The largest number of bytes, entries or messages in an option or a policy."""
SECONDS_MOST = 1e9
"""The longest time in an option or a policy. In ns, added to the time of now, it fits into 63 bits."""


_TYPES: Mapping[str, Any] = {
    "bool": bool,
    "int": int,
    "float": int | float,
    "str": str,
    "SyncMode": str,
    "QuotaAction": str,
    "Strategy": str,
}
_KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number of seconds",
    "str": "a text",
    "SyncMode": "'group', 'always' or 'os'",
    "QuotaAction": ", ".join(map(repr, QUOTA_ACTIONS)),
    "Strategy": ", ".join(STRATEGIES),
}


def shown(value: Any) -> str:
    """Return a value as files and commands write it.

    Example:
        >>> shown(True), shown(5), shown("a")
        ('true', '5', "'a'")
    """
    return str(value).lower() if isinstance(value, bool) else repr(value)


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


def range_missed(name: str, value: float, zero: bool = True) -> str:
    """Return the range of an option or a policy that a value misses.

    An empty text: the value is in the range. The name tells the unit. With `zero` False, 0 is out of range.

    Example:
        >>> range_missed("retention_s", -1), range_missed("retention_s", -2)
        ('', '0 to 1000000000, or -1 for no limit')
    """
    unlimited = name.startswith("retention_")
    most = SECONDS_MOST if name.endswith("_s") else COUNT_MOST
    if (unlimited and value == -1) or (0 <= value <= most and (zero or value != 0)):
        return ""
    return f"{0 if zero else 1} to {most:.0f}{', or -1 for no limit' if unlimited else ''}"


def _missed(name: str, type_: str, value: Any) -> str:
    """Return the possible values of an option, or an empty text if this is one."""
    if not isinstance(value, _TYPES[type_]) or (isinstance(value, bool) and type_ != "bool"):
        return _KINDS[type_]
    if name == "sync":
        return "" if value in get_args(SyncMode) else _KINDS["SyncMode"]
    if type_ == "QuotaAction":
        return "" if value in QUOTA_ACTIONS else _KINDS["QuotaAction"]
    if type_ == "Strategy":
        return "" if value in STRATEGIES else _KINDS["Strategy"]
    if name == "subscription_types":
        return "" if types_of(value) else f"one or more of {', '.join(TYPES)}, with commas between them"
    if name == "cluster":
        try:
            checked_name(f"{value}-{bytes(6).hex()}", "a producer")  # the broker makes such names
        except Misuse:
            return "printable characters, at most 1000 bytes of them"
        return ""
    if isinstance(value, bool):
        return ""
    if name == "create_partitions":
        return "" if 0 <= value <= PARTITIONS_MAX else f"0 to {PARTITIONS_MAX}"
    zero = not name.endswith("_period_s")
    return range_missed(name, value, zero) or (journal_missed(value) if name == "journal_bytes" else "")


@dataclass(frozen=True)
class DeliveryOptions:
    """The options of deliveries that a broker and its dispatchers share."""

    skip_damaged: bool = False
    """Skip entries that are damaged on disk: acknowledge and count them. By default consumers get an error
    with file and position."""
    unacked_max: int = 0
    """Unacknowledged messages of a consumer at which it gets no further ones; 0: no limit."""
    nack_first_s: float = 1.0
    """Delay of redelivery after the first negative acknowledgement of a message; doubles each time."""
    nack_most_s: float = 60.0
    """Largest delay of redelivery after negative acknowledgements."""
    delayed_delivery: bool = True
    """Shared and Key_Shared subscriptions hold messages back until their delivery time; else not."""
    delayed_tick_s: float = 0.1
    """Least time between two looks for messages that are due: they come late by at most as much."""
    reset_timeout_s: float = 30.0
    """Time after which a reset with unknown outcome is fenced. The fence is retried at this interval."""


@dataclass(frozen=True)
class BrokerOptions(LimitOptions, PolicyOptions, DeliveryOptions, StoreOptions):
    """The options of `Broker.open`, with those of limits, policies, deliveries and the store.

    Example:
        >>> BrokerOptions(sync="os").sync
        'os'
    """

    cluster: str = "standalone"
    """The label `cluster` in metrics."""
    create_topics: bool = True
    """Producers and consumers create missing topics."""
    create_partitions: int = 0
    """Partitions of a topic that a producer or consumer creates; 0: it is not partitioned."""
    require_namespaces: bool = False
    """Topics can be created only in namespaces that exist. Servers set this; embedded brokers need not."""
    deduplication: bool = False
    """Default of topics without their own setting."""
    deduplication_age_s: float = 7 * 24 * 3600.0
    """Unused time after which a producer's name expires; its sequence may then start again."""
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
    create_subscriptions: bool = True
    """Consumers create missing subscriptions."""
    subscription_expiry_s: float = 0.0
    """Time without a consumer after which a subscription is deleted; 0: never."""
    inactive_topic_s: float = 0.0
    """Time after which an unused topic is deleted; 0: never."""
    inactive_topic_caught_up: bool = False
    """A topic with subscriptions counts as unused, if none has a backlog or a consumer."""
    compaction_threshold: int = 0
    """Bytes behind its compacted view at which a topic is compacted; 0: only on request."""
    compaction_keep_keyless: bool = False
    """Compaction keeps messages without a key; else they are left out."""
    compaction_memory_bytes: int = 256 << 20
    """Memory for the keys of a compaction. With more keys, it reads the topic more often."""
    compaction_grace_s: float = 300.0
    """Time for which the view before the last compaction is kept, for readers that began in it."""
    housekeeping_s: float = 5.0
    """Interval of the checks of ages: ledgers, messages, stages."""
    ownership_turn_s: float = 0.1
    """Longest turn of a member that dispatches a shared subscription, while consumers of others wait."""
    stage_age_s: float = 24 * 3600.0
    """Age at which an uncommitted stage is dropped."""
    sink_age_s: float = 90 * 24 * 3600.0
    """Time after its last commit at which a sink's progress expires; a batch sent again after that is new."""

    def conflicts(self) -> list[tuple[str, str]]:
        """List values that are not possible: (name, what is possible)."""
        found = []
        for each in fields(self):
            value = getattr(self, each.name)
            if possible := _missed(each.name, str(each.type), value):
                found.append((each.name, possible))
        return found

    def require_sound(self) -> None:
        """Raise Misuse for a value that is not possible: later it would fail within housekeeping."""
        for name, possible in self.conflicts():
            raise Misuse(f"the option {name} is {shown(getattr(self, name))}; use {possible}")


VISITING: Mapping[str, Any] = MappingProxyType(
    {
        "retention_bytes": -1,
        "retention_s": -1.0,
        "ttl_s": 0.0,
        "subscription_expiry_s": 0.0,
        "inactive_topic_s": 0.0,
        "stage_age_s": 1e9,
        "sink_age_s": 1e9,
        "deduplication_age_s": 1e9,
    }
)
"""Options for a program that opens a directory for a moment: it expires and trims nothing by default.

The broker that serves the directory does that by its own options. Policies of topics and namespaces are in
the directory, and apply here, too.
"""
