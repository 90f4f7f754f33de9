"""Names of topics, subscriptions and producers: allowed characters, and full names.

Events are checked by these rules when they are applied, so all members must agree (I49). The rules are ranges
of code points: `str.isprintable` and `\\w` follow the Unicode tables of the Python version.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from holdfast.errors import Misuse, Unsupported

NAME_BYTES_MAX = 1024
"""The longest name. Events and snapshots repeat names often."""

_NEVER = "\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, line separators, marks that turn the direction of text, and halves of surrogates."""

_NAME = re.compile(f"[^{_NEVER}]+")
_PART = re.compile(f"[^\x00-,/;<>-@\\[-\\^`{{-~{_NEVER}]+")
"""The characters of a tenant or namespace: those of Pulsar (letters, digits, `_.=:-`), and non-ASCII ones."""

_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,8})", re.DOTALL)
_NAMELESS = re.compile(r"(?:non-)?persistent://[^/]+/[^/]+/")
"""A topic's full name without its last part."""

NON_PERSISTENT = "non-persistent://"
"""Beginning of the full names of non-persistent topics."""

FULL_NAME_BYTES_MAX = len(NON_PERSISTENT) + NAME_BYTES_MAX + 1 + NAME_BYTES_MAX
"""The longest full name of a topic: its namespace and its own name."""

INGEST = "holdfast.ingest."
"""Prefix of the names of local ingest's producers. Such names are always deduplicated, also by the core."""

SHOWN_LENGTH_MAX = 200
"""The most characters of a name that an error repeats."""


class TopicName(NamedTuple):
    """A topic's name in its parts.

    Example:
        >>> TopicName.parse("orders").namespace
        'default'
        >>> print(TopicName.parse("shop/eu/orders"))
        persistent://shop/eu/orders
    """

    tenant: str
    namespace: str
    topic: str

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace}/{self.topic}"

    @classmethod
    def parse(cls, name: str) -> TopicName:
        """Parse `topic`, `tenant/namespace/topic` or the full form.

        Raises:
            Misuse: the text is not the name of a topic.
            Unsupported: the topic is not persistent.
        """
        require_is_text(name, "a topic")
        domain, colon, path = name.rpartition("://")
        if colon and domain != "persistent":
            words = "others are reached by clients of a server, and by its HTTP paths"
            raise Unsupported(f"{shown(name)} is not a persistent topic; {words}")
        parts = path.split("/", 2)
        if len(parts) == 1 and not colon:
            parts = ["public", "default", path]
        if len(parts) != 3 or not _PART.fullmatch(parts[0]) or not _PART.fullmatch(parts[1]):
            raise Misuse(
                f"{shown(name)} is not the name of a topic; write orders, or tenant/namespace/orders"
            )
        checked_name(parts[2], "a topic")
        return cls(*parts)


def tenant_name(name: str) -> str:
    """Return the name of a tenant unchanged.

    Raises:
        Misuse: the text is not the name of a tenant.
    """
    require_is_text(name, "a tenant")
    require_length(name, "a tenant")
    if not _PART.fullmatch(name):
        raise Misuse(f"{shown(name)} cannot name a tenant: use letters, digits and . = : - _")
    return name


def namespace_name(name: str) -> str:
    """Return the name of a namespace, `tenant/namespace`, unchanged.

    Example:
        >>> namespace_name("shop/eu")
        'shop/eu'

    Raises:
        Misuse: the text is not the name of a namespace.
    """
    require_is_text(name, "a namespace")
    require_length(name, "a namespace")
    parts = name.split("/")
    if len(parts) != 2 or not all(_PART.fullmatch(part) for part in parts):
        raise Misuse(f"{shown(name)} cannot name a namespace; write tenant/namespace")
    return name


def namespace_of(topic: str) -> str:
    """Return the namespace of a topic's full name.

    Example:
        >>> namespace_of("persistent://shop/eu/orders")
        'shop/eu'
    """
    return "/".join(topic.partition("://")[2].split("/", 2)[:2])


