"""Check the repository's tools: versions, the lock, and preparation of a bare machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import holdfast
from tests.kit import ROOT
from tests.kit.server import fuzz_wire
from tests.kit.tree import Tree

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()


def test_versions_agree() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert holdfast.__version__ == PROJECT["version"] == newest[1]


@pytest.mark.parametrize("extra", ["dev", "bench", "server", "spark"])
def test_lock_pins_the_extra(extra: str) -> None:
    pinned = set(re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE))
    wanted = {
        re.split(r"[<>=;\s\[]", requirement)[0] for requirement in PROJECT["optional-dependencies"][extra]
    }
    assert wanted <= pinned, "make lock"


def test_lock_has_hashes_and_no_addresses() -> None:
    assert "://" not in LOCK
    entries = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(entries) > 20
    assert all("--hash=sha256:" in entry for entry in entries)


def test_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    steps_of_test = {"pytest", "explore-slice", "FORCE"}
    assert set(re.findall(r"make ([\w-]+)", shown)) == set(phony[1].split()) - steps_of_test


# -- subjects of commits ------------------------------------------------------------------------------

SUBJECTS_SINCE = "c5e85a4d50b4"
"""The first commit after which CONTRIBUTING's rule for subjects is checked."""
SUBJECT = re.compile(r"[a-z][\w./, -]*: [^\W\d_].*")
SUBJECT_MAX = 72
PUSHED_TOO_LONG = "docs: say limits plainly, with the settings' names; drop unmeasured figures"
"""The subject of cb19907, of 75 characters, pushed in spite of the check. Main is never rewritten."""


def bad_subjects(subjects: list[str]) -> list[str]:
    """Return those that are not `area: imperative`, or too long."""
    return [each for each in subjects if len(each) > SUBJECT_MAX or not SUBJECT.fullmatch(each)]


def test_subjects_of_commits() -> None:
    """An archive without git, or a shallow clone, has no commits to check."""
    asked = ["git", "log", "--no-merges", "--format=%s", f"{SUBJECTS_SINCE}..HEAD"]
    has_git = (ROOT / ".git").exists() and shutil.which("git")
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True) if has_git else None
    subjects = told.stdout.splitlines() if told is not None and told.returncode == 0 else []
    assert not set(bad_subjects(subjects)) - {PUSHED_TOO_LONG}


def test_bad_subjects_are_found() -> None:
    good = ["source: treat ledgers absent from a newer table as trimmed", "docs, tests: fix a link"]
    bad = ["Fix it", "queue:", "queue: ", "Queue: fix it", f"queue: {'say more ' * 8}", "fix the queue"]
    assert bad_subjects(good + bad) == bad


# -- .ci/prepare on machines that lack something ------------------------------------------------------


