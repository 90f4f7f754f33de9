"""time.repair: log time was pushed ahead by a clock that was wrong, and goes back."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState, Sink
from holdfast.errors import Misuse


@register
class TimeRepair(Event, frozen=True):
    """Set log time back. Open ledgers are sealed, and no recorded time is later than the new one.

    Blocks keep the time that they were written with; their readers are told at most that of their ledger.
    """

    kind: ClassVar[int] = 90

    time: int
    """In ns since the epoch. Log time never goes forward by this."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        if self.time < 0:
            raise Misuse(f"log time cannot be {self.time}")
        if self.time >= state.log.time:
            return Done(changed=False)
        for id in sorted(state.topics):  # noqa: A001
            topic = state.require_topic(id)
            if topic.ledgers.open_ledger is not None:
                state.seal(topic)
            topic.created = min(topic.created, self.time)
            topic.ledgers.limit_times(self.time)
            state.touch(topic)
        for _, stage in sorted(state.stages.items()):
            stage.time = min(stage.time, self.time)
            state.touch(stage)
        last = state.sinks.last
        state.sinks.last = {key: Sink(each.batch, min(each.time, self.time)) for key, each in last.items()}
        state.touch(state.sinks)
        state.log.set_time(self.time)
        return Done()
