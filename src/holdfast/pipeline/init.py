"""`holdfast pipeline init DIR`: a project that a user edits, copied from `template/`."""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast.errors import Exists, NotFound

TEMPLATE = Path(__file__).parent / "template"
FILES = {
    "README.md": ".",
    "measurements.py": ".",
    "test_measurements.py": ".",
    "spark-pipeline.yml": "declarative",
    "measurements_tables.py": "declarative/transformations",
}
"""By name: the folder it stands in, here and there."""
_HERE_ONLY = "  # type: ignore[import-not-found]"
"""In this repository the project's modules are no modules; in the project they are."""
_PROJECT = "file://PROJECT/"


def write_project(directory: str | Path) -> list[str]:
    """Write the project; which files it has.

    Raises:
        Exists: there is something in the directory.
    """
    target = Path(directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Exists(f"{target} is there, and not empty; name another directory")
    if not target.absolute().parent.is_dir():
        raise NotFound(f"there is no directory {target.absolute().parent}; make it first")
    files = {
        Path(folder) / name: (TEMPLATE / folder / name)
        .read_text(encoding="utf-8")
        .replace(_HERE_ONLY, "")
        .replace(_PROJECT, f"file://{target.absolute()}/")
        for name, folder in FILES.items()
    }
    there = target.exists()
    try:
        for path, text in files.items():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_text(text, encoding="utf-8")
    except BaseException:
        for each in target.iterdir() if there else ():  # it was empty: all of it is ours
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)
        if not there:
            shutil.rmtree(target, ignore_errors=True)
        raise
    return [str(path) for path in files]
