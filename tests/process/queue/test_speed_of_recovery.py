"""Survivors continue soon after a SIGKILL, about when a plain program notices the death."""

from __future__ import annotations

import json
import subprocess

from tests.kit import KIT, module_command
from tests.kit.slices import pick

TIMES = 20
"""Both ask every 0.5 ms; the survivor has to recover, too."""


def test_survivors_go_on_soon() -> None:
    # In a process without threads, which may fork at will.
    rounds = pick(test=9, nightly=40)
    command = [*module_command(KIT / "queue/recovery_speed.py"), "--compare", f"--rounds={rounds}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    medians = json.loads(done.stdout)
    assert len(medians) == 3
    for name, (returned, noticed) in medians.items():
        assert returned < TIMES * noticed, (name, returned, noticed)
