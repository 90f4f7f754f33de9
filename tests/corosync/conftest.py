"""Share three Corosync daemons among the tests of this folder; each test gets them whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.demo.cluster.nodes import Nodes, lacks
from tests.kit.corosync.members import CpgEngine


@pytest.fixture(scope="session")
def corosync() -> None:
    """Require a machine on which Corosync can run."""
    reason = lacks()
    if reason is not None:
        pytest.skip(f"no Corosync can run here: {reason}")


@pytest.fixture(scope="session")
def daemons(corosync: None) -> Iterator[Nodes]:
    with Nodes(3) as nodes:
        yield nodes


@pytest.fixture
def nodes(daemons: Nodes) -> Iterator[Nodes]:
    """Three nodes that run, connected; they are so again after the test."""
    daemons.wait_ring()
    yield daemons
    daemons.repair()


@pytest.fixture
def engine(nodes: Nodes) -> CpgEngine:
    return CpgEngine("cpg", len(nodes.numbers), nodes=nodes)
