"""Checks of stuck subscriptions: only attached consumers can be stuck; offline is not a fault."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.broker.dispatch import stuck
from holdfast.broker.dispatch.types import Reason
from tests.kit.broker.dispatch_world import World, run
from tests.kit.broker.offline import page_of


def consumers_that_went_offline_leave_no_stuck_subscription() -> None:
    async def scenario(world: World) -> None:
        inbox = world.join(0, name="night shift")
        await world.settle(31)
        assert world.dispatcher.diagnose().stuck  # the consumer is attached, and receives nothing
        world.dispatcher.remove_consumer(inbox.id)
        await world.settle(1000)
        found = world.dispatcher.diagnose()
        assert (found.reason, found.stuck) == (Reason.NO_CONSUMERS, False)
        world.join(0, name="day shift")
        await world.settle(1)
        assert not world.dispatcher.diagnose().stuck  # too early
        await world.settle(30)
        assert world.dispatcher.diagnose().stuck

    run(scenario)


def every_other_reason_is_stuck_after_its_time() -> None:
    """Every reason is a fault but five, in which the users want the wait."""
    reasons = [value for name, value in vars(Reason).items() if name.isupper()]
    assert len(reasons) == 14
    for reason in reasons:
        look = stuck.Look(backlog=int(reason != Reason.NO_BACKLOG), idle_s=31)
        found = stuck.judged(look, reason, "", 30)
        harmless = (
            Reason.NO_BACKLOG,
            Reason.NO_CONSUMERS,
            Reason.OWNED_ELSEWHERE,
            Reason.RATE_LIMITED,
            Reason.SCHEDULED,
        )
        assert found.stuck == (reason not in harmless), reason


def the_metric_of_a_subscription_whose_consumers_are_offline(tmp_path: Path) -> None:
    for attached in (False, True):
        page = asyncio.run(page_of(tmp_path / str(attached), attached))
        (value,) = [
            line.rpartition(" ")[2]
            for line in page.splitlines()
            if line.startswith("holdfast_subscription_stuck{")
        ]
        assert value == str(int(attached))
