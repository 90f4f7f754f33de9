"""The programs of native/tests, compiled together with sanitizers, each run by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit import native
from tests.kit.server.fuzz_wire import keep_stream, write_corpus
from tests.kit.slices import NIGHTLY, base, pick

FLAGS = (
    "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    "-Wall", "-Wextra", "-Wpedantic", "-Werror",
)  # fmt: skip
SKIPPED = 77
SEED = str(pick(test=1, nightly=base()))


def build_unit(unit: str) -> Path:
    programs = [program for program in native.PROGRAMS if native.unit_of(program) == unit]
    return native.built(f"native-{unit}", native.unit_source(native.NATIVE, programs), native.NATIVE, FLAGS)


@pytest.fixture(scope="module")
def units() -> Iterator[dict[str, Future[Path]]]:
    """Compile all programs, in units at the same time."""
    with ThreadPoolExecutor(len(native.UNITS)) as pool:
        yield {unit: pool.submit(build_unit, unit) for unit in native.UNITS}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.mark.timeout(600)  # the first one waits for compilers that other tests may keep busy
@pytest.mark.parametrize("program", native.PROGRAMS)
def test_native(
    program: str, units: dict[str, Future[Path]], corpus: Path, tmp_path: Path, counts: Callable[[str], None]
) -> None:
    binary = units[native.unit_of(program)].result()
    found = tmp_path / "stream"
    given = {
        "HOLDFAST_CORPUS": str(corpus),
        "HOLDFAST_CORPUS_SEED": SEED,
        "HOLDFAST_CORPUS_FOUND": str(found),
    }
    done = native.execute(binary, program, **given)
    if NIGHTLY and done.returncode not in (0, SKIPPED) and found.exists():
        print("kept:", keep_stream(found))
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    if done.stdout:
        counts(done.stdout.strip())


def test_every_program_is_in_a_unit(counts: Callable[[str], None]) -> None:
    assert {native.unit_of(program) for program in native.PROGRAMS} == set(native.UNITS)
    counts(f"{len(native.PROGRAMS)} native programs in {len(native.UNITS)} builds under sanitizers")
