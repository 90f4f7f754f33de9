"""Read a broker's files while it appends, rolls, trims, is killed and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import holdfast
from holdfast.columns.files import FileTopic
from holdfast.names import topic_name
from tests.kit.ledger.topic_runs import numbers
from tests.kit.processes import Start, tell

ORDERS = topic_name("orders")


def serve(path: str, start: int) -> None:
    """Publish numbered messages for ever, in ledgers of 50, keeping the last few thousand."""
    with holdfast.Broker.open(path, roll_entries=50, journal_bytes=1 << 20, sync="os") as broker:
        if not broker.admin.topics():
            broker.admin.create_subscription("orders", "s")
        tell("serving")
        with broker.producer("orders") as p:
            while True:
                ids = p.send_many([b"%d" % n for n in range(start, start + 20)])
                start += len(ids)
                if start % 400 == 0:
                    broker.admin.skip("orders", "s", 300)


def test_a_reader_beside_a_broker_that_is_killed(tmp_path: Path, start: Start) -> None:
    """Read on. Ordinal and number of a message are equal here, and never go back."""
    seen = 0
    for _ in range(3):
        broker = start(serve, str(tmp_path), seen_end(tmp_path))
        broker.hear()
        goal = seen + 1500
        while seen < goal:
            try:
                files = FileTopic(tmp_path, ORDERS)
                first, visible = files.plan()
                assert visible >= seen, "what was visible is not any more"
                begin = max(first, visible - 200)
                assert numbers(files, begin, visible) == list(range(begin, visible))
                seen = visible
            except holdfast.NotFound:
                continue  # not there yet, or trimmed meanwhile
        broker.kill()


def seen_end(directory: Path) -> int:
    """Where a broker that is opened now goes on."""

    async def main() -> int:
        async with holdfast.Broker.open(directory) as broker:
            if not broker.admin.topics():
                return 0
            (topic,) = broker.topics.values()
            return topic.visible

    return asyncio.run(main())
