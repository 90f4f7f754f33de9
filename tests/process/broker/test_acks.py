"""How much memory acknowledgements take, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

MILLION = """
import random, resource
from holdfast.ledger.acks import AckState
ordinals = random.Random(1).sample(range(1, 10_000_000), 1_000_000)
acks = AckState()
acks.ack_ranges([(1, 2)], 10_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for at in range(0, len(ordinals), 1000):
    acks.ack_ranges([(each, each + 1) for each in ordinals[at : at + 1000]], 10_000_000)
acks.pack()
assert acks.holes_count >= 999_999
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


def test_a_million_holes_are_small() -> None:
    done = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 10_000_000
