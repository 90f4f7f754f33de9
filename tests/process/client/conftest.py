"""Share one server among tests of the client; no test configures or stops it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.served import Served, served


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data")) as it:
        yield it
