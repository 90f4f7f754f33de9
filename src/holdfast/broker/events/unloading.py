"""Define the event that closes the clients of topics."""

from __future__ import annotations

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.notices import Unloaded
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState, TopicState
from holdfast.errors import Misuse


@event(84)
class Unload(Event, frozen=True):
    """Close the producers and consumers of a topic, or of a namespace, at all members.

    The state does not change: their clients reconnect, and continue where they were (**I290**).
    """

    topic: int = 0
    """0: all topics of the namespace."""
    namespace: str = ""

    def apply(self, state: BrokerState, context: Context) -> Done:
        if bool(self.topic) == bool(self.namespace):
            raise Misuse("name either a topic or a namespace to unload")
        for topic in self._topics(state):
            context.notices.append(Unloaded(topic))
        return Done(changed=False)

    def _topics(self, state: BrokerState) -> list[TopicState]:
        if self.topic:
            return [state.require_topic(self.topic)]
        found = [topic for _, topic in sorted(state.topics.items()) if topic.namespace == self.namespace]
        if not found:
            state.namespaces.require(self.namespace)
        return found
