"""Compacted views of a server, read over its Flight process while it compacts again."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Broker
from holdfast.client import Client
from holdfast.columns import NEWEST
from holdfast.columns.remote import RemotePlace
from holdfast.errors import Denied, Outdated
from tests.kit.pipeline.compacted import PRICES, SMALL, Prices, rows_of, single, through_newest, view_files
from tests.kit.processes import until
from tests.kit.served import Served, served
from tests.kit.server.auth_world import make_world, token

PATH = PRICES.replace("://", "/")


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Prices, int]:
    """A directory with a view and entries behind it, what it has, and the horizon."""
    data = tmp_path / "data"
    with Broker.open(data, roll_entries=7, retention_s=-1, housekeeping_s=3600, **SMALL) as broker:
        prices = Prices(broker, str(data))
        prices.send(60)
        horizon = prices.compact()
        prices.send(20)
    return data, prices, horizon


@pytest.fixture
def server(made: tuple[Path, Prices, int]) -> Iterator[Served]:
    with served(made[0], "--set", "broker.compaction_grace_s=0", http=True) as running:
        yield running


def compact(server: Served) -> None:
    """Compact the topic by HTTP; with no grace, this removes the view before."""
    place = f"{server.http_url}/admin/v2/{PATH}/compaction"
    urllib.request.urlopen(urllib.request.Request(place, method="PUT"), timeout=30.0).close()

    def ended() -> bool:
        with urllib.request.urlopen(place, timeout=30.0) as answer:
            found: dict[str, Any] = json.load(answer)
        assert found["status"] in ("RUNNING", "SUCCESS"), found
        return bool(found["status"] == "SUCCESS")

    until(ended)


def test_a_view_by_url_is_the_view_by_path(made: tuple[Path, Prices, int], server: Served) -> None:
    """I160, I314: a plan whose view is gone ends with the reason."""
    data, prices, horizon = made
    place = RemotePlace(server.http_url, timeout_s=20.0)
    near, far = through_newest(str(data)), place.open(PRICES, NEWEST)
    first, visible = near.plan()
    assert (far.plan(), far.view, far.horizon) == ((first, visible), 1, horizon)
    assert far.weights(0, visible, 200) == near.weights(0, visible, 200)
    expected = prices.expected(horizon)
    for start, stop in ((0, visible), (horizon // 2, horizon), (horizon - 1, visible), (horizon, visible)):
        within = [row for row in expected if start <= row["position"] < stop]
        assert rows_of(far, start, stop) == within == rows_of(near, start, stop)
    with Client(server.url.replace("pulsar", "holdfast")) as client:
        stage = client.stage()
        stage.append_entries(PRICES, [single(1000, "k1", b"the newest")])
        client.sink_commit("fill", 1, [stage.close()])
    compact(server)
    until(lambda: place.open(PRICES, NEWEST).view == 2)
    until(lambda: len(view_files(str(data))) == 1)
    for topic in (near, far):
        with pytest.raises(Outdated, match=f"compacted view 1 of {PRICES} is gone"):
            rows_of(topic, *topic.plan())
    newest = place.open(PRICES, NEWEST)
    found = rows_of(newest, *newest.plan())
    assert [row["value"] for row in found if row["key"] == b"k1"] == [b"the newest"]
    assert found == rows_of(through_newest(str(data)), *newest.plan())
    assert "call failed" not in server.logs()


def test_a_view_is_read_with_the_rights_of_its_topic(tmp_path: Path, made: tuple[Path, Prices, int]) -> None:
    """I161."""
    (tmp_path / "world").mkdir()
    world = make_world(tmp_path / "world")
    ports = ["--https-port", "0", "--tls-port", "0"]
    with served(made[0], "--config", world.configure(), *ports, http=True) as server:
        allowed = RemotePlace(server.http_url, token("root"), timeout_s=20.0)
        assert allowed.open(PRICES, NEWEST).view == 1
        with pytest.raises(Denied, match="may not consume"):
            RemotePlace(server.http_url, token("looker"), timeout_s=20.0).open(PRICES, NEWEST)
