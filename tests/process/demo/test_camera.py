"""Test the example of a service: its account balances, and it notices each fault."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.camera.account import Account, Seen
from examples.camera.service import FRAME, RECORD, is_whole, pixels_of, read_records
from tests.kit import ROOT
from tests.kit.slices import pick


def test_every_process_is_killed_and_the_others_go_on(runtime_directory: Path) -> None:
    seconds = pick(test=4, nightly=60)
    command = [sys.executable, "-m", "examples.camera", "--rate", "100", "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100 + seconds, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    told = {
        name: int(count.replace(",", ""))
        for name, count in re.findall(r"^(\w.*?) {2,}([\d,]+) ", done.stdout, re.M)
    }
    assert told["frames sent"] > 0
    assert told["kills"] >= 1
    assert told["samples before"] == told["samples after"] == 32
    for name in ("viewer-1", "viewer-2", "tracer"):
        seen, missed, away, restarts = map(
            int,
            re.search(
                rf"^{name} saw +(\d+) +(\d+) missed, (\d+) sent while .* after (\d+) restarts$",
                done.stdout.replace(",0", "0"),
                re.M,
            ).groups(),  # type: ignore[union-attr]
        )
        assert seen + missed + away == told["frames sent"]
        assert restarts >= 1  # the first kill is the provider's
    assert done.stdout.endswith("every frame and every sample is accounted for\n")
    assert [*runtime_directory.iterdir()] == []


# -- the account can fail -----------------------------------------------------------------------------


def records(*seen: tuple[int, int, int, int]) -> Seen:
    """Frames as (consumer, number, missed, provider)."""
    return Seen(np.array(list(seen), RECORD))


SOUND = ((1, 1, 0, 8), (1, 4, 2, 8), (1, 5, 0, 9), (2, 9, 0, 9))
"""Two lives; the first one went on with another provider."""


def account(**changed: Any) -> Account:
    sound = Account(
        sent=10,
        consumers={"viewer-1": records(*SOUND)},
        kills={"provider": 1, "viewer-1": 1},
        killed={1},
        departed={1},
        before=32,
        after=32,
        damage=[],
    )
    return dataclasses.replace(sound, **changed)


def test_a_sound_account_has_no_fault() -> None:
    assert account().faults() == []
    seen = account().consumers["viewer-1"]
    assert (seen.seen, seen.missed, seen.lives, seen.over_restarts) == (4, 2, 2, 1)
    lines = "\n".join(account().lines(100))
    assert "viewer-1 saw               4   2 missed, 4 sent while it was away" in lines
    assert "deaths told                1   of 1 killed consumers" in lines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: {"after": 30}, "2 samples leaked"),
        (lambda: {"departed": set()}, "1 deaths were not told to a provider"),
        (lambda: {"kills": {}}, "viewer-1 ended without a kill"),
        (lambda: {"consumers": {"v": records()}}, "v saw no frame"),
        (lambda: {"consumers": {"v": records((1, 2, 0, 8), (1, 2, 0, 8))}}, "v saw a frame twice"),
        (lambda: {"consumers": {"v": records((1, 2, 0, 8), (1, 4, 0, 8))}}, "v was not told of a gap"),
        (lambda: {"consumers": {"v": records((1, 11, 0, 8))}}, "v saw frame 11, and only 10 were sent"),
        (lambda: {"damage": ["sample 1 is not possible"]}, "sample 1 is not possible"),
    ],
)
def test_each_fault_is_noticed(change: Callable[[], dict[str, object]], words: str) -> None:
    assert any(each.startswith(words) for each in account(**change()).faults())


def test_an_altered_frame_is_noticed() -> None:
    frame = np.zeros(1, FRAME)
    frame[0] = (300, 1, pixels_of(300))
    assert is_whole(frame[0])
    frame["pixels"][0, 5, 5] += 1
    assert not is_whole(frame[0])


def test_a_record_that_a_kill_cut_off_is_read_without_its_end(tmp_path: Path) -> None:
    assert len(read_records(tmp_path / "none")) == 0
    (tmp_path / "record").write_bytes(np.array([SOUND[0]], RECORD).tobytes() + b"\x06\0\0")
    assert read_records(tmp_path / "record")["number"].tolist() == [1]
