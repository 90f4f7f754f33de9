"""Key_Shared, step by step in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import _core
from holdfast.broker.dispatch.keys import Keys
from holdfast.broker.dispatch.types import Reason
from holdfast.broker.key_shared import KeyShared, hashes_of, joined, split
from holdfast.errors import Busy, Misuse
from tests.kit.broker.dispatch_world import Inbox, World, run

KEYS = 10


def join(world: World, name: str, permits: int = 1000, **more: Any) -> Inbox:
    return world.join(permits, type="key_shared", name=name, **more)


def keys_of(ordinals: list[int]) -> set[int]:
    return {each % KEYS for each in ordinals}


def owner_of(names: list[str]) -> dict[int, str]:
    """Return the consumer of each key, by the split alone (I265)."""
    ranges = split([(name, KeyShared()) for name in names])
    found = {}
    for key in range(KEYS):
        hash_ = _core.key_hash(b"key %d" % key)
        found[key] = next(names[at] for first, last, at in ranges if first <= hash_ <= last)
    return found


def test_each_key_has_one_consumer() -> None:
    async def scenario(world: World) -> None:
        inboxes = {name: join(world, name) for name in "abc"}
        await world.settle()
        assert sorted(each for inbox in inboxes.values() for each in inbox.ordinals) == [*range(50)]
        for key, name in owner_of([*"abc"]).items():
            assert [each for each in inboxes[name].ordinals if each % KEYS == key] == [*range(key, 50, KEYS)]

    run(scenario, entries=50, keys=KEYS)


def test_a_key_moves_after_its_acknowledgement() -> None:
    """Footnote 4 of the seed: a later message does not overtake an earlier one."""

    async def scenario(world: World) -> None:
        one = join(world, "one")
        await world.settle()
        two = join(world, "two")
        moved = {key for key, name in owner_of(["one", "two"]).items() if name == "two"}
        assert moved
        world.topic.grow(20)
        world.dispatcher.wake()
        await world.settle()
        assert not two.ordinals
        assert keys_of(one.ordinals[20:]) == set(range(KEYS)) - moved
        (stats,) = [each for each in world.dispatcher.stats().consumers if each.name == "one"]
        assert stats.keys is not None
        assert {each.waiting for each in stats.keys.draining} == {"two"}
        assert stats.keys.draining_entries == 2 * len(moved)
        key = min(moved)
        await world.ack(one, [key])
        await world.settle()
        assert not two.ordinals, "one entry of the key is still unacknowledged"
        await world.ack(one, [key + KEYS])
        await world.settle()
        assert two.ordinals == [key + 20, key + 30]
        await world.ack(one, range(20))
        await world.settle()
        assert keys_of(two.ordinals) == moved

    run(scenario, entries=20, keys=KEYS)


def test_a_key_that_returns_to_its_holder() -> None:
    async def scenario(world: World) -> None:
        one = join(world, "one")
        await world.settle()
        two = join(world, "two")
        world.topic.grow(10)
        world.dispatcher.wake()
        await world.settle()
        world.dispatcher.remove_consumer(two.id)
        await world.settle()
        assert sorted(one.ordinals) == [*range(20)]
        for key in range(KEYS):
            assert [each for each in one.ordinals if each % KEYS == key] == [key, key + KEYS]

    run(scenario, entries=10, keys=KEYS)


def test_a_consumer_that_dies_leaves_the_order() -> None:
    async def scenario(world: World) -> None:
        one = join(world, "one", permits=25, again=False)
        await world.settle()
        two = join(world, "two")
        await world.settle()
        world.dispatcher.remove_consumer(one.id)
        await world.settle()
        for key in range(KEYS):
            assert [each for each in two.ordinals if each % KEYS == key] == [*range(key, 60, KEYS)]

    run(scenario, entries=60, keys=KEYS)


def test_a_negative_acknowledgement_holds_up_its_own_key() -> None:
    async def scenario(world: World) -> None:
        one = join(world, "one")
        await world.settle()
        world.dispatcher.nack(one.id, [3], delay_s=5)
        world.topic.grow(20)
        world.dispatcher.wake()
        await world.settle()
        assert [each for each in one.ordinals if each % KEYS == 3] == [3]
        assert len(one.ordinals) == 10 + 18
        assert world.dispatcher.diagnose().reason in (Reason.DELAYED, Reason.KEYS_WAIT)
        await world.settle(6)
        assert [each for each in one.ordinals if each % KEYS == 3] == [3, 3, 13, 23]
        assert max(one.counts) == 1

    run(scenario, entries=10, keys=KEYS)


def test_a_reset_while_consumers_leave_and_join() -> None:
    """Scenario 3 of the seed: the second consumer is not stuck."""

    async def scenario(world: World) -> None:
        one = join(world, "one")
        await world.settle()
        world.order.hold_stable = True
        call = asyncio.ensure_future(world.dispatcher.reset(5))
        await world.settle()
        world.dispatcher.remove_consumer(one.id)
        inboxes = [join(world, "first"), join(world, "second")]
        await world.settle()
        world.order.release()
        await call
        await world.settle()
        got = [each for inbox in inboxes for each in inbox.ordinals]
        assert sorted(got) == [*range(5, 40)]
        assert all(inbox.ordinals for inbox in inboxes), "one of them is stuck"

    run(scenario, entries=40, keys=KEYS)


def test_a_rewind_during_a_read() -> None:
    """Footnote 5 of the seed: an old read sets no limit to those that join."""

    async def scenario(world: World) -> None:
        one = join(world, "one", permits=5, again=False)
        await world.settle()
        world.topic.gate.shut = True
        world.dispatcher.flow(one.id, 100)
        await world.settle()
        world.dispatcher.remove_consumer(one.id)
        inboxes = [join(world, name) for name in "abc"]
        await world.settle()
        world.topic.gate.open()
        await world.settle()
        got = [each for inbox in inboxes for each in inbox.ordinals]
        assert sorted(got) == [*range(40)]

    run(scenario, entries=40, keys=KEYS)


def test_a_stuck_consumer_does_not_hold_up_others() -> None:
    async def scenario(world: World) -> None:
        stuck = join(world, "stuck", permits=1, again=False)
        other = join(world, "other", permits=10_000)
        await world.settle()
        mine = {key for key, name in owner_of(["stuck", "other"]).items() if name == "other"}
        assert len(stuck.ordinals) == 1
        assert len(other.ordinals) == 200 * len(mine)
        world.dispatcher.flow(stuck.id, 1)
        await world.settle()
        assert len(stuck.ordinals) == 2

    run(scenario, entries=200 * KEYS, keys=KEYS)


def test_reading_ahead_has_a_limit() -> None:
    async def scenario(world: World) -> None:
        stuck = join(world, "stuck", permits=0)
        other = join(world, "other")
        await world.settle()
        stats = world.dispatcher.stats()
        assert stats.replay_entries == 30
        assert stats.read_position < 200
        assert stats.diagnosis.reason == Reason.KEYS_WAIT
        world.dispatcher.flow(stuck.id, 1000)
        await world.settle()
        assert sorted(stuck.ordinals + other.ordinals) == [*range(400)]

    run(scenario, entries=400, keys=KEYS, ahead_entries=30)


def test_entries_that_wait_are_read_once() -> None:
    async def scenario(world: World) -> None:
        inbox = join(world, "one", permits=10, again=False)
        join(world, "two", permits=1000)
        await world.settle()
        reads = len(world.topic.reads)
        for _ in range(5):
            world.dispatcher.flow(inbox.id, 10)
            await world.settle()
        assert len(inbox.ordinals) == 60
        assert len(world.topic.reads) == reads

    run(scenario, entries=400, keys=KEYS)


def test_without_order_a_key_moves_at_once() -> None:
    async def scenario(world: World) -> None:
        join(world, "one", keys=KeyShared(unordered=True))
        await world.settle()
        two = join(world, "two", keys=KeyShared(unordered=True))
        world.topic.grow(10)
        world.dispatcher.wake()
        await world.settle()
        moved = {key for key, name in owner_of(["one", "two"]).items() if name == "two"}
        assert keys_of(two.ordinals) == moved

    run(scenario, entries=10, keys=KEYS)


@pytest.mark.parametrize("count", [30, 300])
def test_consumers_that_come_and_go_together_are_split_once(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand that join or leave do not occupy the broker, and lose no entry."""
    splits, split = [0], Keys.split

    def counted(self: Keys, attached: Any) -> None:
        splits[0] += 1
        split(self, attached)

    monkeypatch.setattr(Keys, "split", counted)

    async def scenario(world: World) -> None:
        inboxes = [join(world, f"c{number}") for number in range(count)]
        await world.settle(0.1)
        assert splits[0] == 1
        assert sorted(each for inbox in inboxes for each in inbox.ordinals) == [*range(50)]
        holders = [inbox for inbox in inboxes if inbox.messages]
        assert len(holders) > 1
        for inbox in inboxes[1:]:
            world.dispatcher.remove_consumer(inbox.id)
            world.dispatcher.check()
        assert len(world.dispatcher.stats().consumers) == 1  # stats show the split of this moment
        assert world.dispatcher.key_stats()[inboxes[0].id].ranges == ((0, 65535),)
        await world.settle(0.1)
        assert splits[0] == 2
        assert sorted(inboxes[0].ordinals) == [*range(50)]

    run(scenario, entries=50, keys=KEYS)


