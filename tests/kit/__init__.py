"""Parts that tests are made of: worlds, models, judges, storms and programs; no tests.

It has a folder per layer. Some modules are also programs that run in their own process (`module_command`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
"""The checkout."""
KIT = ROOT / "tests" / "kit"

# Programs of the tests, and Spark's own Python processes, find `tests` from any directory.
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
)


def module_command(file: str | Path) -> list[str]:
    """Return the command that runs a file of the tests as a module: `module_command(__file__)`."""
    module = Path(file).resolve().relative_to(ROOT).with_suffix("")
    return [sys.executable, "-m", ".".join(module.parts)]
