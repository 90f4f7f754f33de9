"""Events of members that join: words in the order, topics that are not ready."""

from __future__ import annotations

from holdfast.broker.events import ownership
from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState
from holdfast.errors import Misuse
from holdfast.group import Member


@event(3)
class MemberHello(Event, frozen=True):
    """Tell the others what this member's directory holds, or that it serves."""

    view: int
    """The view in which it was said; it does not count in another."""
    body: bytes
    """A `holdfast.cluster` message."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        return Done(changed=False)


@event(4)
class TransferMark(Event, frozen=True):
    """Show that the sender had applied a copied state before this place of the order."""

    token: bytes

    def apply(self, state: BrokerState, context: Context) -> Done:
        return Done(changed=False)


@event(5)
class UpdateBegin(Event, frozen=True):
    """Name the topics of which a member lacks ledgers: it does not own their subscriptions.

    It comes before the member has consumers. Topics that do not exist any more are left out. A topic that is
    created later is complete at once.
    """

    member: Member
    """The sender."""
    topics: list[int]

    def apply(self, state: BrokerState, context: Context) -> Done:
        context.require_sender(self.member)
        if self.member not in state.members:
            raise Misuse(f"member {self.member} is not in the view; it joins again")
        if any(self.member in each.attached for each in state.subscriptions.values()):
            raise Misuse(f"member {self.member} has consumers already; an update begins before it serves")
        lacking = [state.topics[each] for each in sorted(set(self.topics)) if each in state.topics]
        for topic in lacking:
            topic.unready.add(self.member)
            state.touch(topic)
        return Done(changed=bool(lacking))


@event(6)
class TopicsReady(Event, frozen=True):
    """Note that a member has all ledgers of topics: it may own their subscriptions."""

    member: Member
    """The sender."""
    topics: list[int]

    def apply(self, state: BrokerState, context: Context) -> Done:
        context.require_sender(self.member)
        ready = [state.topics[each] for each in sorted(set(self.topics)) if each in state.topics]
        ready = [topic for topic in ready if self.member in topic.unready]
        for topic in ready:
            topic.unready.remove(self.member)
            state.touch(topic)
            for _, subscription in sorted(topic.subscriptions.items()):
                if self.member in subscription.attached:
                    ownership.joined(state, context, subscription, self.member)
        return Done(changed=bool(ready))


def forget_absent(state: BrokerState) -> None:
    """Forget what members lack that are not in the view any more."""
    for _, topic in sorted(state.topics.items()):
        if gone := topic.unready.difference(state.members):
            topic.unready -= gone
            state.touch(topic)
