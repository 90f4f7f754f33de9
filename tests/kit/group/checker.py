"""Check a group's invariants over the calls to all members of a run.

The numbers are those of docs/internals/group.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.group import BEGINNING, Group, Listener, Member, Position, View


class Broken(AssertionError):
    """A call to a member breaks an invariant."""


@dataclass
class Story:
    """All calls to one member, in order, and its own calls."""

    member: Member
    views: list[View] = field(default_factory=list)
    events: dict[Position, tuple[Member, bytes]] = field(default_factory=dict)
    unstable: deque[Position] = field(default_factory=deque)
    last: Position = BEGINNING
    stable: Position = BEGINNING
    held: Position = BEGINNING
    sent: list[bytes] = field(default_factory=list)
    ended: str | None = None


class Checker:
    """Collects the calls of all members; fails at once, or at last in `check`."""

    def __init__(self, votes: int, uniform: bool = False) -> None:
        self.votes = votes
        self.uniform = uniform
        """Whether no two members may deliver different events at one position."""
        self.delivered: dict[Position, tuple[Member, bytes]] = {}
        self.majority = votes // 2 + 1
        self.stories: dict[Member, Story] = {}
        self.views: dict[int, View] = {}
        self.stable: dict[Position, tuple[Member, bytes]] = {}
        """The events at positions that were reported stable."""

    def story(self, member: Member) -> Story:
        return self.stories.setdefault(member, Story(member))

    # -- at once ---------------------------------------------------------------------------------------

    def deliver(self, story: Story, pos: Position, member: Member, event: bytes) -> None:
        self._not_over(story)
        if not story.views or not story.views[-1].quorate:
            raise Broken(f"I23: {story.member} is given {pos} outside a quorate view")
        if pos != (story.views[-1].id, story.last.index + 1):
            raise Broken(f"I20: {story.member} is given {pos} after {story.last}")
        if self.uniform and self.delivered.setdefault(pos, (member, event)) != (member, event):
            raise Broken(f"I210: {story.member} is given another event at {pos} than a member before it")
        story.last = pos
        story.events[pos] = (member, event)
        story.unstable.append(pos)

    def view(self, story: Story, view: View) -> None:
        self._not_over(story)
        if self.views.setdefault(view.id, view) != view:
            raise Broken(f"I22: view {view.id} is {view} to {story.member}, {self.views[view.id]} to another")
        if view.position <= story.last:
            raise Broken(f"I22: {story.member} is given view {view.id} after {story.last}")
        if story.member not in view.members or list(view.members) != sorted(set(view.members)):
            raise Broken(f"I22: {story.member} is given view {view.id} of {view.members}")
        if view.quorate != (len({member.node for member in view.members}) >= self.majority):
            raise Broken(f"I23: view {view.id} of {len(view.members)} members says quorate={view.quorate}")
        if view.votes and len(view.votes) // 2 + 1 != self.majority:
            raise Broken(f"I23: view {view.id} names {view.votes} as the nodes with a vote")
        if story.views and story.views[-1].quorate and story.member in view.joined:
            raise Broken(f"I22: {story.member} was in the primary view and is called a joiner in {view.id}")
        story.views.append(view)
        story.last = view.position

    def stable_at(self, story: Story, pos: Position) -> None:
        self._not_over(story)
        if pos <= story.stable or pos > story.last:
            raise Broken(f"I24: {story.member} is told {pos} stable after {story.stable}, at {story.last}")
        view = story.views[-1]
        holders = {
            other.member.node
            for other in self.stories.values()
            if other.member in view.members and other.held >= pos and other.held.view >= view.id
        }
        if len(holders) < self.majority:
            raise Broken(
                f"I24: {story.member} is told {pos} stable; in view {view.id} only {sorted(holders)} hold it"
            )
        while story.unstable and story.unstable[0] <= pos:
            at = story.unstable.popleft()
            event = story.events[at]
            if self.stable.setdefault(at, event) != event:
                raise Broken(f"I21: two different events are stable at {at}")
            self._held_by_majority(at, event)
        story.stable = pos

    def _held_by_majority(self, at: Position, event: tuple[Member, bytes]) -> None:
        """Check for a majority with this event, or with a later state that includes it."""
        nodes = {
            story.member.node
            for story in self.stories.values()
            if story.held >= at and story.events.get(at, event) == event
        }
        if len(nodes) < self.majority:
            raise Broken(f"I24: {at} is stable, and only {sorted(nodes)} hold that event")

    def lost(self, story: Story, reason: str) -> None:
        self._not_over(story)
        story.ended = reason

    def _not_over(self, story: Story) -> None:
        if story.ended is not None:
            raise Broken(f"I25: {story.member} is told something after its end ({story.ended})")

    # -- in the end ------------------------------------------------------------------------------------

    def check(self) -> None:
        self._same_events_together()
        self._stable_is_one_history()
        for story in self.stories.values():
            own = [event for member, event in story.events.values() if member == story.member]
            if own != story.sent[: len(own)]:
                raise Broken(f"I20: {story.member} has its own events in another order, twice, or not at all")

    def settled(self) -> None:
        """Check, for a run that came to rest, that members have their own events."""
        for story in self.stories.values():
            own = sum(member == story.member for member, _ in story.events.values())
            if story.ended is None and own != len(story.sent):
                raise Broken(f"I20: {story.member} sent {len(story.sent)} events and was given {own} of them")

    def _same_events_together(self) -> None:
        """Check that members which share two views in a row got the same events."""
        together: dict[tuple[int, int], tuple[Member, list[object]]] = {}
        for story in self.stories.values():
            for view, following in zip(story.views, story.views[1:], strict=False):
                given: list[object] = [item for item in story.events.items() if item[0].view == view.id]
                first, expected = together.setdefault((view.id, following.id), (story.member, given))
                if given != expected:
                    raise Broken(f"I21: {first} and {story.member} went on from view {view.id} differently")

    def _stable_is_one_history(self) -> None:
        """Check that members agree on events up to their stable positions."""
        for story in self.stories.values():
            for at, event in story.events.items():
                if at <= story.stable and self.stable.get(at, event) != event:
                    raise Broken(f"I21: {story.member} has another event at {at} than the others")


class Recorder(Listener):
    """A listener that calls the checker, and then another listener."""

    def __init__(self, checker: Checker, group: Group, behind: Listener | None = None) -> None:
        self.group = group
        self.checker = checker
        self.story = checker.story(group.member)
        self.behind = behind or Listener()
        self.holds_by_itself = True

    def send(self, event: bytes) -> None:
        self.group.mcast(event)
        self.story.sent.append(event)

    def on_deliver(self, pos: Position, member: Member, event: bytes) -> None:
        self.checker.deliver(self.story, pos, member, event)
        self.behind.on_deliver(pos, member, event)
        self._hold(pos)

    def on_view(self, view: View) -> None:
        self.checker.view(self.story, view)
        self.behind.on_view(view)
        if view.quorate:
            self._hold(view.position)

    def on_stable(self, pos: Position) -> None:
        self.checker.stable_at(self.story, pos)
        self.behind.on_stable(pos)

    def on_lost(self, reason: str) -> None:
        self.checker.lost(self.story, reason)
        self.behind.on_lost(reason)

    def hold(self, pos: Position) -> None:
        """Hold a position, in groups with explicit holds."""
        self.story.held = max(self.story.held, pos)
        self.group.hold(pos)

    def _hold(self, pos: Position) -> None:
        if self.holds_by_itself:
            self.story.held = pos
