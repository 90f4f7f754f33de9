"""A consumer as its dispatcher knows it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.broker.dispatch.types import Endpoint
from holdfast.broker.key_shared import KeyShared


@dataclass(slots=True, eq=False)
class Attached:
    """A consumer that is attached to a dispatcher."""

    id: int
    endpoint: Endpoint
    name: str
    priority: int
    ack_timeout_ns: int
    """0: it may hold messages without a limit in time."""
    keys: KeyShared | None = None
    """Of a key_shared consumer."""
    session: int = 0
    """0: the subscription is volatile."""
    is_active: bool = False
    handed_messages: int = 0
    handed_bytes: int = 0
