"""Commands against listeners that are not what they should be, and addresses that are none."""

from __future__ import annotations

import socket
import threading

import pytest

from tests.kit.cli.servers import Cli
from tests.kit.cli.servers import cli as cli


class Odd:
    """A listener that sends every client the same answer."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(self._answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"hello\r\n\r\n", "does not speak HTTP"),
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", "is not a holdfast server"),
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\noh", "the server answers 500: oh"),
    ],
    ids=["no HTTP", "nothing", "a part", "no JSON", "an error"],
)
def test_servers_that_answer_something_else(cli: Cli, answer: bytes, words: str) -> None:
    odd = Odd(answer)
    assert words in cli.complains("topic", "ls", "--server", odd.url)
    odd.close()


def test_a_server_that_hangs(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel accepts the connection of a stopped process, and the request."""
    monkeypatch.setattr("holdfast.cli.remote_http.TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        told = cli.complains("topic", "ls", "--server", url)
    assert f"{url} did not answer within 0 s; the request may have taken effect" in told


@pytest.mark.parametrize(
    "url", ["http://", "http://[", "http://host:abc", "http://a b", "http://h:99999", "ftp://h", "http://h\n"]
)
def test_addresses_that_are_none(cli: Cli, url: str) -> None:
    assert "is not a server's address" in cli.complains("topic", "ls", "--server", url, status=2)
