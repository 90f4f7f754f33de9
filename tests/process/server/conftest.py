"""What tests of the server have in common: the files of one with all methods of authentication."""

from __future__ import annotations

import pytest

from tests.kit.server.auth_world import World, make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("world"))
