"""Unloading, and options that were changed at run time: the events, restarts and the cluster."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from holdfast.broker import Broker, Quota
from holdfast.broker.events import OptionsChange, OptionsSet, TopicCreate, Unload, Unloaded
from holdfast.broker.events.outcomes import Done
from holdfast.errors import Misuse, NotFound
from holdfast.server.config import Limits
from tests.kit.broker.brokers import on_broker
from tests.kit.broker.events import Rig, nothing_happens, refused
from tests.kit.broker.member_checks import SMALL, crowded, sent


def unloaded(rig: Rig) -> list[str]:
    assert rig.last is not None
    return [each.topic.name for each in rig.last.notices if isinstance(each, Unloaded)]


def test_an_unload_changes_no_state() -> None:
    """I290: it is only a notice, of the topic or the topics of the namespace."""
    rig = Rig()
    topics = [_topic(rig, name) for name in ("a/b/one", "a/b/two", "a/c/three")]
    nothing_happens(rig, Unload(topic=topics[0]))
    assert unloaded(rig) == ["persistent://a/b/one"]
    nothing_happens(rig, Unload(namespace="a/b"))
    assert unloaded(rig) == ["persistent://a/b/one", "persistent://a/b/two"]
    refused(rig, Unload(topic=99), NotFound, "99")
    refused(rig, Unload(namespace="a/x"), NotFound, "a/x")
    refused(rig, Unload(), Misuse, "either a topic or a namespace")
    refused(rig, Unload(topics[0], "a/b"), Misuse, "either a topic or a namespace")


def _topic(rig: Rig, name: str) -> int:
    rig.do(TopicCreate(f"persistent://{name}", bytes(16)))
    return int(rig.state.names[f"persistent://{name}"])


def test_changed_options_are_state() -> None:
    """I291: also after a restart, from the journal and from a snapshot."""
    rig = Rig()
    empty = rig.machine.digest()
    assert rig.do(OptionsChange({"a": 1, "b": 2.5}, [])) == Done()
    assert rig.machine.digest() != empty
    snapshot, at = rig.machine.capture().parts, len(rig.journal)
    nothing_happens(rig, OptionsChange({"a": 1}, ["c"]))
    rig.do(OptionsChange({"a": 7}, ["b"]))
    assert rig.state.decided.changed == {"a": 7}
    assert rig.state.decided.values == {}
    digest = rig.machine.digest()
    assert rig.twin().digest() == rig.restarted().digest() == rig.restarted(snapshot, at).digest() == digest
    rig.do(OptionsChange({}, ["a"]))
    assert rig.state.decided.changed == {}


def test_options_outlive_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """I291: the changed value applies, the log says so, and it can be restored."""

    async def change(broker: Broker) -> None:
        await broker.membership.set_options({"roll_entries": 5, "retention_s": 60})
        await broker.membership.restore_options(["retention_s"])
        assert (broker.decided.roll_entries, broker.options.roll_entries) == (5, 7)
        await broker.admin.create_topic("orders")
        assert broker.admin.applied_policies("orders").retention_s == 0
        with pytest.raises(Misuse, match="roll_entries is -5"):
            await broker.membership.set_options({"roll_entries": -5})
        with pytest.raises(Misuse, match="'sync' is not an option"):
            await broker.membership.restore_options(["sync"])

    async def look(broker: Broker) -> None:
        assert broker.membership.differing() == {"roll_entries": (5, 7)}
        assert not caplog.records, "a program that visits a directory says nothing"
        quota = Quota(broker, Limits(topics=100))
        quota.start()
        (record,) = caplog.records
        assert "has roll_entries = 7, and it was changed at run time to 5" in record.getMessage()
        await broker.membership.set_options({"limits.topics": 1})
        with pytest.raises(Exception, match="exceed the limit of 1"):
            await broker.admin.create_topic("more")
        await broker.membership.restore_options(["limits.topics", "roll_entries"])
        await broker.admin.create_topic("more")
        assert broker.decided is broker.options
        quota.stop()

    on_broker(tmp_path, change, roll_entries=7, **SMALL)
    with caplog.at_level(logging.WARNING, "holdfast.cluster"):
        on_broker(tmp_path, look, roll_entries=7, **SMALL)


def test_a_cluster_ignores_what_a_broker_alone_changed(tmp_path: Path) -> None:
    """I291: options of a cluster are shared by an event of their own."""

    async def main() -> None:
        async with crowded(tmp_path, roll_entries=9) as (broker, group):
            await broker.engine.submit(OptionsChange({"roll_entries": 3}, []))
            assert broker.decided.roll_entries == 9
            await broker.membership.set_options({"roll_entries": 4})
            assert broker.decided.roll_entries == 4
            await broker.membership.restore_options(["roll_entries"])
            assert broker.decided.roll_entries == 9
            assert sent(group, OptionsSet)[-1].values == {"roll_entries": 9}

    asyncio.run(main())
