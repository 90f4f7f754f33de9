"""The whole demo, with Spark in a Java of its own: everything is killed, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import COMMAND


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_everything_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    """Run after run, until the broker and Spark were among the killed. As a rule the first does it; on a busy
    machine it may end before."""
    killed = dict[str, int]()
    for number in range(4):
        told = demonstrated(tmp_path / str(number))
        killed = {kind: killed.get(kind, 0) + count for kind, count in told["killed"].items()}
        if killed["broker"] and killed["spark"] and sum(killed.values()) >= 5:
            return
    pytest.fail(f"in four runs these were killed: {killed}")


def demonstrated(tmp_path: Path) -> dict[str, Any]:
    """A run in which nothing was lost."""
    tmp_path.mkdir()
    done = subprocess.run(
        [COMMAND, "demo", "--minutes", "0.12", "--rate", "1000", "--json", "--to", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=580,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["good"] is True
    assert told["faults"] == []
    assert [told[name] for name in ("lost", "duplicated", "out_of_order", "strange")] == [0, 0, 0, 0]
    assert told["confirmed"] > 1000
    assert told["stored"] == told["confirmed"] + told["unconfirmed"] == told["calibrated"]
    assert told["archived"] == told["stored"] + told["calibrated"]
    page = Path(told["report"]).read_text()
    assert "<svg" in page or "data:image" in page
    assert sorted(path.name for path in Path(told["report"]).parent.iterdir()) == [
        "account.json",
        "report.html",
    ]
    return told
