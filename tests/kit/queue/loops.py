"""Coroutines of tests, run for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


def run(main: Coroutine[object, object, None]) -> None:
    """Nothing here may take longer than this; a lost wake-up would."""

    async def bounded() -> None:
        await asyncio.wait_for(main, 20)

    asyncio.run(bounded())
