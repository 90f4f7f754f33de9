"""A model of policies: values that apply, refusals, waits and evictions.

`PolicyBook` is the model's part. `PolicyBench` compares the broker with it: each operation is allowed or
refused as the policies say, and figures settle at what they say.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

from holdfast._core import TopicMessage
from holdfast.broker.api.producer import Producer
from holdfast.broker.topic import Topic as BrokerTopic
from holdfast.errors import Busy, HoldfastError, IncompatibleSchema, Misuse, QuotaExceeded
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import versions
from tests.kit.broker.harness import Bench, Where
from tests.kit.broker.model import Client, Subscription, Topic, Wrong
from tests.kit.broker.worlds import World

NAMESPACE = "public/default"
EVICT = "consumer_backlog_eviction"
LATE_S = 30.0
"""Virtual seconds after which a delayed publish counts as starved."""
ENTRY = 300
"""More bytes than an entry has beside its messages."""
READ = 10
"""Messages of reads that were under way when a rate was set; a rate lets those of a second pass at once."""


class Expected(Exception):
    """The broker has refused an operation, as the model says."""


class PolicyBook:
    """The policies that were set: of topics, of their namespace, and by the broker's options."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.above: dict[str, Any] = {}
        self.own: dict[str, dict[str, Any]] = {}
        self.schemas: dict[str, list[pb.Schema.Type]] = {}
        """Types of schemas, by topic."""

    def set(self, topic: str | None, values: dict[str, Any]) -> None:
        """Note values of a topic, or of the namespace; None removes one."""
        place = self.above if topic is None else self.own.setdefault(topic, {})
        place.update(values)

    def of(self, topic: str, name: str) -> Any:
        """Return the value that applies: the topic's, else the namespace's, else the broker's."""
        for place in (self.own.get(topic, {}), self.above):
            if place.get(name) is not None:
                return place[name]
        return self.options.get(name, 0)

    def keeps(self, topic: str) -> bool:
        """Return whether retention keeps all that is acknowledged."""
        return -1 in (self.of(topic, "retention_bytes"), self.of(topic, "retention_s"))

    def evicts(self, topic: str) -> bool:
        return bool(self.of(topic, "backlog_bytes_action") == EVICT)

    def admits_schema(self, topic: str, type_: pb.Schema.Type) -> bool:
        """Return whether a producer may use a schema of a type."""
        known = self.schemas.get(topic, [])
        if type_ in known:
            return True
        if self.of(topic, "schema_auto_update") is False:
            return False
        return not known or self.of(topic, "schema_strategy") == "ALWAYS_COMPATIBLE"


