"""A good server passes the checks that its mutants fail (`tests/mutants/test_wire.py`)."""

from __future__ import annotations

import pytest

from tests.kit.server.wire_checks import CHECKS, FURTHER, HASTY, Check, Wire
from tests.kit.server.wire_raw import Raw
from tests.kit.server.wire_world import HASTY as HASTY_OPTIONS
from tests.kit.server.wire_world import shared


@pytest.mark.parametrize("check", [*CHECKS.values(), *FURTHER], ids=lambda check: check.__name__)
def test_a_good_server_passes(check: Check, topic: str) -> None:
    process = shared(server=HASTY_OPTIONS if check in HASTY else None)
    with Raw(process.url) as raw:
        check(Wire(process, raw, topic))
