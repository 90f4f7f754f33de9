"""A served member of a cluster: lookups, brokers, and the routes of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import __version__
from holdfast.broker.membership import owner_of, owner_of_topic
from holdfast.cluster import MemberStatus
from holdfast.names import topic_name
from holdfast.server import running
from holdfast.server.cluster_view import BrokerCluster
from holdfast.server.config import Config
from holdfast.server.settings import Settings
from tests.kit.broker.crowd import A, B, C
from tests.kit.server.cluster_checks import LOOKUP, NAMES, Member, lookups_name_the_owner, member
from tests.kit.server.wire_raw import Raw, Type

CLUSTER = "/admin/v2/cluster"


@pytest.fixture(scope="module")
def served() -> Iterator[Member]:
    with member() as found:
        yield found


def test_lookups_name_the_owner(served: Member) -> None:
    lookups_name_the_owner(served)


def owned_by(served: Member, node: int) -> str:
    state = served.world.broker.machine.state
    return next(name for name in NAMES if (owner_of_topic(state, topic_name(name)) or A).node == node)


def test_lookups_of_a_listener(served: Member) -> None:
    """The owner's address of the same listener; a listener that this member lacks is refused."""
    assert served.world.wire is not None
    raw, name = Raw(f"pulsar://127.0.0.1:{served.world.wire.port}"), owned_by(served, 2)

    def ask(listener: str) -> str:
        answer = raw.ask(
            Type.LOOKUP,
            Type.LOOKUP_RESPONSE,
            topic=topic_name(name),
            advertised_listener_name=listener,
        )
        return str(answer.brokerServiceUrl or answer.message)

    assert ask("inside") == "pulsar://node2.local:6650"
    assert "no advertised listener" in ask("outside")
    assert (
        served.world.get(f"{LOOKUP}/{name}?listenerName=inside")["brokerUrl"] == "pulsar://node2.local:6650"
    )
    mine = owned_by(served, 1)
    assert served.world.get(f"{LOOKUP}/{mine}?listenerName=inside")["brokerUrl"] == "pulsar://here.local:1"
    raw.close()


def test_brokers_of_the_cluster(served: Member) -> None:
    world = served.world
    here = world.server.url.removeprefix("http://")
    assert world.get("/admin/v2/brokers") == [here, "node2:8080", "node3:8080"]
    assert world.get("/admin/v2/brokers/standalone") == [here, "node2:8080", "node3:8080"]
    leader = world.get("/admin/v2/brokers/leaderBroker")
    assert leader == {"brokerId": here, "serviceUrl": world.server.url}


def test_status(served: Member) -> None:
    found = served.world.get(f"{CLUSTER}/status")
    assert (found["cluster"], found["node"], found["member"], found["leader"]) == ("standalone", 1, "1.1", 1)
    assert (found["quorate"], found["members"], found["note"]) == (True, 3, "a note")
    assert (found["stable"], found["stableLagEvents"]) == (found["delivered"], 0)
    assert found["options"]["roll_entries"] == 1 << 20
    assert found["differing"] == {}


def test_members(served: Member) -> None:
    found = served.world.get(f"{CLUSTER}/members")
    assert [(each["node"], each["name"], each["state"]) for each in found] == [
        (1, "here", "serving"),
        (2, "node2", "serving"),
        (3, "node3", "serving"),
    ]
    assert [each["here"] for each in found] == [each["leader"] for each in found] == [True, False, False]
    assert [each["program"] for each in found] == [__version__, "1.0", "1.0"]
    assert found[1]["tlsUrl"] == "pulsar+ssl://node2:6651"


def test_queues(served: Member) -> None:
    world = served.world
    name = world.topic(messages=3, subscription="s").rpartition("/")[2]

    async def look() -> tuple[Any, Any, int, Any]:
        """Return the answer, and what the state says while the consumer is attached."""
        async with world.broker.consumer(name, "s", type="shared"):
            answer = (await world.asking("GET", f"{CLUSTER}/queues")).json
            (subscription,) = world.broker.machine.state.subscriptions.values()
            owner = owner_of_topic(world.broker.machine.state, topic_name(name))
            return answer, owner, subscription.owner_epoch, owner_of(subscription)

    answer, owner, epoch, dispatching = world.run(look())
    (found,) = (each for each in answer if each["topic"] == topic_name(name))
    assert found == {
        "topic": topic_name(name),
        "owner": str(owner),
        "unreplicated": False,
        "node": 0,
        "updating": [],
        "missingBytes": 0,
        "subscriptions": [
            {
                "name": "s",
                "owner": None if dispatching is None else str(dispatching),
                "epoch": epoch,
                "consumers": {"1.1": 1},
                "backlog": 3,
            }
        ],
    }


