"""Slices of `make torture ARGS=--cluster`: with tests/simulation 315 seeds of whole brokers.

A failure prints its seed and the end of its trace.
"""

from __future__ import annotations

import pytest

from tests.kit.broker import cluster, exchange_cluster, owners
from tests.kit.sim import EVERYTHING
from tests.kit.slices import pick, seeds

OWNERS = seeds("more owners", test=110, nightly=1000)
FIRST = 1000
"""Behind the seeds of tests/simulation/test_ownership.py."""
PARTS = pick(test=11, nightly=100)


@pytest.mark.parametrize("seed", seeds("brokers, every fault", test=24, nightly=400))
def test_brokers_under_faults_of_every_kind(seed: int) -> None:
    """I27, I60: confirmed messages, receipts and equal states; also links, disks and clocks that fail."""
    world, _ = cluster.everything(seed, seconds=pick(test=4.0, nightly=6.0))
    assert world.compared > 100
    assert world.account.confirmed > 100


@pytest.mark.parametrize("seed", seeds("exchanges, every fault", test=2, nightly=100))
def test_exchanges_under_faults_of_every_kind(seed: int) -> None:
    """I242, I243, I244: each message once in its topics, and rejected ones moved once."""
    world = exchange_cluster.everything(seed, seconds=pick(test=3.0, nightly=6.0))
    assert world.compared > 50
    assert len(world.confirmed) > 20
    assert world.dropped > 20


@pytest.mark.parametrize("part", range(PARTS))
def test_brokers_share_subscriptions(part: int) -> None:
    """I68, I69: seeds that tests/simulation does not have."""
    for seed in OWNERS[part::PARTS]:
        owners.run(FIRST + seed)


def test_faults_of_every_kind_repeat_byte_by_byte() -> None:
    """I29: also with links, disks and clocks that fail, and owners that take turns."""
    assert cluster.everything(4)[1] == cluster.everything(4)[1]
    first, again = (owners.run(4, seconds=2.0, trouble=EVERYTHING)[1] for _ in range(2))
    assert first == again
