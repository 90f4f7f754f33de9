"""An account of two producers of one name is refused."""

from __future__ import annotations

import pytest

from holdfast.errors import Corrupt
from holdfast.pipeline.jobs.audit_counts import by_name


def test_two_rows_of_one_name_are_refused() -> None:
    rows = [{"topic": "t", "producer": name} for name in ("a", "b", "a")]
    with pytest.raises(Corrupt, match="two producers 'a' of t, whose names are equal"):
        by_name(rows)  # type: ignore[arg-type]
    assert list(by_name(rows[:2])) == [("t", "a"), ("t", "b")]  # type: ignore[arg-type]
