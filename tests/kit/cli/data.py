"""Call commands in this process, on a data directory."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main


@dataclass
class Cli:
    """`holdfast`, called in this process."""

    capture: pytest.CaptureFixture[bytes]
    patch: pytest.MonkeyPatch
    data: Path

    def run(self, *arguments: str, data: bytes = b"", status: int = 0) -> tuple[bytes, str]:
        with self.patch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            try:
                found = main(arguments)
            except SystemExit as exit_:  # argparse
                found = int(str(exit_.code))
        out, err = self.capture.readouterr()
        assert found == status, (arguments, found, out, err)
        return out, err.decode()

    def says(self, *arguments: str, data: bytes = b"") -> str:
        out, err = self.run(*arguments, data=data)
        assert err == ""
        return out.decode()

    def complains(self, *arguments: str, data: bytes = b"", status: int = 1) -> str:
        _, err = self.run(*arguments, data=data, status=status)
        assert "Traceback" not in err
        assert err
        return err

    def answer(self, *arguments: str, data: bytes = b"") -> Any:
        return json.loads(self.says(*arguments, "--json", data=data))

    def ask(self, url: str) -> None:
        """Ask a server from now on, in place of the directory."""
        self.patch.delenv("HOLDFAST_DATA")
        self.patch.setenv("HOLDFAST_SERVER", url)

    def answers(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.says(*arguments, "--json").splitlines()]


@pytest.fixture
def cli(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Give every test a data directory for itself, which does not exist yet."""
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "data"))
    return Cli(capfdbinary, monkeypatch, tmp_path / "data")


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """Send five messages to `orders`, "0" to "4"."""
    cli.says("topic", "create", "orders")
    cli.says("topic", "produce", "orders", "--lines", data=b"0\n1\n2\n3\n4\n")
    return cli


def backlog(cli: Cli) -> list[str]:
    return [each["text"] for each in cli.answers("subscription", "peek", "orders", "billing")]
