"""The measurement of schemas runs and prints; speed is not tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import schema


def test_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "LARGE", 10)
    schema.measure(tmp_path, 1, 2, 0.1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("open and close a producer without a schema")
