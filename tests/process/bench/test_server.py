"""The server's benchmark runs, reports its measurements, and judges them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from bench import server, server_plain
from bench.server_figures import OURS, Idle, Key, Report, Sample
from bench.server_load import Pattern
from bench.server_ours import Frames
from bench.server_rabbit import ACK, Confirms, method
from tests.kit.command import run_process


def test_quick_run(tmp_path: Path, runtime_directory: Path) -> None:
    """Without peers, which may be absent: ours, with frames and with the official client."""
    out = tmp_path / "all.json"
    done = run_process(
        *(
            "bench",
            "server",
            "--quick",
            "--sizes",
            "100",
            "--seconds",
            "0.1",
            "--where",
            str(runtime_directory),
        ),
        *("--only", "idle,frames,client,latency", "--json", str(out)),
    )
    told = done.stdout.decode()
    found = json.loads(out.read_text())
    assert found["failed"] == {}
    assert {(each["generator"], each["measure"]) for each in found["samples"]} == {
        (generator, measure)
        for generator in ("frames", "client")
        for measure in ("publish", "publish batched", "consume")
    }
    assert all(sample["messages"] > 0 for each in found["samples"] for sample in each["samples"])
    assert "start to first accepted publish" in told
    assert "fdatasync before the receipt" in told
    assert list(runtime_directory.iterdir()) == []


def test_a_part_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        server.main(["--only", "disk"])
    assert "'disk' is not a part" in capsys.readouterr().err


def report() -> Report:
    made = Report(
        {"cpu": "x", "cores": 2, "kernel": "6", "python": "3", "file_system": "ext4", "others_share": 0.0},
        {"rounds": 1, "window": 2000, "batch": 100},
    )
    made.add(Key(OURS, "frames", "publish", 100), Sample(1_000_000, 2.0, 1.4, 3.0))
    made.add(Key(OURS, "frames", "consume", 100), Sample(1_000_000, 2.0, 2.1, 0.1))
    made.add(Key(OURS, "frames", "publish batched", 1024), Sample(1_000_000, 2.0, 1.0, 0.1))
    made.add(Key(OURS, "client", "publish batched", 1024), Sample(100_000, 2.0, 0.2, 0.1, 1.9))
    made.idle[OURS] = [Idle(0.4, 0.3, 50_000_000, 0.001)]
    made.latencies[OURS] = [(500.0, 2900.0)]
    made.syncs = [(200.0, 1000.0)]
    made.plain = [(300.0, 1500.0)]
    return made


def test_goals() -> None:
    assert [(goal.text.split(",")[0], goal.met) for goal in report().goals()] == [
        ("publish", True),
        ("Shared consume with individual acks", False),
        ("start to first accepted publish under 1 s", True),
        ("idle RSS under 80 MB", True),
        ("idle CPU under 1 %", True),
        ("1 KiB batched: the client", True),
        ("publish p99 within 3× of one fdatasync's", True),
    ]
    text = report().text()
    assert "MISSED" in text
    assert "2.10 µs" in text
    assert "a plain program 1.5×" in text


def test_a_plain_program_answers_each_once(tmp_path: Path) -> None:
    assert len(server_plain.latencies(tmp_path, 2000, 0.2)) == 400


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_answers_are_counted_however_they_are_cut(step: int) -> None:
    frames = b"".join(struct.pack(">I", size) + bytes(size) for size in (10, 0, 30)) + b"\0\0\0"
    lines = b"$3\r\nabc\r\n" * 5
    acks = method(1, ACK, struct.pack(">QB", 1, 0)) + method(1, ACK, struct.pack(">QB", 4, 1))
    for counter, data, expected in (
        (Frames(), frames, 3),
        (Pattern(b"\r\n", 2), lines, 5),
        (Pattern(b'"seq":'), b'{"seq":1}{"seq":2}', 2),
        (Confirms(), acks, 4),
    ):
        assert sum(counter(data[at : at + step]) for at in range(0, len(data), step)) == expected
