"""The README's example for Spark, in the session of the tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast
from tests.kit import ROOT
from tests.kit.pages import python_blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_example_of_the_readme(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with holdfast.Broker.open(data) as broker, broker.producer("orders") as producer:
        producer.send(b"two coffees", key="table 4")
    monkeypatch.setattr("holdfast.pipeline.session", lambda: spark)
    _, _, example = python_blocks(ROOT / "README.md")
    exec(example.replace("data/", str(data)), {})
    assert re.search(r"table 4\|\s+1\|", capsys.readouterr().out)
