"""The pipeline's benchmark judges by what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import pipeline
from bench.pipeline import FORMS, Figures, Report, goals_of

SIZE, COUNT = 100, 10_000


def figures(cores: int, **slower: float) -> Figures:
    """A second for every form, times what is told."""
    taken = {f"{SIZE} {form}": [[slower.get(form, 1.0), 1.0]] * 3 for form in FORMS}
    taken |= {f"{SIZE} parquet written": [[slower.get("written", 10.0), 1.0]]}
    taken |= {f"{SIZE} archive": [[12.0, 1.0]], f"{SIZE} own": [[0.2, 0.2]]}
    taken |= {f"trigger {name}": [[slower.get(name, 0.2), 0.0]] for name in ("holdfast", "rate")}
    scale = {"one ledger": 2.0, "300 ledgers": slower.get("ledgers", 2.1), "half": 1.0}
    taken |= {f"scale {name}": [[seconds, 1.0]] for name, seconds in scale.items()}
    return Figures(cores, {SIZE: COUNT}, taken)


def missed(*found: Figures) -> list[str]:
    return [goal.text for goal in goals_of(list(found)) if not goal.met]


def test_goals() -> None:
    single = figures(1, batches=2.0)
    assert missed(single, figures(2)) == []
    assert len(missed(single, figures(2, alone=1.2, batches=1.2))) == 2, "beside the one from memory"
    assert len(missed(single, figures(2, alone=1.5))) == 2, "and beside Parquet"
    assert "archive" in missed(figures(2, written=4.0))[0]
    assert "rate source" in missed(figures(2, holdfast=0.25))[0]
    assert "300 ledgers" in missed(figures(2, ledgers=2.5))[0]
    assert "more cores" in missed(figures(1), figures(2))[0]


def test_report() -> None:
    about = {"cpu": "x", "cores": 2, "kernel": "6", "python": "3", "file_system": "ext4", "others_share": 0.5}
    report = Report(about, {"rounds": 3}, found=[figures(2)])
    told = report.text()
    assert "others used 50% of the cores" in told
    assert "10.0 k [10.0 k–10.0 k]" in told
    assert "a trigger takes at most 20 % more than Spark's rate source" in told
    assert "  met" in told
    assert report.as_json()["figures"][0]["cores"] == 2


def test_a_run_prints_and_writes_its_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(pipeline, "measure", lambda options, folder, cores, full: figures(cores))
    to = tmp_path / "report.json"
    arguments = ["--quick", "--cores", "2,1", "--where", str(tmp_path), "--json", str(to)]
    assert pipeline.main(arguments) == 0
    assert "Medians of 1 interleaved rounds" in capsys.readouterr().out
    content = json.loads(to.read_text())
    assert [each["cores"] for each in content["figures"]] == [1, 2]
    assert content["settings"]["took_s"] >= 0
    assert content["goals"]
    assert list(tmp_path.iterdir()) == [to], "nothing else is left"
