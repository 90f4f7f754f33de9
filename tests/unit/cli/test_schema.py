"""`holdfast schema`, against a server."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.entry import run
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


def test_careless_use(http: HttpWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    topic = http.topic().rpartition("/")[2]
    assert "cannot be read" in call(http, capsys, "upload", topic, str(tmp_path / "missing"))[1]
    (tmp_path / "bad").write_text("no JSON")
    assert "not valid as Avro" in call(http, capsys, "upload", topic, str(tmp_path / "bad"))[1]
    assert "no type 'XML'" in call(http, capsys, "upload", topic, str(tmp_path / "bad"), "--type", "xml")[1]
    assert call(http, capsys, "strategy", topic, "sideways")[0] == 1
    assert "no topic" in call(http, capsys, "get", "missing")[1]
