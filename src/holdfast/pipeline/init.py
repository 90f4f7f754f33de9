"""Write the project of `holdfast pipeline init DIR`, copied from `template/`."""

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
"""File name → its folder, the same in the template and in the project."""
_HERE_ONLY = "  # type: ignore[import-not-found]"
"""Needed only here: in the project its modules can be imported."""
_PROJECT = "file://PROJECT/"


def write_project(directory: str | Path) -> list[str]:
    """Write the project and return the names of its files.

    Raises:
        Exists: the directory is not empty.
        NotFound: its parent directory does not exist.
    """
    target = Path(directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Exists(f"{target} exists and is not empty; name another directory")
    if not target.absolute().parent.is_dir():
        raise NotFound(f"the directory {target.absolute().parent} does not exist; create it first")
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
        for each in target.iterdir() if there else ():  # it was empty before
            if each.is_dir():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)
        if not there:
            shutil.rmtree(target, ignore_errors=True)
        raise
    return [str(path) for path in files]
