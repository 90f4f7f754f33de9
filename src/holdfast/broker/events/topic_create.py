"""topic.create: a name, with nothing in it yet."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import TopicCreated
from holdfast.broker.state import BrokerState, Policies, TopicState
from holdfast.errors import Exists, Misuse, NotFound
from holdfast.ids import require_left
from holdfast.names import namespace_of, topic_name


@register
class TopicCreate(Event, frozen=True):
    """Make a topic. The incarnation is a random id of 16 bytes that the sender has made."""

    kind: ClassVar[int] = 10
    version: ClassVar[int] = 2

    name: str
    """In full."""
    incarnation: bytes
    policies: Policies = Policies()
    managed: bool = False
    """Only in a namespace that was created."""

    def apply(self, state: BrokerState, context: Context) -> TopicCreated:
        if topic_name(self.name) != self.name:
            raise Misuse(f"{self.name!r} is short for {topic_name(self.name)!r}; say it in full")
        if len(self.incarnation) != 16:
            raise Misuse(f"an incarnation of {len(self.incarnation)} bytes; it has 16")
        self.policies.require_sound()
        if self.name in state.names:
            raise Exists(f"the topic {self.name} is there already")
        if self.managed and namespace_of(self.name) not in state.namespaces.policies:
            raise NotFound(
                f"there is no namespace {namespace_of(self.name)} for {self.name}; create the namespace first"
            )
        require_left(state.next_topic, "ids of topics")
        topic = TopicState(state.next_topic, self.name, self.incarnation, context.time)
        topic.policies = self.policies
        state.next_topic += 1
        state.topics[topic.id] = topic
        state.names[topic.name] = topic.id
        state.log.add_topic(topic.id, deduplicate=state.deduplicates(topic))
        state.touch(topic)
        context.created.append(topic.id)
        return TopicCreated(topic.id)
