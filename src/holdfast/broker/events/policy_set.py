"""policy.set: what a topic says of itself."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState, Policies


@register
class PolicySet(Event, frozen=True):
    """Replace a topic's policies. Without deduplication, producers' sequences are forgotten."""

    kind: ClassVar[int] = 14

    topic: int
    policies: Policies

    def apply(self, state: BrokerState, context: Context) -> Done:
        self.policies.require_sound()
        topic = state.require_topic(self.topic)
        if topic.policies == self.policies:
            return Done(changed=False)
        topic.policies = self.policies
        state.log.set_topic(topic.id, deduplicate=bool(self.policies.deduplication))
        state.touch(topic)
        return Done()
