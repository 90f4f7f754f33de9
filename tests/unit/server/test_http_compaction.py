"""Compaction over HTTP: requests and their states, views, thresholds, partitions, figures."""

from __future__ import annotations

from typing import Any

import pytest
from pyroaring import BitMap64

from holdfast.broker.events import CompactionBegin, CompactionDone
from holdfast.broker.membership import owner_of_topic
from holdfast.names import topic_name
from holdfast.server.http.compaction_routes import CompactionAnswer, Status, whole_of
from tests.kit.broker.crowd import A
from tests.kit.server import compaction_checks as checks
from tests.kit.server.cluster_checks import NAMES, member
from tests.kit.server.compaction_checks import (
    NS,
    THRESHOLD,
    compacted,
    compaction,
    ended,
    failing,
    keyed,
    waiting,
)
from tests.kit.server.http_metrics_checks import page_of, value
from tests.kit.server.http_world import HttpWorld, T, http

__all__ = ["http"]


async def read_compacted(http: HttpWorld, topic: str) -> list[bytes]:
    async with http.broker.reader(topic.rpartition("/")[2], compacted=True) as reader:
        found = []
        while await reader.has_more():
            found.append((await reader.read()).data)
        return found


# -- one topic -----------------------------------------------------------------------------------------


def test_a_compaction_from_its_request_to_its_view(http: HttpWorld) -> None:
    topic = keyed(http, messages=10)
    before = compaction(http, topic)
    assert (before["status"], before["lastError"], before["view"]) == ("NOT_RUN", "", 0)
    assert before["sizeBehind"] > 0
    none = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False, "underReplicated": False}
    assert http.get(f"{topic}/internalStats")["compactedLedger"] == none
    assert set(http.get(f"{topic}/stats")["compaction"].values()) == {0}
    found = compacted(http, topic)
    assert (found["messagesRead"], found["messagesKept"], found["entries"]) == (10, 3, 3)
    assert (found["horizon"], found["sizeBehind"], found["succeeded"], found["removed"]) == ("end", 0, 1, 7)
    ledger = http.get(f"{topic}/internalStats")["compactedLedger"]
    assert (ledger["ledgerId"], ledger["entries"]) == (found["viewLedger"], 3)
    assert ledger["size"] == found["size"] > 0
    assert http.get(f"{topic}/stats")["compaction"] == {
        "lastCompactionRemovedEventCount": 7,
        "lastCompactionSucceedTimestamp": found["viewTimestamp"],
        "lastCompactionFailedTimestamp": 0,
        "lastCompactionDurationTimeInMills": found["durationInMillis"],
    }
    assert http.run(read_compacted(http, topic)) == [b"7", b"8", b"9"]
    http.run(checks.fill(http, topic, 1))
    last = http.get(f"{topic}/lastMessageId")
    found = compaction(http, topic)
    assert found["horizon"] == f"{last['ledgerId']}:{last['entryId']}"
    assert found["sizeBehind"] > 0


def test_an_empty_view_has_no_ledger(http: HttpWorld) -> None:
    """All messages are without a key: the view exists, and is empty."""
    topic = http.topic(messages=3)
    found = compacted(http, topic)
    assert (found["view"], found["viewLedger"], found["entries"], found["messagesRead"]) == (1, 0, 0, 3)
    ledger = http.get(f"{topic}/internalStats")["compactedLedger"]
    assert (ledger["ledgerId"], ledger["entries"], ledger["size"]) == (0, 0, 0)


def test_a_second_request_is_refused_while_one_runs(http: HttpWorld) -> None:
    topic = keyed(http)
    with waiting(http):
        http.done("PUT", f"{topic}/compaction")
        found = compaction(http, topic)
        assert found["status"] == "RUNNING"
        assert found["requestedTimestamp"] > 0
        assert value(http, "holdfast_topic_compaction_running", topic) == 1
        again = http.ask("PUT", f"{topic}/compaction")
        assert (again.status, "is being compacted already" in again.reason) == (409, True)
        http.done("DELETE", f"{topic}/compaction")
        assert compaction(http, topic)["status"] == "NOT_RUN"


def test_a_request_is_answered_when_it_is_durable(http: HttpWorld) -> None:
    checks.a_request_is_answered_when_it_is_durable(http)


def test_a_failure_is_told_and_does_not_stay(http: HttpWorld) -> None:
    checks.a_failure_is_told_and_does_not_stay(http)


def test_a_view_is_removed(http: HttpWorld) -> None:
    """Messages that only the view had are gone; a second time nothing changes."""
    topic = keyed(http, messages=10)
    compacted(http, topic)
    http.done("DELETE", f"{topic}/truncate")
    assert http.run(read_compacted(http, topic)) == []
    http.run(checks.fill(http, topic, 4))
    compacted(http, topic)
    assert http.run(read_compacted(http, topic)) == [b"1", b"2", b"3"]
    for _ in range(2):
        http.done("DELETE", f"{topic}/compaction")
        found = compaction(http, topic)
        assert (found["status"], found["view"], found["entries"]) == ("NOT_RUN", 0, 0)
    assert http.run(read_compacted(http, topic)) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("method", ["PUT", "GET", "DELETE"])
