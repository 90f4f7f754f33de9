"""Take messages out of backlogs: move, reject, get. Their bytes travel in the event (`events.moves`).

In a cluster, the owner of a subscription alone knows which entries are free. Other members ask it
(`MoveAsk`), and it carries the request out. Before it submits a move it looks again: it still owns the
subscription, and the entries are still free. So its release follows the move in the one order, and the next
owner finds the entries acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from holdfast._core import Batch, Entries, TopicMessage, parse_run, seal_block
from holdfast.broker.batches import size_of, split
from holdfast.broker.events import NOWHERE, Answer, Move, MoveAsk, MoveAsked, Row
from holdfast.broker.events.asks import Errand
from holdfast.broker.events.moves import open_of
from holdfast.errors import Fenced, HoldfastError, NotFound
from holdfast.ledger import pack_bits

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import SubscriptionState
    from holdfast.broker.topic import Topic

MOVE_BYTES = 1 << 20
"""Bytes of entries that one event moves, unless a single entry is larger."""
MOVE_ENTRIES = 1000
TRIES = 20
"""How often a request is made again because the owner has changed."""
TRY_AGAIN_S = 0.05
BLOCK = 2
"""The kind of a block of a ledger that is an entry."""


class Mover:
    """Moves entries of the subscriptions of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def reject(
        self,
        topic: Topic,
        subscription: SubscriptionState,
        ordinal: int,
        index: int,
        to: int,
        reset_number: int | None = None,
    ) -> bool:
        """Move one message to an exchange. Returns False if it was acknowledged or moved before.

        `index` −1: the whole entry, or what is left of it. The reset number is that of its delivery. If a
        consumer of this member holds the message, no other consumer gets it: then the owner is not asked.

        Raises:
            NotFound: the entry was trimmed, or there is no alternate exchange.
            Fenced: the owner changed again and again; nothing was moved.
        """
        number = subscription.reset_number if reset_number is None else reset_number
        dispatcher = topic.dispatcher_of(subscription)
        if dispatcher is not None and dispatcher.claims.is_held(ordinal):
            return await self._reject(topic, subscription, ordinal, index, to, number, anywhere=True)
        for _ in range(TRIES):
            try:
                if self._is_foreign(subscription):
                    answer = await self._ask(subscription, "reject", number, to, 0, ordinal, index)
                    return bool(answer.count)
                return await self._reject(topic, subscription, ordinal, index, to, number)
            except Fenced:
                await asyncio.sleep(TRY_AGAIN_S)
        raise _gave_up(subscription)

    async def _reject(
        self,
        topic: Topic,
        subscription: SubscriptionState,
        ordinal: int,
        index: int,
        to: int,
        number: int,
        anywhere: bool = False,
    ) -> bool:
        entry = (await topic.read(ordinal, 1, 1)).entry(0)
        size = size_of(entry) if index >= 0 else 0
        if size > 1:
            _, message = split(entry)[index]
            rows = [Row(ordinal, message, size, pack_bits(1 << index))]
        else:
            rows = self._rows([subscription], ordinal, entry)
        return bool(await self._submit(topic, [subscription], to, rows, number, True, anywhere))

    async def get(self, topic: Topic, subscription: SubscriptionState) -> TopicMessage | None:
        """Take the next message that no consumer holds; None: no message can be taken.

        Raises:
            Fenced: the owner changed again and again; nothing was taken.
        """
        for _ in range(TRIES):
            try:
                if not self._is_foreign(subscription):
                    return (await self._get(topic, subscription))[0]
                number = subscription.reset_number
                return _message(topic, await self._ask(subscription, "take", number))
            except Fenced:
                await asyncio.sleep(TRY_AGAIN_S)
        raise _gave_up(subscription)

    async def _get(
        self, topic: Topic, subscription: SubscriptionState
    ) -> tuple[TopicMessage | None, Entries | None]:
        """Take the next free message here; return it with its entry."""
        while True:
            async for ordinal in self._free(topic, [subscription], held=False):
                entries = await topic.read(ordinal, 1, 1)
                if not self._is_free(topic, subscription, ordinal):
                    continue
                message = topic.messages(entries, [0], subscription)[0]
                size = message.batch_size if message.batch_index >= 0 else 0
                mask = pack_bits(1 << message.batch_index) if size > 1 else b""
                row = Row(ordinal, size=size if size > 1 else 0, mask=mask)
                if await self._submit(topic, [subscription], NOWHERE, [row]):
                    return message, entries
                break  # another call was faster: look again from the start
            else:
                return None, None

    async def move(
        self,
        topic: Topic,
        subscriptions: Sequence[SubscriptionState],
        to: int,
        count: int,
        held: bool = False,
    ) -> int:
        """Move at most `count` entries that are visible now. Returns how many were moved.

        With `held`, entries that consumers hold are moved, too; then no owner is asked.

        Raises:
            Fenced: the owner changed again and again; `done` says how many entries were moved.
        """
        end, moved = topic.visible, _Count()
        if held:
            await self._move(topic, subscriptions, to, count, end, moved, held=True)
            return moved.entries
        (subscription,) = subscriptions
        for _ in range(TRIES):
            try:
                if not self._is_foreign(subscription):
                    await self._move(topic, subscriptions, to, count - moved.entries, end, moved)
                    return moved.entries
                while (wanted := min(count - moved.entries, MOVE_ENTRIES)) > 0:
                    number = subscription.reset_number
                    answer = await self._ask(subscription, "move", number, to, wanted, end)
                    moved.entries += answer.count
                    if not answer.count:
                        break
                return moved.entries
            except Fenced:
                await asyncio.sleep(TRY_AGAIN_S)
        raise _gave_up(subscription, moved.entries)

    async def _move(
        self,
        topic: Topic,
        subscriptions: Sequence[SubscriptionState],
        to: int,
        count: int,
        end: int,
        moved: _Count,
        held: bool = False,
    ) -> None:
        """Move entries below `end` here, and count them."""
        rows: list[Row] = []
        run: Entries | None = None
        size, most = 0, moved.entries + count
        async for ordinal in self._free(topic, subscriptions, held, end):
            if moved.entries + len({row.ordinal for row in rows}) >= most:
                break
            if run is None or not run.first_ordinal <= ordinal < run.end_ordinal:
                run = await topic.read(ordinal, MOVE_ENTRIES, MOVE_BYTES)
            entry = run.entry(ordinal - run.first_ordinal)
            if not held and not all(self._is_free(topic, each, ordinal) for each in subscriptions):
                continue
            rows += self._rows(subscriptions, ordinal, entry)
            size += len(entry)
            if size >= MOVE_BYTES or len(rows) >= MOVE_ENTRIES:
                moved.entries += await self._moved(topic, subscriptions, to, rows, held)
                rows, size = [], 0
        if rows:
            moved.entries += await self._moved(topic, subscriptions, to, rows, held)

    # -- between members -------------------------------------------------------------------------------

    def _is_foreign(self, subscription: SubscriptionState) -> bool:
        return subscription.owner not in (None, self._broker.group.member)

    async def _ask(
        self,
        subscription: SubscriptionState,
        errand: Errand,
        number: int,
        to: int = 0,
        count: int = 0,
        ordinal: int = 0,
        index: int = -1,
    ) -> Answer:
        """Ask the owner.

        Raises:
            Fenced: it is not the owner any more, and did nothing.
            Timeout: it did not answer; it may have done it.
        """
        broker = self._broker
        return await broker.ownership.asks.ask(
            lambda ask: MoveAsk(
                subscription.id, broker.group.member, ask, number, errand, to, count, ordinal, index
            ),
            f"a {errand} from subscription {subscription.name}",
        )

    async def carry_out(self, notice: MoveAsked) -> Answer:
        """Carry out what another member has asked for. Errors are for that member."""
        asked, subscription = notice.asked, notice.subscription
        topic = self._broker.topics.get(subscription.topic)
        if topic is None:
            raise NotFound(f"the topic of subscription {subscription.name} was deleted")
        number = asked.reset_number
        if asked.errand == "reject":
            done = await self._reject(topic, subscription, asked.ordinal, asked.index, asked.to, number)
            return Answer(count=int(done))
        if asked.errand == "move":
            moved = _Count()
            try:
                await self._move(topic, [subscription], asked.to, asked.count, asked.ordinal, moved)
            except Fenced:
                if not moved.entries:
                    raise  # else the member that asked goes on with the next owner
            return Answer(count=moved.entries)
        message, entries = await self._get(topic, subscription)
        if message is None or entries is None:
            return Answer()
        return Answer(
            count=1,
            ordinal=message.ordinal,
            ledger=message.ledger,
            entry=message.entry,
            index=message.batch_index,
            time=entries.time(0),
            data=entries.entry(0),
        )

    # -- inside ----------------------------------------------------------------------------------------

    async def _moved(
        self, topic: Topic, subscriptions: Sequence[SubscriptionState], to: int, rows: list[Row], held: bool
    ) -> int:
        done = await self._submit(topic, subscriptions, to, rows, held=held, anywhere=held)
        return len({row.ordinal for row in done})

    def _rows(self, subscriptions: Sequence[SubscriptionState], ordinal: int, entry: bytes) -> list[Row]:
        """Return the rows of an entry: itself, or open messages of a batch."""
        masks = [open_of(each, ordinal) for each in subscriptions]
        if -1 in masks or not any(masks):
            return [Row(ordinal, entry)]
        left = 0
        for mask in masks:
            left |= mask
        messages = split(entry)
        return [
            Row(ordinal, message, len(messages), pack_bits(1 << index))
            for index, (_, message) in enumerate(messages)
            if left >> index & 1
        ]

    async def _free(
        self, topic: Topic, subscriptions: Sequence[SubscriptionState], held: bool, end: int | None = None
    ) -> AsyncIterator[int]:
        """Yield the ordinals of visible entries that are open, and not held by a consumer."""
        end = topic.visible if end is None else min(end, topic.visible)
        ordinal = topic.first
        while True:
            ordinal = max(ordinal, topic.first)
            ordinal = min((each.acks.next_unacked(ordinal) for each in subscriptions), default=end)
            if ordinal >= end:
                return
            if held or all(self._is_free(topic, each, ordinal) for each in subscriptions):
                yield ordinal
            ordinal += 1

    def _is_free(self, topic: Topic, subscription: SubscriptionState, ordinal: int) -> bool:
        dispatcher = topic.dispatcher_of(subscription)
        return dispatcher is None or dispatcher.claims.is_free(ordinal)

    async def _submit(
        self,
        topic: Topic,
        subscriptions: Sequence[SubscriptionState],
        to: int,
        rows: list[Row],
        number: int | None = None,
        held: bool = False,
        anywhere: bool = False,
    ) -> list[Row]:
        """Submit a move; meanwhile no consumer gets its entries. Returns the rows that took effect.

        Unless `held`, entries that a consumer has got meanwhile are left out. Unless `anywhere`, this member
        must own the subscriptions that have an owner.
        """
        broker = self._broker
        await broker.admit(sum(len(row.entry) for row in rows))
        if not anywhere:
            for each in subscriptions:
                self._require_owner(topic, each)
        if not held:
            rows = [row for row in rows if all(self._is_free(topic, of, row.ordinal) for of in subscriptions)]
        if not rows:
            return []
        numbers = [each.reset_number if number is None else number for each in subscriptions]
        event = Move([each.id for each in subscriptions], numbers, to, rows)
        there = [found for each in subscriptions if (found := topic.dispatcher_of(each)) is not None]
        claims = [each.claims.hold([row.ordinal for row in rows]) for each in there]

        def ended(refused: bool) -> None:
            for let_go in claims:
                let_go(refused)

        try:
            future = broker.engine.submit(event)
        except HoldfastError:
            ended(refused=True)
            raise
        future.add_done_callback(lambda done: ended(done.cancelled() or done.exception() is not None))
        moved = await asyncio.shield(future)  # after a cancellation the event is still under way
        return [rows[index] for index in moved.rows]

    def _require_owner(self, topic: Topic, subscription: SubscriptionState) -> None:
        """Raise Fenced if this member does not dispatch the subscription, or releases it."""
        dispatcher = topic.dispatcher_of(subscription)
        tenure = None if dispatcher is None else dispatcher.tenure
        owned = tenure is None or tenure.standing == "owner"
        if subscription.owner is not None and (self._is_foreign(subscription) or not owned):
            raise Fenced(
                f"the owner of subscription {subscription.name!r} changes; nothing was moved: ask again"
            )


class _Count:
    """Entries that were moved so far, also if a later step fails."""

    entries = 0


def _message(topic: Topic, answer: Answer) -> TopicMessage | None:
    """Return the message that an owner has taken; None: there was none."""
    if not answer.count:
        return None
    block = seal_block(BLOCK, answer.entry, answer.time, answer.data)
    first = answer.ordinal - answer.entry
    entries = parse_run(answer.ledger, first, answer.entry, b"", block + bytes(-len(block) % 8))
    open_ = [1 << answer.index] if answer.index >= 0 else None
    return Batch(entries, [0], open=open_, topic=topic.name)[0]


def _gave_up(subscription: SubscriptionState, moved: int = 0) -> Fenced:
    error = Fenced(
        f"the owner of subscription {subscription.name!r} changed again and again; {moved} entries were "
        "moved: ask again"
    )
    error.done = moved
    return error
