"""Carry out what stable events mean for topics, dispatchers and sessions of this broker.

The engine calls `settled` once per frame, in the order of frames. Front ends that called `Broker.watch` get
the frame's notices after that.

This is the place for replication to another cluster, which is not there yet. A frame is here when a majority
holds it, and `Applied.tails` tells which topics have grown. It lacks a durable cursor per remote cluster,
which keeps ledgers, the origin of entries, and a connection. See docs/internals/events.md.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from holdfast.broker.events import (
    Ack,
    CompactionChanged,
    EntriesTaken,
    ExchangeAdded,
    ExchangeGone,
    LedgersGone,
    Notice,
    PoliciesChanged,
    ProducerClose,
    ProducerGone,
    ProducerReady,
    SchemaAdd,
    SchemaDelete,
    SubscriptionGone,
    SubscriptionMoved,
    TopicAdded,
    TopicGone,
    ViewChange,
)
from holdfast.broker.topic import Topic
from holdfast.errors import Closed, HoldfastError

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.housekeeping import Housekeeping
    from holdfast.broker.machine import Applied
    from holdfast.broker.state import SubscriptionState, TopicState


class Effects:
    """The observer of a broker's engine."""

    def __init__(self, broker: Broker, housekeeping: Housekeeping) -> None:
        self._broker = broker
        self._housekeeping = housekeeping

    def settled(self, applied: Applied) -> None:
        broker = self._broker
        for notice in applied.notices:
            if isinstance(notice, TopicAdded) and notice.topic.id in broker.machine.state.topics:
                broker.topics.setdefault(notice.topic.id, Topic(notice.topic, 0, broker.store))
            elif isinstance(notice, ExchangeAdded) and notice.topic.id in broker.machine.state.topics:
                broker.exchanges.setdefault(notice.topic.id, Topic(notice.topic, 0, broker.store))
        for topic_id, end in applied.tails:
            topic = broker.topics.get(topic_id)
            if topic is not None:
                topic.traffic.wrote(end - topic.visible, broker.engine.settling_ms)
                topic.grow(end)
                broker.show(topic)
                self._housekeeping.grown(topic)
                broker.limiting.grown(topic)
        for notice in applied.notices:
            self._noticed(notice)
        alone = len(broker.machine.state.members) < 2
        for event, outcome in zip(applied.events, applied.outcomes, strict=True):
            if isinstance(event, Ack):
                subscription = broker.machine.state.subscriptions.get(event.subscription)
                self._look_for_done(subscription)
                if not alone and subscription is not None and not isinstance(outcome, HoldfastError):
                    self._acked(subscription, event)
            elif isinstance(event, ProducerClose):
                broker.sessions.closed(event.session)
            elif isinstance(event, SchemaAdd | SchemaDelete) and event.topic in broker.topics:
                broker.show(broker.topics[event.topic])
            elif isinstance(event, ViewChange):
                for topic in broker.topics.values():
                    for dispatcher in topic.dispatchers.values():
                        dispatcher.owned()
                broker.ownership.viewed()
                broker.membership.tend()
        if broker.quota is not None:
            broker.quota.settled(applied)
        if applied.notices:
            for watcher in broker.watchers:
                watcher(applied.notices)

    def ended(self, reason: HoldfastError) -> None:
        for topic in self._broker.topics.values():
            topic.close(reason)
        self._broker.ownership.ended(reason)
        self._broker.sessions.ended(reason)

    def _noticed(self, notice: Notice) -> None:
        broker = self._broker
        match notice:
            case SubscriptionMoved(subscription, reset_number, acked_to):
                topic = broker.topics.get(subscription.topic)
                dispatcher = None if topic is None else topic.dispatcher_of(subscription)
                if dispatcher is not None:
                    dispatcher.moved(reset_number, acked_to)
                self._look_for_done(subscription)
            case SubscriptionGone(subscription):
                topic = broker.topics.get(subscription.topic)
                dispatcher = None if topic is None else topic.forget(subscription.id)
                if dispatcher is not None:
                    dispatcher.close(Closed("the subscription was deleted"))
                if topic is not None:
                    broker.limiting.shrunk(topic)
            case EntriesTaken(subscription, ranges, parts):
                topic = broker.topics.get(subscription.topic)
                dispatcher = None if topic is None else topic.dispatcher_of(subscription)
                if dispatcher is not None:
                    dispatcher.claims.taken(ranges, parts)
                self._look_for_done(subscription)
            case TopicGone(topic=state):
                self._topic_gone(state)
            case ExchangeGone(topic=state):
                broker.exchanges.pop(state.id, None)
            case LedgersGone(topic=state) if state.id in broker.topics:
                broker.show(broker.topics[state.id])
            case CompactionChanged(topic=state):
                if state.id in broker.topics:
                    broker.compactions.changed(broker.topics[state.id])
            case PoliciesChanged():
                broker.limiting.changed(notice)
            case ProducerReady():
                broker.sessions.ready(notice)
            case ProducerGone():
                broker.sessions.gone(notice)
            case _:
                broker.ownership.noticed(notice)

    def _acked(self, subscription: SubscriptionState, event: Ack) -> None:
        """Release entries that a consumer of any member has acknowledged."""
        topic = self._broker.topics.get(subscription.topic)
        dispatcher = None if topic is None else topic.dispatcher_of(subscription)
        if dispatcher is not None:
            dispatcher.acked(event)

    def _topic_gone(self, state: TopicState) -> None:
        broker = self._broker
        gone = broker.topics.pop(state.id, None)
        self._housekeeping.gone(state.id)
        broker.limiting.gone(state.id)
        broker.compactions.gone(state.id)
        broker.unshown.pop(state.id, None)
        if gone is not None:
            gone.close(Closed(f"{gone.name} was deleted"))
        if broker.publications is not None:
            with contextlib.suppress(OSError, HoldfastError):  # its readers find no files
                broker.publications.gone(state.id)

    def _look_for_done(self, moved: SubscriptionState | None) -> None:
        """Look for ledgers that no subscription needs after a cursor has moved."""
        topic = None if moved is None else self._broker.topics.get(moved.topic)
        if topic is not None:
            self._housekeeping.acknowledged(topic)
            self._broker.limiting.shrunk(topic)
