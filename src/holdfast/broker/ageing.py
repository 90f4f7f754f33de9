"""Submit what becomes due by uptime: expired subscriptions, inactive topics, ticks.

Housekeeping calls this in each of its turns. All of it are events with a condition
(`holdfast.broker.events.expiry`): if another member was faster, or a client has come, they do nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from holdfast.broker.events import Event, SubscriptionExpire, TopicExpire, TopicQuiet, UptimeTick
from holdfast.broker.events.outcomes import Done
from holdfast.broker.lives import Inactivity, expiry_ns, has_expired, inactive_ns, is_inactive, is_unused
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic

LOG = logging.getLogger("holdfast.broker")


class Ageing:
    """The ages of subscriptions and topics of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ages = False
        """Whether something was found in this turn that becomes older."""

    def look_at_readers(self, topic: Topic) -> None:
        """Note that a topic is used if this member has readers of it.

        Other members do not know of them.
        """
        if topic.state.quiet is not None and (topic.readers or topic.volatile):
            self._submit(TopicQuiet(topic.id, used=True))

    def look_at(self, topic: Topic, time: int) -> None:
        """Submit what is due at a log time for a topic that this member owns."""
        state, otherwise_s = self._broker.machine.state, self._broker.decided.subscription_expiry_s
        if expiry_ns(state, topic.state, otherwise_s):
            for each in list(topic.state.subscriptions.values()):
                self._ages |= not each.consumers
                if has_expired(state, each, otherwise_s, time):
                    words = f"the subscription {each.name!r} of {topic.name} expired without a consumer"
                    self._submit(SubscriptionExpire(each.id, otherwise_s), words)
        if not self._broker.unreplicated.is_local:  # else the cluster would keep its name
            self._look_at_use(topic, time)

    def _look_at_use(self, topic: Topic, time: int) -> None:
        state, of, otherwise = self._broker.machine.state, topic.state, Inactivity.of(self._broker.decided)
        if not inactive_ns(state, of, otherwise):
            if of.quiet is not None:  # a later policy begins anew
                self._submit(TopicQuiet(topic.id, used=True))
            return
        if topic.readers or topic.volatile or not is_unused(state, of, otherwise):
            return
        self._ages = True
        if of.quiet is None or of.quiet.end != of.ledgers.end:
            self._submit(TopicQuiet(topic.id, otherwise=otherwise))
            return
        parent = state.partitioned.parent(topic.name)
        if (parent is None or parent[1] == 0) and is_inactive(state, of, otherwise, time):
            name = topic.name if parent is None else parent[0]
            self._submit(TopicExpire(topic.id, otherwise), f"{name} was deleted: nothing used it")

    def tick(self) -> None:
        """End a turn: count uptime while something ages. Any member may; the second does nothing."""
        ages, self._ages = self._ages, False
        if ages and self._broker.machine.state.uptime.is_due(self._broker.log_time_now()):
            self._submit(UptimeTick())

    def _submit(self, event: Event, words: str = "") -> None:
        """Submit an event, and log its effect."""

        def done(future: asyncio.Future[Done]) -> None:
            if not future.cancelled() and future.exception() is None and words and future.result().changed:
                LOG.info("%s", words)

        try:
            self._broker.engine.submit(event).add_done_callback(done)
        except HoldfastError as error:  # a member is too old for it, or the broker stops
            LOG.debug("not now: %s", error)