def test_stats_collect_the_ranges_once_for_a_split() -> None:
    """Metrics of a thousand consumers would stop the broker at each scrape."""

    async def scenario(world: World) -> None:
        one = join(world, "one")
        join(world, "two")
        await world.settle()
        first = world.dispatcher.key_stats()[one.id].ranges
        assert len(first) > 20
        assert world.dispatcher.key_stats()[one.id].ranges is first
        three = join(world, "three")
        later = world.dispatcher.key_stats()
        assert len({each.ranges for each in later.values()}) == 3
        assert later[one.id].ranges != first
        world.dispatcher.remove_consumer(three.id)
        assert world.dispatcher.key_stats()[one.id].ranges == first

    run(scenario, entries=5, keys=KEYS)


def test_a_consumer_is_compared_with_one_other() -> None:
    """All that share keys agree; only ranges are compared with each consumer."""
    looked = [0]

    def others() -> Any:
        for _ in range(9):
            looked[0] += 1
            yield Other([])

    KeyShared().require_fits("s", others())
    assert looked[0] == 1


def test_sticky_consumers() -> None:
    async def scenario(world: World) -> None:
        low = join(world, "low", keys=KeyShared(((0, 32767),)))
        await world.settle()
        below = {key for key in range(KEYS) if _core.key_hash(b"key %d" % key) < 32768}
        assert keys_of(low.ordinals) == below
        assert world.dispatcher.diagnose().reason == Reason.KEYS_WAIT
        with pytest.raises(Busy, match=r"32767-40000 overlaps 0-32767, which consumer 'low'"):
            join(world, "x", keys=KeyShared(((32767, 40000),)))
        with pytest.raises(Misuse, match="has sticky consumers"):
            join(world, "x")
        with pytest.raises(Misuse, match="allow_out_of_order_delivery"):
            join(world, "x", keys=KeyShared(((50000, 50001),), unordered=True))
        with pytest.raises(Misuse, match="shared consumer cannot join"):
            world.join(type="shared")
        high = join(world, "high", keys=KeyShared(((32768, 65535),)))
        await world.settle()
        assert keys_of(high.ordinals) == set(range(KEYS)) - below

    run(scenario, entries=20, keys=KEYS)


