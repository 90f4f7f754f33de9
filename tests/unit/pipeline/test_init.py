"""The project that `pipeline init` writes: all of it or nothing, and its declarations are sound."""

from __future__ import annotations

import ast
import errno
import re
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Exists, NotFound
from holdfast.pipeline.init import FILES, TEMPLATE, write_project


def test_the_declared_pipeline_calls_the_functions(tmp_path: Path) -> None:
    """All functions and files that it names exist."""
    write_project(tmp_path)
    functions = {
        node.name
        for node in ast.parse((tmp_path / "measurements.py").read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    spec = (tmp_path / "declarative/spark-pipeline.yml").read_text()
    (pattern,) = re.findall(r"include: (\S+)", spec)
    assert f"storage: file://{tmp_path}/declarative/storage" in spec
    (source,) = (tmp_path / "declarative").glob(f"{pattern}/*.py")
    called = {
        node.attr
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "functions"
    }
    assert called <= functions
    assert called
    assert not any("type: ignore" in path.read_text() for path in tmp_path.rglob("*.py"))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(Exists, match="not empty"):
        write_project(tmp_path)
    with pytest.raises(Exists, match="not empty"):
        write_project(tmp_path / "mine")
    with pytest.raises(NotFound, match="create it first"):
        write_project(tmp_path / "no/such")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine"]
    assert TEMPLATE.is_dir()


@pytest.mark.parametrize("there", [True, False])
def test_half_a_project_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    real, written = Path.write_text, list[Path]()

    def full(self: Path, *given: Any, **more: Any) -> int:
        written.append(self)
        if len(written) == len(FILES):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, *given, **more)

    project = tmp_path / "project"
    if there:
        project.mkdir()
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_project(project)
    assert project.exists() == there
    assert not list(tmp_path.rglob("*.*"))
    monkeypatch.undo()
    write_project(project)
    assert all(path.exists() for path in written)
