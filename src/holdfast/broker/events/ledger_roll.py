"""ledger.roll: the open ledger is sealed, the next entry opens another."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState


@register
class LedgerRoll(Event, frozen=True):
    """Seal a ledger if it is still the open one: many may notice that it is full or old."""

    kind: ClassVar[int] = 20

    topic: int
    ledger: int
    """The id of the one that is meant."""

    @property
    def urgent(self) -> bool:
        return False

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        if topic.ledgers.open_ledger != self.ledger:
            return Done(changed=False)
        state.seal(topic)
        return Done()
