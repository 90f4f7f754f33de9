"""The calls by which consumers acknowledge: what `Acking` collects."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast._core import Batch, TopicMessage
from holdfast.broker.dispatch.acking import Receipt
from holdfast.broker.dispatch.figures import Figures
from holdfast.broker.ranges import Ranges
from holdfast.errors import Misuse


class Acknowledging(Figures):
    """The acknowledgements of a dispatcher."""

    def ack(self, messages: Batch | Sequence[TopicMessage], receipt: bool = False) -> Receipt | None:
        """Acknowledge messages. All acknowledgements of a turn become one event.

        With `receipt` the result is a future that is done when they are durable. It raises `Outdated` if some
        messages were delivered before a reset: their acknowledgements have no effect.
        """
        return self._acking.messages(messages, receipt)

    def ack_ranges(self, ranges: Ranges, reset_number: int, receipt: bool = False) -> Receipt | None:
        """Acknowledge whole entries by ordinals: ranges `(first, end)`, sorted and disjoint."""
        return self._acking.ranges(ranges, reset_number, receipt)

    def ack_all_but(
        self, ordinal: int, still_open: int, reset_number: int, receipt: bool = False
    ) -> Receipt | None:
        """Acknowledge a batch except those in the mask; its size is not needed."""
        return self._acking.all_but([(ordinal, still_open)], reset_number, receipt)

    def ack_all_but_many(
        self, parts: Sequence[tuple[int, int]], reset_number: int, receipt: bool = False
    ) -> Receipt | None:
        """As `ack_all_but`, for many batches: each with its mask."""
        return self._acking.all_but(parts, reset_number, receipt)

    async def narrow(self, ordinal: int, still_open: int) -> None:
        """Deliver only the messages in the mask, after a reset into a batch."""
        await self._acking.narrow(ordinal, still_open)

    def ack_cumulative(self, message: TopicMessage, receipt: bool = False) -> Receipt | None:
        """Acknowledge a message and all before it.

        Raises:
            Misuse: the subscription is shared or key_shared.
        """
        self.require_order()
        return self._acking.cumulative(
            message.ordinal,
            message.reset_number,
            receipt,
            message.batch_index,
            message.batch_size,
            exact=True,
        )

    def ack_up_to(self, ordinal: int, reset_number: int, receipt: bool = False) -> Receipt | None:
        """As `ack_cumulative`, by ordinal: the whole entry, and all before it.

        The number is that of a session: an entry that was not delivered since the last reset is not
        acknowledged.
        """
        self.require_order()
        return self._acking.cumulative(ordinal, reset_number, receipt)

    def require_order(self) -> None:
        """Check that acknowledgements may be cumulative.

        Raises:
            Misuse: the subscription is shared or key_shared, so its messages have no order.
        """
        if self._type in ("shared", "key_shared"):
            raise Misuse(
                f"subscription {self._cursor.name} is {self._type}, so its messages have no order; "
                "acknowledge them one by one, not cumulatively"
            )
