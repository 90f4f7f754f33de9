"""Broken registries of schemas: the scenes of the kit must notice each.

They are in tests/kit/server/schema_checks.py, and for crashes and owners in tests/kit/server/schema_lives.py.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest

from holdfast.broker import Broker, Topic, state_codec
from holdfast.broker.events.schemas import SchemaAdd
from holdfast.broker.state import BrokerState, Policies
from holdfast.errors import HoldfastError
from holdfast.server.pulsar.delivery import WireConsumer
from holdfast.server.pulsar.producers import Producers
from holdfast.server.registry import compatibility, definition, native, versions
from tests.kit.server import schema_checks as scenes
from tests.kit.server import schema_costs as costs
from tests.kit.server import schema_lives as lives
from tests.kit.server.schema_checks import SCENES
from tests.kit.server.schema_silence import messages_look_at_no_schema

Patch = pytest.MonkeyPatch


def not_compared(patch: Patch) -> None:
    async def compare(*_: Any) -> None: ...

    patch.setattr(versions, "compare", compare)


def compared_with_what_was_seen_first(patch: Patch) -> None:
    """Another schema that came during the comparison is not noticed."""
    before = SchemaAdd.apply

    def apply(self: SchemaAdd, *given: Any) -> Any:
        return before(SchemaAdd(self.topic, self.schema), *given)

    patch.setattr(SchemaAdd, "apply", apply)


def the_namespace_wins(patch: Patch) -> None:
    before = Policies.over

    def over(self: Policies, inherited: Policies) -> Policies:
        return before(inherited, self)

    patch.setattr(Policies, "over", over)


def a_rule(name: str, value: object) -> Callable[[Patch], None]:
    def patched(patch: Patch) -> None:
        before = versions.rules

        def rules(*given: Any) -> versions.Rules:
            found = before(*given)
            return versions.Rules(**{**vars(found), name: value})

        patch.setattr(versions, "rules", rules)

    return patched


def every_schema_is_the_same(patch: Patch) -> None:
    patch.setattr(versions, "identity", lambda _: None)


def no_schema_is_the_same(patch: Patch) -> None:
    numbers = itertools.count()
    patch.setattr(versions, "identity", lambda _: next(numbers))


def consumers_are_not_compared(patch: Patch) -> None:
    async def admit(*_: Any) -> None: ...

    patch.setattr(versions, "admit_consumer", admit)


def types_are_not_looked_at(patch: Patch) -> None:
    patch.setattr(versions, "_sent", lambda schema: sha256(schema.schema_data).digest())


def types_of_pairs_are_not_looked_at(patch: Patch) -> None:
    patch.setattr(versions, "_texts", lambda _: [])


def an_incompatible_one_is_let_in_after_a_restart(patch: Patch) -> None:
    """Only the schemas that were added since the start are compared."""
    start, before = Broker.start, Topic.schemas_applying
    older: dict[str, int] = {}

    async def started(*given: Any, **named: Any) -> Broker:
        broker = await start(*given, **named)
        older.update({each.name: len(each.schemas) for each in broker.topics.values()})
        return broker

    def schemas_applying(topic: Topic) -> list[tuple[int, bytes]]:
        known: list[tuple[int, bytes]] = before.__get__(topic)
        return [each for each in known if each[0] >= older.get(topic.name, 0)]

    patch.setattr(Broker, "start", started)
    patch.setattr(Topic, "schemas_applying", property(schemas_applying))


def every_topic_is_new(patch: Patch) -> None:
    patch.setattr(versions, "_is_new", lambda broker, topic: True)


MUTANTS = {
    "not compared": not_compared,
    "compared with what was seen first": compared_with_what_was_seen_first,
    "the namespace wins": the_namespace_wins,
    "producers may always add": a_rule("auto_update", True),
    "a missing schema is always allowed": a_rule("enforced", False),
    "the strategy is forgotten": a_rule("strategy", "FULL"),
    "every schema is the same": every_schema_is_the_same,
    "no schema is the same": no_schema_is_the_same,
    "consumers are not compared": consumers_are_not_compared,
    "every topic is new": every_topic_is_new,
    "types are not looked at": types_are_not_looked_at,
    "types of pairs are not looked at": types_of_pairs_are_not_looked_at,
    "an incompatible one is let in after a restart": an_incompatible_one_is_let_in_after_a_restart,
}


def play(path: Path) -> None:
    for number, scene in enumerate(SCENES):
        asyncio.run(_played(scene, path / f"{number}"))


async def _played(scene: Callable[[Path], Awaitable[None]], path: Path) -> None:
    await scene(path)


def test_without_a_mutant_nothing_is_noticed(tmp_path: Path) -> None:
    play(tmp_path)


@pytest.mark.parametrize("name", MUTANTS)
def test_it_is_noticed(name: str, monkeypatch: Patch, tmp_path: Path) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError)):
        play(tmp_path)


# -- crashes and owners --------------------------------------------------------------------------------


def a_snapshot_forgets_them(patch: Patch) -> None:
    before = state_codec.TopicPart

    def part(*given: Any, **named: Any) -> Any:
        return msgspec.structs.replace(before(*given, **named), schemas=[])

    patch.setattr(state_codec, "TopicPart", part)


def only_its_own_member_knows_one(patch: Patch) -> None:
    """A member compares with the schemas for which it was asked itself."""
    own: dict[int, set[int]] = {}
    before, applying = Broker.add_schema, Topic.schemas_applying

    async def add_schema(self: Broker, topic: Topic, *given: Any) -> int:
        version = await before(self, topic, *given)
        own.setdefault(id(topic.state), set()).add(version)
        return version

    def schemas_applying(topic: Topic) -> list[tuple[int, bytes]]:
        known: list[tuple[int, bytes]] = applying.__get__(topic)
        return [each for each in known if each[0] in own.get(id(topic.state), set())]

    patch.setattr(Broker, "add_schema", add_schema)
    patch.setattr(Topic, "schemas_applying", property(schemas_applying))


def each_member_has_an_order_of_its_own(patch: Patch) -> None:
    before, states = SchemaAdd.apply, list[int]()

    def apply(self: SchemaAdd, state: BrokerState, context: Any) -> Any:
        states.extend({id(state)} - {*states})
        found = before(self, state, context)
        if id(state) == states[-1]:
            state.topics[self.topic].schemas.sort()
        return found

    patch.setattr(SchemaAdd, "apply", apply)


def answered_before_it_is_durable(patch: Patch) -> None:
    async def add_schema(self: Broker, topic: Topic, schema: bytes, expected: int | None = None) -> int:
        done = self.engine.submit(SchemaAdd(topic.id, schema, expected))
        done.add_done_callback(lambda _: done.cancelled() or done.exception())
        return len(topic.schemas)

    patch.setattr(Broker, "add_schema", add_schema)


def a_deletion_ends_nothing(patch: Patch) -> None:
    def schemas_applying(topic: Topic) -> list[tuple[int, bytes]]:
        return [(version, each) for version, each in enumerate(topic.schemas) if each]

    patch.setattr(Topic, "schemas_applying", property(schemas_applying))


LIVES: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (not_compared, lives.versions_survive),
    (not_compared, lives.refused_after_an_owner_change),
    (compared_with_what_was_seen_first, lives.of_two_members_one_is_refused),
    (an_incompatible_one_is_let_in_after_a_restart, lives.versions_survive),
    (an_incompatible_one_is_let_in_after_a_restart, lives.versions_survive_a_power_cut),
    (an_incompatible_one_is_let_in_after_a_restart, lives.cut_at_any_turn),
    (only_its_own_member_knows_one, lives.versions_survive),
    (only_its_own_member_knows_one, lives.refused_after_an_owner_change),
    (only_its_own_member_knows_one, lives.refused_at_a_member_that_returns),
    (only_its_own_member_knows_one, lives.refused_after_all_crash),
    (only_its_own_member_knows_one, lives.crashes_of_the_asked_member),
    (each_member_has_an_order_of_its_own, lives.versions_are_the_same_on_all_members),
    (answered_before_it_is_durable, lives.cut_at_any_turn),
    (answered_before_it_is_durable, lives.of_two_members_one_is_refused),
    (a_deletion_ends_nothing, lives.versions_survive),
    (a_deletion_ends_nothing, lives.versions_are_the_same_on_all_members),
    (consumers_are_not_compared, lives.refused_after_an_owner_change),
    (a_rule("strategy", "FULL"), lives.versions_survive),
    (a_snapshot_forgets_them, lives.versions_survive_a_snapshot),
    (a_snapshot_forgets_them, lambda: asyncio.run(_in_a_folder(scenes.a_restart_changes_nothing))),
]


async def _in_a_folder(scene: Callable[[Path], Awaitable[None]]) -> None:
    with TemporaryDirectory() as folder:
        await scene(Path(folder))


@pytest.mark.parametrize(("mutant", "scene"), LIVES, ids=lambda each: getattr(each, "__name__", ""))
def test_it_is_noticed_over_crashes(
    mutant: Callable[[Patch], None],
    scene: Callable[[], None],
    monkeypatch: Patch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    mutant(monkeypatch)
    with pytest.raises((AssertionError, HoldfastError)):
        scene()


def each_run_of_sends_looks(patch: Patch) -> None:
    before = Producers.accepted

    def accepted(self: Producers, future: Any, producer: int, *given: Any) -> None:
        versions.current(self._open[producer].topic)
        before(self, future, producer, *given)

    patch.setattr(Producers, "accepted", accepted)


def each_delivery_looks(patch: Patch) -> None:
    before = WireConsumer.deliver

    def deliver(self: WireConsumer, batch: Any) -> None:
        assert self.topic.schemas is not None
        before(self, batch)

    patch.setattr(WireConsumer, "deliver", deliver)


@pytest.mark.parametrize("mutant", [each_run_of_sends_looks, each_delivery_looks])
def test_a_look_per_message_is_noticed(mutant: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError, match="messages look at schemas"):
        messages_look_at_no_schema(monkeypatch)


LIMITS: dict[str, tuple[Any, str, Callable[[], None]]] = {
    "names of types": (definition, "NAME_LENGTH_MAX", costs.long_names_of_types_are_refused),
    "names of messages": (native, "NAME_LENGTH_MAX", costs.long_names_of_messages_are_refused),
    "kept definitions": (definition, "KEPT_BYTES_MAX", costs.large_definitions_are_not_kept),
    "comparisons": (compatibility, "STEPS_MAX", costs.circles_are_compared_until_a_limit),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_missing_limit_is_noticed(name: str, monkeypatch: Patch) -> None:
    module, limit, check = LIMITS[name]
    monkeypatch.setattr(module, limit, 1 << 40)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()
