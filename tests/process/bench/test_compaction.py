"""The measurement of compactions runs and prints; speed is not tested."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench import compaction


def test_measure(tmp_path: Path) -> None:
    found = asyncio.run(compaction.measure(str(tmp_path), 2000, 100, 10, 1 << 20, 1))
    lines = compaction.report(2000, 100, 1 << 20, [found])
    assert lines[0].startswith("2,000 messages, 100 keys")
    assert found["messages in the view"] == 100
    assert "memory" in lines[-1]
