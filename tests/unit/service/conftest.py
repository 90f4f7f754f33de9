"""Give a test a service, and look at it afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import _core
from tests.kit.service.core import connect, offer


@pytest.fixture
def place(runtime_directory: Path) -> str:
    return str(runtime_directory)


@pytest.fixture
def provider(place: str) -> Iterator[_core.ServiceProvider]:
    with offer(place) as made:
        yield made


@pytest.fixture
def proxy(place: str, provider: _core.ServiceProvider) -> Iterator[_core.ServiceProxy]:
    with connect(place) as made:
        yield made
        assert _core.inspect_service(place, "s")["faults"] == []
