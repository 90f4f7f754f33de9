"""Test how `holdfast doctor` reads the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.cli import environment
from tests.kit.cli.queues import directory as directory


def test_remove_ipc_is_read_as_logind_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[str]:
        return [each.status for each in environment.remove_ipc("/dev/shm", tmp_path)]

    assert found() == []  # no systemd, no logind
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert found() == ["warn"]  # its default is yes
    (tmp_path / "etc/systemd/logind.conf.d").mkdir(parents=True)
    (tmp_path / "etc/systemd/logind.conf").write_text("[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n")
    assert found() == ["ok"]
    (tmp_path / "etc/systemd/logind.conf.d/site.conf").write_text("[Login]\nRemoveIPC=yes\n")
    assert found() == ["warn"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert found() == ["ok"]
    assert list(environment.remove_ipc("/run/holdfast", tmp_path)) == []
