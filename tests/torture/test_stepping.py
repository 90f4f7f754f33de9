"""A process is killed before every machine instruction of one operation of each kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.outcomes import Skipped

from tests.kit import native, stepping
from tests.kit.slices import SEED_MAX, base, number_in, pick

pytestmark = pytest.mark.timeout(3600)

KILLS = pick(test=50, nightly=0)
"""The largest number of kills of one operation; 0: before every instruction."""
SEED = number_in("HOLDFAST_SEED", SEED_MAX, pick(test=1, nightly=base()))
OPERATIONS = {
    *("put", "put_many", "get", "get_many", "settle", "give_back"),
    *("close", "attach", "recover", "detach", "create"),
    *("channel: push", "channel: push of a batch", "channel: cancel", "channel: pop", "channel: release"),
    *("channel: succeed a dead producer", "channel: succeed a dead consumer, in its slot", "channel: leave"),
    *("channel: push of a higher priority", "channel: succeed the second of two producers"),
    *("channel: release in a loop", "channel: push of a buffer that came back"),
    "channel: succeed a consumer that died in a push back",
    *("service: lend", "service: publish", "service: publish with a tracer", "service: give back"),
    *("service: take", "service: release", "service: subscribe", "service: unsubscribe and leave"),
    *("service: clear a dead proxy", "service: subscribe in the room of a dead proxy"),
    *("service: connect after a dead proxy", "service: offer after a dead provider", "service: stop"),
    *("service: call", "service: run a call", "service: answer a call", "service: collect a response"),
    "service: withdraw a call that runs",
}


@pytest.fixture(scope="module")
def binary() -> Path:
    return stepping.build()


def test_every_kill_is_accounted_for(binary: Path, counts: Callable[[str], None]) -> None:
    """After each kill a survivor recovers, and finds each message exactly as often as promised."""
    result = stepping.run(binary, "--kills", str(KILLS), "--seed", str(SEED), timeout_s=3000)
    print(result.output)
    assert result.status == 0, result.errors
    *each, total = result.counts
    assert total.instructions > 100_000
    assert min(total.not_begun, total.recovered, total.done) > 0
    assert total.not_begun + total.recovered + total.done == total.kills
    for one in each:  # and once after the operation has returned
        assert one.kills >= min(KILLS or one.instructions, one.instructions) / 2
        assert KILLS or one.kills == one.instructions + 1
    counts(
        f"{total.name}: {total.instructions} instructions, {total.kills} kills: "
        f"{total.not_begun} not begun, {total.recovered} recovered, {total.done} done"
    )


def test_there_is_one_operation_of_each_kind(binary: Path) -> None:
    listed = stepping.run(binary, "--list", timeout_s=60).output.splitlines()
    assert set(listed) >= OPERATIONS
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("toy", ["a loop", "a repeated instruction"])
def test_kills_come_in_the_order_of_the_instructions(binary: Path, toy: str) -> None:
    """A survivor sees at most one step more after each kill."""
    result = stepping.run(binary, "--toys", "--only", f"toy: {toy}", timeout_s=60)
    assert result.status == 0, result.errors
    [each, _] = result.counts
    assert each.kills == each.instructions + 1
    assert each.recovered > 20


def test_a_toy_that_is_wrong_between_two_instructions(binary: Path) -> None:
    result = stepping.run(binary, "--toys", "--only", "toy: two words", timeout_s=60)
    assert result.status == 1
    assert "the words differ" in result.errors


def test_a_kernel_that_forbids_ptrace_is_named(binary: Path) -> None:
    forbids = '#include <errno.h>\nextern "C" long ptrace(int, ...) { errno = EPERM; return -1; }\n'
    library = native.built_library("noptrace", forbids)
    with pytest.raises(Skipped, match="ptrace is not permitted here"):
        stepping.run(binary, "--only", "put", timeout_s=60, environment={"LD_PRELOAD": str(library)})
    with pytest.raises(Skipped, match="needs x86-64, not aarch64"):
        stepping.skip_elsewhere("aarch64")


def test_a_wrong_option_is_refused(binary: Path) -> None:
    assert stepping.run(binary, "--every", "7", timeout_s=60).status == 2
    assert stepping.run(binary, "--kills", timeout_s=60).status == 2
    assert stepping.run(binary, "--only", "no such operation", timeout_s=60).status == 2
