"""Three simulated members, and copies that meet trouble; tests and mutants share them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from holdfast.broker.events import TransferMark
from holdfast.cluster import transfer
from holdfast.cluster.peers import QUIET_S
from holdfast.cluster.transfer import Ask, Checked, Chunks, Offer, Want
from holdfast.errors import BadConfiguration, Closed
from holdfast.ledger.copies import request_survivor
from tests.kit.broker.cluster import watched
from tests.kit.cluster.link import SimLink
from tests.kit.cluster.storm import ALL, TOPIC, JoinWorld
from tests.kit.sim import Sim, SimDisk


@contextmanager
def three(seed: int = 1, nodes: int = 3) -> Iterator[JoinWorld]:
    """Three members, or so many, that serve, and have published a little."""
    with watched(), Sim(seed, nodes) as sim:
        world = JoinWorld(sim)
        sim.network.weather.detection_s = (0.005, 0.2)
        sim.boot(world.program)
        sim.run_until(lambda: sorted(world.brokers) == sim.nodes)
        sim.run(0.8)
        yield world


def power_off(world: JoinWorld) -> None:
    for number in sorted(world.sim.running):
        world.sim.crash(number)


def wipe(world: JoinWorld, number: int) -> None:
    """Crash a node, and replace its disk by an empty one."""
    world.sim.crash(number)
    world.sim.platter(number).wipe()
    del world.members[number]


def serve_with(world: JoinWorld, *numbers: int, new: bool = True) -> None:
    """Let these nodes alone run, until all of them serve and have published, or wait."""
    power_off(world)
    world.sim.run(0.5)
    for number in numbers:
        world.sim.restart(number)
    if new:
        world.sim.run_until(lambda: sorted(world.brokers) == sorted(numbers))
        confirmed = len(world.confirmed)
        world.sim.run(1)
        assert len(world.confirmed) > confirmed


def return_to_a_survivor() -> None:
    """Others come back with their earlier stores to a cluster of one."""
    with three() as world:
        sim = world.sim
        power_off(world)
        world.configure([1])
        sim.loop.run_until_complete(request_survivor(SimDisk(sim.platter(1))))
        serve_with(world, 1)
        world.configure([1, 2, 3])
        power_off(world)
        for number in sim.nodes:
            sim.restart(number)
        world.settle()


def copy_while_files_go() -> None:
    """The donor takes snapshots and trims meanwhile; the first copy succeeds."""
    with three() as world:
        sim = world.sim
        wipe(world, 3)
        world.wires.delay_s = (0.02, 0.03)
        sim.restart(3)
        sim.run_until(lambda: 3 in world.members and world.members[3].status().received > 0)
        member, copies = world.members[3], [world.members[3].status().donor]
        for _ in range(60):
            sim.run(0.05)
            if 3 in world.brokers:
                break
            copies.append(member.status().donor)
            for broker in [world.brokers[1], world.brokers[2]]:
                sim.loop.run_until_complete(broker.admin.truncate("kept"))
                sim.loop.run_until_complete(broker.store.snapshot())
        assert 3 in world.brokers
        assert len(set(copies)) == 1
        assert member.status().reason == ""


def copy_from_the_next_donor() -> None:
    """A donor that stands still costs its quiet time, and not the join."""
    with three() as world:
        sim = world.sim
        wipe(world, 3)
        sim.run(1)
        sim.restart(3)
        sim.run_until(lambda: 3 in world.members and world.members[3].status().received > 0)
        donor = world.members[3].status().donor
        sim.pause(donor, 3 * QUIET_S)
        sim.run(2 * QUIET_S)
        assert 3 in world.brokers, "it waits for the donor that stands still"
        assert world.members[3].status().donor not in (3, donor)
        world.settle()


def copy_that_fails() -> None:
    """Else an administrator sees a member that joins for ever."""
    with three() as world:
        sim = world.sim
        wipe(world, 3)
        world.wires.cut = 1.0
        sim.restart(3)
        sim.run(3)
        status = world.members[3].status()
        assert status.reason.startswith(f"copy from node {status.donor}: ConnectionResetError: ")
        world.wires.cut = 0.0
        world.settle()


def copy_without_its_end() -> None:
    """I233: a joiner that does not get the donor's mark throws the copy away."""
    encode, wait_s = TransferMark.encode, transfer.MARK_S
    TransferMark.encode = lambda self, version=None: b"\x91\xc4\x01x"  # type: ignore[method-assign]
    transfer.MARK_S = 0.5
    try:
        with watched(), Sim(1, 3) as sim:
            world = JoinWorld(sim)
            sim.boot(world.program)
            sim.run(4)
            assert not world.brokers
            assert "TimeoutError" in world.members[2].status().reason
    finally:
        TransferMark.encode = encode  # type: ignore[method-assign]
        transfer.MARK_S = wait_s


def copy_from_a_donor_that_was_lost() -> None:
    """Its next life replaces its files: what it sends then is of two directories."""
    with three() as world:
        link = SimLink(world.wires, world.sim.running[3])

        async def copy() -> None:
            channel = await link.connect(1)
            await transfer._tell(channel, Ask(0, 0))
            offer = await transfer._hear(channel, Offer)
            assert isinstance(offer, Offer)
            await transfer._tell(channel, Want(offer.items[0].path))
            await transfer._hear(channel, Chunks)
            await channel.receive()
            await transfer._hear(channel, Checked)
            world.brokers[1].engine.end(Closed("its disk stands still"))
            await transfer._tell(channel, Want(offer.items[0].path))
            await transfer._hear(channel, Chunks)
            await channel.receive()
            with pytest.raises(ConnectionResetError):
                await transfer._hear(channel, Checked)

        world.sim.loop.run_until_complete(copy())


def survivors_whose_list_grows(nodes: int = 3, survivors: Sequence[int] = (1,)) -> None:
    """With the longer list old disks come back, and are a majority without them."""
    with three(nodes=nodes) as world:
        sim = world.sim
        power_off(world)
        world.configure(list(survivors))
        sim.loop.run_until_complete(request_survivor(SimDisk(sim.platter(1))))
        serve_with(world, *survivors)
        power_off(world)
        confirmed, others = list(world.confirmed), [each for each in sim.nodes if each not in survivors]
        world.configure(sim.nodes)
        serve_with(world, *others)
        sim.restart(1)
        with pytest.raises(BadConfiguration, match="holdfast cluster survive"):
            sim.run(5)
        sim.crash(1)
        for number in others:  # the administrator empties them, and chooses again
            wipe(world, number)
        sim.loop.run_until_complete(request_survivor(SimDisk(sim.platter(1))))
        for number in sim.nodes:
            sim.restart(number)
        sim.run_until(lambda: sorted(world.brokers) == sim.nodes)
        stored = sim.loop.run_until_complete(world.brokers[others[0]].admin.examine(TOPIC, count=ALL))
        assert {bytes(each.data) for each in stored} >= set(confirmed)