class Other:
    """A consumer that has ranges, and counts how often these are looked at."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self.name, self.keys = "other", KeyShared(tuple(Counted(each) for each in ranges))


class Counted(tuple[int, int]):
    looks = 0

    def __getitem__(self, at: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(at)


def test_many_ranges_are_compared_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a consumer beside 64 others occupies every member for seconds."""
    monkeypatch.setattr(Counted, "looks", 0)
    other = Other([(2 * at, 2 * at) for at in range(1000)])
    KeyShared(tuple((2 * at + 1, 2 * at + 1) for at in range(1000))).require_fits("s", [other])
    assert 0 < Counted.looks <= 4000
    with pytest.raises(Busy, match="range of hashes 500-501 overlaps 500-500"):
        KeyShared(((500, 501),)).require_fits("s", [other])


@pytest.mark.parametrize(
    ("ranges", "word"),
    [
        (((5, 4),), "the smaller one first"),
        (((0, 65536),), "from 0 to 65535"),
        (((-1, 3),), "from 0 to 65535"),
        (((3, 9), (0, 3)), "overlap"),
        (tuple((2 * at, 2 * at) for at in range(1001)), "at most 1000"),
    ],
)
def test_ranges_that_are_not_sound(ranges: Any, word: str) -> None:
    with pytest.raises(Misuse, match=word):
        KeyShared(ranges).require_sound()


def test_replays_stay_below_the_read_position() -> None:
    """I266: the seed's compensation is not needed."""
    for keyed in (False, True):
        table = _core.Dispatch()
        if keyed:
            table.set_keyed(False)
        table.position = 10
        table.put_back([(5, 15)])
        assert table.replay_entries == 5
        table.position = 7
        assert table.replay_entries == 2
        table.check()


def test_hashes_follow_their_entries() -> None:
    ranges, hashes = [(3, 6), (9, 11), (20, 21)], b"aabbccddeeff"
    assert hashes_of(ranges, hashes, [(4, 6), (10, 11), (20, 21)]) == b"bbcceeff"
    assert hashes_of(ranges, hashes, []) == b""
    assert hashes_of(ranges, hashes, [(0, 99)]) == hashes
    assert hashes_of([(0, 2), (2, 4)], b"aabbccdd", [(1, 3)]) == b"bbcc"
    assert joined([([(3, 5)], b"aabb"), ([(4, 6)], b"xxcc")]) == b"aabbcc"
