"""The parts of the rig: places that a process fills until it is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

RESTART_S = 0.3
"""How long a dead process stays away."""


PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def leash(owner: int) -> Callable[[], None]:
    """Make a child end with its owner: SIGKILL, before it runs its program."""

    def bind() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != owner:  # it was gone before that
            os._exit(1)

    return bind


@dataclass
class Part:
    """One place in the rig, which one process after another fills."""

    kind: str
    name: str
    command: Callable[[int], list[str]]
    """For the nth life."""
    log: Path
    environment: dict[str, str]
    tame: float = 0.0
    """Seconds after its start without kills: some parts need time before there is anything to break."""
    sign: Path | None = None
    """A file that the process touches after its first result; no kill before that."""
    life: int = 0
    kills: int = 0
    started: float = 0.0
    restart_at: float = 0.0
    asked: bool = False
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def state(self) -> str:
        if self.alive:
            return "runs"
        return "killed" if self.restart_at else "left"

    def ripe(self, now: float) -> bool:
        """It may be killed: there is something to break."""
        if not self.alive or now - self.started < self.tame:
            return False
        return self.sign is None or self.sign.exists()

    def start(self) -> None:
        self.life += 1
        if self.sign is not None:
            self.sign.unlink(missing_ok=True)
        self.started, self.restart_at, self.asked = time.monotonic(), 0.0, False
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(self.life),
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us, and what it started itself goes with it
                preexec_fn=leash(os.getpid()),
            )

    def kill(self) -> None:
        """Kill it as an attack: it is counted, and starts again."""
        if self.alive:
            self.end()
            self.kills += 1
            self.restart_at = time.monotonic() + RESTART_S

    def ask(self) -> None:
        """To leave in order."""
        if self.process is not None and self.alive:
            self.asked = True
            self.process.terminate()

    def failed(self) -> str | None:
        """It ended by itself, and not well: its last words."""
        if self.process is None or self.restart_at or self.process.poll() in (None, 0):
            return None
        if self.asked and self.process.returncode == -signal.SIGTERM:
            return None  # it was asked before it could listen
        words = self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""
        return f"{self.name} ended with status {self.process.returncode}: {words}"

    def end(self) -> None:
        """Send SIGKILL to the process and those that it started."""
        if self.process is not None and self.alive:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
