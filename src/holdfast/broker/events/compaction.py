"""Events of compaction: request it, write a view, let it take effect, trim behind it.

The owner of the topic writes the view. Its entries are durable and replicated like all others, in a ledger
that belongs to no topic. `CompactionDone` alone makes them visible. A member that dies, or is no longer the
owner, leaves a run behind; the next run replaces it.
"""

from __future__ import annotations

from holdfast.broker.compaction.state import (
    CompactedView,
    Compaction,
    CompactionRun,
    decode_survivors,
    end_run,
    forget_compaction,
    places_of,
)
from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.cursors import advance_all
from holdfast.broker.events.notices import CompactionChanged
from holdfast.broker.events.outcomes import Done, Staged
from holdfast.broker.events.stages import ENTRY_BYTES_MAX, stage_digest
from holdfast.broker.state import BrokerState, TopicState
from holdfast.errors import Busy, Corrupt, Misuse, Outdated
from holdfast.formatting import plural
from holdfast.ids import require_left

TOKEN_BYTES = 16


@event(110, base=0)
class CompactionRequest(Event, frozen=True):
    """Ask for a compaction. It is durable, so a later owner carries it out, too."""

    topic: int
    automatic: bool = False
    """The threshold asks, not a user: do nothing if it is requested already."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        state.require_plain(topic, "keeps no messages, so it is not compacted")
        compaction = topic.compaction
        if compaction is not None and compaction.requested:
            if self.automatic:
                return Done(changed=False)
            raise Busy(f"{topic.name} is being compacted already; wait for its end")
        if compaction is None:
            compaction = state.compactions[topic.id] = topic.compaction = Compaction(topic.id)
        compaction.requested = max(1, context.time)
        if compaction.view is None:
            compaction.floor = topic.ledgers.first
        state.touch(compaction)
        context.notices.append(CompactionChanged(topic))
        return Done()


@event(111, base=0)
class CompactionBegin(Event, frozen=True):
    """Begin a run of a requested compaction. It replaces a run that was left behind."""

    topic: int
    token: bytes
    horizon: int
    after: int
    """Number of the view that it continues; 0: none."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic, compaction = require_requested(state, self.topic)
        if len(self.token) != TOKEN_BYTES:
            raise Misuse(f"the token of a compaction has {len(self.token)} bytes; it has {TOKEN_BYTES}")
        if compaction.run is not None and compaction.run.token == self.token:
            return Done(changed=False)
        view = compaction.view
        if self.after != (0 if view is None else view.number):
            raise Outdated(f"{topic.name} has another compacted view than number {self.after}; begin again")
        start = max(0 if view is None else view.horizon, topic.ledgers.first)
        if not start <= self.horizon <= topic.ledgers.end:
            raise Misuse(
                f"{topic.name} cannot be compacted up to {self.horizon}; its entries to compact are "
                f"{start} to {topic.ledgers.end}"
            )
        require_left(state.next_topic, "ids of topics")
        end_run(state, compaction)
        compaction.run = CompactionRun(self.token, self.after, start, self.horizon, state.next_topic)
        state.next_topic += 1
        state.log.add_topic(compaction.run.hidden)
        state.touch(compaction)
        return Done()


@event(112, base=0)
class CompactionAppend(Event, frozen=True):
    """Append surviving entries to a run. `at` makes it safe to repeat."""

    topic: int
    token: bytes
    at: int
    """Number of entries that the run has already."""
    entries: list[bytes]

    def apply(self, state: BrokerState, context: Context) -> Staged:
        topic, compaction, run = require_run(state, self.topic, self.token)
        if not self.entries or self.at + len(self.entries) == run.count:
            return Staged(run.count, run.digest)  # a repetition
        if self.at != run.count:
            raise Misuse(
                f"the compaction of {topic.name} has {plural(run.count, 'entry')}, not {self.at}; begin again"
            )
        if max(map(len, self.entries)) > ENTRY_BYTES_MAX:
            raise Misuse(f"an entry of more than {ENTRY_BYTES_MAX} bytes for {topic.name}; skip it")
        run.count += len(self.entries)
        run.size += sum(map(len, self.entries))
        run.digest = stage_digest(self.entries, run.digest)
        state.log.append(run.hidden, self.entries)
        _, run.file, _, _, run.file_size = state.log.tail(run.hidden)
        state.touch(compaction)
        return Staged(run.count, run.digest)


