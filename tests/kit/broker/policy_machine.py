"""Rules of random work on a broker whose topics have policies, beside those of `machine`.

Each history has policies of one kind: backlog quotas, rates, maximums, retention with time to live, or
schemas. They are set on topics and on their namespace, and lifted. In every second history the broker has
options for them, too.
"""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.broker.harness import Bench
from tests.kit.broker.machine import ROLL_ENTRIES, SimMachine, some
from tests.kit.broker.policy_model import EVICT, Expected, PolicyBench
from tests.kit.broker.worlds import SimWorld, World

VALUES: dict[str, list[dict[str, Any]]] = {
    "quota": [
        *({"backlog_bytes": size} for size in (1, 300, 300, 1 << 40, 0)),
        *({"backlog_bytes": size, "backlog_bytes_action": EVICT} for size in (1, 300)),
        *({"backlog_bytes_action": action} for action in (EVICT, "producer_exception")),
    ],
    "rate": [
        *({"publish_rate_messages": rate} for rate in (3, 3, 0)),
        *({"dispatch_rate_messages": rate} for rate in (20, 20, 0)),
    ],
    "maximum": [
        *({"consumers_max": most} for most in (1, 50, 0)),
        *({"subscription_consumers_max": most} for most in (1, 50, 0)),
        *({"producers_max": most} for most in (1, 50, 0)),
        *({"message_bytes_max": most} for most in (1, 1 << 20, 0)),
    ],
    "keep": [
        *({"retention_bytes": size} for size in (-1, 0)),
        *({"retention_s": age_s} for age_s in (-1.0, 0.0)),
    ],
    "schema": [
        *({"schema_strategy": each} for each in ("FULL", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE")),
        *({"schema_auto_update": each} for each in (False, True)),
    ],
}
"""Policies by kind."""
OPTIONS: dict[str, dict[str, Any]] = {
    "quota": {"backlog_bytes": 2000},
    "rate": {"publish_rate_messages": 50, "dispatch_rate_messages": 50},
    "maximum": {"consumers_max": 4},
    "keep": {"retention_s": -1.0},
    "schema": {"schema_strategy": "ALWAYS_COMPATIBLE"},
}
"""Options of the broker by kind; they have the names of the policies."""
TYPES = [pb.Schema.String, pb.Schema.Int32, pb.Schema.Int64]
"""Types of schemas that exclude each other, and are compared without a thread."""


def machine_of(kind: str | None) -> type[PolicyMachine]:
    """Return the machine whose histories have policies of one kind; None: of any."""
    return PolicyMachine if kind is None else type("Histories", (PolicyMachine,), {"kinds": (kind,)})


class PolicyMachine(SimMachine):
    """A machine in virtual time with policies."""

    kinds = (*VALUES,)
    bench: PolicyBench

    def world(self, seed: int) -> World:
        self.kind = self.kinds[seed % len(self.kinds)]
        self.options = OPTIONS[self.kind] if seed // len(self.kinds) % 2 else {}
        return SimWorld(seed, roll_entries=ROLL_ENTRIES, **self.options)

    def new_bench(self, world: World) -> Bench:
        return PolicyBench(world, self.options)

    async def connect(self, topic: str, batch: int) -> None:
        with contextlib.suppress(Expected):
            await super().connect(topic, batch)

    def values(self, which: int) -> dict[str, Any]:
        return VALUES[self.kind][which % len(VALUES[self.kind])]

    @rule(topic=st.sampled_from("ab"), which=some)
    def set_policy_of_topic(self, topic: str, which: int) -> None:
        self.run(self.bench.set_policies(topic, **self.values(which)))

    @rule(which=some)
    def set_policy_of_namespace(self, which: int) -> None:
        self.run(self.bench.set_policies(None, **self.values(which)))

    @rule(place=st.sampled_from(["a", "b", None]))
    def lift_policies(self, place: str | None) -> None:
        names = {name for values in VALUES[self.kind] for name in values}
        self.run(self.bench.set_policies(place, **dict.fromkeys(names)))

    @rule(topic=st.sampled_from("ab"))
    def publish_much(self, topic: str) -> None:
        self.last = self.next_run(topic, 1, 9, None)
        self.run(self.bench.publish(*self.last, post=False))

    @precondition(lambda self: self.kind == "maximum")
    @rule(topic=st.sampled_from("ab"), most=st.sampled_from([None, 1, 50]))
    def open_another(self, topic: str, most: int | None) -> None:
        self.run(self.bench.open_another(topic, most))

    @precondition(lambda self: self.kind == "keep")
    @rule(
        topic=st.sampled_from("ab"),
        own=st.sampled_from([None, 0.0, 5.0]),
        above=st.sampled_from([None, 5.0, 1e6]),
    )
    def expire_by_ttl(self, topic: str, own: float | None, above: float | None) -> None:
        self.run(self.bench.expire_by_ttl(topic, own, above))

    @precondition(lambda self: self.kind == "schema")
    @rule(topic=st.sampled_from("ab"), which=some, again=some, power=st.sampled_from([None, False, True]))
    def use_schemas(self, topic: str, which: int, again: int, power: bool | None) -> None:
        """Use a schema, perhaps after a crash another one."""
        self.run(self.bench.use_schema(topic, TYPES[which % len(TYPES)]))
        if power is not None:
            self.bench.crash(power)
            self.come_back(again % 3 * 50)
            self.run(self.bench.use_schema(topic, TYPES[again % len(TYPES)]))
