"""Run a program on an embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import holdfast
from holdfast.broker import Broker

Answer = TypeVar("Answer")


def on_broker(path: Path, work: Callable[[Broker], Awaitable[Answer]], **options: Any) -> Answer:
    """Open a broker on the directory, run `work` with it, and return its result."""

    async def main() -> Answer:
        async with holdfast.Broker.open(path, **options) as broker:
            return await work(broker)

    return asyncio.run(main())