@event(113, base=0)
class CompactionDone(Event, frozen=True):
    """Let the view that a run has written take effect.

    It refuses a run whose entries are not those that the sender has counted: the former view stays.
    """

    topic: int
    token: bytes
    count: int
    digest: int
    survivors: bytes
    """The ordinals of the entries, as in `CompactedView`."""
    read: int = 0
    kept: int = 0
    duration_ms: int = 0

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic, compaction, run = require_run(state, self.topic, self.token)
        if (run.count, run.digest) != (self.count, self.digest):
            raise Corrupt(
                f"the compaction of {topic.name} has {plural(run.count, 'entry')} with digest {run.digest}, "
                f"not {self.count} with {self.digest}; it has to begin again"
            )
        survivors = decode_survivors(self.survivors, run.count, run.horizon)
        former = compaction.view
        places = places_of(topic.ledgers, former, survivors, run.horizon)
        if sum(survivors.range_cardinality(each.first, each.end) for each in places) != run.count:
            raise Misuse(f"the compaction of {topic.name} names entries that the topic never had")
        compaction.views += 1
        compaction.before = former
        compaction.floor = compaction.floor if former is None else former.horizon
        compaction.view = CompactedView(
            compaction.views,
            run.horizon,
            run.file,
            run.count,
            run.file_size,
            self.survivors,
            places,
            context.time,
            self.read,
            self.kept,
            self.duration_ms,
        )
        state.log.seal_ledger(run.hidden)
        end_run(state, compaction)
        compaction.requested, compaction.error = 0, ""
        state.touch(compaction)
        context.notices.append(CompactionChanged(topic))
        return Done()


@event(114, base=0, urgent=False)
class CompactionSettle(Event, frozen=True):
    """Forget the view before this one, so that entries below its horizon can be trimmed."""

    topic: int
    number: int

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        compaction = topic.compaction
        view = None if compaction is None else compaction.view
        if compaction is None or view is None or view.number != self.number or compaction.is_settled:
            return Done(changed=False)
        compaction.before, compaction.floor = None, view.horizon
        state.touch(compaction)
        context.notices.append(CompactionChanged(topic))
        return Done()


@event(115, base=0)
class CompactionDrop(Event, frozen=True):
    """End a run that failed, and its request. The views stay."""

    topic: int
    token: bytes
    error: str

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic, compaction, _ = require_run(state, self.topic, self.token)
        end_run(state, compaction)
        compaction.requested = 0
        compaction.error, compaction.error_time = self.error, context.time
        if compaction.view is None:
            compaction.floor = -1
        state.touch(compaction)
        context.notices.append(CompactionChanged(topic))
        return Done()


@event(116, base=0)
class CompactionForget(Event, frozen=True):
    """Remove the compacted views of a topic, and end a run."""

    topic: int

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        if not forget_compaction(state, topic):
            return Done(changed=False)
        advance_all(state, context, topic, topic.ledgers.first)  # trimmed entries were to be read in the view
        context.notices.append(CompactionChanged(topic))
        return Done()


def require_requested(state: BrokerState, topic: int) -> tuple[TopicState, Compaction]:
    """Return a topic whose compaction is requested; raise Outdated for another."""
    found = state.require_topic(topic)
    if found.compaction is None or not found.compaction.requested:
        raise Outdated(f"no compaction of {found.name} is requested; request one")
    return found, found.compaction


def require_run(state: BrokerState, topic: int, token: bytes) -> tuple[TopicState, Compaction, CompactionRun]:
    """Return the run of this token; raise Outdated if it has ended."""
    found, compaction = require_requested(state, topic)
    run = compaction.run
    if run is None or run.token != token:
        raise Outdated(f"this run of the compaction of {found.name} was replaced, or has ended; begin again")
    return found, compaction, run
