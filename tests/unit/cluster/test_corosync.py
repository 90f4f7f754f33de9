"""The files of a new cluster: nodes, votes, encryption, and refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.cli.cluster_init import settings_text
from holdfast.cluster.corosync import NODES_MAX, Node, corosync_conf, require_nodes, split_address
from holdfast.errors import Misuse
from holdfast.server.settings import load

THREE = [Node(1, "10.0.0.1"), Node(2, "10.0.0.2"), Node(3, "node-3.lab")]


def test_the_configuration_names_every_node_and_vote() -> None:
    text = corosync_conf("rig", THREE)
    assert re.findall(r"nodeid: (\d+)", text) == ["1", "2", "3"]
    assert re.findall(r"ring0_addr: (\S+)", text) == ["10.0.0.1", "10.0.0.2", "node-3.lab"]
    assert "expected_votes: 3" in text
    assert "cluster_name: rig" in text
    assert text.count("{") == text.count("}")


def test_traffic_is_encrypted_unless_asked_otherwise() -> None:
    assert "crypto_cipher: aes256" in corosync_conf("rig", THREE)
    plain = corosync_conf("rig", THREE, encrypted=False, token_ms=700, log="/tmp/corosync.log")
    assert "crypto_cipher: none" in plain
    assert "token: 700" in plain
    assert "seqno_unchanged_const: 2" in plain
    assert "logfile: /tmp/corosync.log" in plain


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([], "0 nodes; a cluster has 1 to"),
        ([Node(each, f"a{each}") for each in range(1, NODES_MAX + 2)], "32 nodes"),
        ([Node(0, "a")], "0 is not the id of a node"),
        ([Node(1 << 31, "a")], "is not the id of a node"),
        ([Node(1, "a b")], "'a b' is not the address of node 1"),
        ([Node(1, "a\n}")], "is not the address of node 1"),
        ([Node(1, "")], "'' is not the address of node 1"),
        ([Node(1, "a"), Node(1, "b")], "two nodes have the id 1"),
        ([Node(1, "a"), Node(2, "a")], "two nodes have the address a"),
        ([Node(1, "999.1.1.1")], "'999.1.1.1' is not the address of node 1"),
        ([Node(1, "a"), Node(2, "localhost")], "'localhost' is not an address of node 2 for the other nodes"),
        ([Node(1, "127.0.0.1"), Node(2, "b")], "'127.0.0.1' is not an address of node 1"),
        ([Node(1, "::"), Node(2, "b")], "'::' is not an address of node 1 for the other nodes"),
        ([Node(1, "10.0.0.1"), Node(2, "fd00::2")], "some nodes have an IPv4 and some an IPv6 address"),
    ],
)
def test_nodes_that_form_no_cluster_are_refused(nodes: list[Node], words: str) -> None:
    with pytest.raises(Misuse, match=re.escape(words)):
        corosync_conf("rig", nodes)


def test_several_brokers_of_one_machine_differ_by_their_ports() -> None:
    require_nodes([Node(1, "a"), Node(2, "a")], apart=False)


@pytest.mark.parametrize("name", ["", "a b", "a}", "-a", "a\n", "x" * 128])
def test_names_that_corosync_does_not_take(name: str) -> None:
    with pytest.raises(Misuse, match="is not the name of a cluster"):
        corosync_conf(name, THREE)


@pytest.mark.parametrize("text", ["", "1", "=a", "one=a", "-1=a"])
def test_texts_that_are_no_nodes(text: str) -> None:
    with pytest.raises(Misuse, match=r"write ID=ADDRESS"):
        Node.from_text(text)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:65536", "host:x", "[]:1"])
def test_texts_that_are_no_addresses(text: str) -> None:
    with pytest.raises(Misuse, match=r"write HOST:PORT"):
        split_address(text)


def test_brokers_listen_on_the_kind_of_addresses_that_clients_are_given(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    for nodes, host in ((THREE, "0.0.0.0"), ([Node(1, "fd00::1"), Node(2, "fd00::2")], "::")):
        file.write_text(settings_text("rig", nodes, 6660))
        assert load(file, {}, [("--set", "cluster.node", "1")]).config.listen.host == host


def test_the_settings_are_accepted_with_the_nodes_own_id(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text(settings_text("rig", [*THREE, Node(4, "fd00::4")], 6660))
    cluster = load(file, {}, [("--set", "cluster.node", "2")]).config.cluster
    assert cluster.is_member
    assert [(each.node, split_address(each.transfer)) for each in cluster.nodes] == [
        (1, ("10.0.0.1", 6660)),
        (2, ("10.0.0.2", 6660)),
        (3, ("node-3.lab", 6660)),
        (4, ("fd00::4", 6660)),
    ]
    assert cluster.secret_file == tmp_path / "secret"
