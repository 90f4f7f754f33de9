"""Test the demo: its parts are killed and restarted, and its account is exact."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
from pathlib import Path

import pytest

from holdfast.cli import demo, main
from holdfast.cli.parsing import Usage
from holdfast.demo import closing
from holdfast.demo.closing import Account
from holdfast.demo.processes import Part
from holdfast.demo.records import Record, confirmed
from holdfast.demo.settings import CALIBRATED, TOPIC, Places, Settings
from holdfast.demo.show import Outcome, Scene, Show, tidy
from holdfast.demo.stage import quiet
from holdfast.demo.view import account_lines
from holdfast.pipeline.audit import AuditReport
from holdfast.pipeline.jobs.audit_counts import ProducerAudit


class Victim(Part):
    def ripe(self, now: float) -> bool:
        return True

    def kill(self) -> None:
        self.kills += 1


def test_every_kind_is_struck_before_one_is_struck_again(tmp_path: Path) -> None:
    for _ in range(20):
        show = Show(Settings(), Places(tmp_path), quiet)
        show.scene.parts = [
            Victim(part.kind, part.name, part.command, part.log, {}) for part in show.scene.parts
        ]
        for _ in range(6):
            show.attack(0.0)
        assert show.scene.kills == dict.fromkeys(
            ("broker", "spark", "sensor", "analyser", "gateway", "consumer"), 1
        )


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
    # A fault in one of both is a fault.
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
    outcome = Outcome(account, Scene(Settings(), []), [], Places(tmp_path))
    assert not outcome.good
    assert account_lines(outcome)[-1].startswith("SOMETHING IS WRONG")


def test_a_fault_is_not_good_however_the_account_is(tmp_path: Path) -> None:
    account, scene = Account(8, 2, 10, 10, 20, 0, 0, 0, 0), Scene(Settings(), [])
    assert Outcome(account, scene, [], Places(tmp_path)).good
    outcome = Outcome(account, scene, ["sensor-1 ended"], Places(tmp_path))
    assert not outcome.good
    assert "  fault: sensor-1 ended" in account_lines(outcome)
    assert not Outcome(None, scene, [], Places(tmp_path)).good


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Usage, match=r"'holdfast\[server\]' 'holdfast\[spark\]' 'pulsar-client'"):
        demo.demo(argparse.Namespace())
