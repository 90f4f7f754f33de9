"""Events of backlog quotas: stop and admit producers, or evict the oldest entries.

The topic's owner measures and submits them; the state decides when they are applied. So the sessions of
producers at all members end in one step, and a quota lifts in one step (**I321**).
"""

from __future__ import annotations

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.cursors import advance_all
from holdfast.broker.events.outcomes import Done, Dropped
from holdfast.broker.events.sessions import end_producers
from holdfast.broker.limit_options import EVICTION, QuotaAction
from holdfast.broker.state import BrokerState, TopicState
from holdfast.broker.topic_kinds import ring_floor, size_behind

KEPT_TENTHS = 9
"""An eviction leaves so many tenths of the quota: else each new message would evict one."""


class BacklogEvent(Event, frozen=True):
    """An event with the options of its sender, for topics without the policies."""

    topic: int
    bytes_max: int = 0
    age_s: float = 0.0
    action: QuotaAction = "producer_request_hold"

    def quotas(self, state: BrokerState, topic: TopicState) -> tuple[int, QuotaAction, float, QuotaAction]:
        """Return the quota by size with its action, and the quota by age with its."""
        own = state.effective(topic)
        return (
            self.bytes_max if own.backlog_bytes is None else own.backlog_bytes,
            own.backlog_bytes_action or self.action,
            self.age_s if own.backlog_age_s is None else own.backlog_age_s,
            own.backlog_age_action or self.action,
        )


@event(94, base=0)
class BacklogCheck(BacklogEvent, frozen=True):
    """Compare the backlog of a topic with its quotas; stop or admit producers.

    A topic that was below its quotas and exceeds one loses its producers. They cannot open again before
    another check finds it below.
    """

    acked_to: int = -1
    """The position whose age the sender has read; −1: it has not."""
    oldest_ns: int = 0
    """Log time of the entry there. If the position has moved since, its age is not judged."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        over = self._verdict(state, context, topic)
        if over == topic.over:
            return Done(changed=False)
        topic.over = over
        state.touch(topic)
        if over != ("", ""):
            end_producers(state, context, topic, "the backlog of the topic exceeds its quota")
        return Done()

    def _verdict(self, state: BrokerState, context: Context, topic: TopicState) -> tuple[str, str]:
        bytes_max, by_size, age_s, by_age = self.quotas(state, topic)
        acked_to = topic.acked_to
        size_over = bytes_max > 0 and size_behind(topic.ledgers, acked_to) >= bytes_max
        if not age_s or acked_to >= topic.ledgers.end:
            age_over = False
        elif self.acked_to == acked_to:
            age_over = context.time - self.oldest_ns > int(age_s * 1e9)
        else:
            age_over = topic.over[1] != ""
        return (
            by_size if size_over and by_size != EVICTION else "",
            by_age if age_over and by_age != EVICTION else "",
        )


@event(95, base=0, urgent=False)
class BacklogEvict(BacklogEvent, frozen=True):
    """Acknowledge the oldest entries of a topic whose backlog exceeds a quota with eviction.

    Subscriptions that are behind advance; `to` is a position for the quota by age, computed by the sender.
    """

    to: int = 0

    def apply(self, state: BrokerState, context: Context) -> Dropped:
        topic = state.require_topic(self.topic)
        bytes_max, by_size, age_s, by_age = self.quotas(state, topic)
        floor = min(self.to, topic.ledgers.end) if age_s and by_age == EVICTION else 0
        if by_size == EVICTION and 0 < bytes_max <= size_behind(topic.ledgers, topic.acked_to):
            floor = max(floor, ring_floor(topic.ledgers, None, bytes_max * KEPT_TENTHS // 10))
        return Dropped(advance_all(state, context, topic, floor))
