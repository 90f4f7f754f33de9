"""Brokers with broken ends and forgotten rights: the model with lives must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker import ageing, lives
from holdfast.broker.events import (
    PermissionSet,
    PropertiesSet,
    SubscriptionExpire,
    TopicTerminate,
    TopicTruncate,
    cursors,
    expiry,
)
from holdfast.broker.events.outcomes import Done
from holdfast.broker.topic_policies import SILENT, Policies
from tests.kit.broker.mutants import forgotten_by_recovery

Patch = pytest.MonkeyPatch
LIFE_MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(break_it: Callable[[Patch], None]) -> Callable[[Patch], None]:
    LIFE_MUTANTS[break_it.__name__] = break_it
    return break_it


@mutant
def the_expiry_of_the_namespace_wins(patch: Patch) -> None:
    over = Policies.over
    patch.setattr(Policies, "over", lambda self, above: self if above is SILENT else over(above, self))


@mutant
def subscriptions_never_expire(patch: Patch) -> None:
    patch.setattr(SubscriptionExpire, "apply", lambda self, state, context: Done(changed=False))


@mutant
def consumers_do_not_keep_a_subscription(patch: Patch) -> None:
    def has_expired(state: Any, subscription: Any, otherwise_s: float, time: int) -> bool:
        age_ns = lives.expiry_ns(state, state.topics[subscription.topic], otherwise_s)
        return age_ns > 0 and bool(state.uptime.now(time) - subscription.used >= age_ns)

    for module in (ageing, expiry):
        patch.setattr(module, "has_expired", has_expired)


@mutant
def subscriptions_do_not_keep_a_topic(patch: Patch) -> None:
    for module in (ageing, expiry, lives):
        patch.setattr(module, "is_unused", lambda state, topic, otherwise: not topic.producers)


@mutant
def the_maximum_of_subscriptions_is_forgotten(patch: Patch) -> None:
    patch.setattr(cursors, "require_subscriptions", lambda state, topic: None)


@mutant
def a_restart_forgets_the_end_of_a_topic(patch: Patch) -> None:
    forgotten_by_recovery(patch, TopicTerminate)


@mutant
def a_restart_forgets_that_a_topic_was_truncated(patch: Patch) -> None:
    forgotten_by_recovery(patch, TopicTruncate)


@mutant
def a_restart_forgets_permissions(patch: Patch) -> None:
    forgotten_by_recovery(patch, PermissionSet)


@mutant
def a_restart_forgets_properties(patch: Patch) -> None:
    forgotten_by_recovery(patch, PropertiesSet)
