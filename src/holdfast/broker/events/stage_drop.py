"""stage.drop: a stage is given up."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState


@register
class StageDrop(Event, frozen=True):
    """Drop a stage, or do nothing: once it is committed there is nothing to drop."""

    kind: ClassVar[int] = 62

    stage: bytes
    older_than: int = 0
    """Log time: only if nothing was appended since. 0: in any case."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        stage = state.stages.get(self.stage)
        if stage is None or (self.older_than and stage.time >= self.older_than):
            return Done(changed=False)
        state.drop_stage(stage)
        return Done()