class PolicyBench(Bench):
    """The broker beside the model, with policies."""

    def __init__(self, world: World, options: dict[str, Any]) -> None:
        super().__init__(world)
        self.book = PolicyBook(options)
        self.delivered: dict[str, tuple[int, int, int]] = {}
        """By topic with a rate: the rate, since when, and the messages delivered since."""

    def broker_topic(self, name: str) -> BrokerTopic:
        found: BrokerTopic = self.admin._topic(name)
        return found

    # -- setting policies ------------------------------------------------------------------------------

    async def set_policies(self, topic: str | None, **values: Any) -> None:
        """Set policies of a topic, or of the namespace (None)."""
        await self.flush()
        if topic is None:
            await self.admin.set_namespace_policies(NAMESPACE, **values)
        else:
            await self.admin.set_policies(topic, **values)
        for name, model in self.topics.items():  # what was trimmed before is not judged by the new policies
            super()._trimmed(model, self.broker_topic(name).first)
        self.book.set(topic, values)
        self.delivered.clear()  # a new rate may begin with a new burst

    async def audit(self) -> None:
        """After a restart, compare policies and schemas, too."""
        self.delivered.clear()
        for name in self.topics:
            own = self.admin.policies(name).fields()
            for policy, value in self.book.own.get(name, {}).items():
                if own[policy] != value:
                    raise Wrong(f"{name} has {policy} {own[policy]} after a restart; it was set to {value}")
            types = [pb.Schema.FromString(each).type for each in self.broker_topic(name).schemas]
            if types != self.book.schemas.get(name, []):
                raise Wrong(f"{name} has schemas {types} after a restart; it had {self.book.schemas[name]}")
        above = self.admin.namespace_policies(NAMESPACE).fields()
        for policy, value in self.book.above.items():
            if above[policy] != value:
                raise Wrong(f"the namespace has {policy} {above[policy]} after a restart; it was {value}")
        self._take_evictions()
        await super().audit()

    # -- backlog quotas --------------------------------------------------------------------------------

    def over(self, name: str) -> bool:
        """Return whether the backlog of a topic exceeds its quota, by the model's cursors."""
        quota, model = self.book.of(name, "backlog_bytes"), self.topics[name]
        mark = min((each.mark() for each in self._of(model)), default=model.end)
        return bool(0 < quota <= self.broker_topic(name).size_behind(mark))

    def _of(self, model: Topic) -> list[Subscription]:
        return [each for each in self.subscriptions.values() if each.topic is model]

    def _take_evictions(self) -> None:
        """Take over what the broker has evicted, where a quota allows that."""
        for where, of in self.subscriptions.items():
            state = self.broker_topic(where[0]).state.subscriptions[where[1]]
            gone = min(state.acks.acked_to, of.topic.end)
            if gone > of.mark() and self._may_evict(where[0]):
                of.ack(of.keys_below(gone), of.reset_number, receipt=False)

    def _may_evict(self, name: str) -> bool:
        """Return whether the backlog may have exceeded a quota. Evicted entries may be trimmed already."""
        quota, model = self.book.of(name, "backlog_bytes"), self.topics[name]
        behind = range(min((each.mark() for each in self._of(model)), default=model.end), model.end)
        most = sum(ENTRY + sum(map(len, model.entries[at].messages)) for at in behind)
        return self.book.evicts(name) and 0 < quota <= most

    def _has_quota(self, name: str) -> bool:
        return bool(self.book.of(name, "backlog_bytes"))

    def _stopped(self, name: str) -> bool:
        """Return whether a quota stops the producers of a topic."""
        return self.over(name) and not self.book.evicts(name)

    def _quota_problem(self) -> str:
        for name in self.topics:
            exceeded = any(self.broker_topic(name).state.over)
            if exceeded != self._stopped(name):
                return f"{name}: the quota stops producers: {exceeded}; by the model {not exceeded}"
            if self.book.evicts(name) and self.over(name):
                return f"{name}: its backlog exceeds the quota, and nothing is evicted"
        return ""

    async def settle(self) -> None:
        """Wait until quotas have had their effect; then as without them."""
        await self._settle_quotas()
        await super().settle()

    async def _settle_quotas(self) -> None:
        """Wait until quotas have had their effect: the broker looks only now and then."""
        limit_ns = self.world.clock.monotonic_ns() + int(5e9)
        while True:
            self.check()
            self._take_evictions()
            problem = self._quota_problem()
            if not problem:
                break
            if self.world.clock.monotonic_ns() > limit_ns:
                raise Wrong(problem)
            await self.world.clock.sleep(0.05)
            assert self.broker is not None
            await self.broker.limiting.check_all()  # as housekeeping does
        for name in self.topics:
            if self._stopped(name):  # its producers were closed
                for key in [each for each in self.producers if each[0] == name]:
                    del self.producers[key]

    # -- publishing ------------------------------------------------------------------------------------

    async def producer(self, topic: str, name: str, batch: int) -> Producer:
        """Open a producer, or return the open one.

        Raises:
            Expected: it was refused, as it must be.
        """
        open_ = self.producers.get((topic, name))
        assert self.broker is not None
        if open_ is not None and self._has_quota(topic) and not self.broker.sessions.is_open(open_._session):
            del self.producers[topic, name]  # the backlog exceeded its quota for a moment
        known = (topic, name) in self.producers
        others = sum(each[0] == topic for each in self.producers)
        most = self.book.of(topic, "producers_max")
        if self._stopped(topic):
            await self._refused(super().producer(topic, name, batch), QuotaExceeded, "opens beyond the quota")
        elif not known and 0 < most <= others:
            await self._refused(super().producer(topic, name, batch), Busy, "is one producer too many")
        return await super().producer(topic, name, batch)

    async def publish(
        self,
        topic: str,
        name: str,
        batch: int,
        messages: list[bytes],
        key: str | None,
        at: int,
        post: bool,
        delay_ms: int = 0,
    ) -> None:
        """Publish, or require that policies refuse it. A rate delays it, and never for ever."""
        if self._has_quota(topic):  # one step may publish twice
            await self._settle_quotas()
        try:
            producer = await self.producer(topic, name, batch)
            most = self.book.of(topic, "message_bytes_max")
            if 0 < most < len(messages[0]):
                await self._refused(producer.send(messages[0], key=key), Misuse, "is too large")
        except Expected:
            return
        rate = self.book.of(topic, "publish_rate_messages")
        post = post and not self._has_quota(topic)
        work = super().publish(topic, name, batch, messages, key, at, post, delay_ms)
        if not rate:
            await work
            return
        began_ns = self.world.clock.monotonic_ns()
        try:
            async with asyncio.timeout(LATE_S):
                await work
        except TimeoutError:
            raise Wrong(f"{len(messages)} messages to {topic} at {rate}/s wait for {LATE_S} s") from None
        took_s = (self.world.clock.monotonic_ns() - began_ns) / 1e9
        if len(messages) > rate * (took_s + 1) + rate:
            raise Wrong(f"{len(messages)} messages to {topic} at {rate}/s took {took_s} s")

    async def open_another(self, topic: str, most: int | None) -> None:
        """Set the maximum. Open and close a producer of another name, if policies allow it."""
        await self.set_policies(topic, producers_max=most)
        with contextlib.suppress(Expected):
            producer = await self.producer(topic, "another", 1)
            del self.producers[topic, "another"]
            await producer.close()

    async def _refused(self, work: Awaitable[Any], kind: type[HoldfastError], words: str) -> None:
        try:
            await work
        except kind:
            raise Expected from None
        raise Wrong(f"nothing refused what {words}")

    # -- consuming -------------------------------------------------------------------------------------

    def _is_full(self, where: Where) -> bool:
        """Return whether a maximum forbids another consumer of a subscription."""
        there = len(self.subscriptions[where].clients)
        of_topic = sum(len(each.clients) for each in self._of(self.topics[where[0]]))
        mosts = self.book.of(where[0], "subscription_consumers_max"), self.book.of(where[0], "consumers_max")
        return any(0 < most <= count for most, count in zip(mosts, (there, of_topic), strict=True))

    async def join(
        self, where: Where, queue: int, priority: int = 0, ack_timeout_s: float | None = None
    ) -> None:
        if not self._is_full(where):
            await super().join(where, queue, priority, ack_timeout_s)
            return
        assert self.broker is not None
        kind, keys = self.subscriptions[where].type, self.sharing(where)
        consumer = self.broker.consumer(*where, type=kind, name="more", keys=keys)
        try:
            await consumer.open()
        except Busy:
            return
        raise Wrong(f"{where} has one consumer too many")

    def handed(self, of: Subscription, client: Client, messages: list[TopicMessage]) -> None:
        self._take_evictions()  # they may have ended the wait of a key
        super().handed(of, client, messages)
        name = next(each for each, model in self.topics.items() if model is of.topic)
        rate, now_ns = self.book.of(name, "dispatch_rate_messages"), self.world.clock.monotonic_ns()
        known, since_ns, count = self.delivered.get(name, (0, now_ns, 0))
        if rate != known:
            since_ns, count = now_ns, 0
        count += len(messages)
        self.delivered[name] = (rate, since_ns, count)
        if rate and count > rate * ((now_ns - since_ns) / 1e9 + 1) + READ:
            raise Wrong(f"{name} delivers {count} messages in {(now_ns - since_ns) / 1e9} s at {rate}/s")

    # -- what stays ------------------------------------------------------------------------------------

    def _trimmed(self, topic: Topic, first: int) -> None:
        name = next(each for each, model in self.topics.items() if model is topic)
        if first > topic.first and self.book.keeps(name):
            raise Wrong(f"{name} is trimmed to {first}, and its retention has no limit")
        super()._trimmed(topic, first)

    async def trim(self, name: str) -> None:
        if not self.book.keeps(name):
            await super().trim(name)
        elif gone := await self.admin.trim(name):
            raise Wrong(f"{gone} entries of {name} are trimmed, and its retention has no limit")

    def _first(self, name: str, gone: int) -> int:
        """Return the broker's: it trims by itself what it has evicted, perhaps just before."""
        return self.broker_topic(name).first

    async def expire_by_ttl(self, topic: str, own: float | None, above: float | None) -> None:
        """Let messages become old, and housekeeping look once; then lift the time to live."""
        await self.set_policies(None, ttl_s=above)
        await self.set_policies(topic, ttl_s=own)
        await self.world.clock.sleep(10.0)
        assert self.broker is not None
        for name, model in self.topics.items():
            age_s = self.book.of(name, "ttl_s")
            target = model.at_time(self.world.clock.now_ns() - int(age_s * 1e9)) if age_s else 0
            old = [(of, of.keys_below(target), of.reset_number) for of in self._of(model)]
            for of, keys, number in old:
                of.ack(keys, number, receipt=False)
            await self.broker.housekeeping._age(self.broker_topic(name))
            for of, keys, number in old:
                of.ack(keys, number, receipt=True)
        await self.set_policies(None, ttl_s=None)
        await self.set_policies(topic, ttl_s=None)

    # -- schemas ---------------------------------------------------------------------------------------

    async def use_schema(self, name: str, type_: pb.Schema.Type) -> None:
        """Use a schema as a producer does, through the registry."""
        assert self.broker is not None
        schema, admitted = (
            pb.Schema(name="s", type=type_, schema_data=b""),
            self.book.admits_schema(name, type_),
        )
        try:
            await versions.add(self.broker, self.broker_topic(name), schema, by_producer=True)
        except IncompatibleSchema:
            if admitted:
                raise
            return
        if not admitted:
            raise Wrong(f"{name} takes a schema of type {type_} after {self.book.schemas.get(name)}")
        known = self.book.schemas.setdefault(name, [])
        if type_ not in known:
            known.append(type_)
