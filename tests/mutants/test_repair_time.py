"""Faults of `holdfast doctor DIR --repair-time`, which tests/kit/cli/repaired.py notices."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.broker.api.admin import Admin
from holdfast.ledger.files import doctor
from holdfast.ledger.ledgers import LedgerTable
from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli
from tests.kit.cli.repaired import check_repair

Patch = pytest.MonkeyPatch


def doctor_without_a_clock(patch: Patch) -> None:
    """The doctor does not compare log time with the clock."""
    patch.setattr(doctor, "AHEAD_S", 1e12)


def repair_of_nothing(patch: Patch) -> None:
    """The command reports, and changes nothing."""

    async def repair_time(self: Admin) -> float:
        return self._broker.log_time_ahead_s

    patch.setattr(Admin, "repair_time", repair_time)


def ledgers_of_the_future(patch: Patch) -> None:
    """Ledgers keep the times of their writes."""
    patch.setattr(LedgerTable, "limit_times", lambda self, time: None)


MUTANTS: dict[Callable[[Patch], None], str] = {
    doctor_without_a_clock: "the doctor tells",
    repair_of_nothing: "nothing to tell any more",
    ledgers_of_the_future: "never grows old",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_it_is_noticed(cli: Cli, mutant: Callable[[Patch], None]) -> None:
    mutant(cli.patch)
    with pytest.raises(AssertionError, match=MUTANTS[mutant]):
        check_repair(cli)
