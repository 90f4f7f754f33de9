"""A stream that reads from a server's address, over Flight; without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import DataLoss
from holdfast.client import Client
from holdfast.pipeline.source import stream
from tests.kit.pipeline.streams import ORDERS, Stream, mixed, until
from tests.kit.served import served


def test_by_url_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over Flight, with a subscription at the server: open messages are kept, losses are errors."""
    monkeypatch.setattr(stream, "SHOWN_S", 0.2)
    entries, wanted = mixed(5, 10)
    with (
        served(tmp_path / "data", "--set", "broker.roll_entries=1", http=True) as server,
        Client(server.url) as client,
    ):
        client.progress("orders", "billing", create=True, start="earliest")
        options: dict[str, Any] = {"service.url": server.http_url, "predefinedSubscription": "billing"}
        running = Stream(None, None, ("value",), maxOffsetsPerTrigger=3, **options)
        found: list[bytes] = []
        for number, each in enumerate(entries):
            stage = client.stage()
            stage.append_entries("orders", [each])
            client.sink_commit("fill", number, [stage.close()])
            if number % 5 == 4 or number == len(entries) - 1:
                while rows := [*running.batch(), *running.batch()]:
                    found += rows
        assert [each.decode() for each in found] == wanted
        at = client.progress("orders", "billing")
        assert at.acked_to == at.visible == len(entries)
        until(lambda: client.progress("orders", "billing").first >= len(entries) - 2)
        begun, far = running.offset, json.loads(json.dumps(running.offset))
        far[ORDERS]["0"]["position"] += 10
        with pytest.raises(DataLoss, match="ends before entry"):
            running.reader.partitions(begun, far)
        running.offset = far
        with pytest.raises(DataLoss, match="ends before entry"):
            running.batch()
        options |= {"failOnDataLoss": "false", "maxBytesPerTrigger": "1m", "timeout": "200ms"}
        lenient = Stream(None, None, ("value",), **options)
        lenient.offset = begun
        assert lenient.rows(far) == []
        lenient.offset = far
        assert lenient.batch() == []
        running.reader.stop()
        lenient.reader.stop()
