"""An extension with all mutants of the queue, for storms on a broken queue.

The bindings with the queue's code are compiled against the changed headers, and linked with the objects of
the installed extension. HOLDFAST_MUTANT chooses a mutant (kit/native.py). A `sitecustomize` makes Python
import this extension instead of the installed one.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sysconfig
from pathlib import Path

from tests.kit import ROOT, native
from tests.kit.queue.mutants import MUTANTS

CHANGED = ("inspect", "message", "module", "queue", "verdicts")
"""The bindings that contain code of the queue."""
CUSTOMIZE = """
import importlib.machinery
import importlib.util
import sys


class Broken:
    def find_spec(self, name, path=None, target=None):
        if name != "holdfast._core":
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, {file!r})
        return importlib.util.spec_from_file_location(name, {file!r}, loader=loader)


sys.meta_path.insert(0, Broken())
"""


def build(folder: Path) -> dict[str, int]:
    """Build it into a folder for PYTHONPATH; return the number that chooses each mutant."""
    installed = next((ROOT / "build").glob(f"{'cp' + sysconfig.get_config_var('py_version_nodot')}*"))
    commands = json.loads((installed / "compile_commands.json").read_text())
    sources = folder / "sources"
    sources.mkdir()
    numbers = native.with_all(MUTANTS, sources)
    objects = []
    for entry in commands:
        path = Path(entry["file"])
        made = Path(entry["directory"]) / entry["output"]
        if path.is_relative_to(ROOT / "native/bindings"):
            if path.stem in CHANGED:
                made = folder / f"{path.stem}.o"
                command = [word for word in shlex.split(entry["command"]) if word != "-Werror"]
                at = command.index("-o")
                command[at + 1] = str(made)
                include = ["-O1", "-w", "-include", "holdfast/mutant_switch.hpp", f"-I{sources}"]
                done = subprocess.run(
                    [command[0], *include, *command[1:], "-O1"], capture_output=True, text=True
                )
                assert done.returncode == 0, done.stderr
            objects.append(str(made))
    file = folder / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    library = str(installed / "libnanobind-static.a")
    subprocess.run([native.compiler(), "-shared", "-o", str(file), *objects, library, "-pthread"], check=True)
    (folder / "sitecustomize.py").write_text(CUSTOMIZE.format(file=str(file)))
    return numbers
