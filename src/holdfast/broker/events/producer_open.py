"""producer.open: somebody wants to publish."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import ProducerOpened
from holdfast.broker.events.sessions import admit, end_producers, remove_producer
from holdfast.broker.state import Access, BrokerState, Producer, TopicState
from holdfast.errors import Busy, Fenced, Terminated
from holdfast.group import Member
from holdfast.ids import require_left
from holdfast.names import checked_name


@register
class ProducerOpen(Event, frozen=True):
    """Open a producer's session.

    | access | others are there | nobody is there |
    |---|---|---|
    | shared | refused, if one is exclusive or waits to be | let in |
    | exclusive | refused | let in, a new epoch |
    | wait-for-exclusive | waits for its turn | let in, a new epoch |
    | exclusive-with-fencing | they are fenced; let in, a new epoch | let in, a new epoch |

    A name is attached once. A later attempt of the same client takes the place of an earlier one, whose
    session ends: what it has under way is refused, and the last sequence tells the new one where to go on.
    """

    kind: ClassVar[int] = 40

    topic: int
    name: str
    """Empty: one is made up."""
    access: Access
    member: Member
    """The sender."""
    attempt: int = 0
    epoch: int = -1
    """Of an exclusive producer that comes back: the epoch it had. If there was a newer one, it is fenced."""

    def apply(self, state: BrokerState, context: Context) -> ProducerOpened:
        context.require_sender(self.member)
        topic = state.require_topic(self.topic)
        if topic.terminated:
            raise Terminated(f"{topic.name} was terminated; nothing can be published")
        require_left(state.next_session, "ids of sessions")
        require_left(topic.epoch + 1, f"epochs of {topic.name}")
        name = checked_name(self.name or self._made_up(state, topic), "a producer")
        before = self._replaced(topic, name)
        attached = before is not None and before.session in topic.producers
        others = len(topic.producers) - attached
        had_it = before is not None and before.access != "shared" and attached
        waiting = 0 if had_it else len(topic.waiting) - (before is not None and not attached)
        self._require_access(topic, others, waiting)
        waits = self.access == "wait-for-exclusive" and others > 0
        # Who had the topic to itself and comes back is for the others the same as before.
        anew = others > 0 or not (had_it or self.epoch == topic.epoch)

        if before is not None:
            remove_producer(state, context, topic, before.session, "a later attempt took its place")
        if self.access == "exclusive-with-fencing":
            end_producers(state, context, topic, "fenced by an exclusive producer")
        if self.access != "shared" and not waits and anew:
            topic.epoch += 1
        producer = Producer(
            state.next_session, name, self.access, self.member, -1 if waits else topic.epoch, self.attempt
        )
        state.next_session += 1
        if waits:
            topic.waiting.append(producer)
            topic.named[name] = producer
            state.sessions[producer.session] = topic
            state.touch(topic)
            return ProducerOpened(producer.session, name, -1, -1, waiting=True)
        last = admit(state, topic, producer)
        return ProducerOpened(producer.session, name, topic.epoch, last)

    def _made_up(self, state: BrokerState, topic: TopicState) -> str:
        name = f"producer-{state.next_session}"
        while name in topic.named:
            name += "-"
        return name

    def _replaced(self, topic: TopicState, name: str) -> Producer | None:
        """The session of this name whose place the new one takes."""
        there = topic.named.get(name)
        if there is not None and self.attempt <= there.attempt:
            raise Busy(f"{topic.name} has a producer {name!r} already; close it, or take another name")
        return there

    def _require_access(self, topic: TopicState, others: int, waiting: int) -> None:
        """`others` are attached and `waiting` wait, beside the one whose place this one takes."""
        # One that is exclusive is alone (I45): so any of them tells of all.
        some = next(iter(topic.producers.values()), None)
        exclusive = waiting > 0 or (others > 0 and some is not None and some.access != "shared")
        if self.access == "shared" and exclusive:
            raise Busy(f"{topic.name} has an exclusive producer, or one that waits to be; wait for its end")
        if self.access == "exclusive" and (others or waiting):
            raise Busy(f"{topic.name} has {others} producers and {waiting} that wait; wait, or fence")
        if self.access != "shared" and 0 <= self.epoch < topic.epoch:
            raise Fenced(
                f"{topic.name} had another exclusive producer since: its epoch is {topic.epoch}, "
                f"not {self.epoch}; open without one to begin anew"
            )
