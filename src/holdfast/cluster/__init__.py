"""The cluster: members join, copy a state, or elect the directory that continues.

Promises upward: a node that can reach a majority comes to serve, with everything that was ever stable. Needs
from below: a `Group` for the one order of events, a `Link` to the other members, a broker and its directory.
"""

from holdfast.cluster.election import Decision, Outcome, decide
from holdfast.cluster.hello import Hello
from holdfast.cluster.life import ClusterMember, MakeGroup, MemberStatus
from holdfast.cluster.peers import Channel, Link, TcpLink

__all__ = [
    "Channel",
    "ClusterMember",
    "Decision",
    "Hello",
    "Link",
    "MakeGroup",
    "MemberStatus",
    "Outcome",
    "TcpLink",
    "decide",
]
