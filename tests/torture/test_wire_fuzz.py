"""The fuzzer of the wire codec, and that it finds something. `make fuzz-wire` goes on.

It needs clang, and runs in `make nightly`. `make test` judges its corpus and random changes of it, built by
any compiler (native/tests/wire/test_wire_corpus.cpp in tests/process/core/test_native.py).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast import _core
from tests.kit import ROOT
from tests.kit.server import fuzz_wire
from tests.kit.slices import NIGHTLY, Seed, seeds

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def clang() -> str:
    """The compiler, which `make nightly` installs."""
    found = fuzz_wire.compiler()
    assert found is not None, fuzz_wire.WANTED
    return found


# In `make test`: native/tests/wire/test_wire_corpus.cpp judges the same corpus and random changes of it.
@pytest.mark.nightly
@pytest.mark.parametrize("seed", seeds("wire streams", test=1, nightly=1))
def test_some_thousand_streams_find_nothing(tmp_path: Path, clang: str, seed: Seed) -> None:
    report = fuzz_wire.fuzz(tmp_path, clang, seconds=120, seed=seed % (1 << 31), runs=5000)
    if report.failure and NIGHTLY:
        print("kept:", *fuzz_wire.keep_findings(tmp_path, tmp_path / "fuzz"))
    assert report.failure == ""
    assert report.runs > 1000
    assert report.covered > 300


# In `make test`: tests/mutants/test_core.py breaks the same check, and the programs of native/tests notice.
@pytest.mark.nightly
def test_it_finds_what_is_wrong(tmp_path: Path, clang: str) -> None:
    """A size that is believed although the frame is shorter."""
    native = tmp_path / "native"
    for folder in ("holdfast", "tests", "fuzz"):
        shutil.copytree(ROOT / "native" / folder, native / folder)
    header = native / "holdfast/wire/reader.hpp"
    text = header.read_text()
    check = "if (size > frame.size() - 4)"
    assert text.count(check) == 1
    header.write_text(text.replace(check, "if (size > frame.size() + 4)"))
    report = fuzz_wire.fuzz(tmp_path, clang, seconds=60, seed=1, native=native)
    assert report.failure


def test_what_was_found_is_kept_and_nothing_else_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a leak; in the shorter form, where the fuzzer has made one."""
    monkeypatch.setattr(fuzz_wire, "KEPT", tmp_path / "kept")
    found = tmp_path / "found"
    found.mkdir()
    names = [f"{kind}-{'0' * 8}" for kind in ("crash", "leak", "oom", "timeout")]
    for name in names:
        (found / name).write_text("long")
    fuzzer = tmp_path / "fuzzer"
    fuzzer.write_text("#!/bin/sh\ncase $4 in *oom*) ;; *) echo short > ${3#*=} ;; esac\n")
    fuzzer.chmod(0o755)
    assert fuzz_wire.keep_findings(found, fuzzer) == names
    kept = {each.name: each.read_text().strip() for each in (tmp_path / "kept").iterdir()}
    assert kept == {name: "long" if "oom" in name else "short" for name in names}
    assert list(found.iterdir()) == []


def test_the_seeds_are_sound() -> None:
    for stream in fuzz_wire.seeds():
        reader, frame = _core.WireReader(), _core.Frame()
        reader.set_producer(1, 1, 1, 1, "p")
        items = reader.feed(stream[1:], frame)
        assert items
        assert not reader.broken
        assert reader.pending == 0
        refused = [item for item in items if item[0] == 2]
        assert all(item[3] == 4 for item in refused)  # but for transactions
