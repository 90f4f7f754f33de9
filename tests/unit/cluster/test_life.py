"""The reason in the status of a member whose life ended."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

import pytest

from holdfast.broker import BrokerOptions
from holdfast.cluster import ClusterMember
from holdfast.errors import Closed, NoSpace


class Failing:
    """A disk that fails, and a link without a peer."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def lock(self, name: str) -> Any:
        raise self._error

    async def free(self) -> int:
        return 0

    async def serve(self, call: Any) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            "its disk is full (No space left on device); free space on it",
        ),
        (
            OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
            "its disk is full (Disk quota exceeded); free space on it",
        ),
        (NoSpace("the disk is full; free space"), "NoSpace: the disk is full; free space"),
        (Closed("it left"), "Closed: it left"),
    ],
    ids=["room", "quota", "named", "left"],
)
def test_a_full_disk_is_named_as_such(error: Exception, words: str) -> None:
    """The system's words alone name neither the disk nor what to do."""
    failing: Any = Failing(error)

    async def reason() -> str:
        member = ClusterMember(
            BrokerOptions(), node=1, nodes=(1, 2, 3), make_group=failing, link=failing, disk=failing
        )
        joining = asyncio.create_task(member.join())
        while not member.status().reason:
            await asyncio.sleep(0)
        joining.cancel()
        await asyncio.gather(joining, return_exceptions=True)
        return member.status().reason

    assert asyncio.run(reason()) == words
