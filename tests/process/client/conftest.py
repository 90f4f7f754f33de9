"""What tests of the client have in common: a server that none of them configures or ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.served import Served, served


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("data")) as it:
        yield it
