"""`holdfast pipeline …` in this process: what it prints, and what it answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.cli import main

Capture = pytest.CaptureFixture[str]


def said(capsys: Capture, *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["pipeline", *arguments]) == status
    shown = capsys.readouterr()
    assert (shown.err == "") == (status == 0), shown.err
    assert "Traceback" not in shown.err
    return shown.out if status == 0 else shown.err


def answered(capsys: Capture, *arguments: str, status: int = 0) -> Any:
    capsys.readouterr()
    assert main(["pipeline", *arguments, "--json"]) == status
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)
