"""The metrics of a broker whose subscription made no progress for an hour."""

from __future__ import annotations

from pathlib import Path

from holdfast.broker import Broker, BrokerOptions
from holdfast.system import SystemClock


class Later(SystemClock):
    """The machine's clock, set forward by a test."""

    ahead_s = 0

    def monotonic_ns(self) -> int:
        return super().monotonic_ns() + self.ahead_s * 1_000_000_000


async def page_of(directory: Path, attached: bool) -> str:
    """Return the metrics an hour after the last progress.

    The consumer is attached and receives nothing, or it has left.
    """
    clock = Later()
    options = BrokerOptions(sync="os", reserve_bytes=1 << 20, journal_bytes=1 << 20)
    broker = await Broker.start(directory, options, clock=clock)
    try:
        async with broker.producer("t") as producer:
            async with broker.consumer("t", "s", receiver_queue=1):
                await producer.send_many([b"one", b"two", b"three"])
                if attached:
                    clock.ahead_s = 3600
                    return broker.metrics()
            clock.ahead_s = 3600
            return broker.metrics()
    finally:
        await broker.close()
