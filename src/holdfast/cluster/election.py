"""Choose whose directory continues when no member of a view serves.

That is so at the first start, and after a power cut.

`decide` is a function of what the members of a quorate view have said, and of the configured nodes. All
members get the same hellos in the same order, so all decide the same.

| what the hellos say, first match                                          | outcome                  |
|---------------------------------------------------------------------------|--------------------------|
| one node is the administrator's survivor, and has a whole store           | FORCED: that node        |
| two nodes are                                                             | REFUSE                   |
| stores of different clusters                                              | REFUSE, naming both      |
| the last view of a store has nodes that are not configured (`_unlisted`)   | WAIT for them            |
| no store, and every configured node is there                              | BOOTSTRAP: lowest node   |
| every configured node is there, and no other one had a vote; the stores   | SEED: the longest store  |
| have nothing stable, but of a broker alone (`_seed`); all others are      |                          |
| fresh, or have begun to copy                                              |                          |
| each of two counted stores knows a stable view that the other lacks       | WAIT for a choice        |
| of the configured nodes, or of an earlier list (`_earlier_lists`), fewer   | WAIT for the others      |
| than n − majority + 1 are counted                                         |                          |
| a store that has all that can be stable (`_has_all`)                      | ELECT: the longest such  |
| otherwise                                                                 | WAIT for the others      |

*Counted* is a whole store of the cluster, unless a broker alone has written to it since (`_was_alone`). Such
events look stable to it, and no other node held them. A store whose copy did not end counts as a witness
that holds nothing. The candidate's history must have a view in which that copy was begun (`CutMark`).

**Why nothing stable is lost.** Let e be stable. A majority M has held e and all before it in e's view, or
has held a later view that includes e. M is a majority of the nodes that had a vote in that view. At most
majority − 1 of these are not counted, so a counted node T was in M. The elected store S has all that can be
stable of T:

1. *S went through T's last view into a later one.* A primary view contains all that was stable before it
   (I26). T has no event outside its last view's past but those of the view itself, so S has e.
2. *T ends at or before an event that S knows to be stable.* Two members never know different stable events
   (I21), so S has what was stable up to there.
3. *Otherwise* S and T are compared frame by frame, from where both are known to agree. Take the first D
   where T has a frame that S does not have. The nodes that list it can hold it, and those that are not
   counted. Unless they are a majority, neither that frame nor a later one of T was stable. If they may be
   one, S is not elected. A frame of T's last view can only be held by members of that view. A later view that
   has it would be in a counted store, which is compared as T, too.

A witness W held e only before its cut V. S has V in its history, and V is a primary view: rule 1. In V and
later views W held nothing, so it is not among the holders of rule 3.

With all nodes counted a store is always found: at each fork at most one branch has a majority of holders.

**Other configured nodes than before.** Nodes that were removed may hold what was stable. So a shorter list
waits, unless a later view did without these nodes. Nodes that were added were in no view. They raise the
number of counted nodes, but not the majority of holders in rule 3: a majority of the earlier nodes sufficed.

Each view records the nodes that had a vote in it. A majority of the configured nodes need not have a node of
each majority of the earlier ones. So the earlier lists count, too, back to the last view that a store knows
to be stable. A majority of the nodes of that view has all that
was confirmed before, and its own list counts. This suffices for one change at a time: before the next one,
all nodes must have served.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.broker.state import ViewMark
from holdfast.cluster.hello import Hello


class Outcome(enum.Enum):
    """Outcomes of an election."""

    ELECT = "elect"
    BOOTSTRAP = "bootstrap"
    SEED = "seed"
    FORCED = "forced"
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Decision:
    """The outcome of an election, for members and for the status."""

    outcome: Outcome
    node: int | None = None
    """The node whose directory continues."""
    waits_for: tuple[int, ...] = ()
    reason: str = ""


def decide(hellos: Sequence[Hello], nodes: Sequence[int]) -> Decision:
    """Choose the node whose directory continues. See the table above.

    Example:
        >>> decide([Hello(1, fresh=True), Hello(2, fresh=True)], nodes=(1, 2)).node
        1
        >>> decide([Hello(1, fresh=True), Hello(2, fresh=True)], nodes=(1, 2, 3)).waits_for
        (3,)
    """
    present = sorted(hellos, key=lambda hello: hello.node)
    absent = tuple(sorted(set(nodes) - {hello.node for hello in present}))
    majority = len(nodes) // 2 + 1
    whole = [hello for hello in present if not hello.fresh and hello.complete]
    forced = [hello for hello in whole if hello.forced]
    if len(forced) == 1:
        return Decision(Outcome.FORCED, forced[0].node, reason="an administrator chose it as the survivor")
    if forced:
        who = " and ".join(str(hello.node) for hello in forced)
        return Decision(Outcome.REFUSE, reason=f"nodes {who} are both chosen as the survivor; withdraw one")
    clusters = {hello.cluster: hello.node for hello in reversed(whole)}
    if len(clusters) > 1:
        names = " and ".join(f"{key.hex()} (node {node})" for key, node in sorted(clusters.items()))
        return Decision(
            Outcome.REFUSE,
            reason=f"the nodes hold data of different clusters: {names}; give all but one an empty directory",
        )
    if (found := _unlisted(whole, nodes)) is not None:
        return found
    others = [hello for hello in present if hello not in whole]
    if not absent and not whole and all(hello.fresh for hello in others):
        return Decision(Outcome.BOOTSTRAP, present[0].node, reason="all nodes are new")
    voters = {node for each in _earlier_lists(whole) for node in each}
    if not absent and voters <= set(nodes) and (seed := _seed(whole, others, majority)) is not None:
        return Decision(Outcome.SEED, seed.node, reason="its cluster begins: nothing else can be stable")
    alone = [hello for hello in whole if _was_alone(hello, majority)]
    counted = [hello for hello in whole if hello not in alone]
    if (found := _diverged(counted)) is not None:
        return found
    return _elect(counted, others + alone, absent, nodes)


def _is_among(history: list[ViewMark], mark: ViewMark) -> bool:
    """Return whether a view is among others.

    The nodes with a vote are not compared: an older program did not note them.
    """
    return any((each.view, each.d, each.check) == (mark.view, mark.d, mark.check) for each in history)


def _unlisted(whole: list[Hello], nodes: Sequence[int]) -> Decision | None:
    """Return WAIT if nodes of a last view are not configured.

    They may hold what was stable. A view of one node is that of a broker alone. A view that another store
    went through has no more to tell.
    """
    passed = [mark for hello in whole for mark in hello.history[:-1]]
    for hello in whole:
        view = hello.last_view
        if view is None or _is_among(passed, view) or len(view.nodes) == 1:
            continue
        if gone := tuple(sorted(set(view.nodes) - set(nodes))):
            who = f"nodes {', '.join(map(str, gone))} are" if len(gone) > 1 else f"node {gone[0]} is"
            return Decision(
                Outcome.WAIT,
                waits_for=gone,
                reason=f"{who} not in cluster.nodes, but in the last view of node {hello.node}, and may hold "
                "confirmed messages that others lack; list all nodes of that view, or, if they do not come "
                "back, see `holdfast cluster survive --help`",
            )
    return None


def _was_single(hello: Hello, majority: int) -> bool:
    """Return whether one node wrote the end of a store, without the others."""
    return hello.last_view is not None and len(hello.last_view.nodes) == 1 and majority > 1


def _was_alone(hello: Hello, majority: int) -> bool:
    """Return whether a broker outside of the cluster wrote the end of a store.

    A cluster of one node, as a survivor may be for a time, is none.
    """
    return _was_single(hello, majority) and not hello.history[-1].votes


def _diverged(whole: list[Hello]) -> Decision | None:
    """Return WAIT if each of two stores knows a stable view that the other lacks.

    This is possible only after an administrator chose a survivor, while others went on.
    """
    for one, other in itertools.combinations(whole, 2):
        if knows_more(one, other.history) and knows_more(other, one.history):
            return Decision(
                Outcome.WAIT,
                reason=f"nodes {one.node} and {other.node} went on without each other, and both confirmed "
                "messages that the other one lacks; choose one, see `holdfast cluster survive --help`",
            )
    return None


def knows_more(one: Hello, others: list[ViewMark]) -> bool:
    """Return whether a store knows a stable view that another one, of these views, lacks.

    The other one remembers its last views only: earlier ones do not count.
    """
    begin = others[0].d if others else 0
    return any(begin < mark.d <= one.stable_d and not _is_among(others, mark) for mark in one.history)


def _seed(whole: list[Hello], others: list[Hello], majority: int) -> Hello | None:
    """Return the store with which a cluster begins, or begins again.

    Power may fail while the first members copy. Then fewer than a majority have a store, and no other node
    ever had one: nothing is stable but what a broker alone had before.
    """
    if not others or not 0 < len(whole) < majority:
        return None
    best = max(whole, key=lambda hello: (_length(hello), -hello.node))
    begins = all(_begins(each, majority) and each.last_view in (None, *best.history) for each in whole)
    return best if begins and all(_holds_nothing(each, best) for each in others) else None


def _begins(hello: Hello, majority: int) -> bool:
    """Return whether a store knows nothing stable of a view with several members."""
    if hello.last_view is None or _was_single(hello, majority):
        return True
    return hello.stable_d < next((mark.d for mark in hello.history if len(mark.nodes) > 1), 0)


def _holds_nothing(hello: Hello, seed: Hello) -> bool:
    """Return whether a node is new, or has only begun to copy the seed.

    The seed's own view may be lost, because it was not durable.
    """
    first = all(len(mark.nodes) == 1 for mark in seed.history)
    return hello.fresh or _is_witness(hello, seed) or (first and bool(hello.cuts) and not hello.damage)


def _elect(
    whole: list[Hello], others: list[Hello], absent: tuple[int, ...], nodes: Sequence[int]
) -> Decision:
    majority = len(nodes) // 2 + 1
    known = {node for hello in whole for mark in hello.history for node in mark.nodes} & set(nodes)
    holding = min(majority, len(known) // 2 + 1)  # of the nodes before others were added
    lists = [tuple(sorted(nodes)), *_earlier_lists(whole)]
    everyone = {node for each in lists for node in each}
    best: Hello | None = None
    short: list[tuple[int, tuple[int, ...]]] = []
    for candidate in whole:
        counted = {
            hello.node for hello in (*whole, *(each for each in others if _is_witness(each, candidate)))
        }
        if lacking := [each for each in lists if len(counted & set(each)) < _needed(each)]:
            short.append((len(counted & set(lacking[0])), lacking[0]))
            continue
        unknown = everyone - counted
        sound = all(_has_all(candidate, other, whole, unknown, holding) for other in whole)
        if sound and (best is None or _length(candidate) > _length(best)):
            best = candidate
    if best is not None:
        return Decision(Outcome.ELECT, best.node, reason="its store has all that can be stable")
    if not whole:
        short = [(0, lists[0])]
    why = _why(others, max(short), lists[0]) if short else _FORKED
    return Decision(Outcome.WAIT, waits_for=absent or tuple(hello.node for hello in others), reason=why)


def _needed(nodes: Sequence[int]) -> int:
    """Return how many of these nodes have at least one of each majority."""
    return len(nodes) - len(nodes) // 2


def _earlier_lists(whole: list[Hello]) -> list[tuple[int, ...]]:
    """Return the lists of nodes of which a majority may have confirmed more.

    A view that is known to be stable ends the lists of the views before it.
    """
    ended: set[ViewMark] = set()
    for hello in whole:
        known = sum(mark.d <= hello.stable_d for mark in hello.history)
        ended |= set(hello.history[: max(known - 1, 0)])
    return sorted({mark.votes for hello in whole for mark in hello.history if mark not in ended} - {()})


def _length(hello: Hello) -> tuple[int, int]:
    view = hello.last_view
    return (0 if view is None else view.view, hello.last_d)


_FORKED = "the stores differ at their ends, and those that are missing decide which one was confirmed"


def _why(others: list[Hello], short: tuple[int, tuple[int, ...]], nodes: tuple[int, ...]) -> str:
    counted, listed = short
    told = f"{counted} of {_needed(listed)} needed stores are here"
    if listed != nodes:
        told += (
            f", of the earlier cluster.nodes {list(listed)}: a majority of those may have confirmed messages "
            "that these lack; start all nodes, or list the earlier ones again"
        )
    return told + "".join(f"; node {other.node} {_lacks(other)}" for other in others)


def _lacks(hello: Hello) -> str:
    if hello.fresh:
        return "has an empty directory"
    if hello.complete:
        return "was served alone (to keep what it has, see `holdfast cluster survive`; else empty it)"
    return f"is damaged ({hello.damage})" if hello.damage else "has an incomplete copy"


def _is_witness(hello: Hello, candidate: Hello) -> bool:
    """Return whether an incomplete store held nothing that the candidate can lack."""
    seen = {(mark.view, mark.check) for mark in candidate.history}
    return any((cut.view, cut.check) in seen for cut in hello.cuts)


def _has_all(mine: Hello, other: Hello, whole: list[Hello], unknown: set[int], majority: int) -> bool:
    """Return whether `mine` has all events of `other` that can be stable."""
    if other is mine or other.last_d <= mine.stable_d:
        return True
    last = other.last_view
    if last is not None and _is_among(mine.history[:-1], last):
        return True
    ours = {frame.last_d: frame for frame in mine.frames}
    # The same frame at the same position has the same past: a branch that leaves an event out has all later
    # ones at lower positions.
    common = max((each.last_d for each in other.frames if ours.get(each.last_d) == each), default=0)
    agreed = max(common, min(mine.stable_d, other.stable_d))
    if other.start_d > agreed:
        return False  # the other's list does not reach back to where both agree
    for frame in other.frames:
        if frame.last_d <= max(agreed, mine.start_d):
            continue  # below `start_d` a difference would mean that no later event of the other was stable
        if frame.last_d <= mine.stable_d:
            return True  # here `mine` has a stable event, so the other's was not
        holders = sum(_may_hold(each, frame.last_d, other) for each in whole)
        if last is not None and frame.view == last.view:
            unknown = unknown & set(last.nodes)  # a later view that has the frame is another store's
        lists = [mark.votes for mark in other.history if mark.votes and mark.view >= frame.view]
        return holders + len(unknown) < min([majority, *(len(each) // 2 + 1 for each in lists)])
    return True


def _may_hold(store: Hello, d: int, other: Hello) -> bool:
    """Return whether a store may have the frame that `other` has at D."""
    if d > store.last_d:
        return False
    if d <= store.start_d:
        return True  # not listed any more
    return {f.last_d: f for f in store.frames}.get(d) == {f.last_d: f for f in other.frames}[d]
