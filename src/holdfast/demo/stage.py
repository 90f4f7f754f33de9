"""Run a demo, of the rig or the queue: loop, kills, scene, picture and account."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

HIDE, SHOW = "\033[?25l", "\033[?25h"
EVENTS = 8
MARKS = {"runs": "● {}", "stopped": "◌ {} stopped", "killed": "† {} killed", "left": "  {} left"}


@dataclass(kw_only=True)
class Scene:
    """The state that a view shows."""

    began: float = field(default_factory=time.monotonic)
    phase: str = "running"
    events: list[str] = field(default_factory=list)
    """The last events, the newest last."""

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def tell(self, event: str) -> None:
        self.events = [*self.events[1 - EVENTS :], f"{self.elapsed:6.1f} s  {event}"]


View = Callable[[Any], None]
"""Shows a scene while it goes on."""


def quiet(scene: Scene) -> None:
    """For `--json`: only the account."""


class Lines:
    """Print a line now and then, and each event if wanted, to a pipe."""

    def __init__(self, out: TextIO, line: Callable[[Any], str | None], every_s: float, events: bool) -> None:
        self._out, self._line, self._every_s, self._events = out, line, every_s, events
        self._next, self._told = 0.0, ""

    def __call__(self, scene: Scene) -> None:
        fresh = scene.events if self._events else []
        if self._told in fresh:
            fresh = fresh[fresh.index(self._told) + 1 :]
        for event in fresh:
            print(f"  {event}", file=self._out)
            self._told = event
        if scene.elapsed >= self._next or scene.phase == "over":
            self._next = scene.elapsed + self._every_s
            if line := self._line(scene):
                print(line, file=self._out)
        self._out.flush()


class Picture:
    """The whole scene, redrawn in place."""

    def __init__(self, out: TextIO, lines: Callable[[Any], list[str]]) -> None:
        self._out, self._lines, self._height = out, lines, 0

    def __call__(self, scene: Scene) -> None:
        width, height = shutil.get_terminal_size()
        lines = [_cut(line, width - 1) for line in self._lines(scene)][: height - 1]
        up = f"\033[{self._height}A" if self._height else HIDE
        self._out.write(up + "".join(f"\r\033[K{line}\n" for line in lines) + "\033[J")
        if scene.phase == "over":
            self._out.write(SHOW)
        self._out.flush()
        self._height = len(lines)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def row(parts: Sequence[Any], kind: str) -> str:
    """The parts of a kind, and how each is."""
    return "   ".join(MARKS[part.state].format(part.name) for part in parts if part.kind == kind)


def account_text(rows: Sequence[tuple[str, int, str]], faults: Sequence[str], verdict: str) -> list[str]:
    """The account at the end, in words."""
    lines = [f"  {name:20} {count:>12,}   {words}".rstrip() for name, count, words in rows]
    return ["", "the account", *lines, *(f"  fault: {fault}" for fault in faults), "", verdict]


@contextlib.contextmanager
def shown(json: bool, picture: Callable[[Any], list[str]], lines: Lines) -> Iterator[View]:
    """Choose the view for the output. A terminal has its cursor back afterwards."""
    terminal = sys.stdout.isatty() and not json
    try:
        yield quiet if json else Picture(sys.stdout, picture) if terminal else lines
    finally:
        if terminal:
            print(SHOW, end="")


class Leaving:
    """Whether a process of a demo must end: after SIGTERM, or without its parent."""

    def __init__(self, parent: int) -> None:
        self._asked, self._parent = False, parent
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # meant for the parent, which asks

    def _ask(self, *_: object) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked or os.getppid() != self._parent


class Stage:
    """Run processes: start them again, kill them at random, draw them."""

    TICK_S = 0.05
    ATTACK_S = 0.8
    """Between two attacks, about."""

    def __init__(self, scene: Any, view: View) -> None:
        self.scene, self.settings, self.view = scene, scene.settings, view
        self.faults: list[str] = []
        self.chance = random.Random()
        self.interrupted = False
        self.look_at = 0.0

    def run(self) -> None:
        """Run until the time is over; Ctrl-C ends it early, with its account.

        Ctrl-C counts between two steps: a step that it broke off, such as a kill, would not be accounted for.
        """
        before = signal.signal(signal.SIGINT, self._interrupt)
        try:
            self.begin()
            self.scene.phase = "running"
            attack_at = time.monotonic() + self.ATTACK_S
            end = time.monotonic() + self.settings.seconds
            while (now := time.monotonic()) < end and not self.interrupted:
                self.keep_up(now)
                if self.settings.chaos and now >= attack_at:
                    self.attack(now)
                    attack_at = now + self.ATTACK_S * self.chance.uniform(0.5, 1.5)
                self.look()
                time.sleep(self.TICK_S)
        finally:
            signal.signal(signal.SIGINT, before)

    def wait(self, until: float, done: Callable[[], bool]) -> bool:
        """Whether it was done in time; the show goes on meanwhile."""
        while not done():
            if time.monotonic() > until:
                return False
            self.tend()
            self.look()
            time.sleep(self.TICK_S)
        return True

    def _interrupt(self, *_: object) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def begin(self) -> None:
        """Wait until there is something to break."""

    def keep_up(self, now: float) -> None:
        """Start what is not there."""

    def attack(self, now: float) -> None:
        """Kill one process."""

    def tend(self) -> None:
        """Keep the show alive while its processes end."""

    def look(self, now: bool = False) -> bool:
        """Draw the scene, now and then or `now`. Whether there was anything to see."""
        return False
