"""Share topics, and the files of a server with authentication, among tests of Flight."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.server.auth_world import World, make_world
from tests.kit.server.flight_world import fill


@pytest.fixture(scope="package")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics, for copies."""
    path = tmp_path_factory.mktemp("filled") / "data"
    fill(path)
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, filled: Path) -> World:
    made = make_world(tmp_path_factory.mktemp("flight"))
    shutil.copytree(filled, made.directory / "data")
    return made


@pytest.fixture(scope="module")
def data(world: World) -> Path:
    return world.directory / "data"
