"""A real server whose wall clock is wrong, stands still and jumps, with restarts.

The clock is a year ahead or behind. These hold: nothing confirmed is lost, and nothing young expires. A seek
by time skips nothing, and duplicates are recognized. Keep-alive works, and a new subscription that starts in
the past finds recent messages. `serve_broken` is a server that reads the wall clock instead of log time:
these checks must notice it.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from holdfast.broker.log_time import LogClock
from tests.kit import module_command
from tests.kit.served import Served
from tests.kit.server.wire_raw import Raw, Type
from tests.kit.wall_clock import SECOND, YEAR, WallClock

AGE_S = 70.0
"""Age of a producer's name: above what a wrong clock may add to log time (60 s), below a year."""
LOOKS_S = 0.5
"""By then housekeeping has checked everything: messages every 20 ms, names every 420."""
SETTINGS = {
    "broker.sync": "os",
    "broker.housekeeping_s": 0.02,
    "broker.deduplication": "true",
    "broker.deduplication_age_s": AGE_S,
    "broker.retention_s": 3600,
    "broker.roll_entries": 4,
    "limits.keepalive_s": 0.2,
    "flight.enabled": "false",
}
PATIENCE_S = 3.0
"""A message that has not arrived by then does not arrive."""
BROKEN = "HOLDFAST_BROKEN_CLOCK"


def jump_about(clock: WallClock) -> None:
    """Jump forward, back, and then by less."""
    clock.ahead(YEAR)
    clock.ahead(-YEAR)
    clock.ahead(20 * SECOND)


CLOCKS: dict[str, Callable[[WallClock], None]] = {
    "a year ahead": lambda clock: clock.ahead(YEAR),
    "a year behind": lambda clock: clock.ahead(-YEAR),
    "standing still": WallClock.stop,
    "jumping": jump_about,
}


class ClockedServer:
    """A server on a clock that can be set, and its confirmed messages."""

    def __init__(self, directory: Path, broken: str = "") -> None:
        self.directory = directory
        self.clock = WallClock(directory)
        self._broken = broken
        self.confirmed: list[bytes] = []
        self.server = self._start()
        assert self.http("POST", "namespaces/public/default/messageTTL", 3600) in (200, 204)
        with Raw(self.server.url) as raw:
            raw.subscribe("t", subscription="kept")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()
        self.clock.__exit__()

    def _start(self) -> Served:
        settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
        return Served(
            *("--data", str(self.directory / "data"), "--port", "0", "--http-port", "0", *settings),
            environment={**self.clock.environment, BROKEN: self._broken},
            command=module_command(__file__) if self._broken else (),
        )

    def restart(self) -> None:
        """Kill the server, and start it on the contents of the disk."""
        self.server.end(signal.SIGKILL)
        self.server.close()
        self.server = self._start()

    def http(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer, or its status if it has no body."""
        link = http.client.HTTPConnection("127.0.0.1", self.server.ready["http_port"], timeout=20)
        given = {} if body is None else {"Content-Type": "application/json"}
        link.request(method, f"/admin/v2/{path}", None if body is None else json.dumps(body), given)
        answer = link.getresponse()
        text = answer.read()
        link.close()
        return json.loads(text) if text and answer.status == 200 else answer.status

    def publish(self, count: int = 5) -> Any:
        """Publish and wait for the confirmations; return the id of the first message."""
        with Raw(self.server.url) as raw:
            raw.produce("t", producer_name="sensor")
            ids = []
            for _ in range(count):
                raw.send(len(self.confirmed), b"%06d" % len(self.confirmed))
                ids.append(raw.expect(Type.SEND_RECEIPT).message_id)
                self.confirmed.append(b"%06d" % len(self.confirmed))
        return ids[0]

    # -- what is held ----------------------------------------------------------------------------------

    def require_all(self, **start: Any) -> None:
        """Raise AssertionError unless a reader gets all confirmed messages, in order."""
        with Raw(self.server.url) as raw:
            raw.subscribe("t", subscription="look", durable=False, **start)
            raw.flow(len(self.confirmed) + 10)
            deadline = time.monotonic() + PATIENCE_S
            while len(raw.entries) < len(self.confirmed) and time.monotonic() < deadline:
                if raw.hear()[0] == Type.PING:
                    raw.tell(Type.PONG)
        got = [entry[-6:] for entry in raw.entries]
        assert got == self.confirmed, f"confirmed {len(self.confirmed)}, and there are {got}"

    def require_young(self) -> None:
        """Raise AssertionError if a young message expired from the subscription without acknowledgements."""
        found = self.http("GET", "persistent/public/default/t/backlog")["cursorDetails"]["kept"]
        left = found["backlog"] if "backlog" in found else found["cursorBacklog"]
        assert left == len(self.confirmed), f"{len(self.confirmed) - left} young messages expired"

    def require_duplicate(self) -> None:
        """Raise AssertionError if the last message, sent again, is stored again."""
        with Raw(self.server.url) as raw:
            raw.produce("t", producer_name="sensor")
            raw.send(len(self.confirmed) - 1, self.confirmed[-1])
            place = raw.expect(Type.SEND_RECEIPT).message_id.ledgerId
        assert place in (-1, 2**64 - 1), f"a duplicate was stored in ledger {place}"

    def require_keep_alive(self) -> None:
        """Raise if a client that answers is closed, or a silent one is not."""
        with Raw(self.server.url) as lively, Raw(self.server.url) as silent:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                lively.tell(Type.PING)
                lively.expect(Type.PONG)
                try:
                    silent.hear(0.02)  # it answers nothing
                except TimeoutError:
                    continue
                except (EOFError, ConnectionResetError):
                    break
            else:
                raise AssertionError("a silent connection was not closed")
            lively.tell(Type.PING)
            lively.expect(Type.PONG)


def wrong_clocks_harm_nothing(directory: Path, clocks: Iterable[str] = CLOCKS, broken: str = "") -> None:
    """Try each wrong clock, then the right one; then restart on wrong ones."""
    with ClockedServer(directory, broken) as world:
        world.publish()
        for name in clocks:
            CLOCKS[name](world.clock)
            world.publish()
            world.require_keep_alive()
            time.sleep(LOOKS_S)
            world.require_young()
            world.require_duplicate()
            world.require_all(start_message_rollback_duration_sec=600)
            world.clock.right()
            before_ms = time.time_ns() // 1_000_000
            time.sleep(0.01)
            first = world.publish(2)
            found = world.http("GET", f"persistent/public/default/t/messageid/{before_ms}")
            skipped = (found["ledgerId"], found["entryId"]) > (first.ledgerId, first.entryId)
            assert not skipped, f"a seek to {before_ms} skips from {first} to {found}"
            world.require_all()
        for name in ("standing still", "a year behind"):
            CLOCKS[name](world.clock)
            world.restart()
            world.publish(2)
            world.require_all()
            world.require_young()
            world.clock.right()
            world.publish(2)
        world.restart()
        world.require_all()
        world.require_young()


# -- a server that is wrong ------------------------------------------------------------------------------


def serve_broken(arguments: list[str]) -> int:
    """Run `holdfast serve` with the wall clock as log time."""
    from holdfast.cli import main

    assert os.environ[BROKEN] == "wall clock"
    LogClock.now_ns = lambda self: self._clock.now_ns()  # type: ignore[method-assign]
    return main(arguments)


if __name__ == "__main__":
    sys.exit(serve_broken(sys.argv[1:]))
