"""`holdfast cluster demo` says what to install or to allow."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.cli import cluster_demo
from holdfast.cli.entry import run
from holdfast.demo.cluster import nodes


def without_corosync(patch: pytest.MonkeyPatch) -> None:
    found = nodes._program
    patch.setattr(nodes, "_program", lambda name: None if name == "corosync" else found(name) or "/bin/true")


def without_the_client(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cluster_demo, "NEEDED", {"json": "python", "no_such_module": "pulsar-client"})


def as_a_user(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nodes, "_program", lambda name: "/bin/true")
    patch.setattr("os.geteuid", lambda: 1000)


def without_namespaces(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(nodes, "_program", lambda name: "/bin/true")
    patch.setattr("os.geteuid", lambda: 0)
    refused = subprocess.CompletedProcess([], 1, "", "unshare failed: Operation not permitted\n")
    patch.setattr(subprocess, "run", lambda *_, **__: refused)


@pytest.mark.parametrize(
    ("lack", "words"),
    [
        (without_corosync, "apt-get install corosync libcpg4"),
        (without_the_client, "pip install 'pulsar-client'\n"),
        (as_a_user, "this process is not root"),
        (without_namespaces, "namespaces are not allowed here (unshare failed: Operation not permitted)"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_it_says_what_is_missing(
    lack: object,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    assert callable(lack)
    lack(monkeypatch)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["cluster", "demo", "--seconds", "1"]) != 0
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "it leaves something behind"


def test_a_rate_of_no_messages_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["cluster", "demo", "--rate", "0"])
    assert caught.value.code == 2
    assert "argument --rate: '0' is not a number above 0" in capsys.readouterr().err
