"""The log's lines and masks; a slow reader of the log blocks nothing."""

from __future__ import annotations

import base64
import io
import json
import logging
import threading

import pytest

from holdfast.server.logs import Log, _Shedding
from tests.kit.server import logs_checks
from tests.kit.server.logs_checks import SECRET, TOKEN, logged


def test_lines_for_people_and_for_machines() -> None:
    def work(log: Log) -> None:
        log.info("client connected", role="billing", port=7, words="two words", none=None)
        log.debug("nobody wants to know")
        logging.getLogger("holdfast.wire").warning("%s is closed", "it")

    first, second = logged("text", work)
    assert first.endswith('Z info    test: client connected role=billing port=7 words="two words" none=None')
    assert second.endswith("Z warning wire: it is closed")
    first, second = map(json.loads, logged("json", work))
    assert {key: first[key] for key in ("level", "logger", "message", "role", "port", "none")} == {
        "level": "info",
        "logger": "holdfast.test",
        "message": "client connected",
        "role": "billing",
        "port": 7,
        "none": None,
    }
    assert first["time"].endswith("Z")


def test_a_line_is_one_line() -> None:
    """Text from a client cannot imitate a line of the server."""
    logs_checks.a_line_is_one_line()


def test_exceptions_are_logged() -> None:
    def work(log: Log) -> None:
        try:
            raise ValueError(f"password={SECRET}")
        except ValueError:
            logging.getLogger("holdfast.wire").exception("it failed")

    [line] = logged("json", work)
    found = json.loads(line)
    assert "ValueError" in found["error"]
    assert SECRET not in line


@pytest.mark.parametrize(
    "text",
    [
        TOKEN,
        f"Authorization: Bearer {TOKEN}",
        f"Basic {base64.b64encode(b'anna:sesame-and-more').decode()}",
        f"password={SECRET}",
        f"'token': '{SECRET}'",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_does_not_get_out(text: str) -> None:
    """I112."""
    logs_checks.what_looks_like_a_secret_does_not_get_out(text)


class Stalled(io.StringIO):
    """A stream without a reader until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.logging = threading.current_thread()

    def write(self, text: str) -> int:
        assert self.go.is_set() or threading.current_thread() is not self.logging, "who logs must not wait"
        assert self.go.wait(20)
        return super().write(text)


def test_a_reader_that_stalls_costs_lines_not_time() -> None:
    stream = Stalled()
    handler = _Shedding(stream, waiting_max=10)
    record = logging.LogRecord("x", logging.INFO, "", 0, "line", None, None)
    for _ in range(1000):
        handler.emit(record)
    assert stream.getvalue() == "", "nothing was read, and nobody waited for it"
    stream.go.set()
    handler.close()
    lines = stream.getvalue().splitlines()
    assert lines.count("line") <= 12
    assert any("dropped" in line for line in lines)
