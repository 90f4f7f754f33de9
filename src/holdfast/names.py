"""Names of topics, subscriptions and producers: allowed characters, and full names.

Events are judged by these rules when they are applied. So the rules are ranges of code points, written here:
`str.isprintable` and `\\w` follow the Unicode tables of the Python version, and members could disagree (I49).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.errors import Misuse, Unsupported

NAME_BYTES_MAX = 1024
"""The longest name. Names stand in events and snapshots again and again."""

_NEVER = "\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, line separators, marks that turn the direction of text, and halves of surrogates."""

_NAME = re.compile(f"[^{_NEVER}]+")
_PART = re.compile(f"[^\x00-,/;<>-@\\[-\\^`{{-~{_NEVER}]+")
"""What Pulsar allows in a tenant or a namespace (letters, digits and `_.=:-`), and whatever is not ASCII."""

FULL_NAME_BYTES_MAX = len("persistent://") + NAME_BYTES_MAX + 1 + NAME_BYTES_MAX
"""The longest full name of a topic: a namespace and a name of its own."""

SHOWN_LENGTH_MAX = 200
"""Characters of a name that an error repeats."""


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
        """From `topic`, `tenant/namespace/topic` or the full form.

        Raises:
            Misuse: it is no topic's name.
            Unsupported: a kind of topic that this broker does not have.
        """
        require_is_text(name, "a topic")
        domain, colon, path = name.rpartition("://")
        if colon and domain != "persistent":
            raise Unsupported(f"{shown(name)}: there are persistent topics only")
        parts = path.split("/", 2)
        if len(parts) == 1 and not colon:
            parts = ["public", "default", path]
        if len(parts) != 3 or not _PART.fullmatch(parts[0]) or not _PART.fullmatch(parts[1]):
            raise Misuse(
                f"{shown(name)} is not a topic's name; it looks like orders, or tenant/namespace/orders"
            )
        checked_name(parts[2], "a topic")
        return cls(*parts)


def tenant_name(name: str) -> str:
    """A tenant's name as it is.

    Raises:
        Misuse: it is none.
    """
    require_is_text(name, "a tenant")
    require_length(name, "a tenant")
    if not _PART.fullmatch(name):
        raise Misuse(f"{shown(name)} cannot name a tenant: use letters, digits and . = : - _")
    return checked_name(name, "a tenant")


def namespace_name(name: str) -> str:
    """A namespace's name, `tenant/namespace`, as it is.

    Example:
        >>> namespace_name("shop/eu")
        'shop/eu'

    Raises:
        Misuse: it is none.
    """
    require_is_text(name, "a namespace")
    require_length(name, "a namespace")
    parts = name.split("/")
    if len(parts) != 2 or not all(_PART.fullmatch(part) for part in parts):
        raise Misuse(f"{shown(name)} cannot name a namespace; it looks like tenant/namespace")
    return checked_name(name, "a namespace")


def namespace_of(topic: str) -> str:
    """The namespace of a topic's full name.

    Example:
        >>> namespace_of("persistent://shop/eu/orders")
        'shop/eu'
    """
    return "/".join(topic.removeprefix("persistent://").split("/", 2)[:2])


def topic_name(name: str) -> str:
    """The full name of a topic.

    Example:
        >>> topic_name("orders")
        'persistent://public/default/orders'

    Raises:
        Misuse: it is no topic's name.
    """
    return str(TopicName.parse(name))


def checked_name(name: str, of: str) -> str:
    """A name as it is.

    Raises:
        Misuse: it is empty, too long, or has control characters in it.
    """
    require_is_text(name, of)
    require_length(name, of)
    if not _NAME.fullmatch(name):
        raise Misuse(f"{shown(name)} cannot name {of}: use one or more characters that can be printed")
    return name


def require_is_text(name: object, of: str) -> None:
    """Refuse a name that is no text.

    Raises:
        Misuse: it is of another type.
    """
    if not isinstance(name, str):
        raise Misuse(f"{name!r} cannot name {of}: a name is text (str)")


def require_length(name: str, of: str, most: int = NAME_BYTES_MAX) -> None:
    """Judge the length first: a refused name then costs the same, whatever its length.

    Raises:
        Misuse: it is too long.
    """
    if len(name) > most or (not name.isascii() and len(name.encode(errors="surrogatepass")) > most):
        raise Misuse(
            f"a name of {len(name)} characters for {of}, {shown(name)}; at most {most} bytes are possible"
        )


def shown(name: str) -> str:
    """A name as errors repeat it: in quotes, the beginning of a long one.

    Example:
        >>> shown("orders")
        "'orders'"
        >>> len(shown("x" * 10_000))
        203
    """
    return repr(name) if len(name) <= SHOWN_LENGTH_MAX else f"{name[:SHOWN_LENGTH_MAX]!r}…"
