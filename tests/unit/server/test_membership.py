"""The membership of a server: early refusals, and words about what it waits for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cluster.life import MemberStatus
from holdfast.errors import Misuse
from holdfast.server.config import Cluster, ClusterNode, Config
from holdfast.server.membership import cluster_member, waiting_words

NODES = (ClusterNode(1, "127.0.0.1:1"), ClusterNode(2, "127.0.0.2:1"))


def test_a_data_directory_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    """A broker alone refuses it, too; a member that joins tries again for ever."""
    wrong = tmp_path / "file"
    wrong.touch()
    with pytest.raises(Misuse, match="file is not a directory"):
        cluster_member(Config(data=wrong, cluster=Cluster(node=1, nodes=NODES)))
    with pytest.raises(Misuse, match="file"):  # the directory has other files
        cluster_member(Config(data=tmp_path, cluster=Cluster(node=1, nodes=NODES)))


@pytest.mark.parametrize(("nodes", "words"), [((2,), "waits for node 2"), ((2, 3), "waits for nodes 2, 3")])
def test_a_member_names_the_nodes_that_it_waits_for(nodes: tuple[int, ...], words: str) -> None:
    status = MemberStatus("electing", waits_for=nodes)
    member: Any = SimpleNamespace(status=lambda: status)
    assert waiting_words(member) == f"this node is not serving: electing; {words}"
