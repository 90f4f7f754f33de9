"""The options of a broker, of its store and of its dispatchers: each declared once."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.dispatch.types import DispatchOptions
from holdfast.broker.limit_options import LimitOptions
from holdfast.broker.options import DeliveryOptions
from holdfast.broker.policy_options import PolicyOptions
from holdfast.ledger.store import StoreOptions
from tests.kit.broker.brokers import on_broker


def test_each_option_is_declared_in_one_class() -> None:
    """The reserve had two defaults, one of the store and one of the broker."""
    declared = [
        name
        for of in (StoreOptions, DeliveryOptions, LimitOptions, PolicyOptions, BrokerOptions, DispatchOptions)
        for name in vars(of)["__annotations__"]
    ]
    assert sorted(declared) == sorted(set(declared))
    assert {each.name for each in fields(BrokerOptions)} <= set(declared)


def test_the_reserve_of_a_store_is_that_of_a_broker() -> None:
    """32 MiB, as brokers and servers always had it."""
    assert StoreOptions().reserve_bytes == BrokerOptions().reserve_bytes == 32 << 20


def test_store_and_dispatchers_get_the_options_of_their_broker(tmp_path: Path) -> None:
    own: dict[str, Any] = {
        "skip_damaged": True, "unacked_max": 7, "nack_first_s": 0.25, "nack_most_s": 2.0,
        "delayed_delivery": False, "delayed_tick_s": 0.5, "reset_timeout_s": 3.0,
    }  # fmt: skip

    async def work(broker: Broker) -> None:
        assert (tmp_path / "reserve").stat().st_size == 3 << 12
        async with broker.consumer("orders", "billing"):
            [topic] = broker.topics.values()
            [dispatcher] = topic.dispatchers.values()
            assert dispatcher.options == DispatchOptions(**own)

    assert set(own) == {each.name for each in fields(DeliveryOptions)}
    on_broker(tmp_path, work, journal_bytes=1 << 16, reserve_bytes=3 << 12, **own)
