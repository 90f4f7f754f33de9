"""`holdfast channel ls` after a death."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import Channel
from holdfast.cli.entry import main


def test_ls_marks_the_dead(runtime_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Channel.create("frames", slots=2, slot_size=8) as channel:
        consumer = channel.consumer()
        child = os.fork()
        if child == 0:
            role = channel.producer()
            os._exit(0 if role.attached else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert main(["channel", "ls"]) == 0
        text = capsys.readouterr().out
        assert f"{child} (dead)" in text
        assert f"{os.getpid()} (dead)" not in text
        consumer.close()
