"""Events of log time: set it back after a wrong clock pushed it ahead."""

from __future__ import annotations

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState, Sink
from holdfast.errors import Misuse


@event(90)
class TimeRepair(Event, frozen=True):
    """Set log time back. Seals open ledgers and limits recorded times to the new one.

    Blocks keep their time; readers get at most the time of their ledger.
    """

    time: int
    """In ns since the epoch. Log time never moves forward by this event."""

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
