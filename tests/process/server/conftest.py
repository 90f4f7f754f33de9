"""Share the files of a server with all methods of authentication among tests."""

from __future__ import annotations

import pytest

from tests.kit.server.auth_world import World, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))
