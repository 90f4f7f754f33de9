"""Events that end what is not used: expire subscriptions, delete inactive topics, count uptime.

Members submit them by what they see. The condition is checked again when the event is applied, so a consumer
that attaches in the same moment wins: then the event does nothing.
"""

from __future__ import annotations

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.cursors import delete_subscription
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.partitions import remove_partitioned
from holdfast.broker.events.topics import delete_topic
from holdfast.broker.lives import Inactivity, has_expired, inactive_ns, is_inactive, is_unused
from holdfast.broker.state import BrokerState
from holdfast.broker.uptime import Quiet


@event(100, base=0, urgent=False)
class SubscriptionExpire(Event, frozen=True):
    """Delete a subscription without a consumer for as long as its policy says."""

    subscription: int
    otherwise_s: float = 0.0
    """The age where neither the topic nor its namespace has a policy; 0: never."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        subscription = state.subscriptions.get(self.subscription)
        if subscription is None or not has_expired(state, subscription, self.otherwise_s, context.time):
            return Done(changed=False)
        state.refresh(state.topics[subscription.topic])
        delete_subscription(state, context, subscription, "the subscription expired")
        return Done()


@event(101, base=0, urgent=False)
class TopicQuiet(Event, frozen=True):
    """Note since when a topic is unused, or that its owner uses it."""

    topic: int
    used: bool = False
    """A reader is attached, of which other members do not know."""
    otherwise: Inactivity = Inactivity()

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.topics.get(self.topic)
        if topic is None:
            return Done(changed=False)
        state.refresh(topic)
        if self.used:
            known = topic.quiet is not None
            state.wake(topic)
            return Done(changed=known)
        noted = topic.quiet is not None and topic.quiet.end == topic.ledgers.end
        if noted or not inactive_ns(state, topic, self.otherwise):
            return Done(changed=False)
        if not is_unused(state, topic, self.otherwise):
            return Done(changed=False)
        topic.quiet = Quiet(topic.ledgers.end, state.uptime.now(context.time))
        state.touch(topic)
        return Done()


@event(102, base=0, urgent=False)
class TopicExpire(Event, frozen=True):
    """Delete a topic that was unused for as long as its policy says.

    A partition stands for its whole topic: all partitions are deleted, if all of them are inactive.
    """

    topic: int
    otherwise: Inactivity = Inactivity()

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.topics.get(self.topic)
        if topic is None or not is_inactive(state, topic, self.otherwise, context.time):
            return Done(changed=False)
        parent = state.partitioned.parent(topic.name)
        if parent is None:
            delete_topic(state, context, topic)
        else:
            remove_partitioned(state, context, parent[0])
        return Done()


@event(103, base=0, urgent=False)
class UptimeTick(Event, frozen=True):
    """Count the log time since the last tick as uptime.

    Two members may send it: the second does nothing.
    """

    def apply(self, state: BrokerState, context: Context) -> Done:
        if not state.uptime.tick(context.time):
            return Done(changed=False)
        state.touch(state.uptime)
        return Done()
