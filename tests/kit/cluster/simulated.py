"""A member of a cluster on a simulated node."""

from __future__ import annotations

import contextlib

from holdfast.broker.options import BrokerOptions
from holdfast.cluster import ClusterMember, MakeGroup
from holdfast.ledger import LOCAL
from holdfast.system import Disk, File, Lock
from tests.kit.cluster.link import SimLink, Wires
from tests.kit.ledger.sim_store import SimFiles
from tests.kit.sim import SimNode


class Below:
    """A directory of a disk, as a disk of its own."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk, self._directory = disk, directory

    def _at(self, path: str) -> str:
        return f"{self._directory}/{path}" if path else self._directory

    async def make(self) -> None:
        """Create the directory itself, durably, unless it is there."""
        with contextlib.suppress(FileExistsError):
            await self._disk.make_directory(self._directory)
        await self._disk.sync_directory("")

    async def open(self, path: str, create: bool = False) -> File:
        return await self._disk.open(self._at(path), create)

    async def rename(self, source: str, target: str) -> None:
        await self._disk.rename(self._at(source), self._at(target))

    async def unlink(self, path: str) -> None:
        await self._disk.unlink(self._at(path))

    async def list(self, path: str) -> list[str]:
        return await self._disk.list(self._at(path))

    async def make_directory(self, path: str) -> None:
        await self._disk.make_directory(self._at(path))

    async def sync_directory(self, path: str) -> None:
        await self._disk.sync_directory(self._at(path))

    async def sizes(self, path: str) -> dict[str, int]:
        return await self._disk.sizes(self._at(path))

    async def free(self) -> int:
        return await self._disk.free()

    async def is_named(self, path: str, file: File) -> bool:
        return await self._disk.is_named(self._at(path), file)

    async def lock(self, path: str) -> Lock:
        return await self._disk.lock(self._at(path))


def local_of(node: SimNode) -> Below:
    """Return the directory of a node's unreplicated topics. `make` it first."""
    return Below(node.disk, LOCAL)


def sim_member(
    wires: Wires,
    node: SimNode,
    nodes: list[int],
    options: BrokerOptions,
    make_group: MakeGroup | None = None,
    local: Below | None = None,
) -> ClusterMember:
    """Return the member of a simulated node, which has not joined yet."""
    return ClusterMember(
        options,
        node=node.number,
        nodes=nodes,
        make_group=make_group
        or (lambda life, floor: node.group(explicit_holds=True, incarnation=life, view_floor=floor)),
        link=SimLink(wires, node),
        disk=node.disk,
        files=SimFiles(node.disk, node.clock),
        local=None if local is None else (local, SimFiles(local, node.clock)),
        clock=node.clock,
        random=node.random,
    )
