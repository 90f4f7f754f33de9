"""A cluster without clients notices a member that stands still."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.demo.cluster.brokers import Brokers
from holdfast.demo.cluster.nodes import Nodes

EVICT_S = 2.0


def wait(until: Callable[[], bool], what: str, limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not until():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.mark.parametrize("stopped", [1, 3])
def test_a_stopped_broker_is_evicted_although_nothing_is_published(
    nodes: Nodes, tmp_path: Path, stopped: int
) -> None:
    """Also if it is the lowest one, which announces itself first."""
    brokers = Brokers(nodes, tmp_path, "--set", f"cluster.evict_s={EVICT_S}")
    others = [each for each in nodes.numbers if each != stopped]

    def members() -> list[int]:
        status = nodes.inside(0, lambda: [brokers.ask(each, "cluster/status") for each in others])
        return [each["members"] if isinstance(each, dict) else 0 for each in status]

    try:
        for part in brokers.parts.values():
            part.start()
        wait(lambda: nodes.inside(0, brokers.serving) == nodes.numbers, "the brokers do not serve")
        time.sleep(1.0)  # all have announced themselves
        process = brokers.parts[stopped].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        wait(lambda: members() == [2, 2], "the stopped broker stays a member")
    finally:
        for part in brokers.parts.values():
            part.end()
