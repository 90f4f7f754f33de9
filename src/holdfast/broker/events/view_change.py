"""view: who is in the group from here on. Every primary view begins with it, at position (view, 0)."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.sessions import end_sessions
from holdfast.broker.state import BrokerState, TopicState
from holdfast.group import Member

SKIP = 1000
SKIP_PER_TOPIC = 10


@register
class ViewChange(Event, frozen=True):
    """The sessions of members that are not in the view end, and owner epochs rise.

    `unclean`: this broker was not stopped in order. What it had opened and not made durable may have been
    shown under `sync = os`, so open ledgers are sealed, and ledger ids go on well behind those in use.
    """

    kind: ClassVar[int] = 2

    members: list[Member]
    unclean: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        state.members = tuple(self.members)
        state.views += 1
        gone = [
            session for session in sorted(state.sessions) if member_of(state, session) not in self.members
        ]
        end_sessions(state, context, gone, "its member has left the group")
        for subscription in state.subscriptions.values():
            subscription.owner_epoch += 1
            state.touch(subscription)
        if self.unclean:
            for id in sorted(state.topics):  # noqa: A001
                topic = state.require_topic(id)
                if topic.ledgers.open_ledger is not None:
                    state.seal(topic)
            state.log.next_ledger += SKIP + SKIP_PER_TOPIC * len(state.topics)
        state.touch()
        return Done()


def member_of(state: BrokerState, session: int) -> Member:
    """Whose session it is."""
    where = state.sessions[session]
    if not isinstance(where, TopicState):
        return where.consumers[session].member
    found = where.producers.get(session)
    return (found or next(each for each in where.waiting if each.session == session)).member
