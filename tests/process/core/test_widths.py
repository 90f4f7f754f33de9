"""A 32-bit and a 64-bit process share a channel."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit import native

pytestmark = pytest.mark.timeout(300)

COUNT = 30_000
WIDTHS = {32: ("-m32", "-D_FILE_OFFSET_BITS=64"), 64: ()}
SOURCE = (native.NATIVE / "widths" / "channel.cpp").read_text()


@pytest.fixture(scope="module")
def programs() -> dict[int, Path]:
    probe = [native.compiler(), "-m32", "-x", "c++", "-std=c++20", "-o", "/dev/null", "-"]
    done = subprocess.run(probe, input="#include <vector>\nint main() {}\n", capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("there is no 32-bit compiler: install g++-multilib")
    return {
        width: native.built(f"widths-{width}", SOURCE, native.NATIVE, ["-O1", "-Wall", "-Werror", *flags])
        for width, flags in WIDTHS.items()
    }


@pytest.fixture
def directory() -> Iterator[str]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-test.") as path:
        yield path


@pytest.mark.parametrize("kind", ["plain", "lanes", "loop"])
@pytest.mark.parametrize(("creator", "producer", "consumer"), [(64, 32, 64), (32, 64, 32)])
def test_the_layout_does_not_depend_on_the_width(
    programs: dict[int, Path],
    directory: str,
    creator: int,
    producer: int,
    consumer: int,
    kind: str,
    counts: Callable[[str], None],
) -> None:
    def start(width: int, *words: str) -> subprocess.Popen[str]:
        command = [str(programs[width]), words[0], directory, *words[1:]]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def output(process: subprocess.Popen[str]) -> str:
        text, errors = process.communicate(timeout=200)
        assert process.returncode == 0, f"{process.args!r}: {text}{errors}"
        return text

    output(start(creator, "create", kind))
    consuming = start(consumer, "consume", str(COUNT))
    pushed = output(start(producer, "produce", str(COUNT)))
    popped = output(consuming)
    assert pushed == f"{producer} bits: pushed {COUNT}\n"
    found = re.fullmatch(rf"{consumer} bits: popped (\d+), lost (\d+)\n", popped)
    assert found is not None, popped
    assert int(found[1]) + int(found[2]) == COUNT
    pool = 28 if kind == "lanes" else 7
    assert output(start(producer, "audit")) == f"{producer} bits: left 0, free {pool} of {pool}\n"
    counts(f"{kind}, {producer} to {consumer} bits: {popped.strip()}")
