"""namespace.update: what topics of a namespace do where they say nothing themselves."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.policy_set import changed
from holdfast.broker.state import SILENT, BrokerState, Policies
from holdfast.errors import NotFound


@register
class NamespaceUpdate(Event, frozen=True):
    """Change the named policies of a namespace."""

    kind: ClassVar[int] = 74

    name: str
    policies: Policies
    fields: list[str] | None = None
    """Those that change; None: all."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        self.policies.require_sound()
        before = state.namespaces.policies.get(self.name)
        if before is None:
            raise NotFound(f"there is no namespace {self.name}; create it first")
        policies = changed(before, self.policies, self.fields)
        if policies == before:
            return Done(changed=False)
        set_policies(state, self.name, policies)
        return Done()


def set_policies(state: BrokerState, name: str, policies: Policies | None) -> None:
    """A namespace says this from now on; None: it is gone. The log must know who deduplicates."""
    namespaces = state.namespaces
    before = namespaces.policies.get(name, SILENT)
    if policies is None:
        del namespaces.policies[name]
    else:
        namespaces.policies[name] = SILENT if policies == SILENT else policies
    if before.deduplication != (policies or SILENT).deduplication:
        for _, topic in sorted(state.topics.items()):
            if topic.namespace == name:
                state.log.set_topic(topic.id, deduplicate=state.deduplicates(topic))
                state.touch(topic)  # its sequences may be forgotten
    state.touch(namespaces)
