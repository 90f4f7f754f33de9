"""A member joins and serves topic by topic (S4.17), with trouble in the middle."""

from __future__ import annotations

import asyncio
import re

import pytest

from holdfast.server.cluster_view import BrokerCluster, queues
from tests.kit.cluster import updates
from tests.kit.cluster.updates import LARGE, SMALL, updating
from tests.kit.sim import SimDisk


def test_a_topic_is_served_before_the_next_one_is_there() -> None:
    updates.served_topic_by_topic()


def test_ledgers_come_newest_first() -> None:
    updates.reads_say_why()


def test_a_reader_waits_for_old_messages_and_says_why() -> None:
    with updating() as world:
        world.restart_slowly()

        async def read() -> list[bytes]:
            async with world.brokers[3].reader("large", start="earliest") as reader:
                return [bytes((await reader.receive(timeout=50)).data).split()[0] for _ in range(LARGE)]

        task = world.sim.loop.create_task(read())
        world.until_small()
        (dispatcher,) = world.brokers[3].topic("persistent://public/default/large").served
        assert "is not here yet" in dispatcher.stats().last_error
        assert world.sim.loop.run_until_complete(task) == [b"%d" % at for at in range(LARGE)]


def test_a_member_that_is_updated_owns_no_subscription_of_that_topic() -> None:
    updates.owns_nothing_before()


def test_messages_are_published_at_a_member_that_is_updated() -> None:
    """S4.17: an updatee pushes messages onto a topic that is updating."""
    with updating() as world:
        world.restart_slowly()
        world.send(3, "large", 20, first=LARGE)
        assert world.lacking() > 0
        world.until_whole()
        assert world.take(3, "large", LARGE + 20) == list(range(LARGE + 20))


def test_an_incomplete_member_does_not_count_for_stability() -> None:
    updates.holds_nothing_before()


def test_the_next_donor_goes_on_when_one_dies() -> None:
    """Ledgers that came stay: only the file that was under way is sent again."""
    updates.the_next_donor_goes_on()


def test_a_member_that_dies_in_the_middle_does_not_get_ledgers_again() -> None:
    updates.nothing_is_sent_again()


def test_ledgers_that_are_trimmed_meanwhile_are_not_needed() -> None:
    """The topic is truncated while its ledgers are fetched; another one is deleted."""
    with updating() as world:
        world.restart_slowly()
        for name in ("large", "small"):
            world.do(world.brokers[1].admin.delete_subscription(name, "s", force=True))
        world.do(world.brokers[1].admin.delete_topic("small"))
        world.do(world.brokers[1].admin.truncate("large"))
        for number in (1, 2):
            world.do(world.brokers[number].store.snapshot())
        world.until_whole()
        names = world.do(SimDisk(world.sim.platter(3)).list("ledgers"))
        kept = world.do(SimDisk(world.sim.platter(1)).list("ledgers"))
        assert set(names) <= set(kept)
        updates.restart_all(world)
        world.until_whole()


def test_a_trim_before_the_last_snapshot_of_the_copy_is_recovered() -> None:
    """A power cut right after the update: the snapshot lists ledgers that were never fetched."""
    updates.power_cut_after_trims()


def test_ledgers_are_rolled_while_others_are_fetched() -> None:
    with updating() as world:
        world.restart_slowly()
        for first in range(LARGE, LARGE + 64, 8):
            world.send(1, "large", 8, first)
        world.do(world.brokers[3].store.snapshot())
        world.until_whole()
        assert world.take(3, "large", LARGE + 64) == list(range(LARGE + 64))


def test_a_topic_that_is_created_meanwhile_is_ready_at_once() -> None:
    with updating() as world:
        world.restart_slowly()
        world.do(world.brokers[3].admin.create_topic("new", retention_bytes=-1))
        world.do(world.brokers[3].admin.create_subscription("new", "s", start="earliest"))
        world.send(3, "new", 5)
        assert world.take(3, "new", 5) == list(range(5))
        assert world.lacking() > 0


def test_an_update_that_is_dropped_with_its_loop_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    with updating() as world:
        world.restart_slowly()
        world.until_small()
        assert world.lacking() > 0
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


def test_a_lookup_leads_to_a_member_that_is_ready() -> None:
    with updating() as world:
        world.restart_slowly()
        full = "persistent://public/default/large"
        state = world.brokers[3].machine.state
        assert state.topics[state.names[full]].unready == {world.brokers[3].group.member}

        async def announce() -> None:
            for broker in world.brokers.values():
                broker.membership.announce(f"n{broker.membership.node}")
            await asyncio.sleep(0.1)

        world.do(announce())
        owner = world.brokers[3].membership.owner(full)
        assert owner is not None
        assert owner.node in (1, 2)
        world.until_whole()
        assert state.topics[state.names[full]].unready == set()


def test_the_status_says_what_is_missing() -> None:
    """`holdfast cluster status`, `members` and `queues`, and the metrics, at each member."""
    with updating() as world:
        world.restart_slowly()
        world.until_small()
        world.sim.run_until(
            lambda: world.brokers[1].membership.lacking_topics(world.brokers[3].group.member) == 1
        )
        here, there = world.brokers[3], world.brokers[1]
        view = BrokerCluster(there, there.close, lambda node: there.close())
        assert [each.lacking_topics for each in view.members()] == [0, 0, 1]
        found = {each.topic.rpartition("/")[2]: each for each in world.do(queues(there))}
        assert (found["small"].updating, found["large"].updating) == ([], [str(here.group.member)])
        assert (found["large"].missing_bytes, there.topic(found["large"].topic).is_whole) == (0, True)
        mine = {each.topic: each for each in world.do(queues(here))}
        assert mine[found["large"].topic].missing_bytes > 2000
        view = BrokerCluster(here, here.close, lambda node: here.close())
        assert re.match(r"fetches \d+ ledgers? of 1 topic, [\d,]+ bytes; until then", view.status().note)
        assert "holdfast_cluster_lacking_topics" in here.metrics()
        world.until_whole()
        assert view.status().note == ""
        assert [each.lacking_topics for each in view.members()] == [0, 0, 0]


def test_the_mark_stays_until_all_is_there() -> None:
    updates.the_mark_stays()


def test_a_split_in_the_middle_begins_again() -> None:
    with updating() as world:
        world.restart_slowly()
        world.until_small()
        world.sim.split([3])
        world.sim.run(2)
        world.sim.heal()
        world.until_whole()
        assert world.take(3, "large", LARGE) == list(range(LARGE))


def test_a_member_that_lacks_ledgers_is_no_donor() -> None:
    """Node 2 comes back while node 3 is updated: it copies from node 1."""
    with updating() as world:
        world.restart_slowly()
        world.sim.crash(2)
        world.until_lost(2)
        world.sim.restart(2)
        both = 0
        while world.lacking():
            world.sim.run(0.01)
            assert world.members[2].status().donor in (0, 1)
            both += world.members[2].status().donor == 1
        assert both
        world.until_whole()
        assert world.take(2, "small", SMALL) == list(range(SMALL))


def test_a_damaged_ledger_is_not_taken() -> None:
    updates.damaged_on_the_way()


def test_frames_are_bounded_while_the_journal_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames beyond the bound are dropped; then the journal is asked for again."""
    updates.frames_are_bounded(monkeypatch)
