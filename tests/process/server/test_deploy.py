"""Check the files in deploy/ as far as a machine can: unit and container file."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.server.config import Config
from holdfast.server.settings import FILE_VARIABLE, leaves
from tests.kit import ROOT
from tests.kit.command import COMMAND, run_tool
from tests.kit.served import served

DEPLOY = ROOT / "deploy"
KNOWN = {leaf.variable for leaf in leaves().values()} | {FILE_VARIABLE, "HOLDFAST_RUNTIME_DIR"}


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "holdfast.service").read_text().splitlines():
        if re.match(r"\w+=", line):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_the_server(tmp_path: Path) -> None:
    """With the very arguments and variables of the unit, but for its places."""
    [start] = unit()["ExecStart"]
    given = dict(each.split("=", 1) for each in unit()["Environment"])
    assert set(given) <= KNOWN
    (tmp_path / "holdfast.toml").write_text((DEPLOY / "holdfast.toml").read_text())
    given["HOLDFAST_CONFIG"] = str(tmp_path / "holdfast.toml")
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*shlex.split(start), "--print-config"],
        env=os.environ | given | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert 'data = "%S/holdfast"  # $HOLDFAST_DATA' in done.stdout


def test_the_unit_waits_longer_than_the_server() -> None:
    assert int(unit()["TimeoutStopSec"][0]) > 2 * Config().limits.shutdown_s
    assert unit()["RestartPreventExitStatus"] == ["2"]
    assert unit()["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


@pytest.mark.nightly  # needs systemd; in `make test` test_the_unit_starts_the_server runs what the unit says
def test_systemd_takes_the_unit() -> None:
    assert run_tool("systemd-analyze", "verify", DEPLOY / "holdfast.service") == (0, "")


@pytest.mark.nightly  # needs systemd; in `make test` test_the_unit_leaves_the_server_what_it_needs
def test_systemd_finds_it_well_guarded() -> None:
    """Of 100; network, its own user and the kernel's ordinary calls are left."""
    limit = ["security", "--offline=true", "--no-pager", "--threshold=15"]
    status, told = run_tool("systemd-analyze", *limit, DEPLOY / "holdfast.service")
    assert status == 0, told


def test_the_unit_leaves_the_server_what_it_needs() -> None:
    """Each was found out by starting it without."""
    assert set(unit()["RestrictAddressFamilies"][0].split()) == {"AF_INET", "AF_INET6", "AF_UNIX"}
    assert "ProcSubset" not in unit()  # /proc/sys/kernel/random/boot_id, for local ingest
    assert "RemoveIPC" not in unit()  # queues of other programs of the user
    assert unit()["SystemCallErrorNumber"] == [
        "EPERM"
    ]  # it asks for more open files, and takes no for an answer


# -- the container file --------------------------------------------------------------------------------

CONTAINER = (DEPLOY / "Containerfile").read_text()


def test_the_container_file_names_what_there_is() -> None:
    assert set(re.findall(r"HOLDFAST_[A-Z_]+", CONTAINER)) <= KNOWN
    assert all((DEPLOY.parent / name).exists() for name in copied())
    assert re.findall(r"^EXPOSE (.*)", CONTAINER, re.MULTILINE) == [
        f"{Config().listen.port} {Config().listen.http_port}"
    ]
    assert 'ENTRYPOINT ["holdfast", "serve"]' in CONTAINER


def copied() -> list[str]:
    lines = re.findall(r"^COPY (?!--)(.*)", CONTAINER, re.MULTILINE)
    found = [name for line in lines for name in line.split()[:-1]]
    assert found
    return found


def test_the_container_has_all_that_the_wheel_is_made_of() -> None:
    """The files that pyproject.toml and CMakeLists.txt name."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    cmake = (DEPLOY.parent / "CMakeLists.txt").read_text()
    named = [project["readme"], *project["license-files"], *re.findall(r"\b(?:native|src)/[\w./-]+", cmake)]
    assert len(named) > 3
    assert all(name.split("/")[0] in copied() for name in named), named


def test_the_containers_health_is_the_servers(tmp_path: Path) -> None:
    """The very command of HEALTHCHECK, at the port that the variable names."""
    (words,) = re.findall(r"HEALTHCHECK .*? CMD (\[.*?\])\n", CONTAINER.replace("\\\n", ""))
    program, *arguments = json.loads(words)
    assert program == "python"
    with served(tmp_path / "data", http=True) as server:
        variables = {"HOLDFAST_LISTEN_HTTP_PORT": str(server.ready["http_port"])}

        def check() -> int:
            return subprocess.run(
                [sys.executable, *arguments], env=os.environ | variables, capture_output=True, check=False
            ).returncode

        assert check() == 0
        server.end()
        assert check() != 0
    assert "--format docker" in CONTAINER  # else podman leaves it out
