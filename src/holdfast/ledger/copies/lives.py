"""Small durable files of a member: the number of its life, and an administrator's request."""

from __future__ import annotations

import errno

from holdfast._core import open_block, seal_block
from holdfast.ledger.layout import BLOCK_HEADER, LIFE, NEW, SURVIVOR, BlockKind
from holdfast.system import Disk, Randomness, opened, read_file, remove, write_all, write_named_last

RANDOM_BITS = 12
"""Of a first life's number, below its milliseconds. The number stays exact in JSON until the year 2039."""


async def next_life(disk: Disk, now_ns: int, random: Randomness) -> int:
    """Return a number that no earlier life of this node had; it is durable.

    It is above the last one that the directory knows. The clock is a floor, so it also rises when the
    directory was replaced by an empty one. Then it has random bits, too: an empty directory may be started
    several times within one step of the clock.
    """
    last = await _last_life(disk)
    floor = now_ns // 1_000_000 << RANDOM_BITS
    if last:  # each of the next 255 lives differs in the low byte, as ids of views need it
        floor = max(last + 1, floor)
        life = floor + (last + 1 - floor) % 256
    else:
        life = max(1, floor + int.from_bytes(random.token(2), "little") % (1 << RANDOM_BITS))
    data = seal_block(BlockKind.PART, 0, 0, life.to_bytes(8, "little"))
    try:
        await write_named_last(disk, LIFE, LIFE + NEW, data)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not last:
            raise
        # A join may make room. If a crash tears these bytes, the next number comes from the clock.
        async with opened(disk, LIFE) as file:
            await write_all(file, 0, data)
            await file.sync()
    return life


async def _last_life(disk: Disk) -> int:
    """Return the number in the directory; 0 if it cannot be read."""
    if LIFE in await disk.list(""):
        data = await read_file(disk, LIFE)
        block = open_block(data)
        if not isinstance(block, str) and block[3] == 8:
            return int.from_bytes(data[BLOCK_HEADER : BLOCK_HEADER + 8], "little")
    return 0


async def request_survivor(disk: Disk) -> None:
    """Ask for this directory to continue, although others may have more; see `Outcome.FORCED`."""
    await write_named_last(disk, SURVIVOR, SURVIVOR + NEW, b"")


async def is_survivor(disk: Disk) -> bool:
    """Return whether `request_survivor` was called."""
    return SURVIVOR in await disk.list("")


async def withdraw_survivor(disk: Disk) -> None:
    """Undo `request_survivor`; it counts once."""
    if await remove(disk, SURVIVOR):
        await disk.sync_directory("")
