"""Broken unreplicated topics: the scenes of tests/kit/cluster/unreplicated.py must notice each."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.broker import state_codec
from holdfast.broker.broker import Broker
from holdfast.broker.events.members import UnreplicatedSet
from holdfast.broker.member_state import Unreplicated
from holdfast.broker.state import Policies
from holdfast.broker.unreplicated import UnreplicatedTopics
from holdfast.errors import HoldfastError
from holdfast.server import Server
from holdfast.server.http import HttpServer, brokers
from holdfast.server.pulsar import lookup
from holdfast.server.pulsar.setup import Advertised
from tests.kit.cluster import unreplicated as scenes
from tests.kit.server.unreplicated_checks import clients_are_led_to_the_only_node, member_with_local


def race() -> None:
    """Let members race for a name, in several orders."""
    for seed in range(1, 7):
        scenes.run(scenes.a_name_is_taken_once, seed)


def test_the_flag_is_forgotten_in_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_codec, "unreplicated_part", lambda _: state_codec.UnreplicatedPart({}))
    with pytest.raises((AssertionError, HoldfastError, KeyError)):
        scenes.run(scenes.the_flag_is_in_snapshots)


def test_the_name_is_freed_by_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that starts frees all names of its node."""
    monkeypatch.setattr(UnreplicatedTopics, "_here", lambda self, local: {})
    with pytest.raises((AssertionError, HoldfastError, KeyError)):
        scenes.run(scenes.stays_with_its_member)


def test_a_member_does_not_look_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def use(self: UnreplicatedTopics, local: Broker) -> None:
        self.local = local
        local.unreplicated._member = self._broker
        local.watch(self._settled)

    monkeypatch.setattr(UnreplicatedTopics, "use", use)
    with pytest.raises(AssertionError):
        scenes.run(scenes.names_and_topics_agree_after_a_join)


def test_events_go_to_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(self: UnreplicatedTopics, name: str, policies: Policies) -> None:
        await self._register(name, exchange=False)
        await self._broker.create_topic(name, policies)

    monkeypatch.setattr(UnreplicatedTopics, "create_topic", create)
    with pytest.raises((AssertionError, HoldfastError)):
        scenes.run(scenes.stays_with_its_member)


def test_a_replicated_topic_takes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Unreplicated, "require_free", lambda self, name: None)
    with pytest.raises(AssertionError, match=r"the name is taken twice|I245"):
        race()


def test_an_unreplicated_topic_takes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = UnreplicatedSet.apply

    def blind(self: UnreplicatedSet, state: Any, context: Any) -> Any:
        names, state.names = state.names, {}
        try:
            return apply(self, state, context)
        finally:
            state.names = names

    monkeypatch.setattr(UnreplicatedSet, "apply", blind)
    with pytest.raises(AssertionError, match=r"the name is taken twice|I245"):
        race()


def test_a_deleted_name_is_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnreplicatedTopics, "_settled", lambda self, notices: None)
    with pytest.raises((AssertionError, HoldfastError)):
        scenes.run(scenes.a_name_is_taken_once)


def test_clients_are_led_to_the_port_of_replicated_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    def same_port(server: Server, full: str, here: Advertised, listener: str = "") -> Advertised:
        member = server.broker.unreplicated.member_of(full)
        assert member is not None
        return here if server.broker.unreplicated.broker_of(full) else Advertised(member.url, member.tls_url)

    for module in (lookup, brokers):
        monkeypatch.setattr(module, "unreplicated_addresses", same_port)
    with member_with_local() as served, pytest.raises(AssertionError, match="mine is looked up at"):
        clients_are_led_to_the_only_node(served)


def test_requests_stay_with_the_replicated_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpServer, "_direct", lambda self, call: None)
    with member_with_local() as served, pytest.raises(AssertionError, match="internalStats"):
        clients_are_led_to_the_only_node(served)
