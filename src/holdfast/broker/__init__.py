"""The broker: topics, subscriptions and dispatch, changed by one ordered stream of events.

Promises upward (the network server, Spark, programs): what was confirmed is never lost, every message of a
subscription has one owner at a time, a reported reset holds. Needs from below: a `Group` for the one order of
events, a `Store` for what is durable, and `Clock`, `Randomness`, `Disk`, so that the world can be simulated.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.broker.api.admin import Admin
    from holdfast.broker.api.blocking import (
        BlockingAdmin,
        BlockingBroker,
        BlockingConsumer,
        BlockingProducer,
        BlockingReader,
        BlockingStage,
    )
    from holdfast.broker.api.consumer import Consumer, Reader
    from holdfast.broker.api.producer import Producer
    from holdfast.broker.api.stage import Stage, StageReceipt
    from holdfast.broker.broker import Broker
    from holdfast.broker.options import BrokerOptions
    from holdfast.broker.telemetry.stats import BrokerStats, LedgerStats, SubscriptionStats, TopicStats

_MODULES = {
    "api.admin": ("Admin",),
    "api.blocking": (
        "BlockingAdmin",
        "BlockingBroker",
        "BlockingConsumer",
        "BlockingProducer",
        "BlockingReader",
        "BlockingStage",
    ),
    "broker": ("Broker",),
    "api.consumer": (
        "Consumer",
        "Reader",
    ),
    "options": ("BrokerOptions",),
    "api.producer": ("Producer",),
    "api.stage": (
        "Stage",
        "StageReceipt",
    ),
    "telemetry.stats": (
        "BrokerStats",
        "LedgerStats",
        "SubscriptionStats",
        "TopicStats",
    ),
}


if not TYPE_CHECKING:  # or every name would be one of the module's

    def __getattr__(name: str) -> object:
        """Loaded when it is asked for: who needs one small module of this package does not wait for all."""
        import importlib

        for module, names in _MODULES.items():
            if name in names:
                return getattr(importlib.import_module(f"holdfast.broker.{module}"), name)
        raise AttributeError(f"module 'holdfast.broker' has no attribute {name!r}")


__all__ = [
    "Admin",
    "BlockingAdmin",
    "BlockingBroker",
    "BlockingConsumer",
    "BlockingProducer",
    "BlockingReader",
    "BlockingStage",
    "Broker",
    "BrokerOptions",
    "BrokerStats",
    "Consumer",
    "LedgerStats",
    "Producer",
    "Reader",
    "Stage",
    "StageReceipt",
    "SubscriptionStats",
    "TopicStats",
]
