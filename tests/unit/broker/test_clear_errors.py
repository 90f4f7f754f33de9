"""Invalid arguments are refused with a clear error, and change nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Client, Producer
from holdfast.broker import Broker
from holdfast.broker.api import stage as stage_module
from holdfast.broker.dispatch import acking
from holdfast.errors import Corrupt, Misuse, NotFound
from tests.kit.broker.brokers import on_broker

HALF = "half \ud800"
WAIT_S = 5.0
"""How long to wait for what must happen."""


def test_a_subscription_that_does_not_exist(tmp_path: Path) -> None:
    """Every path names the topic, the subscription, and at most five that there are."""

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("t")
        head = "persistent://public/default/t has no subscription 'x'; "
        for number in range(7):
            with pytest.raises(NotFound) as error:
                broker.admin.subscription_stats("t", "x")
            known = ", ".join(f"s{each}" for each in range(min(number, 5)))
            more = f" and {number - 5} more" if number > 5 else ""
            assert str(error.value) == head + (f"it has: {known}{more}" if known else "create it first")
            await broker.admin.create_subscription("t", f"s{number}")

    on_broker(tmp_path, work)


def test_a_delay_that_is_none(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.consumer("t", "s", type="shared") as c, broker.producer("t") as p:
            await p.send(b"x")
            message = await c.receive(timeout=5)
            bad: tuple[Any, ...] = (-1.0, float("nan"), float("inf"), 1e12, "soon")
            for delay in bad:
                with pytest.raises(Misuse, match="delay"):
                    c.nack(message, delay)
            c.nack(message, 0)
            await c.ack(await c.receive(timeout=5))

    on_broker(tmp_path, work)


def test_arguments_of_a_producer_that_are_not_valid(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        access: Any = "alone"
        with pytest.raises(Misuse, match="with access 'alone'; use one of shared, exclusive"):
            await broker.producer("t", access=access).open()
        time: Any = "now"
        async with broker.producer("t") as p:
            with pytest.raises(TypeError, match=r"event_time must be a datetime, .* not 'now'"):
                await p.send(b"x", event_time=time)
            assert (await p.send(b"x")).entry == 0

    on_broker(tmp_path, work)


def test_a_timeout_that_is_none(tmp_path: Path) -> None:
    """A timeout of nan was taken for 0; the error was `no message in nan s`."""

    async def work(broker: Broker) -> None:
        async with broker.consumer("t", "s") as c, broker.reader("t") as r, broker.producer("t") as p:
            await p.send(b"x")  # also when there is something to take
            for timeout in (-1, float("nan"), -(10**400)):
                for call in (c.receive, r.read, partial(c.receive_many, 2), partial(c.seek, "earliest")):
                    with pytest.raises(Misuse, match="timeout must be None or at least 0 seconds, not "):
                        await call(timeout)
            with pytest.raises(TypeError, match="timeout must be None or a number of seconds, not 'soon'"):
                await c.receive("soon")  # type: ignore[arg-type]
            for timeout in (float("inf"), 10**400):  # as long as it takes
                await c.seek("earliest", timeout)
                assert (await c.receive(timeout)).data == b"x"
            for count in (1.5, "many"):
                with pytest.raises(Misuse, match="the count of receive_many must be a whole number, not "):
                    await c.receive_many(count)  # type: ignore[arg-type]

    on_broker(tmp_path, work)
    with (
        Broker.open(tmp_path) as broker,
        broker.consumer("t", "s") as consumer,
        pytest.raises(Misuse, match="not nan"),
    ):
        consumer.receive(timeout=float("nan"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (3, "3 cannot name a {}: a name is text"),
        (b"n", "b'n' cannot name a {}: a name is text"),
        (HALF, "cannot name a {}: use one or more characters that can be printed"),
    ],
)
def test_names_that_are_no_text(tmp_path: Path, name: Any, words: str) -> None:
    """The error once was the encoder's: `this is no ProducerOpen`. Nothing is created."""

    async def work(broker: Broker) -> None:
        refusals: list[tuple[str, Any]] = [
            ("topic", broker.admin.create_topic(name)),
            ("topic", broker.producer(name).open()),
            ("producer", broker.producer("t", name=name).open()),
            ("subscription", broker.consumer("t", name).open()),
            ("subscription", broker.consumer("t", name, durable=False).open()),
            ("subscription", broker.admin.create_subscription("t", name)),
            ("consumer", broker.consumer("t", "s", name=name).open()),
        ]
        for of, refusal in refusals:
            with pytest.raises(Misuse, match=words.format(of)):
                await refusal
        assert broker.admin.topics() == []
        with pytest.raises(Misuse, match="key of SinkCommit"):
            await broker.sink_commit(name, 1, [])

    on_broker(tmp_path, work)


@pytest.mark.parametrize("text", [3, None, HALF], ids=["number", "none", "half"])
def test_texts_of_clients_that_are_none(text: Any) -> None:
    """Arguments are checked before anything is created; the number 3 once created a topic."""
    words = "key|topic|subscription"
    with Client("holdfast://127.0.0.1:1") as client:
        for call in (
            partial(client.progress, text, "s"),
            partial(client.progress, "t", text),
            partial(client.advance, text, "s", 0, 0),
            partial(client.advance, "t", text, 0, 0),
            partial(client.sink_commit, text, 1, []),
        ):
            with pytest.raises(Misuse, match=rf"^({words}) .*(must be text|half of a surrogate pair)"):
                call()
    with pytest.raises(Misuse, match=r"^topic .*(must be text|half of a surrogate pair)"):
        Producer(text)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_timeouts_of_clients_that_are_none(timeout: float) -> None:
    for make in (Client, Producer):
        with pytest.raises(Misuse, match="timeout must be None or at least 0 seconds, not "):
            make("holdfast://127.0.0.1:1", timeout=timeout)


