"""A consumer as its dispatcher knows it."""

from __future__ import annotations

from holdfast.broker.dispatch.types import Endpoint


class Attached:
    """One that is attached."""

    __slots__ = (
        "ack_timeout_ns",
        "endpoint",
        "handed_bytes",
        "handed_messages",
        "id",
        "is_active",
        "name",
        "priority",
    )

    def __init__(
        self,
        id: int,  # noqa: A002
        endpoint: Endpoint,
        name: str,
        priority: int,
        ack_timeout_s: float | None,
    ) -> None:
        self.id = id
        self.endpoint = endpoint
        self.name = name
        self.priority = priority
        self.ack_timeout_ns = 0 if ack_timeout_s is None else max(1, int(ack_timeout_s * 1e9))
        self.is_active = False
        self.handed_messages = 0
        self.handed_bytes = 0
