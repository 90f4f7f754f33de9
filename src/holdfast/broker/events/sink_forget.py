"""sink.forget: sinks that have not committed for long are forgotten."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState


@register
class SinkForget(Event, frozen=True):
    """Forget how far sinks have come whose last commit is older: a batch write's key is used once."""

    kind: ClassVar[int] = 64

    older_than: int
    """Log time."""

    @property
    def urgent(self) -> bool:
        return False

    def apply(self, state: BrokerState, context: Context) -> Done:
        last = state.sinks.last
        old = [key for key, sink in sorted(last.items()) if sink.time < self.older_than]
        for key in old:
            del last[key]
        if old:
            state.touch(state.sinks)
        return Done(changed=bool(old))
