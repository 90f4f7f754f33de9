"""Rules of random work on a broker where topics, subscriptions and rights come and end.

A topic beside those of `machine` lives for one rule. It is given policies, rights and properties, and the
broker may crash. Then the topic must be as the model says.
"""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast.errors import LimitReached, NotFound, Terminated
from tests.kit.broker.harness import Bench
from tests.kit.broker.machine import ROLL_ENTRIES, SimMachine
from tests.kit.broker.model import Topic, Wrong
from tests.kit.broker.policy_model import NAMESPACE, PolicyBench
from tests.kit.broker.worlds import SimWorld, World

BRIEF = "brief"
"""The topic that lives for one rule."""
FULL = f"persistent://{NAMESPACE}/{BRIEF}"
SHORT_S, LONG_S = 5.0, 1e6
TURNS, TURN_S = 8, 5.0
"""Turns of housekeeping in which what is older than `SHORT_S` ends, and the time between them."""
Age = float | None
ages = st.sampled_from([None, 0.0, SHORT_S, LONG_S])
spans = st.sampled_from([None, SHORT_S, LONG_S])
crashes = st.sampled_from([None, False, True])
"""No crash, one of the process, one of the power."""


class LifeBench(PolicyBench):
    """The broker beside the model; what the rules of `LifeMachine` begin and look at."""

    async def create(self, name: str, deduplicate: bool) -> None:
        """Create a topic of the model, which no policy of its namespace ends."""
        own = {"subscription_expiry_s": 0.0, "inactive_delete": False}
        await self.admin.create_topic(name, deduplication=deduplicate, **own)
        self.topics[name] = Topic(deduplicate)
        self.book.set(name, own)

    async def grow_old(self) -> None:
        """Let time pass, and housekeeping look."""
        assert self.broker is not None
        for _ in range(TURNS):
            await self.broker.housekeeping.turn()
            await self.world.clock.sleep(TURN_S)

    def is_short(self, own: Age, above: Age, option: float) -> bool:
        """Return whether an age that has passed applies: the topic's, its namespace's, or the option."""
        return next(each for each in (own, above, option) if each is not None) == SHORT_S

    async def forget(self) -> None:
        """Delete the topic, if it is there, and the policies of the namespace."""
        with contextlib.suppress(NotFound):
            await self.admin.delete_topic(BRIEF, force=True)
        names = ("subscription_expiry_s", "inactive_s", "inactive_delete")
        await self.admin.set_namespace_policies(NAMESPACE, **dict.fromkeys(names))

    def backlog(self) -> int:
        return int(self.admin.subscription_stats(BRIEF, "s").backlog)


