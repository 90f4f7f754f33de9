"""A served member with unreplicated topics, and a check that clients are led to them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.events import MemberAnnounce, UnreplicatedSet
from holdfast.names import topic_name
from holdfast.server import Server, ServerOptions
from holdfast.server.unreplicated import pass_unreplicated
from tests.kit.broker.crowd import B, info_of
from tests.kit.broker.member_checks import SMALL
from tests.kit.server.cluster_checks import LOOKUP, Member, member
from tests.kit.server.http_world import T
from tests.kit.server.wire_raw import Raw, Type

THERE_PORTS = (7650, 7651)


@contextmanager
def member_with_local() -> Iterator[Member]:
    """Serve node 1 of 3 with a topic `mine`; node 2 has `theirs`, both unreplicated."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, member() as served:
        served.world.run(_open_local(served, Path(directory)))
        served.world.done("PUT", f"{T}/mine?unreplicated=true")
        served.say("say", B, UnreplicatedSet(topic_name("theirs"), B.node))
        yield served


async def _open_local(served: Member, path: Path) -> None:
    """Open a second broker and its server, as `holdfast serve` does."""
    world = served.world
    assert world.wire is not None
    local = await Broker.start(path, BrokerOptions(**SMALL, create_topics=False))
    world._parts.push_async_callback(local.close)
    world.broker.unreplicated.use(local)
    world.wire.unreplicated = await world._parts.enter_async_context(Server(local, ServerOptions(port=0)))
    pass_unreplicated(world.server)
    facts = msgspec.structs.replace(info_of(B), unreplicated_ports=THERE_PORTS)
    served.group.say(B, MemberAnnounce(facts))
    await world.broker.settle()


def clients_are_led_to_the_only_node(served: Member) -> None:
    """Both protocols name the port of the node that has the topic."""
    world = served.world
    assert world.wire is not None
    assert world.wire.unreplicated is not None
    here = f"pulsar://127.0.0.1:{world.wire.unreplicated.port}"
    with closing(Raw(f"pulsar://127.0.0.1:{world.wire.port}")) as raw:
        for name, url in (("mine", here), ("theirs", f"pulsar://node2:{THERE_PORTS[0]}")):
            answer = raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=topic_name(name))
            assert answer.brokerServiceUrl == url, f"{name} is looked up at {answer.brokerServiceUrl}"
            assert not answer.proxy_through_service_url
            assert world.get(f"{LOOKUP}/{name}")["brokerUrl"] == url
        answer = raw.ask(
            Type.PARTITIONED_METADATA, Type.PARTITIONED_METADATA_RESPONSE, topic=topic_name("mine")
        )
        assert answer.partitions == 0
    with closing(Raw(here)) as raw:
        assert len(raw.publish("mine", 3)) == 3
    assert world.get(f"{T}/mine/internalStats")["numberOfEntries"] == 3
