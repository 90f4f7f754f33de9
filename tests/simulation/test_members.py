"""Members join: the bytes of a copy, the status, and when they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import holdfast.broker.broker as broker_module
from holdfast.broker import Broker
from holdfast.broker.machine import Machine
from holdfast.cluster import ClusterMember, life, relay, transfer
from holdfast.cluster.peers import Channel
from holdfast.errors import BadConfiguration, Closed, Misuse
from holdfast.ledger.copies import Item, request_survivor
from holdfast.ledger.recovery import prepare
from tests.kit.broker.cluster import watched
from tests.kit.cluster.link import SimLink
from tests.kit.cluster.members import (
    copy_from_a_donor_that_was_lost,
    copy_from_the_next_donor,
    copy_that_fails,
    copy_while_files_go,
    copy_without_its_end,
    power_off,
    return_to_a_survivor,
    serve_with,
    survivors_whose_list_grows,
    three,
    wipe,
)
from tests.kit.cluster.storm import ALL, OPTIONS, JoinWorld
from tests.kit.ledger.sim_store import SimFiles
from tests.kit.sim import Sim, SimDisk, SimNode, Weather
from tests.kit.sim.loop import Life
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import SimClock
from tests.kit.slices import pick, seeds


def test_all_new_nodes_begin_with_the_lowest() -> None:
    with three() as world:
        assert world.counts == {"elected": 1, "copied": 2}
        world.settle()
        assert len(world.confirmed) > 20


def test_a_member_that_returns_keeps_its_ledgers() -> None:
    """I234: equal files are not sent again; bytes on the wires are counted."""
    with three() as world:
        sim = world.sim
        sim.run(1)
        sim.crash(3)
        sim.run(2)
        before = world.wires.bytes
        sim.restart(3)
        sim.run_until(world.all_whole)
        status = world.members[3].status()
        assert status.kept > 2000
        assert status.kept + status.received == status.total
        assert status.received <= world.wires.bytes - before < status.received + 50_000
        world.settle()


def test_after_a_power_cut_all_of_it_is_there() -> None:
    with three() as world:
        confirmed = len(world.confirmed)
        power_off(world)
        for number in world.sim.nodes:
            world.sim.restart(number)
        world.settle()
        assert world.counts["elected"] == 2
        assert len(world.confirmed) >= confirmed > 20


def test_a_minority_waits_and_says_for_whom() -> None:
    with three() as world:
        power_off(world)
        world.sim.restart(1)
        world.sim.run(5)
        status = world.members[1].status()
        assert (status.state, status.waits_for) == ("waiting-for-quorum", (2, 3))
        assert "no majority" in status.reason


def test_the_next_donor_is_asked_when_one_dies() -> None:
    copy_from_the_next_donor()


@pytest.mark.parametrize("after_s", [0.0, 1e-3, 3e-3])
def test_members_that_serve_say_so_in_a_view_that_nobody_joined(after_s: float) -> None:
    """A member dies before the joiner has heard which members serve."""
    with three() as world:
        sim = world.sim
        wipe(world, 3)
        sim.run(1)
        sim.restart(3)
        sim.run_until(lambda: 3 in world.members and len(world.members[3].status().members) == 3)
        sim.run(after_s)
        sim.crash(1)
        sim.run_until(lambda: 3 in world.brokers)
        confirmed = len(world.confirmed)
        sim.run(1)
        assert len(world.confirmed) > confirmed
        sim.restart(1)
        world.settle()


def test_files_stay_while_a_member_copies_them() -> None:
    copy_while_files_go()


def test_a_donor_that_was_lost_vouches_for_no_file() -> None:
    copy_from_a_donor_that_was_lost()


def test_a_copy_that_lags_asks_for_each_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It drops frames, so it asks for the journal again: for new files alone."""
    asked: list[tuple[Channel, Item]] = []
    get = transfer.get

    async def noted(channel: Channel, install: Any, item: Item, *more: Any) -> None:
        if item.path.startswith("journal"):
            asked.append((channel, item))
        await get(channel, install, item, *more)

    monkeypatch.setattr(transfer, "get", noted)
    monkeypatch.setattr(relay, "KEPT_BYTES", 3000)
    with three() as world:
        wipe(world, 3)
        world.wires.delay_s = (0.005, 0.006)
        world.sim.restart(3)
        world.sim.run_until(lambda: 3 in world.brokers)
        world.settle()
    assert len({item.path for _, item in asked}) < len(asked), "it asked for the journal once"
    assert len(set(asked)) == len(asked), "a file that had not grown was asked for again"


def test_a_copy_that_fails_says_why() -> None:
    copy_that_fails()


