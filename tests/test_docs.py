"""The pages are true where a machine can tell: links lead somewhere, examples run, the site builds."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def run_example(code: str, runtime_dir: Path) -> str:
    environment = os.environ | {"HOLDFAST_RUNTIME_DIR": str(runtime_dir)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not list(runtime_dir.iterdir()), "the example leaves a segment behind"
    return done.stdout


def test_example_of_the_readme(tmp_path: Path) -> None:
    (example,) = python_blocks(ROOT / "README.md")
    assert len(example.splitlines()) <= 12
    printed = run_example(example, tmp_path).strip()
    assert f"prints `{printed}`" in (ROOT / "README.md").read_text()


def test_example_of_the_first_page(tmp_path: Path) -> None:
    (example,) = python_blocks(ROOT / "docs/index.md")
    assert run_example(example, tmp_path).splitlines() == ["b'two coffees'", "[b'one tea', b'one cake']"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_pages_is_python(page: Path) -> None:
    for block in python_blocks(page):
        compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_site_builds(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path / "site"),
        ],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site/index.html").exists()
