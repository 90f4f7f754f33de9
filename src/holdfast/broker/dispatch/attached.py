"""A consumer as its dispatcher knows it."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.broker.dispatch.types import Endpoint


@dataclass(slots=True, eq=False)
class Attached:
    """A consumer that is attached to a dispatcher."""

    id: int
    endpoint: Endpoint
    name: str
    priority: int
    ack_timeout_ns: int
    """0: it may hold messages without a limit in time."""
    is_active: bool = False
    handed_messages: int = 0
    handed_bytes: int = 0
