"""Faults of a real Corosync: deaths, pauses, cuts, strangers and floods."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from bench.cpg_raw import measure
from holdfast.demo.cluster.nodes import Nodes
from holdfast.errors import Closed, Misuse, NoQuorum, PeerDied
from holdfast.group import Listener
from tests.kit.corosync.members import Band, Inside, band, member
from tests.kit.corosync.process import start, start_stranger


def events(group: Band, number: int) -> list[bytes]:
    return [event for _, event in group.at[number].story.events.values()]


async def keep_sending(group: Band, number: int) -> None:
    """Send numbered events until the member is lost."""
    recorder = group.at[number]
    sent = 0
    try:
        while True:
            recorder.send(b"%d from %d" % (sent, number))
            sent += 1
            await recorder.group.drain()
            await asyncio.sleep(0.001)
    except (Closed, NoQuorum):
        return


def test_a_cut_and_its_healing(nodes: Nodes) -> None:
    """I21, I23, I25: the majority goes on; the other is lost, and returns."""

    async def play() -> None:
        async with band(nodes) as group:
            senders = [asyncio.create_task(keep_sending(group, number)) for number in nodes.numbers]
            await group.until(lambda: group.at[1].story.stable.index > 50)
            cut_off = group.at[3]
            nodes.cut(3)
            await group.until(lambda: cut_off.story.ended is not None and group.together(1, 2))
            assert not cut_off.story.views[-1].quorate
            assert "quorate" in str(cut_off.story.ended)
            assert [member.node for member in group.view(1).left] == [3]
            alone = [
                pos
                for pos, event in cut_off.story.events.items()
                if group.at[1].story.events.get(pos, event) != event or pos not in group.at[1].story.events
            ]
            assert all(pos > cut_off.story.stable for pos in alone), "self-delivered, and stable"
            reached = len(group.at[1].story.events)
            await group.until(lambda: len(group.at[1].story.events) > reached + 20)
            nodes.heal()
            await group.join(3)
            view = group.view(3)
            assert view.joined == (group.at[3].story.member,)
            await group.until(lambda: len(group.at[3].story.events) > 20)
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)

    asyncio.run(play())


def test_a_daemon_dies(nodes: Nodes) -> None:
    """I25: its member is lost at once; the node returns as a new member."""

    async def play() -> None:
        async with band(nodes) as group:
            before = group.at[2]
            nodes.kill(2)
            await group.until(lambda: before.story.ended is not None)
            assert "Corosync" in str(before.story.ended)
            with pytest.raises(Closed):
                before.group.mcast(b"stale")
            await group.until(lambda: group.together(1, 3))
            group.at[1].send(b"without 2")
            await group.until(lambda: b"without 2" in events(group, 3))
            await asyncio.to_thread(nodes.repair)
            await group.join(2)
            assert group.view(1).joined == (group.at[2].story.member,)
            assert group.at[2].story.member > before.story.member

    asyncio.run(play())


def test_a_daemon_pauses(nodes: Nodes) -> None:
    """I21: a member does not resume if the others went on without it."""

    async def play() -> None:
        async with band(nodes) as group:
            nodes.pause(2)
            group.at[2].send(b"from the paused")
            await group.until(lambda: {each.node for each in group.view(1).members} == {1, 3})
            group.at[1].send(b"without 2")
            await group.until(lambda: b"without 2" in events(group, 3))
            assert group.at[2].story.ended is None
            assert b"from the paused" not in events(group, 1)
            nodes.resume(2)
            await group.until(lambda: group.at[2].story.ended is not None)
            await group.until(lambda: group.together(1, 3))
            assert b"without 2" not in events(group, 2)
            assert group.at[2].story.stable.index == 0

    asyncio.run(play())


def test_a_process_dies(nodes: Nodes) -> None:
    """The others get a view without it as soon as its Corosync notices."""

    async def play() -> None:
        async with band(nodes, 2, 3, answer_s=60.0) as group:
            process = start(nodes, group.name, 1)
            await group.until(lambda: len(group.view(2).members) == 3)
            process.kill()
            process.wait()
            await group.until(lambda: group.together(2, 3))
            assert [member.node for member in group.view(2).left] == [1]

    asyncio.run(play())


def test_strangers_do_no_harm(nodes: Nodes) -> None:
    """A program with the same group name is left out of the view."""

    async def play() -> None:
        async with band(nodes, answer_s=0.5) as group:
            before = len(group.at[1].story.views)
            process = start_stranger(nodes, group.name, 2)
            await group.until(lambda: len(group.at[1].story.views) > before)
            assert group.group(1)._excluded
            assert len(group.view(1).members) == 3
            group.at[1].send(b"all the same")
            await group.until(
                lambda: all(b"all the same" in events(group, number) for number in nodes.numbers)
            )
            process.kill()
            process.wait()

    asyncio.run(play())


def memory_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_a_stopped_process_is_not_flooded_and_then_evicted(nodes: Nodes) -> None:
    """I28: a window bounds the memory of its daemon, until it is evicted."""
    window = 1 << 20

    async def play() -> None:
        async with band(nodes, 1, 2, window_bytes=window, evict_s=1.5) as group:
            process = start(nodes, group.name, 3)
            await group.until(lambda: len(group.view(1).members) == 3)
            os.kill(process.pid, signal.SIGSTOP)
            before = memory_bytes(nodes.pid(3))
            sender = group.at[1]
            sent = 0
            while len(group.view(1).members) == 3:
                sender.send(bytes(64 << 10))
                sent += 64 << 10
                await sender.group.drain()
            assert sent <= 2 * window, "nothing held the sender back"
            assert memory_bytes(nodes.pid(3)) - before < 16 * window
            for _ in range(20):
                sender.send(b"after the eviction")
                await sender.group.drain()
            await group.until(lambda: events(group, 2)[-1:] == [b"after the eviction"])
            os.kill(process.pid, signal.SIGCONT)
            assert process.stdout is not None
            told = (await asyncio.to_thread(process.stdout.read)).splitlines()
            assert told[-1].startswith("lost it was evicted")

    asyncio.run(play())


def test_raw_messages_are_measured(nodes: Nodes) -> None:
    """The benchmark of raw CPG counts messages that every node has received."""
    outcome = asyncio.run(measure(nodes, size=1 << 10, seconds=0.2, senders=2))
    assert outcome.messages > 10
    assert outcome.bytes_per_s > 0


def test_a_node_without_corosync(nodes: Nodes) -> None:
    """Errors name the missing daemon, and a wrong number of the node."""

    async def play() -> None:
        with pytest.raises(PeerDied, match="does not run on this node"):
            await Inside("alone", nodes, 0).join(lambda: None)
        group = member(nodes, "wrong", 2, carrier=Inside("wrong", nodes, 1))
        with pytest.raises(Misuse, match="is node 1, not 2"):
            await group.start(Listener())

    asyncio.run(play())
