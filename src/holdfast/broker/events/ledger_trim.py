"""ledger.trim: ledgers that nobody needs any more go."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.notices import LedgersGone
from holdfast.broker.events.outcomes import Trimmed
from holdfast.broker.state import BrokerState


@register
class LedgerTrim(Event, frozen=True):
    """Drop what all subscriptions have acknowledged and retention does not keep.

    Which ledgers that is, is decided when the event is applied (`TopicState.trimmable`), by log time. The
    limits are for a topic that says nothing of its retention, nor its namespace: a member's options are not
    in the state.
    """

    kind: ClassVar[int] = 21

    topic: int
    retention_bytes: int = 0
    retention_ns: int = 0

    @property
    def urgent(self) -> bool:
        return False

    def apply(self, state: BrokerState, context: Context) -> Trimmed:
        topic = state.require_topic(self.topic)
        inherited = state.inherited(topic)
        count = topic.trimmable(context.time, self.retention_bytes, self.retention_ns, inherited)
        gone = state.drop_ledgers(topic, count) if count else []
        if gone:
            context.notices.append(LedgersGone(topic.id, gone))
        return Trimmed(gone, topic.ledgers.first)
