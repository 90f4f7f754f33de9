"""The lock of a directory, between processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from holdfast.errors import Locked
from holdfast.system import SystemDisk
from tests.kit.processes import Start, hear, tell


def test_the_kernel_drops_the_lock_of_a_process_that_is_gone(tmp_path: Path, start: Start) -> None:
    async def take() -> None:
        await (await SystemDisk(tmp_path).lock("lock")).release()

    child = start(hold_lock, str(tmp_path))
    assert child.hear() == "held"
    with pytest.raises(Locked, match=f"process {child.pid} ") as caught:
        asyncio.run(take())
    assert caught.value.pid == child.pid
    child.kill()
    asyncio.run(take())


def hold_lock(directory: str) -> None:
    import asyncio

    from holdfast.system import SystemDisk

    lock = asyncio.run(SystemDisk(directory).lock("lock"))
    tell("held")
    hear()
    del lock


def test_a_forked_child_does_not_hold_the_lock_of_a_dead_parent(tmp_path: Path, start: Start) -> None:
    async def take() -> None:
        await (await SystemDisk(tmp_path).lock("lock")).release()

    parent = start(hold_lock_and_fork, str(tmp_path))
    child = parent.hear()
    with pytest.raises(Locked):
        asyncio.run(take())  # the child has closed it, and it is the parent's all the same
    parent.kill()
    asyncio.run(take())
    assert Path(f"/proc/{child}").exists(), "it lives"
    os.kill(child, signal.SIGKILL)


def hold_lock_and_fork(directory: str) -> None:
    import asyncio

    from holdfast.system import SystemDisk

    lock = asyncio.run(SystemDisk(directory).lock("lock"))
    if os.fork() == 0:
        tell(os.getpid())  # by the child: when it runs, it has closed the lock
        while True:
            time.sleep(1)
    hear()
    del lock
