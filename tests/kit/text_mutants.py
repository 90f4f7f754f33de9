"""Run tests with a mutant in a module of Python, in a child process.

The process has loaded pytest, so a mutant costs about a second. The child changes the text of one module when
it is imported. A list of mutants is a program of its own: `python -m tests.kit.service.python_mutants` prints
which were noticed.
"""

from __future__ import annotations

import importlib.machinery
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit import ROOT, module_command
from tests.kit.native import Mutant, patched

OPTIONS = ("-q", "-x", "-n0", "-p", "no:cacheprovider", "--no-header")
HANGS_S, PATIENT_S = 4, 60
"""The time limit of a test with a mutant, and without one."""


def change(mutant: Mutant) -> None:
    """Let an import of the mutant's module get the changed text."""
    path = str(ROOT / mutant.file)
    text = patched(Path(path).read_text(), mutant)
    code = importlib.machinery.SourceFileLoader.get_code

    def changed(self: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        return compile(text, path, "exec") if self.path == path else code(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = changed  # type: ignore[method-assign,assignment]


def noticed(mutant: Mutant | None, tests: Sequence[str], hangs_s: int = HANGS_S) -> bool:
    """Return whether tests fail with this mutant in force, in a child of this process."""
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            if mutant is not None:
                change(mutant)
            status = int(pytest.main([*OPTIONS, f"--timeout={hangs_s if mutant else PATIENT_S}", *tests]))
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1) or code < 0, f"{mutant and mutant.name}: pytest ended with {code}"
    return code != 0


def run(program: str, mutants: Sequence[Mutant]) -> dict[str, bool]:
    """Run mutants of a program in a process of their own; return which were noticed."""
    command = [*module_command(program), *(mutant.name for mutant in mutants)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    found: dict[str, bool] = json.loads(done.stdout)
    return found


def main(known: Sequence[Mutant], hangs_s: int = HANGS_S) -> int:
    """Run the mutants that the command line names, or all; print which were noticed.

    The empty name stands for the tests without a mutant.
    """
    assert "holdfast" not in sys.modules
    mutants = [mutant for mutant in known if mutant.name in (sys.argv[1:] or [mutant.name])]
    found = {"": noticed(None, sorted({mutant.program for mutant in mutants}))}
    found |= {mutant.name: noticed(mutant, [mutant.program], hangs_s) for mutant in mutants}
    print(json.dumps(found))
    return 0
