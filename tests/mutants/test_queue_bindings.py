"""Mutants of the bindings: the extension is linked with one changed source; tests must notice.

For `make nightly`, because of the compiler. The tests that they name run in `make check` and `make test`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.bindings import core_with, pytest_with
from tests.kit.queue.binding_mutants import HALF_A_PAIR, POINTS, SHARED, TEST


# Compiles and links the extension anew. In `make test` the test that it is about runs; that it can fail for
# other errors is shown there by tests/mutants/test_core.py.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_half_of_a_pair_is_a_clear_error(tmp_path: Path) -> None:
    done = pytest_with(core_with(HALF_A_PAIR, tmp_path), HALF_A_PAIR.program)
    assert done.returncode == 1, f"it survived: {done.stdout}{done.stderr}"
    assert "test_text_that_is_none" in done.stdout


# Compiles and links the extension anew. In `make test` the test that it is about runs; that tests of threads
# can fail is shown there by tests/mutants/test_core.py and tests/process/core/test_thread_sanitizer.py.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_threads_see_memory_that_they_share(tmp_path: Path) -> None:
    done = pytest_with(core_with(SHARED, tmp_path), TEST, POINTS)
    assert done.returncode == 1, f"it survived: {done.stdout}{done.stderr}"
    assert f"FAILED {TEST}::test_each_message_once" in done.stdout
    assert f"FAILED {POINTS}::test_the_same_object[get-take_claimed]" in done.stdout
    assert f"FAILED {POINTS}::test_another_object" not in done.stdout
