"""A served broker among members of a cluster, and checks of lookups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from holdfast.broker import Broker
from holdfast.broker.membership import owner_of_topic
from holdfast.errors import NotFound
from holdfast.names import topic_name
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server import ServerOptions
from holdfast.server.cluster_view import BrokerCluster
from holdfast.server.http import HttpOptions
from holdfast.server.pulsar.setup import Advertised
from tests.kit.broker.crowd import A, B, C, CrowdedGroup
from tests.kit.server.http_world import HttpWorld
from tests.kit.server.wire_raw import Raw, Type

LOOKUP = "/lookup/v2/topic/persistent/public/default"
NAMES = [f"topic{number}" for number in range(20)]


@dataclass
class Member:
    """A served member, the group that its broker sees, and what commands did."""

    world: HttpWorld
    group: CrowdedGroup
    left: list[str] = field(default_factory=list)

    def say(self, call: str, *members: object) -> None:
        """Call a method of the group on the broker's loop."""

        async def work() -> None:
            getattr(self.group, call)(*members)
            await asyncio.sleep(0)
            await self.world.broker.settle()

        self.world.run(work())

    def cluster(self, broker: Broker) -> BrokerCluster:
        async def leave() -> None:
            self.left.append("here")

        async def evict(node: int) -> None:
            if node not in {each.node for each in broker.membership.view}:
                raise NotFound(f"no node {node} is present; `holdfast cluster members` lists them")
            self.left.append(f"node {node}")

        return BrokerCluster(broker, leave, evict, lambda: "a note")


@contextmanager
def member(announced: bool = True) -> Iterator[Member]:
    """Serve a broker on node 1 of 3, with a fake table of members."""
    group = CrowdedGroup(A, (B, C))
    wire = ServerOptions(port=0, listeners={"inside": Advertised("pulsar://here.local:1")})
    found = Member(HttpWorld(HttpOptions(port=0), wire, group), group)
    found.world._cluster = found.cluster
    with found.world:
        if announced:
            found.say("announce", B, C)
            found.world.run(announce(found.world))
        yield found


async def announce(world: HttpWorld) -> None:
    assert world.wire is not None
    world.broker.membership.announce(
        "here", url=f"pulsar://127.0.0.1:{world.wire.port}", http_url=world.server.url
    )
    await world.broker.settle()


def lookups_name_the_owner(member: Member) -> None:
    """Both protocols answer with the owner's addresses, at once and for good."""
    world = member.world
    assert world.wire is not None
    here = f"pulsar://127.0.0.1:{world.wire.port}"
    with closing(Raw(here)) as raw:
        _look_up_all(world, raw, here)


def _look_up_all(world: HttpWorld, raw: Raw, here: str) -> None:
    seen = set()
    for name in NAMES:
        owner = owner_of_topic(world.broker.machine.state, topic_name(name))
        assert owner is not None
        seen.add(owner)
        url = here if owner == A else f"pulsar://node{owner.node}:6650"
        found = world.get(f"{LOOKUP}/{name}")
        assert (found["brokerUrl"], found["nativeUrl"]) == (url, url), name
        assert found["httpUrl"] == (world.server.url if owner == A else f"http://node{owner.node}:8080")
        for asked in (False, True):
            answer = raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=topic_name(name), authoritative=asked)
            assert answer.response == pb.CommandLookupTopicResponse.Connect, "a redirection can loop"
            assert answer.authoritative
            assert answer.brokerServiceUrl == url
            assert answer.proxy_through_service_url == (owner == A)
    assert seen == {A, B, C}
