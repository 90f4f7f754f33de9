"""Both sides at one address: the HTTP one reads and writes; the binary one says what to give instead."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from holdfast.errors import BadConfiguration, Timeout
from holdfast.pipeline.connecting import Address
from holdfast.pipeline.decoding import Wish
from holdfast.pipeline.reading import open_place
from holdfast.pipeline.remote import RemotePlace
from holdfast.pipeline.sink import BatchWriter
from tests.kit.served import served
from tests.kit.server.flight_world import PREFIX

SCHEMA = StructType().add("value", StringType())
VALUES = pa.record_batch([pa.array(["a", "b", "c"])], names=["value"])


def test_what_is_written_by_http_is_read_by_http(tmp_path: Path) -> None:
    with served(tmp_path / "data", http=True) as server:
        for name in ("t", "ä topic"):
            for url in (server.http_url, server.http_url + "/", server.url):
                writer = BatchWriter({"service.url": url, "topic": name}, SCHEMA, False)
                assert writer.address.url.partition("://")[0] in ("pulsar", "holdfast")
                writer.commit([writer.write(iter([VALUES]))])
            topic = open_place(None, server.http_url, {"service.url": server.http_url}).open(
                f"{PREFIX}/{name}"
            )
            rows = [
                row for batch in topic.decoding(*topic.plan(), Wish(["value"])).batches() for row in batch[0]
            ]
            assert [row.as_py() for row in rows] == [b"a", b"b", b"c"] * 3
        address = Address.beside({"service.url": server.http_url}, "the sink")  # a topic of each row's own
        assert address == Address.beside({"service.url": server.http_url}, "the sink", "t")
        with pytest.raises(BadConfiguration) as refused:
            RemotePlace(server.url)
        assert "to read, it is the broker's HTTP address, such as http://127.0.0.1:8080" in str(refused.value)


def test_the_host_is_in_the_advice() -> None:
    for url in ("holdfast://broker.example:6650", "pulsar+ssl://broker.example:6651"):
        with pytest.raises(
            BadConfiguration, match=r"such as http://broker\.example:8080, which is right for wri"
        ):
            RemotePlace(url)


def test_an_http_address_at_which_nobody_is(tmp_path: Path) -> None:
    with pytest.raises(Timeout, match="did not answer"):
        BatchWriter({"service.url": "http://127.0.0.1:9", "topic": "t", "timeout": "100ms"}, SCHEMA, False)