async def append_again(broker: Broker) -> None:
    await broker.admin.create_topic("t")
    stage = await broker.stage()
    given_up = asyncio.ensure_future(stage.append("t", [b"given up"]))
    while not broker.engine._futures:  # it is submitted
        await asyncio.sleep(0)
    given_up.cancel()
    with pytest.raises(Corrupt, match="stage the batch again"):
        await stage.append("t", [b"another"])
    await stage.drop()
    again = await broker.stage()
    await again.append("t", [b"another"])
    assert await broker.sink_commit("k", 1, [await again.close()])
    assert [each.data for each in await broker.admin.examine("t", count=9)] == [b"another"]


def test_an_append_after_one_that_was_cancelled(tmp_path: Path) -> None:
    """The broker would take the second append for a repetition, and keep other messages."""
    on_broker(tmp_path, append_again)


def test_an_append_that_is_known_by_its_count_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former fault: the stage accepts any outcome with the right count."""

    @dataclass(eq=False)
    class Counted:
        count: int
        digest: int

        def __eq__(self, other: object) -> bool:
            return bool(self.count == getattr(other, "count", None))

    monkeypatch.setattr(stage_module, "Staged", Counted)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        on_broker(tmp_path, append_again)


def test_text_that_is_none(tmp_path: Path) -> None:
    """Half of a surrogate pair cannot be written in UTF-8."""

    async def work(broker: Broker) -> None:
        async with broker.producer("t") as p:
            bad: list[dict[str, Any]] = [
                {"key": HALF},
                {"properties": {"a": HALF}},
                {"properties": {HALF: "a"}},
            ]
            for options in bad:
                with pytest.raises(Misuse, match="surrogate"):
                    await p.send(b"x", **options)
                with pytest.raises(Misuse, match="surrogate"):
                    await p.send_many([b"x"], **options)
                stage = await broker.stage()
                with pytest.raises(Misuse, match="surrogate"):
                    await stage.append("t", [b"x"], **options)
            assert str(await p.send(b"good", key="k\U0001f600")) == "1:0"
        for attempt in (
            lambda: broker.producer("t", name=HALF).open(),
            lambda: broker.consumer("t", HALF).open(),
            lambda: broker.consumer("t", "s", name=HALF).open(),
            lambda: broker.admin.create_topic(HALF),
            lambda: broker.admin.create_tenant(HALF),
            lambda: broker.admin.create_namespace(f"public/{HALF}"),
            lambda: broker.admin.create_subscription("t", HALF),
            lambda: broker.sink_commit(HALF, 1, []),
        ):
            with pytest.raises(Misuse):
                await attempt()
        assert not broker.machine.state.sessions

    on_broker(tmp_path, work)


def message_of(index: int, size: int) -> Any:
    """Return a message of the topic's first entry, as a batch of this size."""
    return SimpleNamespace(ordinal=0, reset_number=0, batch_index=index, batch_size=size)


def test_an_index_that_a_batch_does_not_have(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("t", "s", start="earliest")
        async with broker.producer("t", batch=3) as p:
            await p.send_many([b"a", b"b", b"c"])
        (topic,) = broker.topics.values()
        dispatcher = broker.dispatcher(topic, topic.state.subscriptions["s"])
        for index in (3, 70, -2, 1 << 40):
            with pytest.raises(Misuse, match="has none of index"):
                dispatcher.ack_cumulative(message_of(index, 3), receipt=True)
        with pytest.raises(Misuse, match="a batch has at most"):
            dispatcher.ack_cumulative(message_of(5, 1 << 40), receipt=True)
        assert dispatcher.backlog == 1
        receipt = dispatcher.ack_cumulative(message_of(2, 3), receipt=True)
        assert receipt is not None
        await receipt
        assert dispatcher.backlog == 0

    on_broker(tmp_path, work)


def test_a_message_that_an_entry_does_not_have(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("t", batch=3) as p:
            last = (await p.send_many([b"a", b"b", b"c"]))[-1]
        assert (await broker.admin.get("t", last)).data == b"c"
        for index in (3, 99, 1 << 40):
            with pytest.raises(NotFound, match="has no message 1:0:"):
                await broker.admin.get("t", last._replace(batch=index))

    on_broker(tmp_path, work)


def test_a_part_of_the_largest_batch_is_acknowledged(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("t", "s", start="earliest")
        async with broker.producer("t") as p:
            await p.send(b"a batch, as far as the dispatcher knows")
        (topic,) = broker.topics.values()
        subscription = topic.state.subscriptions["s"]
        dispatcher = broker.dispatcher(topic, subscription)
        receipt = dispatcher.ack_cumulative(message_of(6, 1 << 24), receipt=True)
        assert receipt is not None
        await receipt
        left = subscription.acks.bits_of(0)
        assert left is not None
        assert left.bit_count() == (1 << 24) - 7
        with pytest.raises(Misuse, match="at most 16777216 messages"):
            dispatcher.ack_cumulative(message_of(6, (1 << 24) + 1), receipt=True)

    on_broker(tmp_path, work)


# -- the faults, brought back (that of half a surrogate pair: tests/mutants/test_queue_bindings.py) ------


def test_a_broker_that_believes_an_index_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acking, "require_index", lambda *_: None)
    with pytest.raises((pytest.fail.Exception, AssertionError, ValueError, OverflowError, MemoryError)):
        test_an_index_that_a_batch_does_not_have(tmp_path)
