"""Both sides at one address: the HTTP one reads and writes; the binary one says what to give instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from holdfast.errors import BadConfiguration, Timeout
from holdfast.pipeline.remote import RemotePlace
from holdfast.pipeline.sink import BatchWriter
from tests.kit.spark.ways import check_one_address

SCHEMA = StructType().add("value", StringType())


def test_what_is_written_by_http_is_read_by_http(tmp_path: Path) -> None:
    check_one_address(tmp_path / "data")


def test_the_host_is_in_the_advice() -> None:
    for url in ("holdfast://broker.example:6650", "pulsar+ssl://broker.example:6651"):
        with pytest.raises(
            BadConfiguration, match=r"such as http://broker\.example:8080, which is right for wri"
        ):
            RemotePlace(url)


def test_an_http_address_at_which_nobody_is(tmp_path: Path) -> None:
    with pytest.raises(Timeout, match="did not answer"):
        BatchWriter({"service.url": "http://127.0.0.1:9", "topic": "t", "timeout": "100ms"}, SCHEMA, False)
