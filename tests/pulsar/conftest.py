"""Share a server and a connection among tests of the protocol; topics are separate."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.kit.server.wire_raw import Raw
from tests.kit.server.wire_world import server

_numbers = itertools.count(1)


@pytest.fixture
def url() -> str:
    """The address of the server that all tests share."""
    return server().url


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test has."""
    return f"{request.node.path.stem.removeprefix('test_')}-{next(_numbers)}"


@pytest.fixture
def raw(url: str) -> Iterator[Raw]:
    """A connection to the server that all tests share."""
    with Raw(url) as connection:
        yield connection
