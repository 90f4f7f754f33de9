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
from tests.kit.server.http_world import HttpWorld, T, http

__all__ = ["http"]

DEFINITION = '{"type": "record", "name": "Order",\n "fields": [{"name": "x", "type": "int"}]}'


def call(http: HttpWorld, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    try:
        status = run(["schema", *words, "--server", http.server.url])
    except SystemExit as exit_:  # argparse
        status = int(str(exit_.code))
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
    assert len(call(http, capsys, "versions", topic)[1].splitlines()) == 2, "a definition is one line"
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
    assert told(http, capsys, "strategy", topic, "FORWARD") == {"strategy": "FORWARD"}
    assert told(http, capsys, "strategy", topic, "default") == {"strategy": "FULL"}
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
    assert rules(http, capsys, topic) == usual
    try:
        changed = rules(http, capsys, *of, "--auto-update", "no", "--enforced", "yes")
        assert changed == {**usual, "auto_update": False, "enforced": True}
        assert rules(http, capsys, topic) == {**usual, "auto_update": False, "enforced": True}
        assert rules(http, capsys, topic, "--enforced", "no") == {**usual, "auto_update": False}
        found = told(http, capsys, "rules", topic)["from"]
        assert found == {"strategy": "broker", "auto_update": "namespace", "enforced": "topic"}
        status, text = call(http, capsys, "rules", *of)
        assert (status, [line.split() for line in text.splitlines()[1:]]) == (
            0,
            [
                ["strategy", "-", "FULL", "broker"],
                ["auto_update", "no", "no", "namespace"],
                ["enforced", "yes", "yes", "namespace"],
            ],
        )
    finally:
        told(http, capsys, "rules", *of, "--auto-update", "default", "--enforced", "default")
    assert rules(http, capsys, topic) == usual


def rules(http: HttpWorld, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Return the rules that apply."""
    found = told(http, capsys, "rules", *words)
    del found["from"]
    return found


def test_the_rules_of_a_topic_are_its_own(http: HttpWorld, capsys: pytest.CaptureFixture[str]) -> None:
    """The command shows what either way of setting has set."""
    topic = http.topic().rpartition("/")[2]
    assert rules(http, capsys, topic, "--auto-update", "no")["auto_update"] is False
    assert rules(http, capsys, topic, "--auto-update", "default")["auto_update"] is True
    http.done("POST", f"{T}/{topic}/policies", json={"schema_auto_update": False})
    assert rules(http, capsys, topic)["auto_update"] is False
    http.done("PUT", f"{T}/wide/partitions", json=2)
    assert rules(http, capsys, "wide", "--enforced", "yes", "--auto-update", "no") == {
        "strategy": "FULL",
        "auto_update": False,
        "enforced": True,
    }


def test_rules_of_a_place_that_does_not_exist(http: HttpWorld, capsys: pytest.CaptureFixture[str]) -> None:
    assert "'public' cannot name a namespace" in call(http, capsys, "rules", "public", "--namespace")[1]
    assert "no namespace" in call(http, capsys, "rules", "public/none", "--namespace")[1]
    assert "no topic" in call(http, capsys, "rules", "missing")[1]


def test_careless_use(http: HttpWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    topic = http.topic().rpartition("/")[2]
    assert "cannot be read" in call(http, capsys, "upload", topic, str(tmp_path / "missing"))[1]
    (tmp_path / "bad").write_text("no JSON")
    assert "not valid as Avro" in call(http, capsys, "upload", topic, str(tmp_path / "bad"))[1]
    for words in (("upload", topic, "bad", "--type", "xml"), ("check", topic, "bad", "--type", "xml")):
        status, text = call(http, capsys, *words)
        assert (status, "'xml' is not a type of schemas; use AUTO_CONSUME, AVRO" in text) == (2, True)
    status, text = call(http, capsys, "strategy", topic, "sideways")
    assert (status, "'sideways' is not a strategy; use ALWAYS_INCOMPATIBLE" in text) == (2, True)
    assert call(http, capsys, "get", topic, "-1")[0] == 2
    assert "no topic" in call(http, capsys, "get", "missing")[1]
