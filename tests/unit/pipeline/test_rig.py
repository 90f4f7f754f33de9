"""The demo: the rig runs, its parts are killed and come back, and its account is honest."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import demo, main
from holdfast.cli.parsing import Usage
from holdfast.pipeline.accounting import ProducerAudit
from holdfast.pipeline.audit import AuditReport
from holdfast.rig import closing
from holdfast.rig.closing import Account
from holdfast.rig.parts import Part
from holdfast.rig.records import Record, confirmed
from holdfast.rig.settings import CALIBRATED, TOPIC, Places, Settings
from holdfast.rig.show import Outcome, Scene, Show, tidy
from holdfast.rig.view import HIDE, SHOW, Quiet, account_lines
from tests.kit import KIT, module_command

COMMAND = str(Path(sys.executable).parent / "holdfast")


@pytest.mark.timeout(1500)
def test_everything_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    """Run after run, until the broker and Spark were among the killed. As a rule the first does it; on a busy
    machine it may end before."""
    killed = dict[str, int]()
    for number in range(4):
        told = demonstrated(tmp_path / str(number))
        killed = {kind: killed.get(kind, 0) + count for kind, count in told["killed"].items()}
        if killed["broker"] and killed["spark"] and sum(killed.values()) >= 5:
            return
    pytest.fail(f"in four runs these were killed: {killed}")


def demonstrated(tmp_path: Path) -> dict[str, Any]:
    """A run in which nothing was lost."""
    tmp_path.mkdir()
    done = subprocess.run(
        [COMMAND, "demo", "--minutes", "0.12", "--rate", "1000", "--json", "--to", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=580,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["good"] is True
    assert told["faults"] == []
    assert [told[name] for name in ("lost", "duplicated", "out_of_order", "strange")] == [0, 0, 0, 0]
    assert told["confirmed"] > 1000
    assert told["stored"] == told["confirmed"] + told["unconfirmed"] == told["calibrated"]
    assert told["archived"] == told["stored"] + told["calibrated"]
    page = Path(told["report"]).read_text()
    assert "<svg" in page or "data:image" in page
    assert sorted(path.name for path in Path(told["report"]).parent.iterdir()) == [
        "account.json",
        "report.html",
    ]
    return told


# -- how it ends, without Spark -----------------------------------------------------------------------


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
    until(lambda: len(of_the_run(tmp_path)) >= 6)


def test_nobody_is_killed_without_chaos_and_everything_is_kept(tmp_path: Path) -> None:
    with stub(tmp_path, "demo", "--minutes", "0.03", "--no-chaos", "--keep", "--json") as shown:
        out, err = shown.communicate(timeout=240)
    assert (shown.returncode, err) == (0, "")
    told = json.loads(out)
    assert (told["good"], sum(told["killed"].values()), told["faults"]) == (True, 0, [])
    assert told["confirmed"] > 0
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


class Victim(Part):
    def ripe(self, now: float) -> bool:
        return True

    def kill(self) -> None:
        self.kills += 1


def test_every_kind_is_struck_before_one_is_struck_again(tmp_path: Path) -> None:
    for _ in range(20):
        show = Show(Settings(), Places(tmp_path), Quiet())
        show.scene.parts = [
            Victim(part.kind, part.name, part.command, part.log, {}) for part in show.scene.parts
        ]
        for _ in range(5):
            show._attack(0.0)
        assert show.scene.kills == dict.fromkeys(("broker", "spark", "sensor", "gateway", "consumer"), 1)


def test_a_demo_without_messages_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["demo", "--rate", "0"])
    assert ended.value.code == 2
    assert "'0' is not a number above 0" in capsys.readouterr().err


# -- records ------------------------------------------------------------------------------------------


def test_a_record_that_death_cut_short_does_not_count(tmp_path: Path) -> None:
    record = Record(tmp_path, "sensor-1.1")
    record.confirmed(4)
    record.confirmed(9)
    with (tmp_path / "sensor-1.1.sent").open("ab") as file:
        file.write(b"\x20\0\0")
    Record(tmp_path, "sensor-2.1")
    assert confirmed(tmp_path) == {"sensor-1.1": 10, "sensor-2.1": 0}


# -- parts --------------------------------------------------------------------------------------------


def part(tmp_path: Path, program: str) -> Part:
    return Part("sensor", "s", lambda life: [sys.executable, "-c", program, str(life)], tmp_path / "log", {})


def until(done: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


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


def test_nothing_stays_but_the_report_and_the_account(tmp_path: Path) -> None:
    places = Places(tmp_path)
    for folder in (places.data, places.archive, places.records):
        folder.mkdir()
        (folder / "file").touch()
    for file in (places.report, places.account, places.sign):
        file.touch()
    tidy(places)
    assert sorted(tmp_path.iterdir()) == sorted([places.report, places.account])


# -- the account --------------------------------------------------------------------------------------


def audited(topic: str, messages: int, unconfirmed: int) -> ProducerAudit:
    return ProducerAudit(
        topic=topic,
        producer="sensor-1.1",
        messages=messages,
        distinct=messages,
        last=messages - 1,
        confirmed=messages - unconfirmed,
        lost=0,
        duplicated=0,
        out_of_order=0,
        unconfirmed=unconfirmed,
    )


def report(*producers: ProducerAudit) -> AuditReport:
    total = sum(each.messages for each in producers)
    return AuditReport(
        archived=0,
        live=total,
        messages=total,
        foreign=0,
        damaged=0,
        producers=list(producers),
        latency=[],
        step_s=1,
        series=[],
        histogram=[],
    )


def test_the_account_adds_up() -> None:
    both = report(audited(TOPIC, 10, 2), audited(CALIBRATED, 10, 2))
    account = closing.account(both, both, {"sensor-1.1": 8})
    assert account == Account(8, 2, 10, 10, 20, 0, 0, 0, 0)
    assert account.balanced
    # What is wrong in one of the two is wrong.
    late = dataclasses.replace(audited(TOPIC, 10, 2), out_of_order=1)
    for live, kept in ((report(late), both), (both, report(late))):
        assert closing.account(live, kept, {"sensor-1.1": 8}).out_of_order == 1
    assert closing.of_both(both, both).notes == ["The same audit of the archive, 20 rows of Parquet: sound."]
    assert not closing.of_both(both, report(late)).sound
    odd = dataclasses.replace(both, damaged=1, foreign=2)
    assert closing.account(odd, both, {"sensor-1.1": 8}).strange == 3


@pytest.mark.parametrize(
    "change",
    [
        {"lost": 1},
        {"duplicated": 1},
        {"out_of_order": 1},
        {"strange": 1},
        {"calibrated": 9},
        {"archived": 19},
        {"stored": 11},
        {"confirmed": 9},
    ],
)
def test_an_account_that_does_not_balance_is_noticed(change: dict[str, int], tmp_path: Path) -> None:
    account = dataclasses.replace(Account(8, 2, 10, 10, 20, 0, 0, 0, 0), **change)
    assert not account.balanced
    outcome = Outcome(account, Scene(Settings(), time.monotonic(), []), [], Places(tmp_path))
    assert not outcome.good
    assert account_lines(outcome)[-1].startswith("SOMETHING IS WRONG")


def test_a_fault_is_not_good_however_the_account_is(tmp_path: Path) -> None:
    account, scene = Account(8, 2, 10, 10, 20, 0, 0, 0, 0), Scene(Settings(), time.monotonic(), [])
    assert Outcome(account, scene, [], Places(tmp_path)).good
    outcome = Outcome(account, scene, ["sensor-1 ended"], Places(tmp_path))
    assert not outcome.good
    assert "  fault: sensor-1 ended" in account_lines(outcome)
    assert not Outcome(None, scene, [], Places(tmp_path)).good


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Usage, match=r"'holdfast\[server\]' 'holdfast\[spark\]' 'pulsar-client'"):
        demo.demo(argparse.Namespace())