def test_topics_that_cannot_be_compacted(http: HttpWorld, method: str) -> None:
    http.ask("PUT", "/admin/v2/exchanges/public/default/passing")
    found = http.ask(method, f"{T}/passing/compaction")
    assert (found.status, "is an exchange, not a topic" in found.reason) == (412, True)
    found = http.ask(method, f"{T.replace('persistent', 'non-persistent')}/volatile/compaction")
    assert (found.status, "a non-persistent topic has none" in found.reason) == (501, True)


# -- thresholds ----------------------------------------------------------------------------------------


def test_the_nearest_threshold_decides(http: HttpWorld) -> None:
    checks.the_nearest_threshold_decides(http)


def test_the_option_applies_without_a_policy(http: HttpWorld) -> None:
    """Each place of the value is told, and what it is set to there."""
    topic = http.topic()

    def shown() -> tuple[Any, Any, Any]:
        found = http.get(f"{topic}/policies")["compaction_threshold"]
        assert found["applied"] == http.get(f"{topic}/{THRESHOLD}?applied=true")
        return found["own"], found["applied"], found["level"]

    assert shown() == (None, 0, "broker")
    http.done("POST", "/admin/v2/brokers/configuration/broker.compaction_threshold/1073741824")
    assert shown() == (None, 1 << 30, "broker")
    assert compaction(http, topic)["threshold"] == 1 << 30
    http.done("PUT", f"{NS}/{THRESHOLD}", json=1 << 20)
    assert (http.get(f"{NS}/{THRESHOLD}"), shown()) == (1 << 20, (None, 1 << 20, "namespace"))
    http.done("POST", f"{topic}/{THRESHOLD}", json=1 << 40)
    assert shown() == (1 << 40, 1 << 40, "topic")
    http.done("DELETE", f"{topic}/{THRESHOLD}")
    http.done("DELETE", f"{NS}/{THRESHOLD}")
    http.done("DELETE", "/admin/v2/brokers/configuration/broker.compaction_threshold")
    assert (http.get(f"{NS}/{THRESHOLD}"), shown()) == (None, (None, 0, "broker"))


@pytest.mark.parametrize("body", [-1, 1 << 62, "10M", 1.5, None, {}])
def test_a_threshold_that_is_not_possible(http: HttpWorld, body: Any) -> None:
    topic = http.topic()
    for method, path in (("POST", topic), ("PUT", NS)):
        found = http.ask(method, f"{path}/{THRESHOLD}", json=body)
        assert found.status == 400, found
        assert http.get(f"{path}/{THRESHOLD}") is None


@pytest.mark.parametrize(("method", "path"), [("POST", NS), ("PUT", f"{T}/x")])
def test_the_methods_are_those_of_pulsar(http: HttpWorld, method: str, path: str) -> None:
    found = http.ask(method, f"{path}/{THRESHOLD}", json=1)
    assert (found.status, f"does not accept {method}" in found.reason) == (405, True)


# -- partitions ----------------------------------------------------------------------------------------


def test_each_partition_is_compacted(http: HttpWorld) -> None:
    topic = f"{T}/divided"
    http.done("PUT", f"{topic}/partitions", json=3)
    assert compaction(http, topic)["status"] == "NOT_RUN"
    for at, messages in enumerate((10, 20, 30)):
        http.run(checks.fill(http, f"{topic}-partition-{at}", messages))
    compacted(http, f"{topic}-partition-1")
    assert compaction(http, topic)["status"] == "NOT_RUN", "of the others"
    found = compacted(http, topic)
    assert (found["horizon"], found["messagesRead"], found["messagesKept"], found["succeeded"]) == (
        *("", 10 + 3 + 30, 9),
        4,
    )
    assert found["view"] == 2
    stats = http.get(f"{topic}/partitioned-stats")
    each = [one["compaction"] for one in stats["partitions"].values()]
    total = stats["compaction"]
    assert total["lastCompactionRemovedEventCount"] == 7 + 0 + 27
    for name in ("lastCompactionSucceedTimestamp", "lastCompactionDurationTimeInMills"):
        assert total[name] == max(one[name] for one in each)
    http.done("POST", f"{topic}/{THRESHOLD}", json=5 << 20)
    assert compaction(http, topic)["threshold"] == http.get(f"{topic}/{THRESHOLD}") == 5 << 20
    http.done("DELETE", f"{topic}/compaction")
    assert compaction(http, topic)["view"] == 0


def test_the_failure_of_a_partition_is_told_with_its_name(http: HttpWorld) -> None:
    topic = f"{T}/half"
    http.done("PUT", f"{topic}/partitions", json=2)
    http.run(checks.fill(http, f"{topic}-partition-1", 1))  # the other is empty, so it reads nothing
    with failing("torn"):
        http.done("PUT", f"{topic}-partition-1/compaction")
        ended(http, f"{topic}-partition-1", "ERROR")
    compacted(http, f"{topic}-partition-0")
    found = compaction(http, topic)
    assert (found["status"], found["failed"], found["succeeded"]) == ("ERROR", 1, 1)
    assert found["lastError"] == "persistent://public/default/half-partition-1: torn"


