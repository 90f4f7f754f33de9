"""Brokers with broken policies: the model test with policies must notice each."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.broker import Broker
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.pacing import Bucket, Pace
from holdfast.broker.events import BacklogCheck, BacklogEvict, PolicySet, SchemaAdd, sessions
from holdfast.broker.events.outcomes import Dropped
from holdfast.broker.limiting import Limiting
from holdfast.broker.state import TopicState
from holdfast.broker.topic import Topic
from holdfast.broker.topic_policies import SILENT, Policies
from holdfast.errors import Misuse
from tests.kit.broker.mutants import forgotten_by_recovery

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]
POLICY_MUTANTS: dict[str, tuple[str | None, Break]] = {}
"""By name: the kind of policies that notices it (`policy_machine`; None: any), and the function."""
FAR_NS = 1 << 62


def mutant(kind: str | None = None) -> Callable[[Break], Break]:
    def note(break_it: Break) -> Break:
        POLICY_MUTANTS[break_it.__name__] = kind, break_it
        return break_it

    return note


# -- which value applies -------------------------------------------------------------------------------


@mutant()
def a_policy_of_the_namespace_wins_over_the_topics(patch: Patch) -> None:
    over = Policies.over
    patch.setattr(Policies, "over", lambda self, above: self if above is SILENT else over(above, self))


@mutant()
def an_option_wins_over_policies(patch: Patch) -> None:
    of = Limiting.of
    patch.setattr(Limiting, "of", lambda self, topic: self.least.over(of(self, topic)))


@mutant()
def a_restart_forgets_policies(patch: Patch) -> None:
    forgotten_by_recovery(patch, PolicySet)


# -- backlog quotas ------------------------------------------------------------------------------------


@mutant("quota")
def a_quota_never_lifts(patch: Patch) -> None:
    verdict = BacklogCheck._verdict

    def sticky(self: BacklogCheck, state: Any, context: Any, topic: TopicState) -> tuple[str, str]:
        found = verdict(self, state, context, topic)
        return found if any(found) else topic.over

    patch.setattr(BacklogCheck, "_verdict", sticky)


@mutant("quota")
def a_quota_stops_no_producer(patch: Patch) -> None:
    patch.setattr(Limiting, "require_quota", lambda self, topic: None)
    patch.setattr(sessions, "require_quota", lambda topic: None)


@mutant("quota")
def an_eviction_evicts_nothing(patch: Patch) -> None:
    patch.setattr(BacklogEvict, "apply", lambda self, state, context: Dropped(0))


@mutant("quota")
def an_eviction_has_no_condition(patch: Patch) -> None:
    """All entries are evicted, also below the quota and with other actions."""

    async def check(self: Limiting, topic: Topic, now_ns: int | None = None) -> None:
        for each in list(topic.state.subscriptions.values()):
            if self.of(topic).backlog_bytes and topic.backlog(each):
                await self._broker.dispatcher(topic, each).advance(to=topic.visible)

    patch.setattr(Limiting, "check", check)


# -- rates ---------------------------------------------------------------------------------------------


def starved(bucket: Bucket) -> Bucket:
    bucket._full_ns = [FAR_NS, FAR_NS]
    return bucket


@mutant("rate")
def a_publish_rate_starves_one_topic(patch: Patch) -> None:
    publish_bucket = Limiting.publish_bucket

    def starving(self: Limiting, topic: Topic) -> Bucket | None:
        found = publish_bucket(self, topic)
        return starved(found) if found is not None and topic.name.endswith("/a") else found

    patch.setattr(Limiting, "publish_bucket", starving)


@mutant("rate")
def a_dispatch_rate_starves_one_topic(patch: Patch) -> None:
    serve = Limiting.serve

    def starving(self: Limiting, topic: Topic, dispatcher: Dispatcher) -> None:
        serve(self, topic, dispatcher)
        rates = self._rates.get(topic.id)
        if rates is not None and rates.dispatch is not None and topic.name.endswith("/b"):
            starved(rates.dispatch)

    patch.setattr(Limiting, "serve", starving)


@mutant("rate")
def a_publish_rate_is_not_kept(patch: Patch) -> None:
    patch.setattr(Limiting, "publish_bucket", lambda self, topic: None)


@mutant("rate")
def a_dispatch_rate_is_not_kept(patch: Patch) -> None:
    async def wait(self: Pace, messages: int, size: int) -> None:
        pass

    patch.setattr(Pace, "wait", wait)


# -- maximums, retention, time to live -----------------------------------------------------------------


@mutant("maximum")
def the_maximum_of_consumers_is_forgotten(patch: Patch) -> None:
    patch.setattr(sessions, "require_consumers", lambda *given: None)


@mutant("maximum")
def the_maximum_of_producers_is_forgotten(patch: Patch) -> None:
    patch.setattr(sessions, "require_producers", lambda *given: None)


@mutant("maximum")
def a_message_may_have_any_size(patch: Patch) -> None:
    admit_publish = Limiting.admit_publish

    async def admit(self: Limiting, topic: Topic, messages: list[bytes]) -> None:
        with contextlib.suppress(Misuse):
            await admit_publish(self, topic, messages)

    patch.setattr(Limiting, "admit_publish", admit)


@mutant("keep")
def retention_is_forgotten(patch: Patch) -> None:
    trimmable = TopicState.trimmable

    def forgetful(self: TopicState, time: int, *_: object) -> int:
        own, self.policies = self.policies, SILENT
        try:
            return trimmable(self, time)
        finally:
            self.policies = own

    patch.setattr(TopicState, "trimmable", forgetful)


@mutant("keep")
def messages_never_expire(patch: Patch) -> None:
    async def expire(self: Broker, *_: object) -> None:
        pass

    patch.setattr(Broker, "expire", expire)


# -- schemas -------------------------------------------------------------------------------------------


@mutant("schema")
def an_incompatible_schema_is_let_in_after_a_restart(patch: Patch) -> None:
    forgotten_by_recovery(patch, SchemaAdd)
