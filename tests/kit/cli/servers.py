"""Call commands in this process, against a server."""

from __future__ import annotations

import io
import json
import sys
from typing import Any

import pytest

from holdfast.cli import main


class Cli:
    """`holdfast`, called in this process, with the server in the environment."""

    def __init__(self, capture: pytest.CaptureFixture[bytes], patch: pytest.MonkeyPatch, url: str) -> None:
        self.capture, self.patch = capture, patch
        patch.delenv("HOLDFAST_DATA", raising=False)
        patch.setenv("HOLDFAST_SERVER", url)

    def run(self, *arguments: str, data: bytes = b"", status: int = 0) -> tuple[str, str]:
        with self.patch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            try:
                found = main(arguments)
            except SystemExit as exit_:  # argparse
                found = int(str(exit_.code))
        out, err = self.capture.readouterr()
        assert found == status, (arguments, found, out, err)
        return out.decode(), err.decode()

    def says(self, *arguments: str, data: bytes = b"") -> str:
        out, err = self.run(*arguments, data=data)
        assert err == ""
        return out

    def complains(self, *arguments: str, status: int = 1) -> str:
        out, err = self.run(*arguments, status=status)
        assert out == ""
        assert "Traceback" not in err
        return err

    def answer(self, *arguments: str) -> Any:
        return json.loads(self.says(*arguments, "--json"))


@pytest.fixture
def cli(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return commands against a server that does not exist, unless they name another."""
    return Cli(capfdbinary, monkeypatch, "http://127.0.0.1:1")
