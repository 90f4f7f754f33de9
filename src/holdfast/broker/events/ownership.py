"""Ownership of subscriptions: which member dispatches, and how another one takes over.

At most one member dispatches a subscription, its *owner*. Ownership moves when the owner releases it, when
the owner's last consumer leaves, and with a view that does not have the owner. The next owner is decided when
the event is applied (`next_owner`), so there is no event to take ownership. Each decision has a number, the
subscription's `taken`. A release that names another number is refused.
"""

from __future__ import annotations

import msgspec

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.notices import ConsumersChanged, HeldReturned, OwnerChanged, OwnershipWanted
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.redeliveries import Counts, note_counts
from holdfast.broker.key_shared import hashes_of, require_hashes
from holdfast.broker.key_shared import joined as joined_hashes
from holdfast.broker.ranges import common, merged, require_ranges, without
from holdfast.broker.state import BrokerState, SubscriptionState
from holdfast.errors import Fenced
from holdfast.group import Member

Ranges = list[tuple[int, int]]


def active_consumer_member(subscription: SubscriptionState) -> Member | None:
    """Return the member of the consumer that an exclusive or failover subscription serves.

    It has the best priority, and of several the one that joined first. Members that lack ledgers of the topic
    do not count.
    """
    ready = (each for each in subscription.consumers.values() if each.member not in subscription.unready)
    best = min(ready, key=lambda each: (each.priority, each.session), default=None)
    return None if best is None else best.member


def able(subscription: SubscriptionState) -> set[Member]:
    """Return the members that may own a subscription: those with consumers that are ready."""
    return subscription.attached.keys() - subscription.unready


def next_owner(subscription: SubscriptionState, after: Member | None) -> Member | None:
    """Return the member that owns the subscription next; None: none is ready.

    Shared: the members with consumers take turns in the order of their nodes. Idle ones are left out. The
    last owner stays only if no other member wants it. Else: the member of the active consumer.

    Example:
        >>> from holdfast.broker.state import Consumer
        >>> from holdfast.ledger import AckState
        >>> billing = SubscriptionState(1, 1, "billing", AckState(), owner_epoch=0)
        >>> for node in (1, 2, 3):
        ...     billing.attach(Consumer(node, f"c{node}", "shared", 0, Member(node, 1)))
        >>> billing.idle = {Member(3, 1)}
        >>> print(next_owner(billing, after=Member(2, 1)), next_owner(billing, after=Member(1, 1)))
        1.1 2.1
    """
    if not subscription.takes_turns:
        return active_consumer_member(subscription)
    there = sorted(able(subscription))
    turns = [each for each in there if after is None or each > after] + [
        each for each in there if after is not None and each < after
    ]
    willing = [each for each in turns if each not in subscription.idle]
    if willing:
        return willing[0]
    return after if after in there else next(iter(turns), None)


def install(
    state: BrokerState,
    context: Context,
    subscription: SubscriptionState,
    owner: Member | None,
    counts: Counts | None = None,
    undelivered: Ranges | None = None,
) -> None:
    """Make a member the owner, or the owner again, under a new number."""
    if owner != subscription.owner:
        of = subscription.consumers.values()
        subscription.full -= {each.session for each in of if each.member == owner}
    subscription.owner = owner
    subscription.owner_epoch += 1
    subscription.taken = subscription.owner_epoch
    if owner is not None:
        subscription.idle.discard(owner)
        subscription.keep_held(owner, [])
    state.touch(subscription)
    context.notices.append(
        OwnerChanged(
            subscription,
            owner,
            subscription.taken,
            subscription.reset_number,
            merged(each for held in subscription.held.values() for each in held),
            counts or [],
            undelivered,
            joined_hashes((held, subscription.hashes[each]) for each, held in subscription.held.items())
            if subscription.hashes
            else b"",
        )
    )


def joined(state: BrokerState, context: Context, subscription: SubscriptionState, member: Member) -> None:
    """Follow a consumer that has joined at a member, or a member that became ready."""
    changed(context, subscription)
    if member in subscription.unready:
        return
    if subscription.owner is None:
        install(state, context, subscription, member)
    elif is_due(subscription, member):
        context.notices.append(OwnershipWanted(subscription))


def changed(context: Context, subscription: SubscriptionState) -> None:
    """Tell dispatchers that the consumers of a Key_Shared subscription are others now."""
    if subscription.type == "key_shared":
        context.notices.append(ConsumersChanged(subscription))


def is_due(subscription: SubscriptionState, member: Member) -> bool:
    """Return whether a member that is not the owner should become it."""
    if member == subscription.owner:
        return False
    return subscription.takes_turns or active_consumer_member(subscription) == member


def left(state: BrokerState, context: Context, subscription: SubscriptionState) -> None:
    """Follow consumers that have left: their members may have none any more."""
    changed(context, subscription)
    absent = _absent(subscription)
    returned = [subscription.held[each] for each in absent]
    for each in absent:
        subscription.keep_held(each, [])
    subscription.idle &= subscription.attached.keys()
    if subscription.owner not in subscription.attached:
        if subscription.owner is not None or able(subscription):
            install(state, context, subscription, next_owner(subscription, subscription.owner))
        return
    for ranges in returned:
        context.notices.append(HeldReturned(subscription, subscription.reset_number, ranges, []))
    if next_owner(subscription, None) != subscription.owner and not subscription.takes_turns:
        context.notices.append(OwnershipWanted(subscription))


