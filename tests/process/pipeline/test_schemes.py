"""Both sides at one address: the HTTP one and the binary one read and write."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from holdfast.columns.remote import RemotePlace
from holdfast.errors import BadConfiguration, Timeout, Unsupported
from holdfast.pipeline.sink.writer import BatchWriter
from tests.kit.served import served
from tests.kit.spark.ways import check_one_address

SCHEMA = StructType().add("value", StringType())


def test_what_is_written_by_either_is_read_by_either(tmp_path: Path) -> None:
    check_one_address(tmp_path / "data")


def test_addresses_that_are_none() -> None:
    for url in ("ftp://localhost", "localhost:8080", "http://", "holdfast://", ""):
        with pytest.raises(BadConfiguration, match=r"HTTP address, such as .*or its binary one, such as"):
            RemotePlace(url)
    with pytest.raises(BadConfiguration, match="not a broker's address"):
        RemotePlace("holdfast://localhost:port")


def test_a_server_without_http_is_not_read(tmp_path: Path) -> None:
    with (
        served(tmp_path / "data") as server,
        pytest.raises(Unsupported, match=r"has no http address; set listen\.http_port there"),
    ):
        RemotePlace(server.url).topics()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "holdfast://127.0.0.1:9"])
def test_an_address_at_which_nobody_is(url: str) -> None:
    with pytest.raises(Timeout, match="did not answer"):
        RemotePlace(url, timeout_s=0.1).topics()


def test_an_http_address_at_which_nobody_is() -> None:
    with pytest.raises(Timeout, match="did not answer"):
        BatchWriter({"service.url": "http://127.0.0.1:9", "topic": "t", "timeout": "100ms"}, SCHEMA, False)
