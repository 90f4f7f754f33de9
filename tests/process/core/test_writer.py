"""The core's writer and deaths: at every point, and in a forked child."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast import _core
from tests.kit.ledger.log_bytes import ledger_file
from tests.kit.ledger.log_world import journaled
from tests.kit.ledger.writers import world as world
from tests.kit.processes import Start, tell

# -- death and fork -----------------------------------------------------------------------------------


WRITER_POINTS = _core.log_points()[: _core.log_points().index("round_done") + 1]


def publish_until_death(directory: str, point: str, countdown: int) -> None:
    from tests.kit.ledger.log_world import World

    world = World(Path(directory))
    world.use_journal("journal")
    world.writer.start()
    _core.arm(point, "kill", countdown)
    for i in range(8):
        world.publish(1, b"%d" % i * 3000)
        world.durable(world.publish(2, b"%d" % i, b""))
        Path(directory, "confirmed").write_text(str(i + 1))


@pytest.mark.parametrize("countdown", [1, 4])
@pytest.mark.parametrize("point", WRITER_POINTS)
def test_death_at_every_point(tmp_path: Path, start: Start, point: str, countdown: int) -> None:
    """Durable entries are in the journal and the ledgers; no other entry is."""
    countdown = min(countdown, 2) if point == "ledger_open" else countdown
    start(publish_until_death, str(tmp_path), point, countdown).wait(-signal.SIGKILL)
    told = tmp_path / "confirmed"
    confirmed = int(told.read_text()) if told.exists() else 0
    assert confirmed < 8
    in_journal = journaled(tmp_path / "journal")
    for topic, entries in (
        (1, [b"%d" % i * 3000 for i in range(8)]),
        (2, [data for i in range(8) for data in (b"%d" % i, b"")]),
    ):
        least = confirmed * len(entries) // 8
        for found in (in_journal[topic], ledger_file(tmp_path, topic)):
            assert len(found) >= least
            assert found == entries[: len(found)]


def forks(directory: str) -> None:
    import warnings

    from holdfast import Misuse
    from tests.kit.ledger.log_world import World

    warnings.simplefilter("ignore")
    world = World(Path(directory))
    world.use_journal("journal")
    world.writer.start()
    for i in range(10):
        d = world.publish(1, b"%d" % i)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (
                world.writer.poll,
                world.writer.stop,
                world.writer.ledgers,
                lambda: world.publish(1, b""),
            ):
                try:
                    call()
                except Misuse as error:
                    refused += "before fork()" in str(error)
            del world.writer, world.log
            os._exit(0 if refused == 4 else 1)
        assert os.waitpid(child, 0)[1] == 0
        world.durable(d)
    world.check()
    tell("done")


def test_a_child_of_fork_has_no_writer(tmp_path: Path, start: Start) -> None:
    child = start(forks, str(tmp_path))
    assert child.hear() == "done"
    child.wait()
