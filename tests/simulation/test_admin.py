"""Administer whole namespaces in a simulated cluster, at any member."""

from __future__ import annotations

from holdfast.broker.events import Notice, Unloaded
from tests.kit.broker.trio import Trio, scene


def test_any_member_clears_and_expires() -> None:
    """The subscription belongs to member 1, which has its consumer; the others are asked."""

    async def work(trio: Trio) -> None:
        async with trio.consumer(1, receiver_queue=2) as one:
            await trio.publish(2, 10)
            await one.receive_many(2, timeout=5)
            assert trio.owner() == 1
            assert await trio.brokers[2].admin.clear_namespace("public/default", "billing") == 1
            await trio.settle()
            for broker in trio.brokers.values():
                assert broker.admin.subscription_stats("orders", "billing").backlog == 0
            await trio.publish(3, 5)
            await trio.settle(100)  # clocks of simulated nodes differ
            assert await trio.brokers[3].admin.expire_all("orders", 2) == 1
            await trio.settle()
            assert trio.brokers[1].admin.subscription_stats("orders", "billing").backlog == 0

    scene(work)


def test_every_member_is_told_of_an_unload() -> None:
    """I290: once, also the member that was asked; the state stays the same."""

    async def work(trio: Trio) -> None:
        told: list[tuple[int, str]] = []

        def watch(number: int) -> None:
            def note(notices: list[Notice]) -> None:
                told.extend((number, each.topic.name) for each in notices if isinstance(each, Unloaded))

            trio.brokers[number].watch(note)  # type: ignore[arg-type]

        for number in trio.brokers:
            watch(number)
        await trio.brokers[2].admin.unload("orders")
        await trio.settle()
        assert sorted(told) == [(number, "persistent://public/default/orders") for number in (1, 2, 3)]
        await trio.brokers[3].admin.unload_namespace("public/default")
        await trio.settle()
        assert len(told) == 6

    scene(work)


def test_settings_are_those_of_all_members() -> None:
    """I291: a change at one member applies at every one, also to a restored value."""

    async def work(trio: Trio) -> None:
        await trio.brokers[2].membership.set_options({"roll_entries": 77})
        await trio.settle()
        assert {each.decided.roll_entries for each in trio.brokers.values()} == {77}
        await trio.brokers[3].membership.restore_options(["roll_entries"])
        await trio.settle()
        assert {each.decided.roll_entries for each in trio.brokers.values()} == {1 << 20}

    scene(work)
