"""Broken lives, permissions and properties: the scenes of the kit must notice each.

The scenes are in tests/kit/broker/life_checks.py and tests/kit/broker/right_checks.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.broker import ageing, lives, state_codec, state_extras, uptime
from holdfast.broker.ageing import Ageing
from holdfast.broker.events import PermissionSet, PropertiesSet, partitions, topics
from holdfast.broker.events import expiry as events
from holdfast.broker.events.outcomes import Done
from holdfast.broker.partitions import partitions_of
from holdfast.broker.permissions import Permissions
from holdfast.broker.state import BrokerState, Policies
from holdfast.broker.uptime import Quiet, Uptime
from holdfast.errors import HoldfastError
from tests.kit.broker import life_checks as life
from tests.kit.broker import right_checks as rights

Patch = pytest.MonkeyPatch
Scene = Callable[[], None]


def everywhere(patch: Patch, name: str, value: object) -> None:
    """Replace a function of lives in each module that has imported it."""
    for module in (lives, events, ageing):
        if hasattr(module, name):
            patch.setattr(module, name, value)


# -- lives ---------------------------------------------------------------------------------------------


def a_consumer_does_not_count(patch: Patch) -> None:
    def has_expired(state: BrokerState, subscription: Any, otherwise_s: float, time: int) -> bool:
        age_ns = lives.expiry_ns(state, state.topics[subscription.topic], otherwise_s)
        return age_ns > 0 and state.uptime.now(time) - subscription.used >= age_ns

    everywhere(patch, "has_expired", has_expired)


def every_time_counts(patch: Patch) -> None:
    """A jump of the clock expires everything, and so does an outage."""
    patch.setattr(uptime, "GAP_NS", 1 << 62)


def a_tick_is_forgotten(patch: Patch) -> None:
    """Uptime is not part of a snapshot."""
    before = state_extras.extra_part

    def extra_part(part: Any) -> Any:
        found = before(part)
        return msgspec.structs.replace(found, ran=0) if isinstance(part, Uptime) else found

    patch.setattr(state_codec, "extra_part", extra_part)


def a_new_consumer_ends_no_age(patch: Patch) -> None:
    """The age of a subscription counts from its creation."""

    def has_expired(state: BrokerState, subscription: Any, otherwise_s: float, time: int) -> bool:
        age_ns = lives.expiry_ns(state, state.topics[subscription.topic], otherwise_s)
        return not subscription.consumers and 0 < age_ns <= state.uptime.now(time)

    everywhere(patch, "has_expired", has_expired)


def the_namespace_wins(patch: Patch) -> None:
    before = Policies.over
    patch.setattr(Policies, "over", lambda self, inherited: before(inherited, self))


def the_option_wins(patch: Patch) -> None:
    everywhere(patch, "expiry_ns", lambda state, topic, otherwise_s: int(otherwise_s * lives.SECOND))


def a_partition_is_a_topic(patch: Patch) -> None:
    """One inactive partition is enough to delete its topic."""
    patch.setattr(lives, "whole", lambda state, topic: [topic])


def only_a_partition_is_deleted(patch: Patch) -> None:
    def remove_partitioned(state: BrokerState, context: Any, full: str) -> None:
        topics.delete_topic(state, context, partitions_of(state, full)[0])

    patch.setattr(events, "remove_partitioned", remove_partitioned)


def a_backlog_does_not_count(patch: Patch) -> None:
    def is_unused(state: BrokerState, topic: Any, otherwise: Any) -> bool:
        return not topic.producers and not any(each.consumers for each in topic.subscriptions.values())

    everywhere(patch, "is_unused", is_unused)


def a_producer_does_not_count(patch: Patch) -> None:
    before = lives.is_unused

    def is_unused(state: BrokerState, topic: Any, otherwise: Any) -> bool:
        known, topic.producers = topic.producers, {}
        try:
            return before(state, topic, otherwise)
        finally:
            topic.producers = known

    everywhere(patch, "is_unused", is_unused)


def a_reader_of_another_member_does_not_count(patch: Patch) -> None:
    patch.setattr(Ageing, "look_at_readers", lambda *_: None)


def retention_does_not_count(patch: Patch) -> None:
    before = lives.inactive_ns

    def inactive_ns(state: BrokerState, topic: Any, otherwise: Any) -> int:
        found = before(state, topic, msgspec.structs.replace(otherwise, retention_s=0.0))
        return min(found, 600 * lives.SECOND)

    everywhere(patch, "inactive_ns", inactive_ns)


def a_topic_is_quiet_from_its_creation(patch: Patch) -> None:
    """Use does not begin a new age."""
    before = events.TopicQuiet.apply

    def apply(self: Any, state: BrokerState, context: Any) -> Any:
        found = before(self, state, context)
        topic = state.topics.get(self.topic)
        if topic is not None and topic.quiet is not None:
            topic.quiet = Quiet(topic.quiet.end, 0)
        return found

    patch.setattr(events.TopicQuiet, "apply", apply)


def it_ticks_for_nothing(patch: Patch) -> None:
    def tick(self: Ageing) -> None:
        self._submit(events.UptimeTick())

    patch.setattr(Ageing, "tick", tick)


# -- permissions and properties ------------------------------------------------------------------------


def permissions_are_not_in_a_snapshot(patch: Patch) -> None:
    before = state_extras.extra_part

    def extra_part(part: Any) -> Any:
        return before(Permissions() if isinstance(part, Permissions) else part)

    patch.setattr(state_codec, "extra_part", extra_part)


def a_revoked_permission_stays(patch: Patch) -> None:
    before = PermissionSet.apply

    def apply(self: PermissionSet, state: BrokerState, context: Any) -> Any:
        if not self.actions:
            return Done(changed=False)
        return before(self, state, context)

    patch.setattr(PermissionSet, "apply", apply)


def a_permission_on_a_topic_is_one_on_all(patch: Patch) -> None:
    def allow(self: Permissions, role: str, actions: set[str], place: tuple[str, ...]) -> bool:
        given = [*self.namespaces.values(), *self.topics.values()]
        return any(not actions.isdisjoint(roles.get(role, ())) for roles in given)

    patch.setattr(Permissions, "allow", allow)


def any_role_uses_a_subscription(patch: Patch) -> None:
    patch.setattr(Permissions, "why_not", lambda *_: "")


def a_deleted_topic_leaves_its_permissions(patch: Patch) -> None:
    for module in (topics, partitions):
        patch.setattr(module, "forget_permissions", lambda *_: None)


def a_deleted_namespace_leaves_its_permissions(patch: Patch) -> None:
    patch.setattr(Permissions, "drop_namespace", lambda *_: False)


def properties_replace_others(patch: Patch) -> None:
    patch.setattr(PropertiesSet, "_changed", lambda self, known: dict(self.values))


def properties_of_the_first_partition(patch: Patch) -> None:
    before = PropertiesSet.apply

    def apply(self: PropertiesSet, state: BrokerState, context: Any) -> Any:
        first = msgspec.structs.replace(self, topics=self.topics[:1], subscriptions=self.subscriptions[:1])
        return before(first, state, context)

    patch.setattr(PropertiesSet, "apply", apply)


MUTANTS: list[tuple[Callable[[Patch], None], Scene]] = [
    (a_consumer_does_not_count, life.consumer_keeps_it),
    (every_time_counts, life.clock_ahead),
    (every_time_counts, life.expiry_survives),
    (a_tick_is_forgotten, life.expiry_survives_a_snapshot),
    (a_new_consumer_ends_no_age, life.consumer_keeps_it),
    (the_namespace_wins, life.topic_decides),
    (the_option_wins, life.topic_decides),
    (a_partition_is_a_topic, life.partitions_go_together),
    (only_a_partition_is_deleted, life.partitions_go_together),
    (a_backlog_does_not_count, life.backlog_keeps_a_topic),
    (a_producer_does_not_count, life.clients_keep_a_topic),
    (a_reader_of_another_member_does_not_count, life.reader_elsewhere_keeps_a_topic),
    (retention_does_not_count, life.retention_keeps_a_topic),
    (a_topic_is_quiet_from_its_creation, life.clients_keep_a_topic),
    (it_ticks_for_nothing, life.nothing_ages),
    (permissions_are_not_in_a_snapshot, rights.rights_survive_a_snapshot),
    (a_revoked_permission_stays, rights.rights_survive),
    (a_permission_on_a_topic_is_one_on_all, rights.rights_survive),
    (any_role_uses_a_subscription, rights.rights_survive),
    (a_deleted_topic_leaves_its_permissions, rights.rights_end_with_their_place),
    (a_deleted_namespace_leaves_its_permissions, rights.rights_end_with_their_place),
    (properties_replace_others, rights.rights_survive),
    (properties_of_the_first_partition, rights.properties_of_all_partitions),
]


@pytest.mark.parametrize(("mutant", "scene"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_it_is_noticed(
    mutant: Callable[[Patch], None], scene: Scene, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    mutant(monkeypatch)
    with pytest.raises((AssertionError, HoldfastError)):
        scene()
