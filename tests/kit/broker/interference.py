"""Remove, replace and move files of a running broker, and close its descriptors.

The broker notices, writes the lost content again, and logs it. No second process owns the directory. Where a
file cannot be restored, requests for its content get an error that names it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.broker import Broker
from holdfast.errors import Closed, Corrupt, Locked
from holdfast.ledger import running
from tests.kit.broker.brokers import on_broker
from tests.kit.strangers import STRANGER, descriptors_of

HALF = 5
SMALL = {"journal_bytes": 1 << 18, "reserve_bytes": 1 << 18}
WAIT_S = 20.0
FILES = {
    "journal": "journal/0000000000000001",
    "data": "ledgers/0000000000000001.data",
    "index": "ledgers/0000000000000001.index",
    "snapshot": "snapshots/*",
    "lock": "lock",
    "reserve": "reserve",
    "views": "topics/*",
}
Interfere = Callable[[Path], None]


def look_often(patch: pytest.MonkeyPatch) -> None:
    """Let a broker check its files without a pause."""
    patch.setattr(running, "TICK_S", 0.01)


def payloads(first: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + HALF)]


BOTH = [*payloads(0), *payloads(HALF)]


async def send(broker: Broker, first: int) -> None:
    async with broker.producer("t") as p:
        for payload in payloads(first):
            await p.send(payload)


async def received(broker: Broker, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with broker.reader("t", start="earliest") as r:
        while len(found) < count:
            found.append((await r.read(timeout=WAIT_S)).data)
    return found


def require_kept(path: Path, expected: list[bytes]) -> None:
    """Require that all messages exist after a stop or crash; the directory is usable."""

    async def look(broker: Broker) -> None:
        assert await received(broker, len(expected)) == expected
        await send(broker, 0)

    on_broker(path, look, **SMALL)


def goes_on(path: Path, name: str, way: Interfere) -> None:
    """Require that no confirmed message is lost, and no other process owns the directory."""
    data, crashed = path / "data", path / "crashed"

    async def work(broker: Broker) -> None:
        await send(broker, 0)
        await broker.store.snapshot()
        for each in sorted(data.glob(FILES[name])):
            way(each)
        await send(broker, HALF)
        with pytest.raises(Locked, match="held by"):
            await Broker.open(data, **SMALL).__aenter__()
        assert await received(broker, 2 * HALF) == BOTH
        await broker.store.snapshot()
        shutil.copytree(data, crashed)

    on_broker(data, work, **SMALL)
    require_kept(data, BOTH)
    require_kept(crashed, BOTH)


def idle_goes_on(path: Path, way: Interfere) -> None:
    """Require that an idle broker notices without a write, and takes a snapshot at once."""
    data, crashed = path / "data", path / "crashed"

    async def work(broker: Broker) -> None:
        await send(broker, 0)
        taken = broker.store.stats().snapshots
        way(data / FILES["journal"])
        async with asyncio.timeout(WAIT_S):
            while broker.store.stats().snapshots == taken:
                await asyncio.sleep(0.001)
        shutil.copytree(data, crashed)

    on_broker(data, work, **SMALL)
    require_kept(crashed, payloads(0))


def ends_without_its_journal(path: Path) -> None:
    async def work(broker: Broker) -> None:
        await send(broker, 0)
        (path / FILES["journal"]).unlink()

    on_broker(path, work, **SMALL)
    require_kept(path, payloads(0))


def goes_on_without_descriptors(path: Path, name: str, reused: bool) -> None:
    """Require that a descriptor number of another file is neither written to nor closed."""
    data, strangers = path / "data", []

    async def work(broker: Broker) -> None:
        await send(broker, 0)
        numbers = descriptors_of(data / FILES[name])
        assert numbers
        for number in numbers:
            os.close(number)
        for number in numbers if reused else []:
            stranger = path / f"stranger{number}"
            stranger.write_bytes(STRANGER)
            opened = os.open(stranger, os.O_RDWR)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
            strangers.append((number, stranger))
        await send(broker, HALF)
        await broker.store.snapshot()

    on_broker(data, work, **SMALL)
    for number, stranger in strangers:
        assert Path(f"/proc/self/fd/{number}").readlink() == stranger, "the broker closed it"
        os.close(number)
        assert stranger.read_bytes() == STRANGER
    require_kept(data, BOTH)


def stops_without_its_lock(path: Path, file: str) -> None:
    """Require that the broker stops and says why: another process may own the directory."""

    async def work(broker: Broker) -> None:
        await send(broker, 0)
        for number in descriptors_of(path / file):
            os.close(number)
        async with asyncio.timeout(WAIT_S):
            while broker.engine.ended is None:
                await asyncio.sleep(0.001)
        with pytest.raises(Closed, match="is not locked any more"):
            await send(broker, HALF)

    on_broker(path, work, **SMALL)
    require_kept(path, payloads(0))


def stops_without_its_directory(path: Path) -> None:
    """Require that nothing is written at the old path, and confirmed messages moved along."""
    data, moved = path / "data", path / "moved"

    async def work(broker: Broker) -> None:
        await send(broker, 0)
        data.rename(moved)
        async with asyncio.timeout(WAIT_S):
            while broker.engine.ended is None:
                await asyncio.sleep(0.001)
        async with Broker.open(data, **SMALL) as other:
            await send(other, HALF)
            with pytest.raises(Closed, match="moved or replaced"):
                await send(broker, HALF)

    on_broker(data, work, **SMALL)
    require_kept(data, payloads(HALF))
    require_kept(moved, payloads(0))


def tells_what_is_gone(path: Path) -> None:
    """Require that consumers get an error that names a ledger which no process has open."""
    on_broker(path, lambda broker: send(broker, 0), **SMALL)

    async def work(broker: Broker) -> None:
        (path / FILES["data"]).unlink()
        async with broker.consumer("t", "s", start="earliest") as c:
            with pytest.raises(Corrupt, match=r"ledgers/0000000000000001\.data.*restore a backup"):
                await c.receive(timeout=WAIT_S)
        with pytest.raises(Corrupt, match=r"ledgers/0000000000000001\.data"):
            await received(broker, 1)

    on_broker(path, work, **SMALL)


def told(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR)
