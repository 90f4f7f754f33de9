"""Delivery times and redelivery counts of an embedded broker: restarts, crashes, misuse (I272, I273)."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from holdfast import Broker
from holdfast.broker.events import Ack, Advance, RedeliveryNote, Reset
from holdfast.broker.events.redeliveries import forget_counts, note_counts
from holdfast.broker.state import COUNTS_MAX
from holdfast.errors import Misuse
from tests.kit.broker import delay_checks as checks
from tests.kit.broker.events import Rig

ENDS: list[dict[str, Any]] = [{"power": False}, {"power": True}, {"closed": True}]


@pytest.mark.parametrize("end", ENDS)
def test_delays_survive(end: dict[str, Any]) -> None:
    checks.delays_survive(**end)


@pytest.mark.parametrize("end", ENDS)
def test_counts_survive(end: dict[str, Any]) -> None:
    checks.counts_survive(**end)


def test_counts_that_do_not_rise_are_not_looked_at() -> None:
    checks.counts_that_do_not_rise_are_not_looked_at()


def test_what_a_producer_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with Broker.open(tmp_path) as broker, broker.producer("orders") as p:
            with pytest.raises(Misuse, match="deliver_at and deliver_after; use one"):
                await p.send(b"x", deliver_at=1, deliver_after=1)
            for delay in (-1, 1e300, float("nan"), "5"):
                with pytest.raises(Misuse, match=r"a delay of .* s before delivery; use 0 to"):
                    await p.send(b"x", deliver_after=delay)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="deliver_at must be a datetime"):
                await p.send(b"x", deliver_at="tomorrow")  # type: ignore[arg-type]
            for at in (-5_000_000, 1 << 90, datetime(1900, 1, 1, tzinfo=UTC)):
                with pytest.raises(Misuse, match="use a time since 1970"):
                    await p.send(b"x", deliver_at=at)
            await broker.admin.set_policies("orders", delayed_most_s=60)
            with pytest.raises(Misuse, match=r"delayed_most_s allows 60(\.0)? s. Nothing was published"):
                await p.send_many([b"x"], deliver_after=61)
            await p.publish([b"x"], deliver_after=59)
            await p.send(b"y", deliver_at=datetime.now(UTC))
            assert broker.admin.topic_stats("orders").entries == 2

    asyncio.run(work())


def test_a_policy_of_topic_namespace_and_member(tmp_path: Path) -> None:
    """The topic's own policy applies, else its namespace's, else the member's option."""

    async def work() -> None:
        async with (
            Broker.open(tmp_path, delayed_delivery=False) as broker,
            broker.producer("orders") as p,
            checks.shared(broker) as consumer,
        ):
            await p.send(b"at once", deliver_after=100)
            assert (await consumer.receive(timeout=5)).data == b"at once"
            await broker.admin.set_namespace_policies("public/default", delayed_delivery=True)
            await p.send(b"later", deliver_after=100)
            await p.send(b"now")
            assert (await consumer.receive(timeout=5)).data == b"now"
            assert "pulsar_subscription_delayed" in broker.metrics()
            await broker.admin.set_policies("orders", delayed_delivery=False)
            await p.send(b"wakes")
            assert (await consumer.receive(timeout=5)).data == b"wakes"

    asyncio.run(work())


def test_what_a_note_keeps() -> None:
    """I272: counts rise, belong to one reset number, and go with acknowledgements."""
    rig = Rig()
    topic = rig.topic()
    rig.filled(topic, 20)
    of = rig.subscription(topic)

    def note(*counts: tuple[int, int], number: int = 0) -> bool:
        return bool(rig.do(RedeliveryNote(of.id, number, list(counts))).changed)

    assert note((3, 2), (4, 1), (99, 1), (5, 1 << 40))
    assert of.counts == {3: 2, 4: 1, 5: (1 << 32) - 2}
    assert not note((3, 1), (99, 7))
    assert not note((6, 1), number=1)
    rig.do(Ack(of.id, 0, [(4, 6)]))
    assert of.counts == {3: 2}
    assert not note((4, 9))
    assert note((7, 1), (9, 1))
    rig.do(Advance(of.id, 0, to=8))
    assert of.counts == {9: 1}
    rig.do(Ack(of.id, 0, cumulative=10))
    assert of.counts == {}
    assert note((12, 3))
    rig.do(Reset(of.id, b"t", 0, 0))
    assert of.counts == {}


