"""Three brokers on the simulated group: facts, shared options, and housekeeping by a topic's owner."""

from __future__ import annotations

import pytest

from tests.kit.broker.members import ROLL_ENTRIES, Members
from tests.kit.sim import Sim, Weather, storm
from tests.kit.slices import seeds

SEEDS = seeds("members", test=1, nightly=40)


@pytest.mark.parametrize("seed", SEEDS)
def test_owners_keep_house_and_one_set_of_options_applies(seed: int) -> None:
    with Sim(seed, 3) as sim:
        members = Members(sim)
        sim.boot(members.program)
        sim.run_until(members.all_known)
        members.sealed.clear()
        sim.run_until(members.all_kept)
        assert members.compared > 100
        shared = [broker.membership.shared() for broker in members.brokers.values()]
        assert shared[0] == shared[1] == shared[2]
        rolls = shared[0]["roll_entries"]
        assert rolls in (ROLL_ENTRIES, 2 * ROLL_ENTRIES, 3 * ROLL_ENTRIES), "of one configuration"
        differing = [number for number, each in members.brokers.items() if each.membership.differing()]
        assert len(differing) == 2
        for ledger, asked in members.sealed.items():
            assert len(asked) == 1, f"{ledger} was sealed by several members: {asked}"
        senders = {member for asked in members.sealed.values() for member, _ in asked}
        assert len(senders) > 1, "topics are spread over members"


@pytest.mark.parametrize("seed", SEEDS)
def test_members_that_come_and_go(seed: int) -> None:
    """After crashes and splits all are known again, and states agree."""
    with Sim(seed, 3) as sim:
        members = Members(sim)
        sim.network.weather = Weather(delay_s=(1e-4, 40e-3), loss=0.05, detection_s=(0.005, 0.3))
        sim.boot(members.program)
        storm(sim, 5.0, every_s=(0.3, 0.8))
        sim.run_until(members.all_known)
        members.sealed.clear()
        sim.run_until(members.all_kept)
        shared = [broker.membership.shared() for broker in members.brokers.values()]
        assert shared[0] == shared[1] == shared[2]
