"""Ctrl-C while the command starts: no traceback, and the exit status 130."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.kit import ROOT

START = """
import os, signal, sys

class Interrupt:
    def find_spec(name, *_):
        if name == "{at}":
            sys.meta_path.remove(Interrupt)
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
from {module} import {name}
sys.argv[1:] = ["topic", "ls", "--data", "nowhere"]
sys.exit({name}())
"""
"""The script that an installer writes, with an interrupt at the import of a module."""


@pytest.mark.parametrize("module", ["holdfast", "holdfast._core", "argparse", "holdfast.cli.topic"])
def test_an_interrupt_while_it_loads_is_quiet(module: str, tmp_path: Path) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    package, _, name = scripts["holdfast"].partition(":")
    code = START.format(module=package, name=name, at=module)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
