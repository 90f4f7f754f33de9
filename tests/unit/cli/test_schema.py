"""`holdfast schema`, against a server."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.entry import run
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory
from holdfast.pipeline.jobs.archive_schemas import stage_schemas
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.http_world import HttpWorld, http

__all__ = ["http"]

DEFINITION = '{"type": "record", "name": "Order", "fields": [{"name": "x", "type": "int"}]}'


def call(http: HttpWorld, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = run(["schema", *words, "--server", http.server.url])
    told = capsys.readouterr()
    return status, told.out + told.err


def told(http: HttpWorld, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    status, text = call(http, capsys, *words, "--json")
    assert status == 0, text
    return json.loads(text)


def test_from_the_first_to_the_last(
    http: HttpWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topic = http.topic().rpartition("/")[2]
    file, other = tmp_path / "order.avsc", tmp_path / "other.avsc"
    file.write_text(DEFINITION)
    other.write_text(DEFINITION.replace('"int"', '"string"'))
    assert call(http, capsys, "get", topic) == (
        1,
        f"holdfast: persistent://public/default/{topic} has no schema\n",
    )
    assert call(http, capsys, "versions", topic) == (0, "no schemas\n")
    assert call(http, capsys, "upload", topic, str(file), "--type", "json") == (0, f"{topic}: version 0\n")
    assert told(http, capsys, "get", topic)["type"] == "JSON"
    assert call(http, capsys, "get", topic, "0") == (0, f"{DEFINITION}\n")
    assert "0  JSON" in call(http, capsys, "versions", topic)[1]
    assert call(http, capsys, "check", topic, str(file), "--type", "JSON") == (
        0,
        f"{topic}: it fits (FULL)\n",
    )
    status, text = call(http, capsys, "check", topic, str(other), "--type", "JSON")
    assert (status, "field x" in text) == (1, True)
    status, text = call(http, capsys, "upload", topic, str(other), "--type", "JSON")
    assert (status, "field x" in text) == (1, True)
    assert call(http, capsys, "strategy", topic) == (0, f"{topic}: FULL\n")
    assert told(http, capsys, "strategy", topic, "always_compatible") == {"strategy": "ALWAYS_COMPATIBLE"}
    assert call(http, capsys, "upload", topic, str(other), "--type", "JSON") == (0, f"{topic}: version 1\n")
    assert told(http, capsys, "strategy", topic, "none") == {"strategy": "FULL"}
    assert "end with version 2" in call(http, capsys, "delete", topic)[1]


def test_what_get_prints_can_be_uploaded(
    http: HttpWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (http.topic().rpartition("/")[2] for _ in range(2))
    monkeypatch.setattr("sys.stdin", io.StringIO(DEFINITION))
    call(http, capsys, "upload", one, "-", "--type", "JSON")
    monkeypatch.setattr("sys.stdin", io.StringIO(call(http, capsys, "get", one, "--json")[1]))
    assert call(http, capsys, "upload", two, "-") == (0, f"{two}: version 0\n")
    assert told(http, capsys, "get", two)["type"] == "JSON"


def test_a_file_of_an_archive_can_be_uploaded(
    http: HttpWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    topic, directory = http.topic().rpartition("/")[2], ArchiveDirectory(tmp_path)
    schema = pb.Schema(name="s", type=pb.Schema.Json, schema_data=DEFINITION.encode()).SerializeToString()
    staged = stage_schemas(directory, "run", {"t": "topic=t"}, {"t": [schema]})
    file = directory.staging("run") / staged["t"][0]
    assert call(http, capsys, "upload", topic, str(file)) == (0, f"{topic}: version 0\n")
    found = told(http, capsys, "get", topic)
    assert (found["type"], found["data"]) == ("JSON", DEFINITION)


def test_the_strategy_of_a_namespace(http: HttpWorld, capsys: pytest.CaptureFixture[str]) -> None:
    topic, of = http.topic().rpartition("/")[2], ("--namespace", "public/default")
    assert told(http, capsys, "strategy", *of) == {"strategy": "FULL"}
    assert call(http, capsys, "strategy", *of) == (0, "public/default: FULL\n")
    try:
        assert told(http, capsys, "strategy", *of, "backward") == {"strategy": "BACKWARD"}
        assert told(http, capsys, "strategy", topic) == {"strategy": "BACKWARD"}
        assert told(http, capsys, "strategy", topic, "FORWARD") == {"strategy": "FORWARD"}
        assert told(http, capsys, "strategy", topic, "none") == {"strategy": "BACKWARD"}
    finally:
        assert told(http, capsys, "strategy", *of, "none") == {"strategy": "FULL"}
    assert told(http, capsys, "strategy", topic) == {"strategy": "FULL"}


def test_the_rules_of_a_namespace(http: HttpWorld, capsys: pytest.CaptureFixture[str]) -> None:
    topic, of = http.topic().rpartition("/")[2], ("--namespace", "public/default")
    usual = {"strategy": "FULL", "auto_update": True, "enforced": False}
    assert told(http, capsys, "rules", topic) == usual
    try:
        changed = told(http, capsys, "rules", *of, "--auto-update", "no", "--enforced", "yes")
        assert changed == {**usual, "auto_update": False, "enforced": True}
        assert told(http, capsys, "rules", topic) == {**usual, "auto_update": False, "enforced": True}
        assert told(http, capsys, "rules", topic, "--enforced", "no") == {**usual, "auto_update": False}
        status, text = call(http, capsys, "rules", *of)
        assert (status, text.split("\n")[1:]) == (
            0,
            ["strategy     FULL", "auto_update  no", "enforced     yes", ""],
        )
    finally:
        told(http, capsys, "rules", *of, "--auto-update", "yes", "--enforced", "no")
    assert told(http, capsys, "rules", topic) == usual


def test_rules_that_a_topic_does_not_have(http: HttpWorld, capsys: pytest.CaptureFixture[str]) -> None:
    topic = http.topic().rpartition("/")[2]
    status, text = call(http, capsys, "rules", topic, "--auto-update", "no")
    assert (status, "a rule of a namespace" in text) == (2, True)
    assert "'public' cannot name a namespace" in call(http, capsys, "rules", "public", "--namespace")[1]
    assert "no namespace" in call(http, capsys, "rules", "public/none", "--namespace")[1]
    assert "no topic" in call(http, capsys, "rules", "missing")[1]


def test_careless_use(http: HttpWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    topic = http.topic().rpartition("/")[2]
    assert "cannot be read" in call(http, capsys, "upload", topic, str(tmp_path / "missing"))[1]
    (tmp_path / "bad").write_text("no JSON")
    assert "not valid as Avro" in call(http, capsys, "upload", topic, str(tmp_path / "bad"))[1]
    assert "no type 'XML'" in call(http, capsys, "upload", topic, str(tmp_path / "bad"), "--type", "xml")[1]
    assert call(http, capsys, "strategy", topic, "sideways")[0] == 1
    assert "no topic" in call(http, capsys, "get", "missing")[1]
