"""Commands against servers that restart, are killed, or speak TLS."""

from __future__ import annotations

import os
import pty
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.client import endpoints
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.certificates import Authority
from tests.kit.cli.servers import Cli
from tests.kit.cli.servers import cli as cli
from tests.kit.command import COMMAND
from tests.kit.served import Served, served

PATIENCE_S = 60.0


def test_the_port_of_the_binary_protocol(cli: Cli, tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        url = server.url.replace("pulsar:", "http:")
        assert "use its HTTP port" in cli.complains("topic", "ls", "--server", url)
        assert "use its HTTP port" in cli.complains("top", "--once", "--server", url)


def test_https_to_a_port_without_tls(cli: Cli, tmp_path: Path) -> None:
    with served(tmp_path / "data", http=True) as server:
        url = server.http_url.replace("http:", "https:")
        assert f"{url} does not speak TLS; use http:" in cli.complains("topic", "ls", "--server", url)


def test_ctrl_c_ends_a_command_that_waits(tmp_path: Path) -> None:
    """The calls block the loop, which would note the interrupt only when they return."""
    with served(tmp_path / "data", http=True) as server:
        where = ("--server", server.http_url)
        assert subprocess.run([COMMAND, "topic", "produce", "t", "0", "--create", *where]).returncode == 0
        waiting = subprocess.Popen(
            [COMMAND, "topic", "consume", "t", "--lines", "--timeout", "500", *where],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == b"0\n"
        waiting.send_signal(signal.SIGINT)
        _, errors = waiting.communicate(timeout=PATIENCE_S)
    assert (waiting.returncode, errors) == (130, b"")


def test_a_token_that_came_by_tls_goes_by_tls(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has plain ports as well; the commands do not use them."""
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.certify("localhost")
    settings = (f"tls.certificate={certificate}", f"tls.key={key}")
    words = [word for each in settings for word in ("--set", each)]
    ports: list[int] = []
    real: Callable[..., Any] = socket.create_connection

    def connect(address: tuple[str, int], *given: Any) -> Any:
        ports.append(address[1])
        return real(address, *given)

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with served(tmp_path / "data", "--https-port", "0", *words) as server:
        monkeypatch.setenv("HOLDFAST_SERVER", f"https://localhost:{server.ready['https_port']}")
        cli.says("topic", "produce", "t", "0", "--create")
        with monkeypatch.context() as patch:
            patch.setenv("HOLDFAST_TOKEN", "secret")
            assert "would reveal the token" in cli.complains("topic", "produce", "t", "x")
    ports.clear()
    with served(tmp_path / "data", "--tls-port", "0", "--https-port", "0", *words, http=True) as server:
        monkeypatch.setenv("HOLDFAST_SERVER", f"https://localhost:{server.ready['https_port']}")
        cli.says("topic", "produce", "t", "x", "--create")
        assert cli.says("topic", "consume", "t", "--lines") == "0\nx\n"
        assert server.ready["tls_port"] in ports
        assert server.ready["port"] not in ports


def test_a_certificate_that_cannot_be_believed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = Authority(tmp_path / "authority").certify("localhost")
    settings = ("--set", f"tls.certificate={certificate}", "--set", f"tls.key={key}")
    with served(tmp_path / "data", "--https-port", "0", *settings) as server:
        url = f"https://localhost:{server.ready['https_port']}"
        assert "CERTIFICATE_VERIFY_FAILED" in cli.complains("topic", "ls", "--server", url)


class Terminal:
    """A command on a terminal; what it has written so far."""

    def __init__(self, *command: str) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.said = ""

    def until(self, words: str) -> None:
        """Waits for words that come from now on."""
        begin, limit = len(self.said), time.monotonic() + PATIENCE_S
        while words not in self.said[begin:]:
            assert time.monotonic() < limit, self.said[-2000:]
            if select.select([self._ours], [], [], 0.5)[0]:
                self.said += os.read(self._ours, 1 << 16).decode(errors="replace")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        os.close(self._ours)


def test_top_outlives_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data, http=True) as server:
        port = server.ready["http_port"]
        screen = Terminal(COMMAND, "top", "--interval", "0.1", "--server", server.http_url)
        screen.until("rounds/s")
    try:
        screen.until("looking again")
        again = Served("--data", str(data), "--port", "0", "--http-port", str(port))
        screen.until("rounds/s")
        again.close()
    finally:
        screen.close()


def test_top_on_a_pipe_ends_with_the_server(tmp_path: Path) -> None:
    with served(tmp_path / "data", http=True) as server:
        watching = subprocess.Popen(
            [COMMAND, "top", "--interval", "0.1", "--server", server.http_url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        assert "up;" in watching.stdout.readline()
    _, errors = watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 1
    assert errors.startswith("holdfast: ")
    assert "Traceback" not in errors


def test_a_server_that_is_killed_under_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An error reports the count of published messages; there is no traceback."""
    with served(tmp_path / "data", http=True) as server:
        real = endpoints.Producer._tell

        def tell(self: Any, message: Any, *entry: bytes) -> None:
            if isinstance(message, pb.CommandSend):
                server.process.kill()
                server.process.wait()
            real(self, message, *entry)

        monkeypatch.setattr(endpoints.Producer, "_tell", tell)
        assert main(["topic", "produce", "t", "x", "--create", "--server", server.http_url]) == 1
    said = capfd.readouterr().err
    assert said.startswith("holdfast: ")
    assert "Traceback" not in said
