"""A directory whose log time ran ahead, which `holdfast doctor DIR --repair-time` repairs."""

from __future__ import annotations

import asyncio

from holdfast.broker import Broker
from holdfast.system import SystemClock
from tests.kit.cli.data import Cli

YEAR_NS = 365 * 24 * 3600 * 10**9
DAY_S = 24 * 3600.0


def run_ahead(cli: Cli) -> None:
    """Leave a directory of a broker that was started with a clock a year ahead."""
    now_ns = SystemClock.now_ns
    with cli.patch.context() as patch:
        patch.setattr(SystemClock, "now_ns", lambda self: now_ns(self) + YEAR_NS)
        with Broker.open(cli.data, sync="os") as broker:
            broker.admin.create_topic("orders", retention_bytes=-1)
            with broker.producer("orders") as producer:
                producer.send(b"a year ahead")


def notes(cli: Cli) -> list[str]:
    findings = cli.answer("doctor", str(cli.data))["findings"]
    return [each["advice"] for each in findings if "log time" in each["what"]]


def check_repair(cli: Cli) -> None:
    """Let the doctor report, repair and report again; then ages and times are right."""
    run_ahead(cli)
    assert ["--repair-time" in each for each in notes(cli)] == [True], "the doctor tells"
    told = cli.answer("doctor", str(cli.data), "--repair-time")
    assert abs(told["was_ahead_s"] - YEAR_NS / 1e9) < DAY_S, "the command tells by how much"
    assert notes(cli) == [], "the doctor has nothing to tell any more"
    assert "nothing to repair" in cli.says("doctor", str(cli.data), "--repair-time")
    asyncio.run(look_at(cli))


async def look_at(cli: Cli) -> None:
    async with Broker.open(cli.data, sync="os") as broker:
        async with broker.producer("orders") as producer:
            await producer.send(b"now")
        assert broker.stats().log_time_ahead_s == 0, "log time is right after a restart"
        topic = broker.topic("persistent://public/default/orders")
        assert [each.last_time <= broker.machine.log.time for each in topic.state.ledgers] == [True, True], (
            "a ledger of the future never grows old"
        )
