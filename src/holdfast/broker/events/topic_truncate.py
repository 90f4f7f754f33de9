"""topic.truncate: everything that a topic holds goes; the topic and its subscriptions stay."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.notices import LedgersGone, SubscriptionMoved
from holdfast.broker.events.outcomes import Trimmed
from holdfast.broker.state import BrokerState


@register
class TopicTruncate(Event, frozen=True):
    """Drop all entries. Every subscription advances to the end."""

    kind: ClassVar[int] = 13

    topic: int

    def apply(self, state: BrokerState, context: Context) -> Trimmed:
        topic = state.require_topic(self.topic)
        gone: list[int] = []
        if len(topic.ledgers):
            end = topic.ledgers.end
            for _, each in sorted(topic.subscriptions.items()):
                if each.acks.acked_to < end:
                    each.acks.advance(end)
                    state.touch(each)
                    context.notices.append(SubscriptionMoved(topic.id, each.id, each.reset_number, end))
            state.seal(topic)
            gone = state.drop_ledgers(topic, len(topic.ledgers))
            context.notices.append(LedgersGone(topic.id, gone))
        return Trimmed(gone, topic.ledgers.first)
