"""The measurement of delayed messages runs and prints; speed is not tested."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench import delays


def test_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "SHOWN", 1000)
    asyncio.run(delays.measure(str(tmp_path), 2000, 10))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert "memory of 2,000 delayed" in lines[2]
