"""A consumer as its dispatcher knows it."""

from __future__ import annotations

from holdfast.broker.dispatch.types import Sink


class Attached:
    """One that is attached."""

    __slots__ = (
        "ack_timeout_ns",
        "handed_bytes",
        "handed_messages",
        "id",
        "is_active",
        "name",
        "priority",
        "sink",
    )

    def __init__(self, id: int, sink: Sink, name: str, priority: int, ack_timeout_s: float | None) -> None:  # noqa: A002
        self.id = id
        self.sink = sink
        self.name = name
        self.priority = priority
        self.ack_timeout_ns = 0 if ack_timeout_s is None else max(1, int(ack_timeout_s * 1e9))
        self.is_active = False
        self.handed_messages = 0
        self.handed_bytes = 0
