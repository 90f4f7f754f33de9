"""The toy broker of `machine` on the `cpg` engine, over a simulated Corosync.

The engine does not know the history before a joiner's cut, as a real one does not. Here the recorded calls of
the other members give it.
"""

from __future__ import annotations

from holdfast.group import View
from tests.kit.group.checker import Broken, Story
from tests.kit.group.machine import Counters, World
from tests.kit.sim import Delivered, Weather, storm
from tests.kit.sim.totem import Hasty, TotemSim

Past = list[View | Delivered]


class TotemWorld(World):
    """Members on a simulated Corosync, and their history as the members have it."""

    def __init__(self, sim: TotemSim, machine: type[Counters] = Counters, gap_s: float = 0.004) -> None:
        super().__init__(sim, machine, gap_s)
        self.checker.uniform = True
        self._pasts: dict[int, Past] = {}
        sim.view_floor = self._view_floor

    def _view_floor(self, node: int) -> int:
        held = [story.held.view for member, story in self.checker.stories.items() if member.node == node]
        return max(held, default=0)

    def missed(self, cut: View) -> Past | None:
        """Return the views and events before a cut, or None while no member has them."""
        if cut.id not in self._pasts:
            parent = self._parent(cut)
            if parent is None:
                return None
            view, story = parent
            if view is None or story is None:
                self._pasts[cut.id] = []
            else:
                before = self.missed(view)
                if before is None:
                    return None
                self._pasts[cut.id] = [*before, view, *_events(story, view)]
        return self._pasts[cut.id]

    def _parent(self, cut: View) -> tuple[View | None, Story | None] | None:
        """Return the primary view before a cut, and a member with its events.

        A member that stays knows it. If none stays, the most advanced member of the last primary view does,
        as after a power cut.
        """
        staying = [self.checker.stories[member] for member in cut.members if member not in cut.joined]
        for story in staying:
            if cut in story.views:
                return story.views[story.views.index(cut) - 1], story
        if any(self._alive(story) for story in staying):
            return None
        stories = list(self.checker.stories.values())
        # A view that no member holds is in no store. The next life of its members may never learn of it.
        told = {
            view for story in stories for view in story.views if view.quorate and story.held >= view.position
        }
        order = self._order()
        known = [view for view in told if order[view.id] < order[cut.id]]
        if not known:
            return None, None
        view = max(known, key=lambda each: each.id)
        stories = [story for story in stories if view in story.views]
        fitting = [story for story in stories if self._has_stable(story, view)]
        if not fitting:
            raise Broken(f"I26: no member of view {view.id} has everything that was stable in it")
        return view, max(fitting, key=lambda story: len(_events(story, view)))

    def _order(self) -> dict[int, int]:
        """Return the places of views in time; ids that no member held may fall."""
        return {view: place for place, view in enumerate(self.checker.views)}

    def _alive(self, story: Story) -> bool:
        node = self.sim.running.get(story.member.node)
        return story.ended is None and node is not None and node.member == story.member

    def _has_stable(self, story: Story, view: View) -> bool:
        return all(
            story.events.get(pos) == event
            for pos, event in self.checker.stable.items()
            if pos.view == view.id
        )

    def check_rest(self) -> None:
        """Check that all is delivered and stable on every node after the storm."""
        stories = [self.checker.stories[node.member] for node in self.sim.running.values() if node.member]
        views = {story.views[-1].id for story in stories if story.views}
        if len(views) != 1 or not stories[0].views[-1].quorate:
            raise Broken(f"I22: after the storm the nodes are in the views {sorted(views)}")
        for story in stories:
            own = sum(member == story.member for member, _ in story.events.values())
            if own != len(story.sent):
                raise Broken(f"I20: {story.member} sent {len(story.sent)} events and was given {own} of them")
            if story.stable != story.last:
                raise Broken(f"I24: {story.member} is at {story.last}, of which {story.stable} is stable")

    def check_history(self) -> None:
        """I26: check that every cut's past has the events that were stable before."""
        assert self._pasts
        order = self._order()
        for cut, past in self._pasts.items():
            events = {
                item.position: (item.member, item.event) for item in past if isinstance(item, Delivered)
            }
            for pos, event in self.checker.stable.items():
                if order[pos.view] < order[cut] and events.get(pos) != event:
                    raise Broken(f"I26: {pos} was stable; the past of view {cut} has {events.get(pos)} there")


def _events(story: Story, view: View) -> list[Delivered]:
    return [
        Delivered(pos, member, event) for pos, (member, event) in story.events.items() if pos.view == view.id
    ]


def run_on_totem(
    seed: int, machine: type[Counters] = Counters, seconds: float = 10.0
) -> tuple[TotemWorld, bytes]:
    """Run and check a storm over the `cpg` engine; return world and trace."""
    with TotemSim(seed, nodes=3 if seed % 2 else 5) as sim:
        sim.engine = Hasty
        world = TotemWorld(sim, machine, gap_s=0.008 * len(sim.nodes) ** 2)
        sim.network.weather = Weather(delay_s=(1e-4, 25e-3), loss=0.05, detection_s=(0.005, 0.3))
        sim.boot(world.program)
        storm(sim, seconds, every_s=(0.02, 1.0))
        world.quiet = True
        sim.run(3)
        world.checker.check()
        world.check_history()
        world.check_rest()
        return world, bytes(sim.trace)
