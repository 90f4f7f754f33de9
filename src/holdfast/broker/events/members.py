"""Events of a cluster: facts about members, shared options, and names of unreplicated topics."""

from __future__ import annotations

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.notices import NameChanged, PoliciesChanged
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.topics import forget_permissions
from holdfast.broker.member_state import MemberInfo, Place, Setting
from holdfast.broker.state import BrokerState
from holdfast.errors import Exists, Misuse
from holdfast.names import namespace_of, topic_name


@event(81)
class MemberAnnounce(Event, frozen=True):
    """Replace the facts about a member. Only the member itself sends this."""

    info: MemberInfo

    def apply(self, state: BrokerState, context: Context) -> Done:
        member = self.info.member
        if context.member is not None and member != context.member:
            raise Misuse(f"member {context.member} cannot announce {member}; only itself")
        if member not in state.members:
            raise Misuse(f"member {member} is not in the view; it announces itself after it has joined")
        announced = state.announced
        if announced.info.get(member.node) == self.info:
            return Done(changed=False)
        announced.info = {**announced.info, member.node: self.info}
        state.touch(announced)
        return Done()


@event(82)
class OptionsSet(Event, frozen=True):
    """Change options that all members share.

    Names and values were checked by the sender, by the rules of its program. Here they are only stored:
    members with different programs must agree.
    """

    values: dict[str, Setting]
    first: bool = False
    """Only options that have no value yet: the first member brings those of its configuration."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        decided = state.decided
        values = {**self.values, **decided.values} if self.first else {**decided.values, **self.values}
        if values == decided.values:
            return Done(changed=False)
        decided.values = values
        state.touch(decided)
        context.notices.append(PoliciesChanged())
        return Done()


@event(85)
class OptionsChange(Event, frozen=True):
    """Change options of a broker alone; they apply instead of its configuration (**I291**).

    Names and values were checked by the sender. A member of a cluster sends `OptionsSet` instead.
    """

    values: dict[str, Setting]
    gone: list[str]
    """Names of options for which the configuration applies again."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        decided = state.decided
        changed = {**decided.changed, **self.values}
        for name in self.gone:
            changed.pop(name, None)
        if changed == decided.changed:
            return Done(changed=False)
        decided.changed = changed
        state.touch(decided)
        context.notices.append(PoliciesChanged())
        return Done()


@event(83)
class UnreplicatedSet(Event, frozen=True):
    """Give the name of an unreplicated topic or exchange to a node, or free it.

    The topic itself is created and deleted in the node's own log.
    """

    name: str
    """In full."""
    node: int
    exchange: bool = False
    gone: bool = False
    """Free the name, if the node has it."""
    managed: bool = False
    """Only in a namespace that was created."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        known = state.unreplicated.places.get(self.name)
        if self.gone:
            if known is None or known.node != self.node:
                return Done(changed=False)
            del state.unreplicated.places[self.name]
            state.touch(state.unreplicated)
            forget_permissions(state, self.name)
            if not known.exchange:
                context.notices.append(NameChanged(self.name, given=False))
            return Done()
        if topic_name(self.name) != self.name:
            raise Misuse(f"{self.name!r} is short for {topic_name(self.name)!r}; say it in full")
        if self.node < 1 or (context.member is not None and self.node != context.member.node):
            raise Misuse(f"member {context.member} cannot name topics of node {self.node}; only its own")
        if self.name in state.names:
            raise Exists(f"{self.name} exists already, and is replicated; use another name")
        place = Place(self.node, self.exchange)
        if known == place:
            return Done(changed=False)
        state.unreplicated.require_free(self.name)
        state.partitioned.require_free(self.name)
        if self.managed:
            state.namespaces.require(namespace_of(self.name))
        state.unreplicated.places[self.name] = place
        state.touch(state.unreplicated)
        if not self.exchange:
            context.notices.append(NameChanged(self.name, given=True))
        return Done()
