"""The measurement of delayed messages runs and prints; speed is not tested."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench import delays


def test_measure(tmp_path: Path) -> None:
    found = asyncio.run(delays.measure(tmp_path, 2000, 10))
    lines = delays.report(2000, [found])
    assert lines[0].startswith("2,000 delayed messages")
    assert found[delays.HELD] > 0
    assert "memory under 200 MiB" in lines[-1]
