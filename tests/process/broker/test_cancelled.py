"""A broker that is cancelled while it opens or closes (tests/kit/broker/cancelling.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.broker.cancelling import BEFORE, cancel_everywhere, crashed, new
from tests.kit.slices import NIGHTLY, pick


@pytest.mark.parametrize("before", pick(test=(new, crashed), nightly=BEFORE), ids=lambda each: each.__name__)
def test_nothing_is_left(before: Callable[[Path], None], tmp_path: Path) -> None:
    """Cancel at each place in one of four ways (nightly all); then use the directory."""
    assert cancel_everywhere(tmp_path, before, all_ways=NIGHTLY) > 20
