"""The registry of schemas on a broker: restarts, races, rules, consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.kit.server.schema_checks import SCENES
from tests.kit.server.schema_silence import messages_look_at_no_schema


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: str(scene.__name__))
def test_scenes(scene: Callable[[Path], Awaitable[None]], tmp_path: Path) -> None:
    async def main() -> None:
        await scene(tmp_path)

    asyncio.run(main())


def test_messages_look_at_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends and deliveries call nothing of the registry, so a check costs nothing per message."""
    messages_look_at_no_schema(monkeypatch)
