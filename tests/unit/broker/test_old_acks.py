"""I58 over restarts: messages from before a reset cannot be acknowledged after it.

A network client acknowledges with the number of its session, and a session that was opened after the reset
knows the new number. So the number alone does not tell an old acknowledgement from a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from holdfast.broker.broker import Broker
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.events import ConsumerJoin, Context, Reset
from holdfast.broker.machine import Machine
from holdfast.broker.state import BrokerState, SubscriptionState
from holdfast.errors import Outdated
from holdfast.system import SystemClock, SystemRandomness
from tests.kit.broker.events import ME, Rig
from tests.kit.broker.worlds import RealWorld, SimWorld, World

COUNT = 100


class Session:
    """A broker that is opened again and again, and the client that outlives it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker: Broker | None = None

    def run(self, work: Any) -> Any:
        return self.world.run(work)

    async def open(self) -> None:
        self.broker = await self.world.open()

    def end(self, how: str) -> None:
        """Closed and opened again, killed, or killed behind a snapshot."""
        assert self.broker is not None
        if how == "closed":
            self.run(self.broker.close())
        else:
            if how == "snapshot":
                self.run(self.broker.admin.snapshot())
            self.world.crash(self.broker, power=how == "power")
        self.run(self.open())

    @property
    def dispatcher(self) -> Dispatcher:
        assert self.broker is not None
        (topic,) = self.broker.topics.values()
        return self.broker.dispatcher(topic, topic.state.subscriptions["s"])

    @property
    def number(self) -> int:
        """The reset number of a session that is opened now."""
        return self.dispatcher.revision.reset_number

    async def begin(self) -> list[Any]:
        """Everything is published and received once."""
        await self.open()
        assert self.broker is not None
        await self.broker.admin.create_subscription("t", "s", start="earliest")
        async with self.broker.producer("t") as p:
            await p.send_many([b"%d" % number for number in range(COUNT)])
        return await self.receive(COUNT)

    async def receive(self, count: int) -> list[Any]:
        assert self.broker is not None
        messages: list[Any] = []
        async with self.broker.consumer("t", "s", type="failover") as c:
            while len(messages) < count:
                messages += await c.receive_many(count - len(messages), timeout=self.world.patience_s)
        return messages

    async def reset(self, to: Any = "earliest") -> None:
        assert self.broker is not None
        await self.broker.admin.reset("t", "s", to)

    def backlog(self) -> int:
        return self.dispatcher.backlog


