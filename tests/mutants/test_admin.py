"""Broken administration: the checks of tests/kit must notice each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.broker.api.bulk_admin import BulkAdmin
from holdfast.broker.events.unloading import Unload
from holdfast.broker.membership import Membership
from holdfast.server.pulsar.listener import Server
from tests.kit.server import admin_checks as checks
from tests.kit.server.cluster_checks import member
from tests.kit.server.http_world import HttpWorld


@pytest.fixture
def http() -> Iterator[HttpWorld]:
    with HttpWorld(wire=True) as world:
        yield world


def every_namespace_is_cleared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BulkAdmin, "_topics", lambda self, namespace, of: iter([*of.topics.values()]))


def any_subscription_is_cleared(patch: pytest.MonkeyPatch) -> None:
    each = BulkAdmin._each

    async def all_of_them(self: BulkAdmin, namespace: str, subscription: str | None, work: Any) -> int:
        return await each(self, namespace, None, work)

    patch.setattr(BulkAdmin, "_each", all_of_them)


def the_first_failure_ends_it(patch: pytest.MonkeyPatch) -> None:
    async def one_by_one(self: BulkAdmin, found: Any, work: Any) -> int:
        for subject in found:
            await work(*subject)
        return len(found)

    patch.setattr(BulkAdmin, "_all", one_by_one)


def every_topic_is_unloaded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unload, "_topics", lambda self, state: [*state.topics.values()])


def consumers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    def producers_alone(self: Server, topic: Any) -> int:
        for session in list(topic.producers):
            self.producers[session].connection.producers.expel(self.producers[session], ended=False)
        return 0

    patch.setattr(Server, "unload", producers_alone)


def changed_settings_do_not_apply(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "options", property(lambda self: self._broker.options))


def changed_settings_stay(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Membership, names: Any) -> None:
        pass

    patch.setattr(Membership, "restore_options", nothing)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[HttpWorld], None]]] = [
    (every_namespace_is_cleared, checks.backlogs_of_a_namespace),
    (any_subscription_is_cleared, checks.backlogs_of_a_namespace),
    (the_first_failure_ends_it, checks.a_failure_stops_no_other),
    (every_topic_is_unloaded, checks.an_unload_closes_clients),
    (consumers_are_forgotten, checks.an_unload_closes_clients),
    (changed_settings_do_not_apply, checks.settings_at_run_time),
    (changed_settings_stay, checks.settings_at_run_time),
]


@pytest.mark.parametrize(("broken", "check"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_mistakes_are_noticed(
    http: HttpWorld,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[HttpWorld], None],
) -> None:
    broken(monkeypatch)
    monkeypatch.setattr("tests.kit.server.wire_raw.PATIENCE_S", 0.3)
    with pytest.raises((AssertionError, TimeoutError)):
        check(http)


def test_an_unload_of_another_member_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "unload", lambda self, topic: 0)
    monkeypatch.setattr("tests.kit.server.wire_raw.PATIENCE_S", 0.3)
    with member() as found, pytest.raises(TimeoutError):
        checks.another_member_unloads(found)
