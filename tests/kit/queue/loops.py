"""Run coroutines of tests for a limited time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


def run(main: Coroutine[object, object, None]) -> None:
    """Run a coroutine; fail if it takes too long, as after a lost wake-up."""

    async def bounded() -> None:
        await asyncio.wait_for(main, 20)

    asyncio.run(bounded())
