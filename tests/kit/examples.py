"""Choose how many examples Hypothesis tries: fixed in `make check`, more in `make nightly`.

A failing example of `make nightly` is kept as Hypothesis has reduced it (`slices.kept_examples`), and tried
first in every run. While an example is kept, the others differ in every run, because Hypothesis does not
replay with `derandomize`.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from tests.kit.slices import NIGHTLY, examples_folder, kept_examples, pick


def examples(test: int, nightly: int | None = None, **more: Any) -> settings:
    """Return the settings of a test with examples."""
    replays = NIGHTLY or any(examples_folder().glob("*/*"))
    return settings(
        max_examples=pick(test, nightly or 20 * test),
        deadline=None,
        database=kept_examples() if replays else None,
        derandomize=not replays,
        **more,
    )
