"""`holdfast token`, as the page of the command line shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli import main
from tests.kit.command import follow, sessions


def test_the_session_on_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [session] = [each for each in sessions() if "holdfast token" in each]
    follow(session)


def test_a_token_without_a_role_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server would refuse it, too."""
    secret = str(tmp_path / "secret")
    assert main(["token", "secret", secret]) == 0
    assert main(["token", "create", "", "--secret-file", secret]) == 2
    assert "the role of a token is empty" in capsys.readouterr().err
    assert main(["token", "secret", secret]) == 1
    assert "use another file" in capsys.readouterr().err