def viewed(state: BrokerState, context: Context, subscription: SubscriptionState) -> None:
    """Follow a view: what absent members held is free, and an absent owner is replaced."""
    if subscription.owner is None and not subscription.attached:
        return  # most of many subscriptions; without consumers nothing is held, and no release is under way
    changed(context, subscription)
    for member in _absent(subscription):
        subscription.keep_held(member, [])
    subscription.idle &= subscription.attached.keys()
    owner = subscription.owner
    if owner not in subscription.attached:
        owner = next_owner(subscription, owner)
    install(state, context, subscription, owner)


def _absent(subscription: SubscriptionState) -> list[Member]:
    return sorted(subscription.held.keys() - subscription.attached.keys())


@event(52, version=2, base=2)
class OwnershipRelease(Event, frozen=True):
    """Give up a subscription. The owner has stopped before; the next owner is decided here."""

    subscription: int
    epoch: int
    """The number under which it owns the subscription (`taken`)."""
    member: Member
    """The sender."""
    reset_number: int
    """The rest refers to this reset. After another reset only the release itself counts."""
    pending: Ranges = msgspec.field(default_factory=list)
    """Entries that its consumers still hold, or that wait here for their time. No one else gets them."""
    counts: Counts = msgspec.field(default_factory=list)
    undelivered: Ranges = msgspec.field(default_factory=list)
    """Entries between target and reach of the last reset that were not delivered since (I58)."""
    idle: bool = False
    """None of its consumers has permits: leave it out until it asks."""
    hashes: bytes = b""
    """Key_Shared: of each entry in `pending`, in order, two bytes: the hash of its key."""
    full: list[int] = msgspec.field(default_factory=list)
    """Key_Shared: its consumers without permits, by session. They are left out until they ask."""
    to: Member | None = None
    """Key_Shared: the member for whose consumers there are entries."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        context.require_sender(self.member)
        subscription = state.require_subscription(self.subscription)
        require_ranges(self.pending, "the release of a subscription")
        require_ranges(self.undelivered, "the release of a subscription")
        if subscription.owner != self.member or subscription.taken != self.epoch:
            raise Fenced(
                f"member {self.member} owned the subscription {subscription.name!r} under number "
                f"{self.epoch}; now {subscription.owner} owns it under {subscription.taken}, and nothing was "
                "released"
            )
        keyed = subscription.type == "key_shared"
        if keyed:
            require_hashes(self.pending, self.hashes)
        current = self.reset_number == subscription.reset_number
        end = state.topics[subscription.topic].ledgers.end
        if current and self.pending and subscription.takes_turns:
            still = merged(common(self.pending, [(subscription.acks.acked_to, end)]))
            hashes = hashes_of(self.pending, self.hashes, still) if keyed else b""
            subscription.keep_held(self.member, still, hashes)
        if self.idle and subscription.takes_turns:
            subscription.idle.add(self.member)
        of = subscription.consumers
        full = {each for each in self.full if each in of and of[each].member == self.member}
        to = self.to if self.to in able(subscription) and self.to != self.member else None
        if current:
            since = without([(subscription.target, subscription.reach)], self.undelivered)
            subscription.delivered = merged([*subscription.delivered, *since])
            note_counts(state, subscription, self.counts)
        _forget_acknowledged(subscription)
        install(
            state,
            context,
            subscription,
            to or next_owner(subscription, self.member),
            self.counts if current else None,
            self.undelivered if current else None,
        )
        if keyed and subscription.owner != self.member:
            subscription.full |= full
        return Done()


def _forget_acknowledged(subscription: SubscriptionState) -> None:
    """Drop what lies below the mark-delete position; acknowledged entries above it do no harm."""
    done = [(0, subscription.acks.acked_to)]
    subscription.delivered = without(subscription.delivered, done)
    for member in sorted(subscription.held):
        _keep(subscription, member, without(subscription.held[member], done))


def _keep(subscription: SubscriptionState, member: Member, ranges: Ranges) -> None:
    """Keep these ranges of what a member holds."""
    hashes = subscription.hashes.get(member, b"")
    if hashes:
        hashes = hashes_of(subscription.held[member], hashes, ranges)
    subscription.keep_held(member, ranges, hashes)


@event(53, version=2, base=2)
class OwnershipAsk(Event, frozen=True):
    """Take turns again: consumers of an idle member have permits."""

    subscription: int
    member: Member
    """The sender."""
    sessions: list[int] = msgspec.field(default_factory=list)
    """Key_Shared: consumers that were full, and have permits."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        context.require_sender(self.member)
        subscription = state.require_subscription(self.subscription)
        of = subscription.consumers
        open_ = {each for each in self.sessions if each in of and of[each].member == self.member}
        if self.member not in subscription.idle and not open_ & subscription.full:
            return Done(changed=False)
        subscription.idle.discard(self.member)
        subscription.full -= open_
        state.touch(subscription)
        context.notices.append(OwnershipWanted(subscription))
        return Done()


@event(54)
class OwnershipReturn(Event, frozen=True):
    """Return entries that consumers of another member than the owner held: the owner delivers them."""

    subscription: int
    member: Member
    """The sender."""
    reset_number: int
    ranges: Ranges
    counts: Counts = msgspec.field(default_factory=list)

    def apply(self, state: BrokerState, context: Context) -> Done:
        context.require_sender(self.member)
        subscription = state.require_subscription(self.subscription)
        require_ranges(self.ranges, "the return of entries")
        held = subscription.held.get(self.member, [])
        returned = common(held, self.ranges)
        if not returned or self.reset_number != subscription.reset_number:
            return Done(changed=False)
        kept = without(held, returned)
        _keep(subscription, self.member, kept)
        note_counts(state, subscription, self.counts)
        state.touch(subscription)
        context.notices.append(HeldReturned(subscription, self.reset_number, returned, self.counts))
        return Done()