def topic_name(name: str) -> str:
    """Return the full name of a topic.

    Example:
        >>> topic_name("orders")
        'persistent://public/default/orders'

    Raises:
        Misuse: the text is not the name of a topic.
    """
    require_is_text(name, "a topic")
    return _full_name(name)


@lru_cache(maxsize=256)  # stats ask several times for the same name; a name has at most 2 KB
def _full_name(name: str) -> str:
    return str(TopicName.parse(name))


def any_topic_name(name: str) -> str:
    """Return the full name of a topic, also of a non-persistent one.

    Example:
        >>> any_topic_name("non-persistent://public/default/levels")
        'non-persistent://public/default/levels'

    Raises:
        Misuse: the text is not the name of a topic.
    """
    require_is_text(name, "a topic")
    if not name.startswith(NON_PERSISTENT):
        return topic_name(name)
    path = name.removeprefix(NON_PERSISTENT)
    return NON_PERSISTENT + topic_name(f"persistent://{path}").partition("://")[2]


def is_persistent(full: str) -> bool:
    """Return whether a full name is that of a persistent topic."""
    return not full.startswith(NON_PERSISTENT)


def partition_name(topic: str, index: int) -> str:
    """Return the name of a partition of a topic.

    Example:
        >>> partition_name("orders", 3)
        'orders-partition-3'
    """
    return f"{topic}-partition-{index}"


def partition_of(name: str) -> tuple[str, int] | None:
    """Split the name of a partition into topic and index; None: another name.

    Example:
        >>> partition_of("orders-partition-3"), partition_of("orders"), partition_of("orders-partition-03")
        (('orders', 3), None, None)
        >>> partition_of("persistent://public/default/-partition-0") is None  # its topic has no name
        True
    """
    found = _PARTITION.fullmatch(name)
    return None if found is None or _NAMELESS.fullmatch(found[1]) else (found[1], int(found[2]))


def checked_name(name: str, of: str) -> str:
    """Return a name unchanged.

    Raises:
        Misuse: the name is empty, too long, or has control characters in it.
    """
    require_is_text(name, of)
    require_length(name, of)
    if not _NAME.fullmatch(name):
        raise Misuse(f"{shown(name)} cannot name {of}: use one or more characters that can be printed")
    return name


def require_is_text(name: object, of: str) -> None:
    """Refuse a name that is not text.

    Raises:
        Misuse: the name is of another type.
    """
    if not isinstance(name, str):
        raise Misuse(f"{name!r} cannot name {of}: a name is text (str)")


def require_length(name: str, of: str, most: int = NAME_BYTES_MAX) -> None:
    """Refuse a name that is too long, before the rules that cost time by length.

    Raises:
        Misuse: the name is too long.
    """
    if len(name) > most or (not name.isascii() and len(name.encode(errors="surrogatepass")) > most):
        raise Misuse(
            f"{shown(name)} cannot name {of}: {len(name)} characters, at most {most} bytes are possible"
        )


def shown(name: str) -> str:
    """Return a name as errors repeat it: in quotes, a long one shortened.

    Example:
        >>> shown("orders")
        "'orders'"
        >>> len(shown("x" * 10_000))
        203
    """
    return repr(name) if len(name) <= SHOWN_LENGTH_MAX else f"{name[:SHOWN_LENGTH_MAX]!r}…"


def no_subscription(topic: str, name: str, known: Collection[str]) -> str:
    """Return the error text for a subscription that a topic does not have.

    Example:
        >>> no_subscription("orders", "biling", ["audit", "billing"])
        "orders has no subscription 'biling'; it has: audit, billing"
    """
    some = sorted(known)[:5]
    more = f" and {len(known) - len(some)} more" if len(known) > len(some) else ""
    hint = f"it has: {', '.join(some)}{more}" if some else "create it first"
    return f"{topic} has no subscription {shown(name)}; {hint}"
