"""stage.open: a place for entries that nobody sees yet."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState, StageState
from holdfast.errors import Misuse


@register
class StageOpen(Event, frozen=True):
    """Make a stage. Its id is a random one of 16 bytes that the sender has made."""

    kind: ClassVar[int] = 60

    stage: bytes

    def apply(self, state: BrokerState, context: Context) -> Done:
        if len(self.stage) != 16:
            raise Misuse(f"a stage's id of {len(self.stage)} bytes; it has 16")
        if self.stage in state.stages:
            return Done(changed=False)
        stage = StageState(self.stage, context.time)
        state.stages[stage.id] = stage
        state.touch(stage)
        return Done()
