"""The files in deploy/ are true where a machine can tell: the unit, the container file."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from command import COMMAND
from holdfast.wire.config import Config
from holdfast.wire.settings import FILE_VARIABLE, leaves

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit() -> None:
    unit = DEPLOY / "holdfast.service"
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60, check=False
    )
    assert "holdfast.service" not in done.stderr, done.stderr


def test_the_container_file_names_what_there_is() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    assert set(re.findall(r"HOLDFAST_[A-Z_]+", text)) <= KNOWN
    copied = [
        name for line in re.findall(r"^COPY (?!--)(.*)", text, re.MULTILINE) for name in line.split()[:-1]
    ]
    assert copied
    assert all((DEPLOY.parent / name).exists() for name in copied)
    assert re.findall(r"^EXPOSE (.*)", text, re.MULTILINE) == [
        f"{Config().listen.port} {Config().listen.http_port}"
    ]
    assert 'ENTRYPOINT ["holdfast", "serve"]' in text