def test_options_for_all_members(served: Member) -> None:
    world = served.world
    world.done("POST", f"{CLUSTER}/options", json={"stage_age_s": 60, "limits.topics": 9})
    found = world.get(f"{CLUSTER}/status")
    assert (found["options"]["stage_age_s"], found["options"]["limits.topics"]) == (60, 9)
    assert found["differing"] == {"stage_age_s": {"cluster": 60, "here": 86400.0}}
    refused = world.ask("POST", f"{CLUSTER}/options", json={"sync": True})
    assert (refused.status, "'sync' is not an option of the cluster" in refused.reason) == (412, True)
    world.done("POST", f"{CLUSTER}/options", json={"stage_age_s": 86400})


def test_leaving(served: Member) -> None:
    served.world.done("POST", f"{CLUSTER}/leave")
    served.world.done("POST", f"{CLUSTER}/evict/3")
    assert served.left == ["here", "node 3"]
    refused = served.world.ask("POST", f"{CLUSTER}/evict/9")
    assert (refused.status, "no node 9 is present" in refused.reason) == (404, True)


def test_members_that_are_not_known_yet() -> None:
    """Nothing was announced: this broker answers for itself, without guesses."""
    with member(announced=False) as served:
        world = served.world
        assert world.wire is not None
        here = f"pulsar://127.0.0.1:{world.wire.port}"
        assert {world.get(f"{LOOKUP}/{name}")["brokerUrl"] for name in NAMES} == {here}
        assert world.get("/admin/v2/brokers") == [world.server.name]
        assert world.get("/admin/v2/brokers/leaderBroker")["brokerId"] == world.server.name
        found = world.get(f"{CLUSTER}/members")
        assert [each["state"] for each in found] == ["joining"] * 3
        served.say("announce", B, C)
        served.say("enter", B)
        found = world.get(f"{CLUSTER}/members")
        assert [(each["node"], each["state"], each["present"]) for each in found] == [
            (1, "joining", True),
            (2, "serving", True),
            (3, "absent", False),
        ]
        assert world.get("/admin/v2/brokers/leaderBroker")["brokerId"] == "node2:8080"
        served.say("announce", B)
        urls = {world.get(f"{LOOKUP}/{name}")["brokerUrl"] for name in NAMES}
        assert urls == {"pulsar://node2:6650"}, "only a member that can serve"


def test_the_program_tells_why_a_ledger_does_not_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status of a member has the reason why it cannot fetch a ledger."""
    member, told = FakeMember(), list[str]()

    async def join(program: Any, member: object) -> object:
        return SimpleNamespace()

    async def serve(program: Any, broker: object, ends: Any, view: BrokerCluster) -> None:
        ends.close()
        told.append(view._note())
        member.why = "ledger 5 of orders from node 2: Corrupt: it came damaged"
        told.append(view._note())
        program._stop.set()

    monkeypatch.setattr(running, "cluster_member", lambda config: member)
    monkeypatch.setattr(running._Running, "_join", join)
    monkeypatch.setattr(running._Running, "_serve_broker", serve)
    settings = cast(Settings, SimpleNamespace(config=Config(data=tmp_path)))

    async def main() -> None:
        await running._Running(settings, lambda: settings, 0.0, False)._serve_as_member()

    asyncio.run(main())
    assert told == ["", f"the last ledger could not be fetched: {member.why}"]


class FakeMember:
    """A member that serves."""

    why = ""

    def status(self) -> MemberStatus:
        return MemberStatus("serving", update=self.why)

    async def lost(self) -> str:
        return "it left"

    async def close(self, within_s: float) -> None:
        """Nothing is open."""
