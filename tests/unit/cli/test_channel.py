"""`holdfast channel ...`: channels are listed, shown, checked and removed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast import Channel, Loop, Queue
from holdfast.cli.entry import main
from tests.kit.channel.words import Words


@pytest.fixture
def channel(runtime_directory: Path) -> Any:
    with Channel.create("frames", slots=2, dtype="f4", shape=(2, 3)) as made:
        yield made


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["channel", *words])
    return status, capsys.readouterr().out


def test_ls_of_an_empty_and_of_a_missing_directory(
    runtime_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(capsys, "ls") == (0, f"no channels in {runtime_directory}\n")
    missing = str(runtime_directory / "missing")
    told = asked(capsys, "ls", "--directory", missing)
    assert told == (0, f"no channels in {missing}: the directory does not exist\n")


def test_ls_and_stat(channel: Channel, capsys: pytest.CaptureFixture[str]) -> None:
    producer = channel.producer()
    producer.push(bytes(24))
    _, text = asked(capsys, "ls", "--json")
    (only,) = json.loads(text)["channels"]
    assert (only["name"], only["slots"], only["ready"], only["state"]) == ("frames", 2, 1, "sound")
    assert "frames" in asked(capsys, "ls")[1]
    assert json.loads(asked(capsys, "stat", "frames", "--json")[1])["pushed"] == 1
    text = asked(capsys, "stat", "frames")[1]
    assert "arrays of <f4 (2, 3)" in text
    assert "consumer: no process" in text


def test_doctor(channel: Channel, runtime_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "doctor", "frames")[0] == 0
    words = Words("frames")
    words.write(words.states(channel, bytes(24)), b"\x02" * 3)
    status, text = asked(capsys, "doctor", "frames")
    assert status == 1
    assert "no slot has the END" in text
    assert json.loads(asked(capsys, "doctor", "frames", "--json")[1])["sound"] is False


def test_rm(channel: Channel, capsys: pytest.CaptureFixture[str]) -> None:
    consumer = channel.consumer()
    assert asked(capsys, "rm", "frames")[0] != 0
    consumer.close()
    assert asked(capsys, "rm", "frames") == (0, "removed frames\n")
    assert Channel.list() == []
    capsys.readouterr()
    assert main(["channel", "stat", "frame"]) != 0
    assert "`Channel.create()` in a program creates one" in capsys.readouterr().err


def test_the_doctor_of_everything_knows_channels(
    channel: Channel, runtime_directory: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`holdfast doctor NAME` and `holdfast doctor`: a channel is as good as a queue."""
    assert main(["doctor", "frames"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("channel frames: 2 slots")
    assert said.endswith("sound\n")
    assert main(["doctor"]) in (0, 1)  # the machine may have problems of its own
    assert "1 channel looked at, 0 with problems" in capsys.readouterr().out
    with (runtime_directory / "holdfast.channel.frames").open("r+b") as file:
        file.seek(192)
        file.write(b"\xff" * 8)
    assert main(["doctor", "frames"]) == 1
    assert "damaged: remove the channel with `holdfast channel rm`" in capsys.readouterr().out
    assert main(["doctor", "frames", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["sound"] is False
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "channel frames: damaged: " in said
    assert "1 channel looked at, 1 with problems" in said
    assert main(["doctor", "--json"]) == 1
    (only,) = json.loads(capsys.readouterr().out)["channels"]
    assert (only["name"], only["sound"]) == ("frames", False)


def test_whose_name_the_doctor_takes(
    channel: Channel, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue comes before a channel, and a channel before a directory."""
    (tmp_path / "frames").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "frames"]) == 0
    assert "channel frames" in capsys.readouterr().out
    assert main(["doctor", "frames", "--recover"]) == 2
    assert "the next process that uses a channel recovers" in capsys.readouterr().err
    with Queue.create("frames", capacity=4096):
        assert main(["doctor", "frames"]) == 0
        assert capsys.readouterr().out.startswith("queue frames")
    assert main(["doctor", "frame"]) != 0
    assert 'no queue named "frame"' in capsys.readouterr().err


def test_several_producers(runtime_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Channel.create("c", slots=2, slot_size=8, producers=3, priorities=2) as channel:
        first, third = channel.producer(0), channel.producer(2)
        third.push(b"x", priority=1)
        _, text = asked(capsys, "ls", "--json")
        (only,) = json.loads(text)["channels"]
        assert (only["producer"], only["producers"]) == (os.getpid(), [os.getpid(), None, os.getpid()])
        assert f"{os.getpid()}, {os.getpid()}  -" in asked(capsys, "ls")[1]
        text = asked(capsys, "stat", "c")[1]
        assert "buffers: 60 in all, 1 in the ring, 0 held, 59 free" in text
        assert "priorities: 2, the highest first" in text
        assert f"producer 0: pid {os.getpid()} (" in text
        assert "producer 1: no process" in text
        first.close()
        found = json.loads(asked(capsys, "stat", "c", "--json")[1])
        assert [each and each["pid"] for each in found["attached_producers"]] == [None, None, os.getpid()]
        status, text = asked(capsys, "doctor", "c")
        assert (status, text.splitlines()[-1]) == (0, "sound")
        with (runtime_directory / "holdfast.channel.c").open("r+b") as file:
            file.seek((runtime_directory / "holdfast.channel.c").stat().st_size // 6 + 16384)
            file.write(b"\x02" * 3)
        status, text = asked(capsys, "doctor", "c")
        assert status == 1
        assert "fault: producer 0, priority 1, no slot has the END" in text


def test_a_loop(runtime_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Loop.create("l", slots=2, slot_size=8) as loop:
        producer, consumer = loop.producer(), loop.consumer()
        producer.push(b"x")
        consumer.pop(0).release()
        text = asked(capsys, "stat", "l")[1]
        assert text.startswith("loop l: 2 slots of 8 B")
        assert "buffers: 10 in all, 0 in the ring, 0 held, 1 on the way back, 9 free" in text
        assert f"producer: pid {os.getpid()}" in text
        found = json.loads(asked(capsys, "stat", "l", "--json")[1])
        assert (found["loop"], found["returning"]) == (True, 1)
        assert asked(capsys, "doctor", "l")[0] == 0


def test_an_interval_of_watch_has_a_least_value(channel: Channel, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["channel", "watch", "frames", "--watch", "0"])
    assert ended.value.code == 2
    assert "use at least 0.01 seconds" in capsys.readouterr().err