def test_counts_are_bounded() -> None:
    rig = Rig()
    topic = rig.topic()
    rig.filled(topic, 20)
    of = rig.subscription(topic)
    rig.do(Ack(of.id, 0, [(18, 20)]))
    of.counts = {each + 18: 1 for each in range(COUNTS_MAX)}  # as if there had been so many entries
    assert note_counts(rig.machine.state, of, [(1, 1), (2, 1), (3, 1)])
    assert len(of.counts) == COUNTS_MAX
    assert {1, 2} <= of.counts.keys(), "acknowledged ones make room"
    assert 3 not in of.counts


class Looked(int):
    """An ordinal that counts how often it is compared."""

    looks = 0

    def __le__(self, other: int) -> bool:
        Looked.looks += 1
        return int(self) <= other

    def __lt__(self, other: int) -> bool:
        Looked.looks += 1
        return int(self) < other

    __hash__ = int.__hash__


def test_many_acknowledgements_forget_many_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one request of 10,000 ranges occupies every member for seconds."""
    monkeypatch.setattr(Looked, "looks", 0)
    rig = Rig()
    of = rig.subscription(rig.topic())
    kept: dict[int, int] = {Looked(3 * each + 2): 1 for each in range(1000)}
    of.counts = kept | {Looked(3 * each): 1 for each in range(1000)}
    ranges = [(3 * each, 3 * each + 2) for each in reversed(range(1001))]
    forget_counts(of, ranges)
    assert of.counts == kept
    assert 0 < Looked.looks <= 20 * 2000


def test_many_delayed_messages_cost_little(tmp_path: Path) -> None:
    """By counts: bytes and reads for 50,000, and the calls of a publish.

    `python -m bench.delays` measures a million.
    """
    count = 50_000

    async def calls_of_a_publish(broker: Broker, producer: Any) -> int:
        calls = 0

        def note(frame: FrameType, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call" and "/broker/" in frame.f_code.co_filename

        await broker.settle()
        sys.setprofile(note)
        try:
            for _ in range(10):
                await producer.publish([b"x"] * 100)
        finally:
            sys.setprofile(None)
        return calls

    async def work() -> None:
        async with Broker.open(tmp_path, sync="os") as broker, broker.producer("orders") as producer:
            consumer = broker.consumer("orders", "billing", type="shared", receiver_queue=10)
            async with consumer:
                before = await calls_of_a_publish(broker, producer)
                for _ in range(count // 1000):
                    await producer.publish([b"later"] * 1000, deliver_after=3600)
                await consumer.ack_many(await checks.due(consumer, 1000), receipt=True)
                (dispatcher,) = next(iter(broker.topics.values())).dispatchers.values()
                stats = dispatcher.stats()
                assert (stats.scheduled_entries, stats.backlog) == (count, count)
                assert stats.scheduled_bytes < count * 200, "a million would be below 200 MB"
                assert await calls_of_a_publish(broker, producer) < 1.5 * before
            dispatcher.check()
        async with Broker.open(tmp_path, sync="os") as broker, checks.shared(broker) as consumer:
            assert len(await checks.due(consumer, 1000)) == 1000, "those of the second count"
            (dispatcher,) = next(iter(broker.topics.values())).dispatchers.values()
            stats = dispatcher.stats()
            assert stats.scheduled_entries == count
            assert stats.reads_sequential + stats.reads_replay < 4 * count / 1000

    asyncio.run(work())
