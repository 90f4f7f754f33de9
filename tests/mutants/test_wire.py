"""Mutants of the server: the check beside each notices it."""

from __future__ import annotations

import pytest

from tests.kit.server import wire_raw
from tests.kit.server.wire_checks import CHECKS, HASTY, Wire
from tests.kit.server.wire_raw import Raw
from tests.kit.server.wire_server import MUTANTS
from tests.kit.server.wire_world import HASTY as HASTY_OPTIONS
from tests.kit.server.wire_world import ServerProcess


def test_every_mutant_has_its_check() -> None:
    assert set(CHECKS) == set(MUTANTS)


@pytest.mark.parametrize("mutant", CHECKS)
def test_it_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check = CHECKS[mutant]
    process = ServerProcess(server=HASTY_OPTIONS if check in HASTY else {})
    monkeypatch.setattr(wire_raw, "PATIENCE_S", 1.0)
    try:
        process.admin.break_it(mutant)
        with (
            Raw(process.url) as raw,
            pytest.raises((AssertionError, TimeoutError, EOFError, ConnectionError)),
        ):
            check(Wire(process, raw, "t"))
    finally:
        process.end()
