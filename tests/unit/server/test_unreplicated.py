"""A served member with unreplicated topics: lookups, requests of both protocols, and the tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast.broker.member_state import MemberInfo
from holdfast.broker.state import Policies
from holdfast.cli import main
from holdfast.group import Member as GroupMember
from holdfast.names import topic_name
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.config import Cluster, ClusterNode, Config, Listen
from holdfast.server.membership import facts_of
from holdfast.server.pulsar.setup import ServerOptions
from holdfast.server.unreplicated import unreplicated_options
from tests.kit.broker.crowd import C
from tests.kit.server.cluster_checks import LOOKUP, Member
from tests.kit.server.http_world import T
from tests.kit.server.unreplicated_checks import clients_are_led_to_the_only_node, member_with_local
from tests.kit.server.wire_raw import Raw, Type

X = "/admin/v2/exchanges/public/default"


@pytest.fixture(scope="module")
def served() -> Iterator[Member]:
    with member_with_local() as found:
        yield found


def test_clients_are_led_to_the_only_node(served: Member) -> None:
    clients_are_led_to_the_only_node(served)


def test_a_client_at_the_wrong_port_looks_up_again(served: Member) -> None:
    """The answer is one after which clients look up again."""
    assert served.world.wire is not None
    with closing(Raw(f"pulsar://127.0.0.1:{served.world.wire.port}")) as raw:
        for name, node in (("mine", 1), ("theirs", 2)):
            refused = raw.ask(
                Type.PRODUCER, Type.ERROR, producer_id=1, topic=topic_name(name), producer_name="p"
            )
            assert refused.error == pb.ServiceNotReady
            assert f"node {node} alone has it; look it up again" in refused.message


def test_requests_reach_the_broker_of_the_topic(served: Member) -> None:
    world = served.world
    assert world.get(f"{T}/mine/stats")["unreplicated"]
    assert topic_name("mine") in world.get(T)
    assert topic_name("theirs") in world.get(T)
    world.done("PUT", f"{T}/mine/subscription/s")
    assert world.get(f"{T}/mine/subscriptions") == ["s"]
    assert world.ask("PUT", f"{T}/mine").status == 409
    common = world.topic()
    assert not world.get(f"{common}/stats")["unreplicated"]


def test_requests_for_topics_of_others_are_referred(served: Member) -> None:
    found = served.world.ask("GET", f"{T}/theirs/stats?getPreciseBacklog=true", allow_redirects=False)
    assert (found.status, found.headers["Location"]) == (
        307,
        f"http://node2:8080{T}/theirs/stats?getPreciseBacklog=true",
    )
    assert "node 2 alone has it" in found.json["reason"]
    assert served.world.get(f"{T}/theirs/partitions?existing=true")["partitions"] == 0


def test_a_referred_request_is_not_logged_as_administered(
    served: Member, caplog: pytest.LogCaptureFixture
) -> None:
    """The node that has the topic logs it."""
    with caplog.at_level("INFO"):
        for name, status in (("theirs", 307), ("mine", 204)):
            path = f"{T}/{name}/subscription/logged"
            assert served.world.ask("PUT", path, allow_redirects=False).status == status
    said = [each for each in caplog.messages if "administered" in each]
    assert len(said) == 1


def test_lists_and_figures_have_them(served: Member) -> None:
    """Consumers of a pattern find them; metrics show those of this node."""
    world = served.world
    assert world.wire is not None
    with closing(Raw(f"pulsar://127.0.0.1:{world.wire.port}")) as raw:
        found = raw.watch(".*/default/.*")
        assert {topic_name("mine"), topic_name("theirs")} <= set(found.topic)
        world.done("PUT", f"{T}/watched?unreplicated=true")
        assert list(raw.expect(Type.WATCH_TOPIC_UPDATE).new_topics) == [topic_name("watched")]
        world.done("DELETE", f"{T}/watched")
        assert list(raw.expect(Type.WATCH_TOPIC_UPDATE).deleted_topics) == [topic_name("watched")]
    page = world.ask("GET", "/metrics").body.decode()
    assert f'topic="{topic_name("mine")}"' in page
    assert f'topic="{topic_name("theirs")}"' not in page


def test_an_exchange_from_creation_to_deletion(served: Member) -> None:
    world = served.world
    common = world.topic().rpartition("/")[2]
    world.done("PUT", f"{T}/bound?unreplicated=true")
    world.done("PUT", f"{X}/x", json={"kind": "fanout", "unreplicated": True})
    assert world.get(f"{X}/x")["unreplicated"]
    assert topic_name("x") in world.get(X)
    world.done("POST", f"{X}/x/bindings", json={"topic": "bound"})
    found = world.ask("POST", f"{X}/x/bindings", json={"topic": common})
    assert (found.status, "is not an unreplicated topic of that node" in found.json["reason"]) == (412, True)
    world.done("PUT", f"{X}/everywhere", json={"kind": "fanout"})
    found = world.ask("POST", f"{X}/everywhere/bindings", json={"topic": "bound"})
    assert (found.status, "is unreplicated, on node 1" in found.json["reason"]) == (412, True)
    world.done("DELETE", f"{X}/x")
    world.done("DELETE", f"{T}/bound?force=true")
    world.done("PUT", f"{T}/bound")
    assert not world.get(f"{T}/bound/stats")["unreplicated"], "the name is free at once"


def test_the_tools_show_it(served: Member, capsys: pytest.CaptureFixture[str]) -> None:
    url = ["--server", served.world.server.url]
    assert main(["topic", "create", "shown", "--unreplicated", *url]) == 0
    assert main(["topic", "stats", "shown", *url]) == 0
    assert "shown: open, unreplicated" in capsys.readouterr().out
    assert main(["cluster", "queues", *url]) == 0
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines()}
    assert rows["shown"] == ["shown", "1.1", "unreplicated,", "on", "node", "1"]
    assert rows["theirs"] == ["theirs", "2.1", "unreplicated,", "on", "node", "2"]
    assert main(["cluster", "queues", "--json", *url]) == 0
    found = {each["topic"]: each["unreplicated"] for each in json.loads(capsys.readouterr().out)}
    assert found[topic_name("shown")]
    world, local = served.world, served.world.broker.unreplicated.local
    assert local is not None
    world.run(
        local.create_topic(topic_name("not-of-this-node"), Policies())
    )  # its name was freed, and given to another
    assert main(["cluster", "queues", *url]) == 0
    assert "not-of-this-node" not in capsys.readouterr().out
    world.run(local.admin.delete_topic("not-of-this-node"))
    assert main(["topic", "rm", "shown", *url]) == 0
    assert topic_name("shown") not in served.world.get(T)


def test_an_absent_node(served: Member, capsys: pytest.CaptureFixture[str]) -> None:
    """No client is led there, and the reason names it. Its names can be freed."""
    assert served.world.wire is not None
    free = ["cluster", "free", "theirs", "--server", served.world.server.url]
    assert main(free) == 1
    assert "node 2 alone has it; delete it there" in capsys.readouterr().err
    served.say("enter", C)
    found = served.world.ask("GET", f"{T}/theirs/stats")
    assert (found.status, "node 2 alone has it, which is absent" in found.json["reason"]) == (503, True)
    assert main(["cluster", "queues", "--server", served.world.server.url]) == 0
    (shown,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("theirs "))
    assert shown.endswith("unreplicated, on node 2, which is absent")
    assert served.world.ask("GET", f"{LOOKUP}/theirs").status == 503
    assert topic_name("theirs") not in served.world.get(T)
    with closing(Raw(f"pulsar://127.0.0.1:{served.world.wire.port}")) as raw:
        answer = raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=topic_name("theirs"))
        assert (answer.response, answer.error) == (pb.CommandLookupTopicResponse.Failed, pb.ServiceNotReady)
    assert main(free) == 0
    assert capsys.readouterr().out == "the name theirs is free\n"
    served.world.done("PUT", f"{T}/theirs")


def test_ports_of_its_own() -> None:
    """Each is open if the port of the replicated topics is, on the same hosts."""
    cluster = Cluster(
        1, nodes=(ClusterNode(1, "one:6660"),), unreplicated_port=7650, unreplicated_tls_port=7651
    )
    config = Config(listen=Listen(port=6650), cluster=cluster)
    options = unreplicated_options(config, ServerOptions(port=6650, tls_port=None))
    assert (options.port, options.tls_port) == (7650, None)
    facts = facts_of(config, {"port": 6650}, (7650, 0))
    found = MemberInfo(GroupMember(1, 1), "one", **facts)
    assert (found.url, found.unreplicated_ports) == ("pulsar://one:6650", (7650, 0))
