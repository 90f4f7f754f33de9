"""The measurement of keys runs and prints; speed is not tested."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench import keys
from holdfast.broker.dispatch.keys import Keys


def test_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Keys.begin
    monkeypatch.setattr(Keys, "begin", lambda self, sharing, _: begin(self, sharing, 100))
    monkeypatch.setattr(keys, "SLOW_S", 0.001)
    plan = keys.Plan(entries=400, keys=200, consumers=4, size=10, rounds=1, queue=10, ahead=100)
    goals = asyncio.run(keys.measure(str(tmp_path), plan))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("400 entries, 200 keys, 4 consumers; with an odd one, the others take ")
    assert [line.split("  ")[0] for line in lines[3:9]] == [
        "shared, delivery alone",
        "key_shared, delivery alone",
        "shared",
        "key_shared",
        "key_shared, one stuck",
        "key_shared, one slow",
    ]
    assert lines[9].startswith("at the limit: 100 entries wait for the stuck consumer (100 are read ahead)")
    assert lines[10].endswith("took all 240")
    assert len(goals) == 4


def test_the_others_have_the_other_keys() -> None:
    plan = keys.Plan(keys=500, consumers=5)
    found = keys.keys_by_consumer(plan)
    assert sorted(found) == plan.names
    assert sum(map(len, found.values())) == 500