class LifeMachine(SimMachine):
    """A machine in virtual time, with ends."""

    bench: LifeBench

    def world(self, seed: int) -> World:
        self.options: dict[str, Any] = {"subscription_expiry_s": SHORT_S} if seed % 2 else {}
        return SimWorld(seed, roll_entries=ROLL_ENTRIES, **self.options)

    def new_bench(self, world: World) -> Bench:
        return LifeBench(world, self.options)

    def perhaps(self, crash: bool | None, queue: int = 100) -> None:
        """Crash the broker, or do not."""
        if crash is not None:
            self.bench.crash(crash)
            self.come_back(queue)

    @rule(own=ages, above=ages, crash=crashes)
    def subscriptions_expire(self, own: Age, above: Age, crash: bool | None) -> None:
        """One without a consumer expires by the nearest policy; one with a consumer stays."""
        bench, option = self.bench, self.options.get("subscription_expiry_s", 0.0)

        async def begin() -> None:
            await bench.admin.set_namespace_policies(NAMESPACE, subscription_expiry_s=above)
            await bench.admin.create_topic(BRIEF, subscription_expiry_s=own)
            for name in ("left", "used"):
                await bench.admin.create_subscription(BRIEF, name)

        async def end() -> None:
            assert bench.broker is not None
            async with bench.broker.consumer(BRIEF, "used"):
                await bench.grow_old()
                found = sorted(bench.broker.topic(FULL).state.subscriptions)
            wanted = ["used"] if bench.is_short(own, above, option) else ["left", "used"]
            if found != wanted:
                raise Wrong(f"expiry {own}, above {above}, else {option}: {found} are left, not {wanted}")
            await bench.forget()

        self.run(begin())
        self.perhaps(crash)
        self.run(end())

    @rule(own=spans, above=spans, used=st.booleans(), crash=crashes)
    def topics_end(self, own: Age, above: Age, used: bool, crash: bool | None) -> None:
        """An unused topic is deleted by the nearest policy; one with a subscription stays."""
        bench = self.bench

        async def begin() -> None:
            await bench.admin.set_namespace_policies(NAMESPACE, inactive_s=above, inactive_delete=True)
            await bench.admin.create_topic(BRIEF, inactive_s=own, subscription_expiry_s=0.0)
            if used:
                await bench.admin.create_subscription(BRIEF, "s")

        async def end() -> None:
            await bench.grow_old()
            assert bench.broker is not None
            stays = used or not bench.is_short(own, above, 0.0)
            if bench.broker.has_topic(FULL) != stays:
                raise Wrong(f"inactive after {own}, above {above}, used: {used}; it stays: {not stays}")
            await bench.forget()

        self.run(begin())
        self.perhaps(crash)
        self.run(end())

    @rule(how=st.sampled_from(["terminate", "truncate"]), crash=crashes)
    def a_topic_is_ended(self, how: str, crash: bool | None) -> None:
        """Terminated, it takes no message and keeps its own; truncated, the reverse."""
        bench = self.bench

        async def send(data: bytes) -> None:
            assert bench.broker is not None
            async with bench.broker.producer(BRIEF) as producer:
                await producer.send(data)

        async def begin() -> None:
            await bench.admin.create_topic(BRIEF, subscription_expiry_s=0.0)
            await bench.admin.create_subscription(BRIEF, "s", start="earliest")
            for data in (b"1", b"2", b"3"):
                await send(data)
            await getattr(bench.admin, how)(BRIEF)

        async def end() -> None:
            try:
                await send(b"4")
                taken = True
            except Terminated:
                taken = False
            found, wanted = (taken, bench.backlog()), ((False, 3) if how == "terminate" else (True, 1))
            if found != wanted:
                raise Wrong(f"after {how}, a message is taken, and the backlog is: {found}, not {wanted}")
            await bench.forget()

        self.run(begin())
        self.perhaps(crash)
        self.run(end())

    @rule(
        granted=st.dictionaries(
            st.sampled_from(["shop", "till"]), st.sampled_from([["consume"], ["produce", "consume"], []])
        ),
        values=st.dictionaries(st.sampled_from("xyz"), st.sampled_from("123")),
        crash=crashes,
    )
    def rights_and_properties_stay(
        self, granted: dict[str, list[str]], values: dict[str, str], crash: bool | None
    ) -> None:
        """They outlive a crash, and end with their topic."""
        bench = self.bench

        async def begin() -> None:
            await bench.admin.create_topic(BRIEF, subscription_expiry_s=0.0)
            for role, actions in granted.items():
                await bench.admin.permit(BRIEF, role, actions)
            await bench.admin.set_topic_properties(BRIEF, values)

        async def end() -> None:
            wanted = {role: actions for role, actions in granted.items() if actions}
            for roles, texts in ((wanted, values), ({}, {})):
                found = bench.admin.permissions(BRIEF), bench.admin.topic_properties(BRIEF)
                if found != (roles, texts):
                    raise Wrong(f"rights and properties are {found}, not {(roles, texts)}")
                await bench.admin.delete_topic(BRIEF)
                await bench.admin.create_topic(BRIEF)
            await bench.forget()

        self.run(begin())
        self.perhaps(crash)
        self.run(end())

    @rule(
        topic=st.sampled_from("ab"), own=st.sampled_from([None, 1, 50]), above=st.sampled_from([None, 1, 50])
    )
    def subscribe_beyond(self, topic: str, own: int | None, above: int | None) -> None:
        """One more subscription is created if the nearest maximum allows it."""
        bench = self.bench

        async def work() -> None:
            await bench.set_policies(None, subscriptions_max=above)
            await bench.set_policies(topic, subscriptions_max=own)
            most = bench.book.of(topic, "subscriptions_max")
            allowed = not 0 < most <= sum(where[0] == topic for where in bench.subscriptions)
            try:
                await bench.admin.create_subscription(topic, "more")
                created = True
            except LimitReached:
                created = False
            if created != allowed:
                raise Wrong(f"{topic} with at most {most} subscriptions: one more is created: {created}")
            if created:
                await bench.admin.delete_subscription(topic, "more")
            await bench.set_policies(None, subscriptions_max=None)
            await bench.set_policies(topic, subscriptions_max=None)

        self.run(work())
