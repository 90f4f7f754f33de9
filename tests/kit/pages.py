"""Read the examples on pages."""

from __future__ import annotations

import re
from pathlib import Path


def python_blocks(page: Path) -> list[str]:
    """Return the blocks of Python on a page, in their order."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