@pytest.fixture(params=["real", "sim"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    made = Session(RealWorld() if request.param == "real" else SimWorld())
    yield made
    made.world.close(made.broker)


ENDS = pytest.mark.parametrize("how", ["closed", "killed", "power", "snapshot"])


@ENDS
def test_an_old_acknowledgement_does_not_undo_a_reset(session: Session, how: str) -> None:
    """Receive all, reset to the beginning, end the broker; then acknowledge the last message."""
    session.run(session.begin())
    session.run(session.reset())
    session.end(how)

    async def acknowledge() -> None:
        dispatcher = session.dispatcher
        for receipt in (
            dispatcher.ack_up_to(COUNT - 1, session.number, receipt=True),
            dispatcher.ack_ranges([(3, 7), (9, 30)], session.number, receipt=True),
            dispatcher.ack_all_but(40, 0b110, session.number, receipt=True),
            dispatcher.ack_all_but_many([(41, 0b1), (42, 0b10)], session.number, receipt=True),
        ):
            assert receipt is not None
            with pytest.raises(Outdated):
                await receipt
        assert session.backlog() == COUNT

    session.run(acknowledge())
    session.end(how)  # a second restart does not forget it, either
    session.run(acknowledge())
    assert len(session.run(session.receive(COUNT))) == COUNT


@ENDS
def test_a_reset_after_a_restart_knows_of_earlier_lives(session: Session, how: str) -> None:
    """Deliveries of an earlier life of the broker are not in its memory."""
    session.run(session.begin())
    session.end(how)
    session.run(session.reset())

    async def acknowledge() -> None:
        receipt = session.dispatcher.ack_up_to(COUNT - 1, session.number, receipt=True)
        assert receipt is not None
        with pytest.raises(Outdated):
            await receipt
        assert session.backlog() == COUNT

    session.run(acknowledge())


@ENDS
def test_what_was_delivered_again_or_came_later_is_acknowledged(session: Session, how: str) -> None:
    session.run(session.begin())
    session.run(session.reset())
    session.end(how)
    session.run(session.receive(10))

    async def acknowledge() -> None:
        assert session.broker is not None
        async with session.broker.producer("t") as p:
            await p.send(b"later")
        receipt = session.dispatcher.ack_ranges([(2, 4), (COUNT, COUNT + 1)], session.number, receipt=True)
        assert receipt is not None
        await receipt
        assert session.backlog() == COUNT + 1 - 3
        receipt = session.dispatcher.ack_up_to(9, session.number, receipt=True)
        assert receipt is not None
        await receipt
        assert session.backlog() == COUNT - 10

    session.run(acknowledge())


def test_a_message_knows_its_own_number(session: Session) -> None:
    """A delivery after the reset, before a restart, can be acknowledged after the restart."""
    before = session.run(session.begin())
    session.run(session.reset())
    since = session.run(session.receive(20))
    session.end("killed")

    async def acknowledge() -> None:
        receipt = session.dispatcher.ack(before[50:60], receipt=True)
        assert receipt is not None
        with pytest.raises(Outdated):
            await receipt
        receipt = session.dispatcher.ack(since[5:8], receipt=True)
        assert receipt is not None
        await receipt
        assert session.backlog() == COUNT - 3
        receipt = session.dispatcher.ack_cumulative(since[19], receipt=True)
        assert receipt is not None
        await receipt
        assert session.backlog() == COUNT - 20

    session.run(acknowledge())


def test_another_owner_knows_it_too() -> None:
    """Another member that was given the same events, and serves the subscription from now on."""
    rig = Rig()
    topic = rig.topic()
    rig.filled(topic, 20)
    subscription = rig.subscription(topic)
    rig.do(Reset(subscription.id, b"token", 0, 5))
    for machine in (
        rig.twin(),
        rig.restarted(),
        rig.restarted(rig.machine.capture().parts, len(rig.journal)),
    ):
        cursor = machine.state.subscriptions[subscription.id]
        assert (cursor.target, cursor.reach) == (5, 20)

        async def acknowledge(cursor: SubscriptionState = cursor) -> None:
            reader: Any = SimpleNamespace(name="orders", first=0, visible=20)
            submit: Any = pytest.fail
            owner = Dispatcher(reader, cursor, submit, SystemClock(), SystemRandomness())
            receipt = owner.ack_up_to(19, 1, receipt=True)
            assert receipt is not None
            with pytest.raises(Outdated):
                await receipt

        asyncio.run(acknowledge())


def test_a_snapshot_of_before_is_read() -> None:
    """Load a snapshot of an earlier version, without reset range, owners, counts and `sequence_times`."""
    rig = Rig()
    topic = rig.topic(deduplication=True)
    rig.filled(topic, 20)
    subscription = rig.subscription(topic)
    rig.do(ConsumerJoin(subscription.id, "c", "shared", 0, ME))
    rig.do(Reset(subscription.id, b"token", 0, 5))
    older = []
    for part in rig.machine.capture().parts:
        fields = msgspec.msgpack.decode(part)
        if fields[0] == "subscription":
            assert fields[-11:] == [5, 20, [*ME], subscription.taken, [], [], [], [], [], [], 0]
            fields = fields[:-11]
        elif fields[0] == "topic":
            assert fields[-4:] == [[], ["", ""], None, {}]
            fields = fields[:-4]
            assert len(fields.pop()) == 1
        older.append(msgspec.msgpack.encode(fields))
    machine = Machine()
    machine.load(older)
    machine.check()
    cursor = machine.state.subscriptions[subscription.id]
    assert (cursor.target, cursor.reach, cursor.reset_number) == (0, 0, 1)
    assert [time for _, _, time in machine.log.sequence_times(topic.id)] == [machine.log.time]


def test_a_state_without_its_reach_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former fault: a reset is remembered in memory alone."""
    apply = Reset.apply

    def forgetful(self: Reset, state: BrokerState, context: Context) -> Any:
        outcome = apply(self, state, context)
        subscription = state.require_subscription(self.subscription)
        subscription.target = subscription.reach = 0
        return outcome

    monkeypatch.setattr(Reset, "apply", forgetful)
    for test in (
        test_an_old_acknowledgement_does_not_undo_a_reset,
        test_a_reset_after_a_restart_knows_of_earlier_lives,
    ):
        session = Session(SimWorld())
        with pytest.raises(pytest.fail.Exception):
            test(session, "killed")
        session.world.close(session.broker)
