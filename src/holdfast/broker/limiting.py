"""The limits that apply to topics: the effective policies, rates, and backlog quotas.

Promises upward: a policy of a topic wins over that of its namespace, and that over the broker's options. A
change has its effect at once. An exceeded quota stops producers at all members, and lifts when the backlog is
below it (**I321**). A rate delays, and never stops for ever (**I322**). Needs from below: notices of changed
policies, and a topic's owner that measures its backlog.

A topic without limits costs one comparison per round of publishes, and nothing per message.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.broker.dispatch.pacing import Bucket, Pace, admitted, replaced
from holdfast.broker.events import BacklogCheck, BacklogEvict, PoliciesChanged
from holdfast.broker.events.maximums import require_quota
from holdfast.broker.limit_options import EVICTION, LIMIT_OPTIONS
from holdfast.broker.options import BrokerOptions, age_ns
from holdfast.broker.policy_options import standing_in
from holdfast.broker.topic_policies import SILENT, Policies
from holdfast.errors import Busy, HoldfastError, LimitReached, Misuse
from holdfast.formatting import plural

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.dispatch.dispatcher import Dispatcher
    from holdfast.broker.topic import Topic

LOG = logging.getLogger("holdfast.broker")

WITHIN = ("", "")
"""The verdict about a topic whose backlog is within its quotas."""

LOOK_S = 0.1
"""Time from the growth of a topic with a quota to the look at its backlog."""

MERGED_MAX = 1000
"""Different policies that topics can share."""

SUBSCRIBERS_MAX = 10_000
"""Consumers whose subscribe rate is remembered."""

SUBSCRIPTIONS_LEAST = 64
"""Subscriptions of a topic whose rates are remembered, whether they are gone or not."""

PERIOD_S = 1.0
"""The period of a rate without one."""

TURN = 100
"""Topics whose quotas are compared in one turn of the loop."""


class Rates:
    """The buckets of one topic at this member."""

    __slots__ = ("dispatch", "publish", "room", "subscribers", "subscriptions", "waits")

    def __init__(self) -> None:
        self.publish: Bucket | None = None
        self.waits = 0
        """Of publishes, for rates of before."""
        self.dispatch: Bucket | None = None
        self.subscriptions: dict[int, Bucket] = {}
        """By the id of the subscription."""
        self.room = SUBSCRIPTIONS_LEAST
        """Number of them at which those that are gone are dropped."""
        self.subscribers: OrderedDict[str, Bucket] | None = None


@dataclass(frozen=True)
class LimitFigures:
    """Figures of the limits of one topic, at one member."""

    publish_paced: bool
    """It has a publish rate."""
    publish_waits: int
    """How often publishes waited for the rate."""
    backlog_bytes: int
    """Quota of its backlog; 0: none."""
    backlog_age_s: float
    """Quota by age; 0: none."""
    oldest_s: float | None
    """Age of the oldest entry in the backlog at the last look; None: not known."""
    exceeded: dict[str, str]
    """The quotas that stop its producers, `size` and `age`, with their actions."""
    evictions: int
    """How often entries beyond a quota were evicted."""


class Limiting:
    """The limits of a broker's topics. `broker.limiting` is one.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path, producers_max=9) as broker:
        ...         await broker.admin.create_topic("orders", consumers_max=2)
        ...         found = broker.admin.applied_policies("orders")
        ...         print(found.producers_max, found.consumers_max)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        9 2
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._least: tuple[BrokerOptions | None, Policies] = (None, SILENT)
        self._merged: dict[Policies, Policies] = {}
        """Policies over the options: topics with equal policies share them."""
        self._rates: dict[int, Rates] = {}
        """Of topics with rates."""
        self._looks: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.oldest: dict[int, int] = {}
        """Log time of the oldest entry in a backlog, of topics with a quota by age."""
        self.evictions: dict[int, int] = {}
        """How often this member has evicted entries of a topic."""
        self._stopped = False

    # -- which limits ----------------------------------------------------------------------------------

    @property
    def least(self) -> Policies:
        """The values of the broker's options, for what topics and namespaces do not set."""
        options = self._broker.decided
        if self._least[0] is not options:
            named: dict[str, Any] = {name: getattr(options, name) for name in LIMIT_OPTIONS}
            named |= dict.fromkeys(("dispatch_rate_period_s", "subscription_rate_period_s"), PERIOD_S)
            named |= dict.fromkeys(("backlog_bytes_action", "backlog_age_action"), options.backlog_action)
            self._least = (
                options,
                Policies(unacked_max=options.unacked_max, **named, **standing_in(options)),
            )
            self._merged.clear()
        return self._least[1]

    def of(self, topic: Topic) -> Policies:
        """Return what applies to a topic: its policies, its namespace's, the broker's options."""
        own, least = self._broker.machine.state.effective(topic.state), self.least
        known = topic.limits
        if known is None or known[0] is not own or known[1] is not least:
            if (found := self._merged.get(own)) is None:
                if len(self._merged) >= MERGED_MAX:
                    self._merged.clear()
                found = self._merged[own] = least if own == SILENT else own.over(least)
            known = topic.limits = (own, least, found)
        return known[2]

    # -- changes ---------------------------------------------------------------------------------------

    def changed(self, notice: PoliciesChanged) -> None:
        """Follow changed policies: of a topic, of a namespace, or the options of all."""
        for topic in self.topics_of(notice):
            if topic.id in self._rates:  # others get theirs with the first client
                self._rate(topic)
            for dispatcher in topic.dispatchers.values():
                self.serve(topic, dispatcher)
            if self._has_quota(topic):  # else options that change would wake all topics
                self._look_soon(topic)

    def topics_of(self, notice: PoliciesChanged) -> list[Topic]:
        """Return the topics whose policies have changed."""
        topics = self._broker.topics
        if notice.topic is not None:
            found = topics.get(notice.topic.id)
            return [] if found is None else [found]
        if notice.namespace is None:
            return list(topics.values())
        return [each for each in topics.values() if each.state.namespace == notice.namespace]

    def serve(self, topic: Topic, dispatcher: Dispatcher) -> None:
        """Let limits apply to a dispatcher, which may be new."""
        limits = self.of(topic)
        messages, size = limits.subscription_rate_messages or 0, limits.subscription_rate_bytes or 0
        rates = self._rates.get(topic.id) or self._rate(topic)
        buckets: list[Bucket] = []
        if messages or size or (rates is not None and rates.subscriptions):
            rates = self._rates.setdefault(topic.id, Rates())
            id_, period_s = dispatcher.subscription[0], limits.subscription_rate_period_s or PERIOD_S
            own = replaced(rates.subscriptions.pop(id_, None), self._broker.clock, messages, size, period_s)
            if own is not None:
                rates.subscriptions[id_] = own
                buckets.append(own)
                if len(rates.subscriptions) >= rates.room:
                    self._drop_gone(topic, rates)
        if rates is not None and rates.dispatch is not None:
            buckets.append(rates.dispatch)
        pace = Pace(self._broker.clock, *buckets) if buckets else None
        dispatcher.limit(limits.unacked_max or 0, limits.subscription_unacked_max or 0, pace)

    def _drop_gone(self, topic: Topic, rates: Rates) -> None:
        """Drop the buckets of subscriptions that are gone; each reader had one."""
        durable, there = self._broker.machine.state.subscriptions, topic.dispatchers
        rates.subscriptions = {
            id_: each for id_, each in rates.subscriptions.items() if id_ in there or id_ in durable
        }
        rates.room = max(SUBSCRIPTIONS_LEAST, 2 * len(rates.subscriptions))

    def _rate(self, topic: Topic) -> Rates | None:
        """Create or replace the buckets of a topic."""
        limits, clock, id_ = self.of(topic), self._broker.clock, topic.id
        publish = (limits.publish_rate_messages or 0, limits.publish_rate_bytes or 0)
        dispatch = (limits.dispatch_rate_messages or 0, limits.dispatch_rate_bytes or 0)
        rates = self._rates.get(id_)
        if rates is None:
            if not any((*publish, *dispatch, limits.subscribe_rate)):
                return None
            rates = self._rates[id_] = Rates()
        before, rates.publish = rates.publish, replaced(rates.publish, clock, *publish, PERIOD_S)
        if before is not None and before is not rates.publish:
            rates.waits += before.waits
        period_s = limits.dispatch_rate_period_s or PERIOD_S
        rates.dispatch = replaced(rates.dispatch, clock, *dispatch, period_s)
        rates.subscribers = None
        return rates

    # -- rates -----------------------------------------------------------------------------------------

    def publish_bucket(self, topic: Topic) -> Bucket | None:
        """Return the bucket of publishes to a topic; None: they have no rate."""
        limits = self.of(topic)
        if not limits.publish_rate_messages and not limits.publish_rate_bytes:
            return None
        rates = self._rates.get(topic.id) or self._rate(topic)
        return None if rates is None else rates.publish

    async def admit_publish(self, topic: Topic, messages: list[bytes]) -> None:
        """Check the sizes of messages, and wait until the publish rate allows them.

        Raises:
            Misuse: a message is larger than the topic allows.
            QuotaExceeded: the backlog of the topic exceeds its quota, which has ended its producers.
        """
        self.require_quota(topic)
        most = self.of(topic).message_bytes_max
        if most and (largest := max(map(len, messages))) > most:
            raise Misuse(
                f"a message of {largest} bytes to {topic.name}; the policy message_bytes_max allows {most}. "
                "Nothing was published"
            )
        await self.admit_rate(topic, len(messages), sum(map(len, messages)))

    def run_most(self, topic: Topic) -> tuple[float, float]:
        """Return the most messages and bytes of one publish: those of a second.

        Else one long list would delay the other producers for as long as it takes itself.
        """
        bucket = self.publish_bucket(topic)
        if bucket is None:
            return math.inf, math.inf
        messages, size = (rate or math.inf for rate in bucket.rates)
        return messages, size

    async def admit_rate(self, topic: Topic, messages: int, size: int) -> None:
        """Wait until the publish rate of a topic allows so many messages and bytes."""
        bucket = self.publish_bucket(topic)
        if bucket is not None:
            await admitted(self._broker.clock, bucket, messages, size)

    def admit_subscribe(self, topic: Topic, who: str) -> None:
        """Count a subscribe of one consumer.

        Raises:
            LimitReached: it has subscribed too often in the period.
        """
        limits = self.of(topic)
        if not limits.subscribe_rate:
            return
        rates = self._rates.get(topic.id) or self._rate(topic)
        assert rates is not None
        period_s = limits.subscribe_rate_period_s or PERIOD_S
        known = rates.subscribers = OrderedDict() if rates.subscribers is None else rates.subscribers
        bucket = known.pop(who, None)
        bucket = bucket or Bucket(self._broker.clock, limits.subscribe_rate, 0, period_s)
        known[who] = bucket
        if len(known) > SUBSCRIBERS_MAX:
            known.popitem(last=False)
        if bucket.has(1):
            bucket.take(1, 0)
            return
        raise LimitReached(
            f"a consumer may subscribe to {topic.name} {limits.subscribe_rate} times in {period_s:g} s "
            "(subscribe_rate); wait, or raise the limit (`holdfast topic limits`)"
        )

    def require_consumers(self, topic: Topic) -> None:
        """Raise Busy if a topic with the readers of this member cannot have another client.

        The state does not know readers, so events cannot count them.
        """
        most = self.of(topic).consumers_max
        if not most:
            return
        durable = sum(len(each.consumers) for each in topic.state.subscriptions.values())
        count = durable + topic.readers
        if count >= most:
            raise Busy(
                f"{topic.name} has {plural(count, 'consumer')}, the most that consumers_max allows; close "
                "one, or raise the limit (`holdfast topic limits`)"
            )

    def require_beside_readers(self, topic: Topic) -> None:
        """Raise Busy if readers leave no room for a consumer; without readers, the event decides."""
        if self.of(topic).consumers_max and topic.readers:
            self.require_consumers(topic)

    def publish_waits(self, topic: Topic) -> int:
        """Return how often publishes to a topic had to wait for its rate."""
        rates = self._rates.get(topic.id)
        return 0 if rates is None else rates.waits + (0 if rates.publish is None else rates.publish.waits)

    def figures(self, topic: Topic) -> LimitFigures:
        """Return what limits do to a topic now, at this member."""
        limits, oldest = self.of(topic), self.oldest.get(topic.id)
        if not limits.backlog_age_s or not self._broker.membership.owns(topic):
            oldest = None  # this member does not look any more
        return LimitFigures(
            publish_paced=bool(limits.publish_rate_messages or limits.publish_rate_bytes),
            publish_waits=self.publish_waits(topic),
            backlog_bytes=limits.backlog_bytes or 0,
            backlog_age_s=limits.backlog_age_s or 0.0,
            oldest_s=None if oldest is None else max(0, self._broker.log_time_now() - oldest) / 1e9,
            exceeded=topic.state.exceeded,
            evictions=self.evictions.get(topic.id, 0),
        )

    def require_quota(self, topic: Topic) -> None:
        """Raise QuotaExceeded or QuotaHold if the topic's backlog stops its producers."""
        require_quota(topic.state)

    # -- quotas ----------------------------------------------------------------------------------------

    def grown(self, topic: Topic) -> None:
        """Look soon at the backlog of a topic with a quota."""
        if self.of(topic).backlog_bytes:
            self._look_soon(topic)

    def shrunk(self, topic: Topic) -> None:
        """Look soon at a backlog that exceeded its quota, and is smaller now."""
        if topic.state.over != WITHIN:
            self._look_soon(topic)

    def gone(self, topic: int) -> None:
        """Forget a topic that was deleted."""
        look = self._looks.pop(topic, None)
        if look is not None:
            look.cancel()
        for kept in (self._rates, self.oldest, self.evictions):
            kept.pop(topic, None)

    def _look_soon(self, topic: Topic) -> None:
        if topic.id not in self._looks and not self._stopped and self._broker.membership.owns(topic):
            loop = asyncio.get_running_loop()
            self._looks[topic.id] = loop.call_later(LOOK_S, self._look, topic)

    def _look(self, topic: Topic) -> None:
        self._looks.pop(topic.id, None)
        task = asyncio.get_running_loop().create_task(self._checked(topic), name=f"quota of {topic.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _has_quota(self, topic: Topic) -> bool:
        limits = self.of(topic)
        return bool(limits.backlog_bytes or limits.backlog_age_s) or topic.state.over != WITHIN

    async def _checked(self, topic: Topic) -> None:
        with contextlib.suppress(HoldfastError, OSError):  # housekeeping looks again
            await self.check(topic)

    async def check(self, topic: Topic, now_ns: int | None = None) -> None:
        """Compare the backlog of an own topic with its quotas, and submit what follows.

        `now_ns` is the log time of now, if the caller knows it.
        """
        state, limits, broker = topic.state, self.of(topic), self._broker
        bytes_max, age_s = limits.backlog_bytes or 0, limits.backlog_age_s or 0.0
        if not (bytes_max or age_s or state.over != WITHIN) or broker.is_deleted(topic):
            return
        by_size, by_age = limits.backlog_bytes_action, limits.backlog_age_action
        acked_to, oldest = state.acked_to, None
        now_ns = broker.log_time_now() if now_ns is None else now_ns
        size_over = 0 < bytes_max <= topic.size_behind(acked_to)
        if age_s and acked_to < topic.visible:
            oldest = await topic.time_on(acked_to)
        if oldest is not None:
            self.oldest[topic.id] = oldest
        else:
            self.oldest.pop(topic.id, None)
        age_over = oldest is not None and now_ns - oldest > age_ns(age_s)
        if not (size_over or age_over or state.over != WITHIN):
            return
        options = (broker.decided.backlog_bytes, broker.decided.backlog_age_s, broker.decided.backlog_action)
        to = await topic.ordinal_at(now_ns - age_ns(age_s)) if age_over and by_age == EVICTION else 0
        if to or (size_over and by_size == EVICTION):
            dropped = await broker.engine.submit(BacklogEvict(state.id, *options, to=to))
            if dropped.entries:
                self.evictions[topic.id] = self.evictions.get(topic.id, 0) + 1
        over = (
            by_size if size_over and by_size != EVICTION else "",
            by_age if age_over and by_age != EVICTION else "",
        )
        if over != state.over:
            event = BacklogCheck(state.id, *options, acked_to=acked_to, oldest_ns=oldest or 0)
            done = await broker.engine.submit(event)
            if done.changed:
                LOG.warning(
                    "the backlog of %s %s",
                    topic.name,
                    "exceeds its quota: producers are refused" if any(state.over) else "is below its quota",
                )

    async def check_all(self) -> None:
        """Compare the backlogs of all own topics with their quotas now."""
        for number, topic in enumerate(list(self._broker.topics.values())):
            if self._has_quota(topic) and self._broker.membership.owns(topic):
                await self._checked(topic)
            if number % TURN == 0:
                await asyncio.sleep(0)

    async def stop(self) -> None:
        """Cancel looks under way."""
        self._stopped = True
        for look in self._looks.values():
            look.cancel()
        self._looks.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
