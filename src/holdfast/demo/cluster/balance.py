"""The account of a cluster: what was confirmed, stored on each member, and received.

The records of the clients decide, not the counters of the brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """Counts of messages. All that may not happen is 0 in a sound cluster."""

    confirmed: int
    stored: int
    received: int
    """Messages that receivers got, each counted once."""
    again: int
    """Messages that came once more: their receiver's member had died, or had been cut off."""
    lost: int
    """Confirmed, and on a member not stored."""
    duplicated: int
    """Stored more than once."""
    out_of_order: int
    """Stored behind a later message of the same sender."""
    unreceived: int
    """Stored, and received by no receiver."""
    unknown: int
    """Received, and not stored on any member: shown to a receiver, then gone."""
    different: int
    """Members whose topic differs from that of the first one."""

    @property
    def balanced(self) -> bool:
        wrong = (self.lost, self.duplicated, self.out_of_order, self.unreceived, self.unknown, self.different)
        return not any(wrong)


def account(
    confirmed: Mapping[str, int],
    stored: Mapping[int, list[tuple[str, int]]],
    received: Iterable[tuple[str, int]],
) -> Account:
    """Compare the records of clients with the topic of each member.

    `confirmed` counts the messages of each sender, numbered from 0. `stored` has, by node, sender and number
    of each message in the order of the topic.

    Example:
        >>> topic = [("a", 0), ("b", 0), ("a", 1)]
        >>> account({"a": 2, "b": 1}, {1: topic, 2: topic}, [*topic, ("a", 1)]).balanced
        True
        >>> account({"a": 3}, {1: [("a", 1), ("a", 0)]}, []).lost
        1
    """
    topics = list(stored.values())
    wanted = {(sender, number) for sender, count in confirmed.items() for number in range(count)}
    got = Counter(received)
    first = topics[0] if topics else []
    there, anywhere = set(first), set[tuple[str, int]]().union(*topics)
    return Account(
        confirmed=len(wanted),
        stored=len(first),
        received=len(got),
        again=sum(got.values()) - len(got),
        lost=sum(len(wanted - set(topic)) for topic in topics) if topics else len(wanted),
        duplicated=sum(len(topic) - len(set(topic)) for topic in topics),
        out_of_order=sum(behind_a_later(topic) for topic in topics),
        unreceived=len(there - set(got)),
        unknown=len(set(got) - anywhere),
        different=sum(topic != first for topic in topics),
    )


def behind_a_later(topic: Iterable[tuple[str, int]]) -> int:
    """Count messages behind a later one of the same sender."""
    last: dict[str, int] = {}
    count = 0
    for sender, number in topic:
        count += number < last.get(sender, -1)
        last[sender] = max(number, last.get(sender, -1))
    return count
