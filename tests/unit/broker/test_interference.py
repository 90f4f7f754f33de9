"""Other code removes, replaces and moves a running broker's files, and closes its descriptors."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.ledger import running
from tests.kit.broker import interference
from tests.kit.broker.interference import FILES, Interfere
from tests.kit.strangers import move, remove, replace

CASES = [
    *((name, way) for name in FILES for way in (remove, replace)),
    *((name, move) for name in ("journal", "data", "lock")),
]


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    interference.look_often(monkeypatch)


@pytest.mark.parametrize(("name", "way"), CASES)
def test_the_broker_goes_on(tmp_path: Path, name: str, way: Interfere) -> None:
    interference.goes_on(tmp_path, name, way)


@pytest.mark.parametrize("way", [remove, replace, move])
def test_a_journal_of_an_idle_broker(
    tmp_path: Path, way: Interfere, caplog: pytest.LogCaptureFixture
) -> None:
    interference.idle_goes_on(tmp_path, way)
    words = "journal/0000000000000001: other code has removed or replaced it; the broker continues"
    assert words in interference.told(caplog)


def test_a_journal_that_goes_just_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "TICK_S", 60.0)
    interference.ends_without_its_journal(tmp_path)


@pytest.mark.parametrize("reused", [False, True], ids=["closed", "reused"])
@pytest.mark.parametrize("name", ["journal", "data", "index"])
def test_descriptors_closed_by_other_code(tmp_path: Path, name: str, reused: bool) -> None:
    interference.goes_on_without_descriptors(tmp_path, name, reused)


@pytest.mark.parametrize("file", ["lock", ""], ids=["lock file", "directory"])
def test_the_descriptor_of_the_lock_is_closed(tmp_path: Path, file: str) -> None:
    interference.stops_without_its_lock(tmp_path, file)


def test_the_directory_is_moved(tmp_path: Path) -> None:
    interference.stops_without_its_directory(tmp_path)


def test_a_ledger_that_cannot_be_made_again(tmp_path: Path) -> None:
    interference.tells_what_is_gone(tmp_path)
