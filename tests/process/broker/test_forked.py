"""A child of fork() and the broker that its parent has open."""

from __future__ import annotations

import os
from pathlib import Path

import holdfast
from tests.kit.processes import Start, tell


def fork_with_a_broker(path: str) -> None:
    """Fork inside the `with` blocks. The child makes calls and leaves the blocks."""
    me = os.getpid()
    with holdfast.Broker.open(path) as broker, broker.producer("orders") as p:
        p.send(b"before")
        child = os.fork()
        if child == 0:
            try:
                p.send(b"child")
            except holdfast.Misuse as error:
                tell(str(error))
        else:
            os.waitpid(child, 0)
            p.send(b"after")
            tell(broker.stats().topics)
    if os.getpid() != me:
        tell("left")
        os._exit(0)


def test_a_child_is_told_that_the_broker_is_its_parents(start: Start, tmp_path: Path) -> None:
    process = start(fork_with_a_broker, str(tmp_path))
    assert "before fork()" in process.hear()
    assert process.hear() == "left", "it did not wait for the parent's thread"
    assert process.hear() == 1
    process.wait()
    with holdfast.Broker.open(tmp_path) as broker:
        assert [each.data for each in broker.admin.examine("orders", count=5)] == [b"before", b"after"]
