"""How many examples Hypothesis tries: the same in every `make check`, more and others in `make nightly`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from tests.kit.slices import NIGHTLY, pick


def examples(test: int, nightly: int | None = None, **more: Any) -> settings:
    """Return the settings of a test with examples."""
    return settings(
        max_examples=pick(test, nightly or 20 * test),
        deadline=None,
        database=None,
        derandomize=not NIGHTLY,
        **more,
    )
