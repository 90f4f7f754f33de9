"""Broken members of a cluster: the checks of tests/kit must notice each."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import membership
from holdfast.broker.events import Event, MemberAnnounce, OptionsSet
from holdfast.broker.membership import Membership
from holdfast.broker.state import BrokerState
from holdfast.errors import HoldfastError
from holdfast.local import intake
from tests.kit.broker import member_checks
from tests.kit.broker.crowd import B, CrowdedGroup, info_of
from tests.kit.broker.events import ME, Rig
from tests.kit.server.cluster_checks import lookups_name_the_owner, member


def test_the_newest_version_is_sent_to_an_old_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "version_of", lambda self, event: event.version)
    with pytest.raises(AssertionError, match="a version that B does not know"):
        asyncio.run(member_checks.events_are_sent_as_all_members_know_them(tmp_path))


def test_the_versions_are_kept_after_a_change_of_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[type[Event], int] = {}

    def stale(self: Membership, event: Event) -> int:
        return known.setdefault(type(event), membership.require_version(self._state, type(event)))

    monkeypatch.setattr(Membership, "version_of", stale)
    with pytest.raises((HoldfastError, pytest.fail.Exception)):
        asyncio.run(member_checks.events_are_sent_as_all_members_know_them(tmp_path))


def test_every_member_keeps_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "owns", lambda self, topic: True)
    with pytest.raises(AssertionError, match="a topic that another member owns"):
        asyncio.run(member_checks.only_the_owner_keeps_house(tmp_path))


def test_no_member_keeps_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "owns", lambda self, topic: self.alone)
    with pytest.raises(AssertionError, match="or none of the own ones"):
        asyncio.run(member_checks.only_the_owner_keeps_house(tmp_path))


def test_a_member_forgets_identities_of_others(
    tmp_path: Path, runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "is_of_node", lambda identity, node: True)
    with pytest.raises(AssertionError, match=r"holdfast\.ingest\.n1"):
        asyncio.run(member_checks.identities_of_others_stay(tmp_path, runtime_directory))


def test_a_lookup_always_answers_this_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "elsewhere", lambda self, full: None)
    with member() as served, pytest.raises(AssertionError, match="topic"):
        lookups_name_the_owner(served)


def test_a_lookup_names_a_member_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def every(state: BrokerState) -> tuple[Any, ...]:
        return tuple(info.member for _, info in sorted(state.announced.info.items()))

    with member() as served:
        monkeypatch.setattr(membership, "present", every)
        served.say("enter", B)
        with pytest.raises(AssertionError):
            lookups_name_the_living(served)


def lookups_name_the_living(served: Any) -> None:
    """Node 3 has left: no lookup names it."""
    urls = {
        served.world.get(f"/lookup/v2/topic/persistent/public/default/topic{number}")["brokerUrl"]
        for number in range(20)
    }
    assert "pulsar://node3:6650" not in urls


def test_a_lookup_of_the_living() -> None:
    """The check above passes for the real code."""
    with member() as served:
        served.say("enter", B)
        lookups_name_the_living(served)


@pytest.mark.parametrize("kind", [MemberAnnounce, OptionsSet])
def test_a_change_that_is_not_reported(kind: type[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `touch` it is not in the journal: a restart forgets it."""

    def untouched(state: BrokerState, part: object = None) -> None:
        pass

    rig = Rig()
    events: dict[type[Event], Event] = {
        MemberAnnounce: MemberAnnounce(info_of(ME)),
        OptionsSet: OptionsSet({"roll_entries": 5}),
    }
    with monkeypatch.context() as patch:
        patch.setattr(BrokerState, "touch", untouched)
        rig.apply(events[kind])
    assert rig.restarted().digest() != rig.machine.digest(), "the restart has noticed nothing"
    rig = Rig()
    rig.apply(events[kind])
    assert rig.restarted().digest() == rig.machine.digest()


def test_frames_of_any_size_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of sizes fails for a group that takes large frames."""
    monkeypatch.setattr(CrowdedGroup, "frame_bytes", 1 << 20)
    with pytest.raises(AssertionError):
        asyncio.run(member_checks.frames_fit_the_group(tmp_path))
