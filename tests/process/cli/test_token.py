"""`holdfast token`, as the page of the command line shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.command import follow, sessions


def test_the_session_on_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [session] = [each for each in sessions() if "holdfast token" in each]
    follow(session)
