"""Stats over HTTP say the same of the same state, before and after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from holdfast.broker import Broker, SubscriptionType
from holdfast.server.http import HttpOptions, HttpServer
from holdfast.server.http.pulsar_stats import Looks
from tests.kit.broker.brokers import on_broker

SINCE_THE_START = {"msg_rate_out", "msg_throughput_out", "bytes_out_counter", "msg_out_counter"}
"""Counts that begin with the broker's process."""


async def stats(broker: Broker) -> dict[str, Any]:
    (topic,) = broker.topics.values()
    looks = Looks(HttpServer(broker, HttpOptions(port=0), None))
    found = (await looks.topic(topic)).subscriptions["s"]
    cursor = (await looks.internal(topic)).cursors["s"]
    left = {**msgspec.structs.asdict(found), **msgspec.structs.asdict(cursor)}
    return {name: value for name, value in left.items() if name not in {*SINCE_THE_START, "revision_num"}}


@pytest.mark.parametrize("type_", get_args(SubscriptionType))
@pytest.mark.parametrize(
    ("acked", "diagnosis"),
    [
        (2, "no consumers: 3 entries, and no consumer"),
        (5, "no backlog: everything that is visible is acknowledged"),
    ],
)
def test_a_restart_changes_no_stats(
    tmp_path: Path, type_: SubscriptionType, acked: int, diagnosis: str
) -> None:
    async def first(broker: Broker) -> dict[str, Any]:
        async with broker.consumer("orders", "s", type=type_) as c, broker.producer("orders") as p:
            await p.send_many([b"%d" % number for number in range(5)])
            messages = [await c.receive(timeout=1) for _ in range(5)]
            await c.ack_many(messages[:acked], receipt=True)
        return await stats(broker)

    before = on_broker(tmp_path, first)
    assert before["diagnosis"] == diagnosis
    assert on_broker(tmp_path, stats) == before


def test_a_subscription_that_no_consumer_has_joined(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("orders", "s")
        assert (await stats(broker))["diagnosis"].startswith("no backlog: ")
        async with broker.producer("orders") as p:
            await p.send(b"nails")
        assert (await stats(broker))["diagnosis"] == "no consumers: 1 entry, and no consumer"

    on_broker(tmp_path, work)
