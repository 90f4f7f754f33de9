"""Look for what a consumer that failed to open has left behind."""

from __future__ import annotations

from typing import Any

from holdfast.broker import Broker


async def must_be_free(broker: Broker, type_: Any, durable: bool) -> None:
    """Require that nothing is attached to the subscription `billing` of `orders`.

    Stats and metrics must answer, and a new consumer must be served.
    """
    state = broker.machine.state
    topic = broker.topics[state.names["persistent://public/default/orders"]]
    await broker.engine.settle()
    assert not state.sessions, f"sessions without a consumer: {state.sessions}"
    for dispatcher in topic.dispatchers.values():
        assert dispatcher.stats().consumers == ()
    if not durable:
        assert not topic.dispatchers, "a volatile subscription without a consumer"
        assert not topic.volatile
    assert broker.metrics()
    consumer = broker.consumer("orders", "billing", type=type_, durable=durable)
    async with consumer, broker.producer("orders") as producer:
        await producer.send(b"next")
        message = await consumer.receive(timeout=1)
        assert message.data == b"next"
        await consumer.ack(message, receipt=True)
