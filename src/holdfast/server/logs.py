"""Structured logs: a text or a JSON object a line, on the standard error stream.

Promises upward: writing a line never waits for the reader of the stream. A thread writes; lines that it
cannot keep up with are counted and dropped. Credentials in a line are masked. A text of a client cannot begin
a line.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Literal, TypeAlias

WAITING_MAX = 10_000
"""Lines that wait to be written."""

FLUSH_S = 1.0
"""Time for the last lines to be written at the end of the process."""

_SECRETS = (
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]*\.?[\w-]*"), "***"),  # a token, wherever it stands
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), r"\1 ***"),
    (re.compile(r"(?i)\b(password|passwd|secret|token|authorization)(['\"]?\s*[=:]\s*)\S+"), r"\1\2***"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*-----|$)", re.DOTALL), "***"),
)


def masked(text: str) -> str:
    """Mask credentials in a text.

    Example:
        >>> masked("refused: Bearer eyJhbGciOiJIUzI1NiJ9.e30.c2ln")
        'refused: Bearer ***'
    """
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class Log:
    """Lines with fields: `log.info("started", port=6650)`. They go through the logger of this name."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, text: str, **fields: Any) -> None:
        self._write(logging.DEBUG, text, fields)

    def info(self, text: str, **fields: Any) -> None:
        self._write(logging.INFO, text, fields)

    def warning(self, text: str, **fields: Any) -> None:
        self._write(logging.WARNING, text, fields)

    def error(self, text: str, **fields: Any) -> None:
        self._write(logging.ERROR, text, fields)

    def _write(self, level: int, text: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", text, extra={"fields": fields})


log = Log("holdfast.server")
"""The log of the server itself."""

REASON_LENGTH_MAX = 500
"""Characters of a logged reason: a client can choose its text."""


class Refusals:
    """Logs refusals: a burst, then a few per second, and counts the others.

    Example:
        >>> said = Refusals(Log("example"), clock=lambda: 0.0)
        >>> [said.say("refused", why="no") for _ in range(52)].count(True)
        50
    """

    BURST = 50
    PER_S = 5.0

    def __init__(self, to: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = to
        self._clock = clock
        self._left = float(self.BURST)
        self._looked = clock()
        self._unsaid = 0

    def say(self, text: str, why: object, **fields: Any) -> bool:
        """Log a refusal, unless there were too many; return whether it was logged."""
        now = self._clock()
        self._left = min(self.BURST, self._left + (now - self._looked) * self.PER_S)
        self._looked = now
        if self._left < 1:
            self._unsaid += 1
            return False
        self._left -= 1
        if self._unsaid:
            fields["unsaid"] = self._unsaid
            self._unsaid = 0
        self._log.info(text, **fields, why=str(why)[:REASON_LENGTH_MAX])
        return True


class _Formatter(logging.Formatter):
    def __init__(self, json_lines: bool) -> None:
        super().__init__()
        self._json = json_lines

    def format(self, record: logging.LogRecord) -> str:
        text = masked(record.getMessage())
        fields = {name: _plain(value) for name, value in getattr(record, "fields", {}).items()}
        if record.exc_info:
            fields["error"] = masked(self.formatException(record.exc_info))
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        when = f"{moment}.{int(record.msecs):03}Z"
        level = record.levelname.lower()
        if self._json:
            line = {"time": when, "level": level, "logger": record.name, "message": text} | fields
            return json.dumps(line, ensure_ascii=True)
        parts = [f"{when} {level:7} {record.name.removeprefix('holdfast.')}: {_on_one_line(text)}"]
        parts += [f"{name}={_quoted(value)}" for name, value in fields.items()]
        return " ".join(parts)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float) else masked(str(value))


def _on_one_line(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


def _quoted(value: Any) -> str:
    text = str(value)
    if text and text.isprintable() and not re.search(r'[\s"=]', text):
        return text
    return json.dumps(text, ensure_ascii=True)


class _Shedding(logging.Handler):
    """Hands lines to a thread. A stalled reader costs lines, not time."""

    def __init__(self, stream: IO[str], waiting_max: int = WAITING_MAX) -> None:
        super().__init__()
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(waiting_max)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1
        except Exception:
            self.handleError(record)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            try:
                self._stream.write(f"{line}\n")
                if dropped:
                    record = logging.LogRecord(
                        "holdfast.server", logging.WARNING, "", 0, "log lines were dropped", None, None
                    )
                    record.fields = {"count": dropped}
                    self._stream.write(f"{self.format(record)}\n")
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                continue  # the stream was closed by its reader: the server continues

    def close(self) -> None:
        try:
            self._lines.put(None, timeout=FLUSH_S)
            self._thread.join(FLUSH_S)
        except queue.Full:
            pass
        super().close()


Level: TypeAlias = Literal["debug", "info", "warning", "error"]
Style: TypeAlias = Literal["text", "json"]


@contextmanager
def logging_to(stream: IO[str], level: Level = "info", style: Style = "text") -> Iterator[None]:
    """Write all lines of `logging` to the stream, until the context ends."""
    handler = _Shedding(stream)
    handler.setFormatter(_Formatter(style == "json"))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level.upper())
    # A line for each request is for debugging.
    quiet = {"asyncio": logging.WARNING, "aiohttp.access": logging.WARNING}
    for name, least in quiet.items():
        logging.getLogger(name).setLevel(max(least, root.level) if level != "debug" else logging.DEBUG)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        root.setLevel(before)
        handler.close()