def test_a_full_disk_does_not_keep_the_donors_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that cannot end is tried less and less often."""
    tries: list[float] = []
    with three() as world:
        sim, fetch = world.sim, transfer.fetch

        async def counted(*arguments: Any) -> set[int]:
            tries.append(sim.now_s)
            return await fetch(*arguments)

        monkeypatch.setattr(life, "fetch", counted)
        wipe(world, 3)
        sim.platter(3).capacity_bytes = 6000
        sim.restart(3)
        sim.run(10)
        assert sorted(world.brokers) == [1, 2]
        assert "No space left" in world.members[3].status().reason
        assert 2 < len(tries) < 50
        sim.platter(3).capacity_bytes = None
        world.settle()


def test_a_member_without_its_mark_throws_the_copy_away() -> None:
    """I233: the donor's last events may be of another side of a split."""
    copy_without_its_end()


def stranger(world: JoinWorld, number: int) -> None:
    """Replace a node's directory by an empty store of another cluster."""
    wipe(world, number)
    disk = SimDisk(world.sim.platter(number))
    made = prepare(disk, SeededRandomness(7), OPTIONS.journal_bytes)
    world.sim.loop.run_until_complete(made)


def test_data_of_another_cluster_is_not_overwritten() -> None:
    with three() as world:
        stranger(world, 3)
        names = world.sim.loop.run_until_complete(SimDisk(world.sim.platter(3)).list("journal"))
        world.sim.restart(3)
        with pytest.raises(BadConfiguration, match="is not overwritten: use an empty directory"):
            world.sim.run(5)
        after = world.sim.loop.run_until_complete(SimDisk(world.sim.platter(3)).list("journal"))
        assert names == after


def test_a_lone_survivor_goes_on_when_told() -> None:
    """Two disks are lost: nothing is decided until an administrator says so, once."""
    with three() as world:
        sim = world.sim
        power_off(world)
        sim.platter(2).wipe()
        sim.platter(3).wipe()
        for number in sim.nodes:
            sim.restart(number)
        sim.run(3)
        assert world.members[1].status().reason.startswith("1 of 2 needed stores are here")
        sim.crash(1)
        sim.loop.run_until_complete(request_survivor(SimDisk(sim.platter(1))))
        sim.restart(1)
        sim.run_until(lambda: sorted(world.brokers) == sim.nodes)
        assert "survivor" not in sim.loop.run_until_complete(SimDisk(sim.platter(1)).list(""))
        assert world.members[1].status().reason == "an administrator chose it as the survivor"


def test_a_shorter_list_of_nodes_needs_the_command() -> None:
    """One node of three, configured as the only one, waits: the others may have more."""
    with three() as world:
        sim, confirmed = world.sim, len(world.confirmed)
        power_off(world)
        world.configure([1])
        sim.restart(1)
        sim.run(5)
        assert not world.brokers
        status = world.members[1].status()
        assert (status.state, status.waits_for) == ("electing", (2, 3))
        assert "holdfast cluster survive" in status.reason
        sim.crash(1)
        sim.loop.run_until_complete(request_survivor(SimDisk(sim.platter(1))))
        sim.restart(1)
        sim.run_until(lambda: sorted(world.brokers) == [1])
        sim.run(1)
        assert len(world.confirmed) > confirmed
        sim.crash(1)
        sim.restart(1)  # its last view is its own: the choice is not needed again
        sim.run_until(lambda: sorted(world.brokers) == [1])


def test_listed_nodes_that_missed_the_last_view_wait() -> None:
    """Two nodes of five are a majority of the shorter list; others have more."""
    with three(nodes=5) as world:
        sim = world.sim
        serve_with(world, 1, 2, 3)
        serve_with(world, 3, 4, 5)
        world.configure([1, 2, 3])
        serve_with(world, 1, 2, new=False)
        sim.run(5)
        assert not world.brokers
        status = world.members[1].status()
        assert (status.state, status.waits_for) == ("electing", (3,))
        assert "of the earlier cluster.nodes [1, 2, 3, 4, 5]" in status.reason
        sim.restart(3)
        sim.run(5)
        assert not world.brokers
        assert world.members[3].status().waits_for == (4, 5), "its last view has them"
        world.configure([1, 2, 3, 4, 5])
        power_off(world)
        for number in sim.nodes:
            sim.restart(number)
        world.settle()


def test_a_shorter_list_counts_alone_when_its_nodes_have_served() -> None:
    with three(nodes=5) as world:
        sim = world.sim
        serve_with(world, 1, 2, 3)  # 4 and 5 have left
        world.configure([1, 2, 3])
        serve_with(world, 1, 2, 3)
        serve_with(world, 1, 2)
        world.configure(
            [1, 2, 3, 4, 5]
        )  # and a list that grows again waits for a majority of the shorter one
        serve_with(world, 3, 4, 5, new=False)
        sim.run(5)
        assert not world.brokers
        assert "of the earlier cluster.nodes [1, 2, 3]" in world.members[3].status().reason
        sim.restart(1)
        sim.restart(2)
        world.settle()


def test_nodes_that_come_back_copy_from_the_survivor() -> None:
    """It was a cluster of one; the others have their earlier stores."""
    return_to_a_survivor()


