"""The record of views: in the state, in snapshots, and as a directory tells it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.machine import Machine
from holdfast.broker.state import VIEWS_KEPT
from holdfast.cluster.hello import hello_of
from holdfast.group import Member, View
from holdfast.ledger.copies import survey
from holdfast.system import SystemDisk


def view(number: int, *members: Member) -> View:
    return View(number, members, members, (), quorate=True)


def test_views_are_remembered_with_their_first_event() -> None:
    """I230: ids, first D, nodes and a checksum of the members; the last ones."""
    machine, other = Machine(), Machine()
    for number in range(1, VIEWS_KEPT + 10):
        machine.view(view(number, Member(1, number), Member(2, 1)))
        other.view(view(number, Member(1, number), Member(2, 2)))
    history = machine.state.history
    assert [(mark.view, mark.d) for mark in history] == [(n, n) for n in range(10, VIEWS_KEPT + 10)]
    assert {mark.nodes for mark in history} == {(1, 2)}
    machine.check()
    assert machine.digest() != other.digest(), "another life of a member is another view"
    again = Machine()
    again.load(machine.capture().parts)
    assert again.state.history == history
    assert again.digest() == machine.digest()


def test_a_directory_tells_its_views(tmp_path: Path) -> None:
    """I230: from the snapshot and the journal behind it, the same as the state has."""
    options = BrokerOptions(reserve_bytes=4096, journal_bytes=1 << 16)

    async def main() -> None:
        for number in range(3):
            earlier = await Broker.start(tmp_path, options)
            async with earlier.producer("t") as producer:
                await producer.send(b"%d" % number)
            await earlier.close()
        broker = await Broker.start(tmp_path, options)
        history = list(broker.machine.state.history)
        await broker.settle()
        await broker.store.close(clean=False)  # as a crash would: the last view is in the journal alone
        found = await survey(SystemDisk(tmp_path))
        hello = hello_of(2, found)
        assert hello.history == history
        assert len(history) == 4
        assert (hello.fresh, hello.complete, hello.last_d) == (False, True, broker.machine.log.next_d - 1)
        assert hello.cluster == broker.incarnation

    asyncio.run(main())