def prepare(machine: Path, *, uid: int, lacks: str, apt: str = "") -> subprocess.CompletedProcess[str]:
    """Run .ci/prepare with a Python that fails on the word `lacks` before apt-get."""
    tools = {
        "id": f"echo {uid}",
        "apt-get": f'echo "$@" >> {machine}/apt.log; {apt}',
        "fake-python": f'case "$2" in *{lacks}*) test -e {machine}/installed;; esac',
    }
    for name, script in tools.items():
        (machine / name).write_text(f"#!/bin/sh\n{script}\n")
        (machine / name).chmod(0o755)
    return subprocess.run(
        [ROOT / ".ci/prepare", "fake-python"],
        env=os.environ | {"PATH": f"{machine}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("lacks", "package"), [("ensurepip", "python3-venv"), ("Python.h", "python3-dev")])
def test_user_is_told_the_package(lacks: str, package: str, tmp_path: Path) -> None:
    done = prepare(tmp_path, uid=1000, lacks=lacks)
    assert done.returncode != 0
    assert f"apt-get install {package}" in done.stderr
    assert not (tmp_path / "apt.log").exists()


def test_root_gets_the_package_installed(tmp_path: Path) -> None:
    done = prepare(tmp_path, uid=0, lacks="ensurepip", apt=f"touch {tmp_path}/installed")
    assert done.returncode == 0, done.stderr
    updated, installed = (tmp_path / "apt.log").read_text().splitlines()
    assert updated.startswith("update")
    assert installed.endswith("python3-venv")


def test_an_installation_that_did_not_help_is_reported(tmp_path: Path) -> None:
    done = prepare(tmp_path, uid=0, lacks="ensurepip")
    assert done.returncode != 0
    assert "still missing" in done.stderr


def test_old_python_is_refused(tmp_path: Path) -> None:
    done = prepare(tmp_path, uid=0, lacks="version_info")
    assert done.returncode != 0
    assert "too old" in done.stderr


# -- what a shell, an interruption or a bare machine must not change ----------------------------------


def test_an_environment_whose_making_was_interrupted_is_made_again(tmp_path: Path) -> None:
    """Killed before pip was installed: Python exists, and every later `make` failed."""
    python, folder = tmp_path / "python", tmp_path / "venv"
    python.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/log\n'
        f'[ "$2" = venv ] || exit 0\ncd {folder}/bin\n'
        'for each in python pip; do echo "#!/bin/sh" > $each; chmod +x $each; done\n'
    )
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").write_text("#!/bin/sh\nexit 1\n")
    for each in (python, folder / "bin/python"):
        each.chmod(0o755)
    done = subprocess.run([".ci/environment", python, folder], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"-m venv --clear {folder}" in (tmp_path / "log").read_text().splitlines()
    assert (folder / ".locked").exists()


def test_a_shell_does_not_choose_tests_or_code(tmp_path: Path) -> None:
    """Each of these has made `make check` pass without its tests, or on another checkout."""
    given = {
        "PYTEST_ADDOPTS": "-k nothing",
        "PYTEST_PLUGINS": "x",
        "PYTHONOPTIMIZE": "1",
        "PYTHONPATH": "elsewhere",
        "PYTHONHOME": "elsewhere",
        "PYTHONWARNINGS": "ignore",
    }
    (tmp_path / "asked.mk").write_text("asked:\n\t@env\n")
    command = ["make", "--no-print-directory", "-f", "Makefile", "-f", str(tmp_path / "asked.mk"), "asked"]
    told = subprocess.run(
        command, cwd=ROOT, env=os.environ | given, capture_output=True, text=True, check=True
    ).stdout
    assert {line.partition("=")[0] for line in told.splitlines()} & set(given) == set()


def test_a_checkout_without_git_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "a.py" in Tree(tmp_path).paths()


# -- .ci/nightly and what it needs --------------------------------------------------------------------


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_night_goes_on_after_a_failure_and_tells_of_it(tmp_path: Path) -> None:
    """Here every command is noted, and not done."""
    for each in (".ci/nightly-tools", ".venv/bin/python"):
        script(tmp_path / each, "true")
    failing = 'case "$*" in *lint|*--broker*) false;; esac'
    script(tmp_path / "make", f'echo "$@" >> {tmp_path}/made; {failing}')
    shutil.copy(ROOT / ".ci/nightly", tmp_path / ".ci")
    named = {"HOLDFAST_MINUTES": "2", "MAKE": str(tmp_path / "make")}
    done = subprocess.run([tmp_path / ".ci/nightly"], env=os.environ | named, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.endswith("== failed\n  lint\n  torture --broker\n")
    made = (tmp_path / "made").read_text()
    assert made.count("--minutes 2\n") == 7
    assert "fuzz ARGS=--random 40000 --scribble 2\n" in made
    assert "fuzz-wire ARGS=--seconds 120\n" in made
    assert made.endswith(" declarative\n")


def test_any_clang_with_libfuzzer_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest that has it, however new; the script that installs one sees it, too."""
    script(tmp_path / "clang++", "false")
    script(tmp_path / "clang++-9", "true")
    script(tmp_path / "clang++-57", "true")
    monkeypatch.delenv("CXX", raising=False)
    for tool in ("promtool", "systemd-analyze", "g++", "apt-get"):
        script(tmp_path / tool, "true" if tool != "apt-get" else f"touch {tmp_path}/installed")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert fuzz_wire.compiler() == str(tmp_path / "clang++-57")
    subprocess.run([ROOT / ".ci/nightly-tools"], check=True)
    assert not (tmp_path / "installed").exists()