def test_a_survivor_that_copied_from_others_is_none_any_more() -> None:
    """Else the next power cut, years later, would elect it without later messages."""
    with three() as world:
        sim = world.sim
        sim.crash(3)
        sim.loop.run_until_complete(request_survivor(SimDisk(sim.platter(3))))
        sim.restart(3)
        sim.run_until(lambda: sorted(world.brokers) == sim.nodes)
        assert "survivor" not in sim.loop.run_until_complete(SimDisk(sim.platter(3)).list(""))
        sim.crash(3)
        sim.run(1)
        power_off(world)
        for number in sim.nodes:
            sim.restart(number)
        world.settle()


async def serve_alone(disk: SimDisk, clock: SimClock) -> None:
    """Publish more messages, without the others, than they have."""
    files, random = SimFiles(disk, clock), SeededRandomness(7)
    broker = await Broker.start(None, OPTIONS, disk=disk, files=files, clock=clock, random=random)
    async with broker.producer("alone") as producer:
        for number in range(200):
            await producer.send(b"%d" % number)
    await broker.close()


def test_a_node_that_was_served_alone_is_not_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that it wrote alone look stable to it; the others have more."""
    with three() as world:
        sim = world.sim
        sim.crash(3)
        sim.run(1)
        power_off(world)
        disk = SimDisk(sim.platter(3))
        with pytest.raises(Misuse, match="that of a node of a cluster; start it as a member"):
            sim.loop.run_until_complete(serve_alone(disk, SimClock(sim.loop, 0)))
        sim.loop.run_until_complete(disk.unlink("life"))
        with monkeypatch.context() as plain:
            plain.setattr(broker_module, "Machine", Machine)
            sim.loop.run_until_complete(serve_alone(disk, SimClock(sim.loop, 0)))
        for number in sim.nodes:
            sim.restart(number)
        with pytest.raises(BadConfiguration, match="was served by this node alone, and the others lack"):
            sim.run(5)
        wipe(world, 3)
        sim.restart(3)
        world.settle()


@pytest.mark.parametrize(("nodes", "survivors"), [(3, [1]), (5, [1, 2])])
def test_what_survivors_confirmed_is_not_discarded_in_silence(nodes: int, survivors: list[int]) -> None:
    """I253: their directories are refused; they serve when the administrator has emptied the others."""
    survivors_whose_list_grows(nodes, survivors)


def test_a_broker_that_was_alone_becomes_the_seed_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other directories are empty: all get its messages, with the same ids."""
    with watched(), Sim(1, 3) as sim:
        with monkeypatch.context() as plain:
            plain.setattr(broker_module, "Machine", Machine)
            sim.loop.run_until_complete(serve_alone(SimDisk(sim.platter(2)), SimClock(sim.loop, 0)))
        world = JoinWorld(sim)
        sim.boot(world.program)
        sim.run_until(lambda: sorted(world.brokers) == sim.nodes)
        assert world.counts == {"elected": 1, "copied": 2}
        sim.run_until(world.all_whole)
        found = [
            [
                (m.id, bytes(m.data))
                for m in sim.loop.run_until_complete(broker.admin.examine("alone", count=ALL))
            ]
            for _, broker in sorted(world.brokers.items())
        ]
        assert [data for _, data in found[1]] == [b"%d" % number for number in range(200)]
        assert found[0] == found[1] == found[2]
        world.settle()


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("alone", [False, True])
def test_power_fails_at_any_moment_of_the_first_start(
    nodes: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes come back, so all serve: nothing that is lost was ever confirmed."""
    step_s = pick(test=0.04, nightly=0.002)
    for number, seed in itertools.product(range(int(0.2 / step_s)), seeds("first start", test=2, nightly=8)):
        with watched(), Sim(seed, nodes) as sim:
            if alone:
                with monkeypatch.context() as plain:
                    plain.setattr(broker_module, "Machine", Machine)
                    begun = serve_alone(SimDisk(sim.platter(2)), SimClock(sim.loop, 0))
                    sim.loop.run_until_complete(begun)
            world = JoinWorld(sim)
            sim.network.weather = Weather(delay_s=(1e-4, 10e-3), loss=0.03, detection_s=(0.005, 0.2))
            sim.boot(world.program)
            sim.run(number * step_s + 0.0017 * (seed % 10))
            power_off(world)
            for each in sim.nodes:
                sim.restart(each)
            sim.run_until(world.all_whole, 20.0)


def test_a_closed_member_leaves_and_answers_no_more() -> None:
    with three() as world:
        sim, member = world.sim, world.members[3]
        broker = world.brokers[3]
        sim.loop.run_until_complete(member.close())
        assert member.status().state == "closed"
        assert isinstance(broker.failure, Closed)
        with pytest.raises(ConnectionRefusedError):
            sim.loop.run_until_complete(SimLink(world.wires, sim.running[1]).connect(3))


def test_a_node_must_be_configured() -> None:
    with Sim(1, 3) as sim:
        wires, node = JoinWorld(sim).wires, SimNode(sim, 1, Life("node 1"))
        with pytest.raises(BadConfiguration, match="node 4 is not among the nodes"):
            ClusterMember(
                OPTIONS, node=4, nodes=(1, 2), make_group=lambda *_: node.group(), link=SimLink(wires, node)
            )
