"""Events of ledgers: roll and trim."""

from __future__ import annotations

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.notices import LedgersGone
from holdfast.broker.events.outcomes import Done, Trimmed
from holdfast.broker.state import BrokerState


@event(20, urgent=False)
class LedgerRoll(Event, frozen=True):
    """Seal a ledger if it is still open: several members may submit this."""

    topic: int
    ledger: int
    """Its id."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        if topic.ledgers.open_ledger != self.ledger:
            return Done(changed=False)
        state.seal(topic)
        return Done()


@event(21, urgent=False)
class LedgerTrim(Event, frozen=True):
    """Delete ledgers that all subscriptions have acknowledged and retention does not keep.

    `TopicState.trimmable` selects them when the event is applied, by log time. The limits apply where neither
    topic nor namespace sets a retention: the options of a member are not in the state.
    """

    topic: int
    retention_bytes: int = 0
    retention_ns: int = 0

    def apply(self, state: BrokerState, context: Context) -> Trimmed:
        topic = state.require_topic(self.topic)
        inherited = state.inherited(topic)
        count = topic.trimmable(context.time, self.retention_bytes, self.retention_ns, inherited)
        gone = state.drop_ledgers(topic, count) if count else []
        if gone:
            context.notices.append(LedgersGone(topic, gone))
        return Trimmed(gone, topic.ledgers.first)
