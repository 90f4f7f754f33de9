"""Checks of partitioned topics, which broken brokers must fail."""

from __future__ import annotations

from holdfast.broker.events import AlternateSet, ExchangeCreate, PartitionsSet, SubscriptionCreate
from holdfast.names import partition_name, topic_name
from tests.kit.broker.events import Rig

FULL = topic_name("orders")
TOKEN = bytes(range(16))


def growth_keeps_subscriptions() -> None:
    """I284: new partitions have the subscriptions of partition 0, from their first message on."""
    rig = Rig()
    rig.do(PartitionsSet(FULL, 2, TOKEN))
    first = rig.state.names[partition_name(FULL, 0)]
    rig.filled(rig.state.topics[first], 5)
    made = rig.do(SubscriptionCreate(first, "billing", properties={"a": "b"}))
    rig.do(SubscriptionCreate(first, "audit", 0))
    mail = rig.do(ExchangeCreate(topic_name("mail"), TOKEN, "fanout")).topic
    rig.do(AlternateSet(mail, subscription=made.subscription))
    rig.do(PartitionsSet(FULL, 4, TOKEN, grow=True))
    for index in (2, 3):
        new = rig.state.topics[rig.state.names[partition_name(FULL, index)]]
        assert sorted(new.subscriptions) == ["audit", "billing"]
        assert {each.acks.acked_to for each in new.subscriptions.values()} == {0}
        billing = new.subscriptions["billing"]
        assert billing.properties == {"a": "b"}
        assert rig.state.exchanges.alternates.subscriptions[billing.id] == mail
    assert rig.restarted().digest() == rig.machine.digest()
    assert rig.restarted(rig.machine.capture().parts, len(rig.journal)).digest() == rig.machine.digest()
