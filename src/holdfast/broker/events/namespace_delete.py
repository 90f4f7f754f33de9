"""namespace.delete: a namespace goes, and with force all that is in it."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.namespace_update import set_policies
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.sessions import remove_topic
from holdfast.broker.state import BrokerState
from holdfast.errors import Busy, NotFound


@register
class NamespaceDelete(Event, frozen=True):
    """Delete a namespace. Without `force` only if no topic is in it."""

    kind: ClassVar[int] = 75

    name: str
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        if self.name not in state.namespaces.policies:
            raise NotFound(f"there is no namespace {self.name}")
        topics = sum(topic.namespace == self.name for topic in state.topics.values())
        if topics and not self.force:
            raise Busy(f"the namespace {self.name} has {topics} topics; delete them first, or force")
        remove_namespace(state, context, self.name)
        return Done()


def remove_namespace(state: BrokerState, context: Context, name: str) -> None:
    """A namespace and its topics go."""
    for _, topic in sorted(state.topics.items()):
        if topic.namespace == name:
            remove_topic(state, context, topic)
    set_policies(state, name, None)
