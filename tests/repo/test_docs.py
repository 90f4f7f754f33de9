"""Check the pages: links have targets, examples run, the site builds."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.broker import BrokerOptions, Policies
from holdfast.broker.events import kinds
from holdfast.broker.limit_options import LIMIT_OPTIONS
from holdfast.broker.policy_options import standing_in
from tests.kit import ROOT, made_pages
from tests.kit.pages import python_blocks
from tests.kit.server import path_pages

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))


def run_example(runtime_dir: Path, *arguments: str) -> str:
    environment = os.environ | {"HOLDFAST_RUNTIME_DIR": str(runtime_dir)}
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(runtime_dir.iterdir()), "the example leaves a segment behind"
    return done.stdout


def test_example_of_the_readme(tmp_path: Path) -> None:
    """Its block for Spark: tests/spark/test_readme.py."""
    queue, broker, _ = python_blocks(ROOT / "README.md")
    assert len(queue.splitlines()) <= 12
    printed = run_example(tmp_path, "-c", queue).strip()
    assert f"prints `{printed}`" in (ROOT / "README.md").read_text()
    data = tmp_path.parent / f"{tmp_path.name}-data"
    printed = run_example(tmp_path, "-c", broker.replace("data/", str(data))).strip()
    assert f"# {printed}" in broker


def test_example_of_the_first_page(tmp_path: Path) -> None:
    example, _ = python_blocks(ROOT / "docs/index.md")
    assert run_example(tmp_path, "-c", example).splitlines() == [
        "b'two coffees'",
        "[b'one tea', b'one cake']",
    ]


def test_examples_of_the_channel(tmp_path: Path) -> None:
    printed = [
        run_example(tmp_path, "-c", each).strip() for each in python_blocks(ROOT / "docs/guide/channel.md")
    ]
    assert printed == ["b'a frame' 0", "7.0 0", "1"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_example_program(example: Path, tmp_path: Path) -> None:
    assert run_example(tmp_path, str(example))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_pages_is_python(page: Path) -> None:
    for block in python_blocks(page):
        compile(block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", made_pages.PAGES)
def test_parts_that_are_made_from_the_code(page: str) -> None:
    text = (ROOT / page).read_text()
    assert text == made_pages.renewed(page, text), "run python -m tests.kit.made_pages"
    name = next(iter(made_pages.PAGES[page]))
    other = text.replace(f"<!-- {name} end -->", f"not of the code\n<!-- {name} end -->")
    assert other != text
    assert made_pages.renewed(page, other) == text


def test_every_policy_has_a_row() -> None:
    """With its levels, options of commands that exist, and paths that are served."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (ROOT / "docs/guide/policies.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    named = {row[0].strip("`"): row[1:] for row in rows}
    assert set(named) == set(Policies.__struct_fields__)
    stands_in = standing_in(BrokerOptions(inactive_topic_s=5.0)) | dict.fromkeys(LIMIT_OPTIONS)
    stands_in |= dict.fromkeys(("unacked_max", "backlog_bytes_action", "backlog_age_action"))
    assert {name for name, row in named.items() if "broker" in row[0]} == set(stands_in)
    options = {
        word for line in made_pages.command_tables().splitlines() for word in re.findall(r"--[a-z-]+", line)
    }
    served = set(re.findall(r"(?:TOPIC|NAMESPACE)/\w+", path_pages.served()))
    for name, (_, _, _, command, path) in named.items():
        assert set(re.findall(r"--[a-z-]+", command)) <= options, name
        assert command, f"no command sets {name}"
        paths = set(re.findall(r"(?:TOPIC|NAMESPACE)/\w+", path))
        assert paths <= served, name
        assert paths or path.startswith("the same"), name


def test_every_kind_of_event_has_a_row() -> None:
    rows = re.findall(
        r"^\| ([\d–, ]+) \|(.*)$", (ROOT / "docs/internals/events.md").read_text(), re.MULTILINE
    )
    known = kinds()
    for numbers, row in rows:
        first, last = re.fullmatch(r"(\d+).*?(\d*)", numbers).groups()  # type: ignore[union-attr]
        covered = [each for each in known if int(first) <= each <= int(last or first)]
        names = {known[each].__name__ for each in covered}
        assert names <= {*re.findall(r"`(\w+)`", row)}, numbers
        known = {each: kind for each, kind in known.items() if each not in covered}
    assert not known, "kinds without a row in docs/internals/events.md"


def build_site(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: it hides the warnings from --strict, too.
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=root,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_site_builds(tmp_path: Path) -> None:
    done = build_site(ROOT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "index.html").exists()


def test_site_with_a_broken_link_does_not_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("[nowhere](nowhere.md)")
    (tmp_path / "mkdocs.yml").write_text("site_name: broken\n")
    done = build_site(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