@pytest.mark.parametrize(
    ("statuses", "whole"),
    [
        (("SUCCESS", "SUCCESS"), "SUCCESS"),
        (("SUCCESS", "NOT_RUN"), "NOT_RUN"),
        (("NOT_RUN", "ERROR"), "ERROR"),
        (("SUCCESS", "ERROR", "RUNNING"), "RUNNING"),
    ],
)
def test_the_status_of_several_partitions(statuses: tuple[Status, ...], whole: Status) -> None:
    found = {f"partition {at}": CompactionAnswer(status=each) for at, each in enumerate(statuses)}
    assert whole_of(found).status == whole


# -- a cluster -----------------------------------------------------------------------------------------


def test_any_member_takes_requests_and_tells_the_state() -> None:
    """The owner alone compacts and counts."""
    with member() as found:
        world, broker = found.world, found.world.broker
        state = broker.machine.state
        name = next(each for each in NAMES if owner_of_topic(state, topic_name(each)) not in (A, None))
        owner = owner_of_topic(state, topic_name(name))
        assert owner is not None
        world.done("PUT", f"{T}/{name}")
        topic = broker.topic(topic_name(name))
        world.done("PUT", f"{T}/{name}/compaction")
        assert compaction(world, f"{T}/{name}")["status"] == "RUNNING"
        assert not broker.compactions.running(topic)
        token = b"t" * 16
        done = CompactionDone(topic.id, token, 0, 0, BitMap64().serialize(), 0, 0, 5)
        found.say("say", owner, CompactionBegin(topic.id, token, 0, 0), done)
        told = compaction(world, f"{T}/{name}")
        assert (told["status"], told["durationInMillis"], told["succeeded"]) == ("SUCCESS", 5, 0)


# -- metrics -------------------------------------------------------------------------------------------


def test_metrics_of_compactions(http: HttpWorld) -> None:
    topic, other = keyed(http, messages=10), http.topic(messages=1)
    found = compacted(http, topic)
    names = {
        "pulsar_compaction_removed_event_count": 7,
        "pulsar_compaction_succeed_count": 1,
        "pulsar_compaction_failed_count": 0,
        "pulsar_compaction_duration_time_in_mills": found["durationInMillis"],
        "pulsar_compaction_compacted_entries_count": 3,
        "pulsar_compaction_compacted_entries_size": found["size"],
        "pulsar_compaction_latency_count": 3,
        "holdfast_topic_compaction_running": 0,
        "holdfast_topic_compaction_failed": 0,
        "holdfast_topic_compaction_behind_bytes": 0,
    }
    assert {name: value(http, name, topic) for name in names} == names
    read, wrote = (value(http, f"pulsar_compaction_{each}_throughput", topic) for each in ("read", "write"))
    assert read > wrote > 0, "it reads all twice, and writes what survives"
    classes = [each for each in page_of(http) if each.name.startswith("pulsar_compaction_latency_le_")]
    assert len({each.name for each in classes}) == 9
    of_other = [
        each for each in page_of(http) if any(other.rpartition("/")[2] in of for _, of in each.labels)
    ]
    assert of_other, "it has other metrics"
    assert not [each.name for each in of_other if "compaction" in each.name]


def test_metrics_of_a_failure(http: HttpWorld) -> None:
    """A failed compaction stays visible until one succeeds, also while it is tried again."""
    topic = keyed(http)
    with failing():
        compacted(http, topic, "ERROR")
    assert value(http, "holdfast_topic_compaction_failed", topic) == 1
    assert value(http, "pulsar_compaction_failed_count", topic) == 1
    assert value(http, "holdfast_topic_compaction_behind_bytes", topic) > 0
    compacted(http, topic)
    assert value(http, "holdfast_topic_compaction_failed", topic) == 0
    assert value(http, "pulsar_compaction_failed_count", topic) == 1


# -- trimming ------------------------------------------------------------------------------------------


def test_a_threshold_keeps_all_until_the_first_view(http: HttpWorld) -> None:
    """A first compaction that fails changes nothing: the next one needs the same messages."""
    topic = http.topic(subscription="s")
    http.done("POST", f"{topic}/policies", json={"roll_entries": 2, "compaction_threshold": 1 << 40})

    def kept() -> int:
        http.run(checks.fill(http, topic, 4))
        http.done("POST", f"{topic}/subscription/s/skip_all")
        http.run(http.broker.settle())
        found: int = http.get(f"{topic}/internalStats")["numberOfEntries"]
        return found

    assert kept() == 4
    with failing():
        compacted(http, topic, "ERROR")
        assert kept() == 8
    compacted(http, topic)
    assert http.run(read_compacted(http, topic)) == [b"1", b"2", b"3"]
    http.done("POST", f"{topic}/policies", json={"compaction_threshold": None})
    http.done("DELETE", f"{topic}/compaction")
    assert kept() < 12, "nothing keeps them any more"
