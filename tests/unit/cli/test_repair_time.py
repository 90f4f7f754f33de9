"""`holdfast doctor DIR --repair-time`."""

from __future__ import annotations

from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli
from tests.kit.cli.repaired import check_repair


def test_log_time_is_set_back(cli: Cli) -> None:
    check_repair(cli)


def test_a_queue_has_no_log_time(cli: Cli) -> None:
    assert "needs a data directory DIR" in cli.complains("doctor", "--repair-time", status=2)
    assert "is not a data directory" in cli.complains("doctor", str(cli.data.parent), "--repair-time")
