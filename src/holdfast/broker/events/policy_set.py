"""policy.set: what a topic says of itself."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState, Policies
from holdfast.errors import Misuse


@register
class PolicySet(Event, frozen=True):
    """Change a topic's policies. Without deduplication, producers' sequences are forgotten."""

    kind: ClassVar[int] = 14
    version: ClassVar[int] = 2

    topic: int
    policies: Policies
    fields: list[str] | None = None
    """Those that change, so that two who change different ones do not undo each other; None: all."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        self.policies.require_sound()
        topic = state.require_topic(self.topic)
        policies = changed(topic.policies, self.policies, self.fields)
        if topic.policies == policies:
            return Done(changed=False)
        topic.policies = policies
        state.log.set_topic(topic.id, deduplicate=state.deduplicates(topic))
        state.touch(topic)
        return Done()


def changed(policies: Policies, wanted: Policies, fields: list[str] | None) -> Policies:
    """Policies of which these fields are as wanted.

    Raises:
        Misuse: there is no such field.
    """
    if fields is None:
        return wanted
    values = wanted.fields()
    for name in fields:
        if name not in values:
            raise Misuse(f"there is no policy {name!r}; there are: {', '.join(sorted(values))}")
    return msgspec.structs.replace(policies, **{name: values[name] for name in fields})
