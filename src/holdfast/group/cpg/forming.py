"""Decide on the view of a list of processes, from the announces of its members.

The decision is a function of the announces alone. All members of a list get the same announces in the same
order, so all decide the same.

| announces of a list                                          | outcome                                  |
|--------------------------------------------------------------|------------------------------------------|
| one is missing, or differs in its list or generation         | none yet                                 |
| they count votes of different nodes                          | those unlike the primary view's are lost |
| a node has several                                           | all but one of them are lost             |
| no majority of the votes                                     | a view that is not quorate               |
| a member is doomed, or in an older primary view than another | it is lost; its leaving is the next list |
| of the primary view a majority left at once                  | all its members are lost                 |
| of the primary view no complete member stays                 | all its members are lost                 |
| members of the primary view have different events            | all its members are lost                 |
| else                                                         | a primary view                           |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast.group.cpg.carrier import Process
from holdfast.group.cpg.wire import Announce
from holdfast.group.interface import Member, View

GENERATION_SHIFT = 16
OTHER_NODE = 255
"""The index of a node without a vote in the id of a view."""


@dataclass(frozen=True)
class Formed:
    """A view, and the members by process."""

    view: View
    members: dict[Process, Member]


@dataclass(frozen=True)
class Dropped:
    """The processes that must leave before the list can have a view, and the reason."""

    processes: frozenset[Process]
    reason: str
    misfits: bool = False
    """Whether their configuration is the reason."""


@dataclass(frozen=True)
class Votes:
    """The nodes with a vote."""

    nodes: tuple[int, ...]

    @property
    def majority(self) -> int:
        return len(self.nodes) // 2 + 1

    def quorate(self, nodes: Collection[int]) -> bool:
        """Return whether these nodes are a majority of the votes.

        Corosync's quorum service answers the same question, but its answers are not in the order of the
        messages. So a member counts the nodes of the list itself.
        """
        return len(set(nodes) & set(self.nodes)) >= self.majority

    def view_id(self, generation: int, members: Collection[Member]) -> int:
        """Return the id of a view: generation, life and place of its smallest member.

        Sides of a split have different smallest members. One life announces a generation for one list only.
        A node that restarts may have forgotten a generation that it announced, but it is another life.
        """
        smallest = min(members)
        place = self.nodes.index(smallest.node) if smallest.node in self.nodes else OTHER_NODE
        return generation << GENERATION_SHIFT | (smallest.incarnation & 0xFF) << 8 | place


def agreed(processes: Collection[Process], announces: Mapping[Process, Announce]) -> bool:
    """Return whether all processes have announced the same list and generation."""
    wanted = sorted(processes)
    told = [announces.get(process) for process in wanted]
    return all(
        each is not None and each.processes == wanted and each.generation == told[0].generation  # type: ignore[union-attr]
        for each in told
    )


def silent(processes: Collection[Process], announces: Mapping[Process, Announce]) -> list[Process]:
    """Return the processes that have not announced this list."""
    wanted = sorted(processes)
    return [each for each in wanted if each not in announces or announces[each].processes != wanted]


def form(
    votes: Votes, announces: Mapping[Process, Announce], incarnations: Mapping[Process, int]
) -> Formed | Dropped:
    """Return the outcome for announces that agree."""
    misfits = _misfits(announces)
    if misfits is not None:
        return misfits
    doubles = _doubles(announces)
    if doubles is not None:
        return doubles
    repeated = _repeated(announces, incarnations)
    if repeated is not None:
        return repeated
    members = {process: Member(process.node, incarnations[process]) for process in sorted(announces)}
    quorate = votes.quorate([process.node for process in announces])
    if quorate:
        dropped = _dropped(votes, announces)
        if dropped is not None:
            return dropped
    last = max(announces.values(), key=lambda each: each.primary)
    before = set(last.members)
    now = set(members.values())
    view = View(
        id=votes.view_id(last.generation, now),
        members=tuple(sorted(now)),
        joined=tuple(sorted(now - before)),
        left=tuple(sorted(before - now)),
        quorate=quorate,
        votes=votes.nodes,
    )
    return Formed(view, members)


def _misfits(announces: Mapping[Process, Announce]) -> Dropped | None:
    """Return the processes that count votes of other nodes than the rest, or None.

    A member with a shorter list than the others could be quorate alone, beside their view. The members of the
    newest primary view are right; without one, those of the list that most have.
    """
    newest = max(each.primary for each in announces.values())
    lists = [tuple(each.votes) for each in announces.values() if each.primary == newest]
    right = max(sorted(set(lists)), key=lists.count)
    wrong = {process: each.votes for process, each in announces.items() if tuple(each.votes) != right}
    if not wrong:
        return None
    told = ", ".join(f"node {process.node} has {nodes}" for process, nodes in sorted(wrong.items()))
    reason = f"cluster.nodes must be the same on all nodes: {told}, and the others have {list(right)}"
    return Dropped(frozenset(wrong), reason, misfits=True)


def _doubles(announces: Mapping[Process, Announce]) -> Dropped | None:
    """Return the processes of nodes that have another one in the list, or None.

    Each has a directory of its own, and a node has one vote: what one of them holds could not be counted for
    the other. The one of the newest primary view stays, else the one with the lowest number.
    """
    stays: dict[int, Process] = {}
    for process in sorted(announces, key=lambda each: (-announces[each].primary, each)):
        stays.setdefault(process.node, process)
    doubles = sorted(process for process in announces if stays[process.node] != process)
    if not doubles:
        return None
    told = ", ".join(f"{each} beside process {stays[each.node].pid}" for each in doubles)
    reason = f"two brokers of one node are in the group: {told}; stop one, or use another cluster.name for it"
    return Dropped(frozenset(doubles), reason)


def _repeated(announces: Mapping[Process, Announce], incarnations: Mapping[Process, int]) -> Dropped | None:
    """Return the processes that repeat a life of the last view, or None.

    The view would not have them in `joined`. So they would have no cut, and no state of the view before.
    """
    known = set(max(announces.values(), key=lambda each: each.primary).members)
    lives = {process: Member(process.node, incarnations[process]) for process in announces}
    repeated = sorted(each for each in announces if not announces[each].primary and lives[each] in known)
    if not repeated:
        return None
    told = ", ".join(f"{each} is member {lives[each]} again" for each in repeated)
    reason = f"a life of a node has the number of an earlier one: {told}; it joins with another number"
    return Dropped(frozenset(repeated), reason)


def _dropped(votes: Votes, announces: Mapping[Process, Announce]) -> Dropped | None:
    """Return the members that cannot go on into a quorate view, or None."""
    inside = {process: each for process, each in announces.items() if each.primary}
    doomed = frozenset(process for process, each in inside.items() if each.doomed)
    if doomed:
        return Dropped(doomed, "it was without a majority, while others may have gone on")
    if not inside:
        return None
    newest = max(each.primary for each in inside.values())
    stale = frozenset(process for process, each in inside.items() if each.primary < newest)
    if stale:
        return Dropped(stale, f"others went on to view {newest} without it")
    staying = list(inside.values())
    reason = _cannot_vouch(votes, staying)
    return Dropped(frozenset(inside), reason) if reason is not None else None


def _cannot_vouch(votes: Votes, staying: Sequence[Announce]) -> str | None:
    """Return why these members cannot vouch for stable events of their view, or None.

    If a majority of the votes left at once, those members may hold a stable event that the others have never
    seen. The same holds if no member that stays has the state from before the view.
    """
    view = staying[0].primary
    gone = len(staying[0].members) - len(staying)
    if len({each.index for each in staying}) > 1:
        return f"members of view {view} have different numbers of its events"
    if gone >= votes.majority:
        return f"too many left view {view} at once to vouch for what was stable in it"
    if gone and not any(each.complete for each in staying):
        return f"no member that is left of view {view} has the state of its cut, so none can vouch for it"
    return None
