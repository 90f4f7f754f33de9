"""Test the demo without Spark: end, picture, and parts that are killed and restarted."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast.demo.processes import Part
from holdfast.demo.stage import HIDE, SHOW
from tests.kit import KIT, module_command, processes

until = partial(processes.until, timeout=60.0)


def stub(tmp_path: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    few = ("--rate", "200", "--sensors", "1", "--gateways", "1", "--consumers", "1", "--to", str(tmp_path))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    environment = {**os.environ, "COLUMNS": "100", "LINES": "30"}
    return subprocess.Popen(
        [*module_command(KIT / "spark/rig_stub.py"), *arguments, *few], text=True, env=environment, **pipes
    )


def of_the_run(tmp_path: Path) -> list[str]:
    """The processes that belong to a run in this directory: by what their environment says."""
    mark = f"HOLDFAST_RUNTIME_DIR={tmp_path}/".encode()
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (each / "environ").read_bytes() and "State:\tZ" not in (each / "status").read_text():
                found.append((each / "cmdline").read_text().replace("\0", " "))
    return found


def running(tmp_path: Path) -> None:
    """Until all of them run, and something was confirmed."""
    until(lambda: any(path.stat().st_size for path in tmp_path.glob("*/records/*.sent")))
    until(lambda: list(tmp_path.glob("*/spark.batch")))
    until(lambda: len(of_the_run(tmp_path)) >= 7)


def test_nobody_is_killed_without_chaos_and_everything_is_kept(tmp_path: Path) -> None:
    with stub(tmp_path, "demo", "--minutes", "0.03", "--no-chaos", "--keep", "--json") as shown:
        out, err = shown.communicate(timeout=240)
    assert (shown.returncode, err) == (0, "")
    told = json.loads(out)
    assert (told["good"], sum(told["killed"].values()), told["faults"]) == (True, 0, [])
    assert told["confirmed"] > 0
    frames = told["frames"]
    assert frames["acquired"] == sum(frames[end] for end in ("analysed", "displaced", "left"))
    assert frames["analysed"] > 0
    assert (frames["lost"], frames["lost_max"], frames["leaked"]) == (0, 0, 0)
    levels = told["levels"]
    assert levels["sent"] == levels["stored"] + levels["missed"] + levels["away"]
    assert levels["stored"] > 0
    assert (levels["twice"], levels["gaps"], levels["gaps_max"]) == (0, 0, 0)
    kept = {path.name for path in Path(told["directory"]).iterdir()}
    assert {"data", "records", "logs", "report.html", "account.json"} <= kept
    until(lambda: of_the_run(tmp_path) == [])


def test_ctrl_c_ends_it_early_with_its_account(tmp_path: Path) -> None:
    with stub(tmp_path, "demo", "--minutes", "10") as shown:
        running(tmp_path)
        until(lambda: "  running  " in str(shown.stdout and shown.stdout.readline()))
        shown.send_signal(signal.SIGINT)
        out, err = shown.communicate(timeout=240)
    assert (shown.returncode, err) == (0, ""), out
    assert "interrupted: coming to rest" in out
    assert "every message is accounted for" in out
    until(lambda: of_the_run(tmp_path) == [])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_it_ends_all_of_it(tmp_path: Path, number: signal.Signals) -> None:
    with stub(tmp_path, "demo", "--minutes", "10", stdout=subprocess.DEVNULL) as shown:
        running(tmp_path)
        shown.send_signal(number)
        _, err = shown.communicate(timeout=240)
    assert err == ""
    until(lambda: of_the_run(tmp_path) == [])
    if number != signal.SIGKILL:
        assert shown.returncode == 128 + number
        assert list(tmp_path.iterdir()) == []


def test_an_audit_that_does_not_end_is_a_fault(tmp_path: Path) -> None:
    with stub(tmp_path, "--hang", "demo", "--minutes", "0.01", "--json") as shown:
        out, err = shown.communicate(timeout=240)
    assert (shown.returncode, err) == (1, "")
    told = json.loads(out)
    assert told["faults"] == ["the audit did not end within 0 s"]
    assert Path(told["directory"]).is_dir()
    until(lambda: of_the_run(tmp_path) == [])


def test_the_picture_is_drawn_in_a_terminal(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with stub(tmp_path, "demo", "--minutes", "0.03", stdout=theirs) as shown:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as screen:  # EIO: it is over
            while piece := screen.read(1 << 16):
                drawn += piece
        assert shown.wait(240) == 0
    text = drawn.decode()
    assert text.count(HIDE) == 1
    assert text.rindex(SHOW) > text.rindex(HIDE)
    for words in ("running, ", "● broker", "● gateway-1", "coming to rest", "counting", "the account"):
        assert words in text, words
    assert all(len(re.sub(r"\033\[\S*?[A-Za-z]", "", line)) < 140 for line in text.splitlines())


def part(tmp_path: Path, program: str) -> Part:
    return Part("sensor", "s", lambda life: [sys.executable, "-c", program, str(life)], tmp_path / "log", {})


def test_a_part_is_killed_and_comes_back(tmp_path: Path) -> None:
    each = part(tmp_path, "import sys, time; print('life', sys.argv[1], flush=True); time.sleep(600)")
    each.start()
    until(lambda: "life 1" in each.log.read_text())
    each.kill()
    assert (each.alive, each.state, each.kills, each.failed()) == (False, "killed", 1, None)
    each.start()
    until(lambda: "life 2" in each.log.read_text())
    assert each.state == "runs"
    each.ask()
    until(lambda: not each.alive)
    assert each.failed() is None, "it was asked to"
    each.end()


def test_a_part_that_fails_by_itself_is_a_fault(tmp_path: Path) -> None:
    each = part(tmp_path, "raise SystemExit('the sensor is not plugged in')")
    each.start()
    until(lambda: not each.alive)
    assert "ended with status 1: the sensor is not plugged in" in str(each.failed())


def test_nobody_kills_who_has_done_nothing_yet(tmp_path: Path) -> None:
    each = part(tmp_path, "import time; time.sleep(600)")
    each.sign, each.tame = tmp_path / "sign", 0.0
    each.sign.touch()  # of a life before
    each.start()
    assert not each.ripe(time.monotonic())
    each.sign.touch()
    assert each.ripe(time.monotonic())
    each.tame = 1e9
    assert not each.ripe(time.monotonic())
    each.end()
    assert not each.ripe(time.monotonic())
