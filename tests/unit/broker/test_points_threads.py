"""Stop the writer's thread at each named point: nothing is confirmed early."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast import _core
from holdfast.broker import Broker
from tests.kit.broker.brokers import on_broker

WRITER = _core.log_points()[: _core.log_points().index("round_done")]
"""At `round_done` it has the lock under which rounds are handed to it, for a moment: all others wait."""


@pytest.mark.parametrize("point", WRITER)
def test_the_broker_goes_on(tmp_path: Path, point: str) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("t") as p, broker.producer("others") as q, broker.consumer("t", "s") as c:
            await p.send(b"before")
            _core.arm(point, "stand")
            if point == "ledger_open":
                sends = [asyncio.create_task(q.send(b"its first"))]
            else:
                sends = [asyncio.create_task(p.send(b"0"))]
            async with asyncio.timeout(20):
                while not _core.is_standing(point):
                    await asyncio.sleep(0.001)
            sends += [asyncio.create_task(each.send(b"meanwhile")) for each in (p, q)]
            message = await c.receive(timeout=20)
            assert message.data == b"before"
            await c.ack(message)
            broker.admin.topic_stats("t")
            broker.store.stats()
            await asyncio.sleep(0.01)  # nothing must be confirmed meanwhile
            assert not any(each.done() for each in sends), "nothing is confirmed that is not durable"
            _core.go_on(point)
            async with asyncio.timeout(20):
                await asyncio.gather(*sends)
            assert (await c.receive(timeout=20)).data in (b"0", b"meanwhile")

    try:
        on_broker(tmp_path, work, journal_bytes=1 << 18, reserve_bytes=1 << 18)
    finally:
        _core.disarm()
        _core.go_on(point)
