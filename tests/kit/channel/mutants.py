"""Mutants of the channel: each changes a header, and the explorer must catch it.

As those of the queue (tests/kit/queue/mutants.py), each names the space that kills it.
`python -m tests.kit.channel.mutants` prints the table of results; NAME --schedule shows what kills one.
"""

from __future__ import annotations

import sys

from tests.kit.channel import order_mutants
from tests.kit.native import Mutant
from tests.kit.queue import mutants

MUTANTS = (
    Mutant(
        "take-without-mark",
        "pop takes a datum without the INSPECTED mark, as the original text has it",
        "channel/ring.hpp",
        "if ((seen & kInspected) != 0) return true; u8 expected = seen;",
        "if (MUTANT || (seen & kInspected) != 0) return true;\n        u8 expected = seen;",
        "channel-lap",
    ),
    Mutant(
        "claim-missing",
        "a pop does not claim the owner before the hand-over",
        "channel/ring.hpp",
        "if (!claim(index, mark)) {",
        "if (!MUTANT && !claim(index, mark)) {",
        "channel-one",
    ),
    Mutant(
        "claim-stays",
        "a claim that came to nothing is not cleared",
        "channel/ring.hpp",
        "unclaim(index, mark);",
        "if (!MUTANT) unclaim(index, mark);",
        "channel-one",
    ),
    Mutant(
        "claim-blind",
        "a pop claims a buffer that a closed producer keeps",
        "channel/ring.hpp",
        "return memory_.cas(words_.owner(index), none, mark, std::memory_order_relaxed);",
        "if (MUTANT) memory_.store(words_.owner(index), mark, std::memory_order_relaxed);\n"
        "        return MUTANT || memory_.cas(words_.owner(index), none, mark, std::memory_order_relaxed);",
        "channel-keep",
    ),
    Mutant(
        "unclaim-blind",
        "a claim that came to nothing clears the mark of a closed producer",
        "channel/ring.hpp",
        "memory_.cas(words_.owner(index), mark, 0, std::memory_order_release);",
        "if (MUTANT) release(index);\n"
        "        else memory_.cas(words_.owner(index), mark, 0, std::memory_order_release);",
        "channel-keep",
    ),
    Mutant(
        "take-blind",
        "pop stores EMPTY without asking whether the datum is still there",
        "channel/ring.hpp",
        "if (!memory_.cas(words_.state(s), seen, kEmpty, std::memory_order_acq_rel)) {",
        "if (MUTANT ? (memory_.store(words_.state(s), kEmpty, std::memory_order_release), false) "
        ": !memory_.cas(words_.state(s), seen, kEmpty, std::memory_order_acq_rel)) {",
        "channel-one",
    ),
    Mutant(
        "role-without-proof",
        "a role is taken without asking the kernel whether its holder is dead",
        "channel/roles.hpp",
        "if (holder == me || !memory.take_byte(holder)) return Claim::busy;",
        "if (holder == me) return Claim::busy;\n        memory.take_byte(holder);",
        "channel-consumer-restart",
    ),
    Mutant(
        "role-first",
        "a role is taken before the buffers of its dead holder are cleared",
        "channel/roles.hpp",
        "lanes.clear_owner(static_cast<u8>(holder));\n"
        "        // pairs with: claim_role\n"
        "        const bool taken = memory.cas(word, found, me + 1, std::memory_order_acq_rel);",
        "if (!MUTANT) lanes.clear_owner(static_cast<u8>(holder));\n"
        "        const bool taken = memory.cas(word, found, me + 1, std::memory_order_acq_rel);\n"
        "        if (MUTANT) lanes.clear_owner(u8(holder));",
        "channel-consumer-restart",
    ),
    Mutant(
        "role-keeps-buffers",
        "the buffers of a role's dead holder are not cleared",
        "channel/roles.hpp",
        "lanes.clear_owner(static_cast<u8>(holder));\n",
        "if (!MUTANT) lanes.clear_owner(static_cast<u8>(holder));\n",
        "channel-consumer-restart",
    ),
    Mutant(
        "attach-keeps-buffers",
        "a fresh process leaves the buffers of its slot's last holder",
        "channel/roles.hpp",
        "const u32 cleared = lanes.clear_owner(static_cast<u8>(slot));",
        "const u32 cleared = MUTANT ? 0 : lanes.clear_owner(static_cast<u8>(slot));",
        "channel-reuse",
    ),
    Mutant(
        "pending-stays",
        "recovery leaves slots that a push has frozen",
        "channel/ring.hpp",
        "const bool uncommitted = (state & kPending) != 0 ||",
        "const bool uncommitted = (!MUTANT && (state & kPending) != 0) ||",
        "channel-producer-restart",
    ),
    Mutant(
        "uncommitted-stays",
        "recovery leaves the datums of a batch that was never complete",
        "channel/ring.hpp",
        "((state & kData) != 0 && load_position(s) > tail);",
        "(!MUTANT && (state & kData) != 0 && load_position(s) > tail);",
        "channel-batch-restart",
    ),
    Mutant(
        "second-end-stays",
        "recovery leaves the second END",
        "channel/ring.hpp",
        "(state & kEnd) != 0 ||\n",
        "(!MUTANT && (state & kEnd) != 0) ||\n",
        "channel-producer-restart",
    ),
    Mutant(
        "datum-before-end",
        "a push publishes its datum before the END",
        "channel/ring.hpp",
        "memory_.store(words_.state(slot(end)), end_state, std::memory_order_release);\n"
        "        memory_.at(ChannelPoint::push_ended);",
        "if (MUTANT) memory_.exchange(words_.state(slot(tail)), kData, "
        "std::memory_order_acq_rel);\n"
        "        memory_.store(words_.state(slot(end)), end_state, std::memory_order_release);\n"
        "        memory_.at(ChannelPoint::push_ended);",
        "channel-one",
    ),
    Mutant(
        "freeze-by-store",
        "a push freezes by a store: it does not see what it displaced",
        "channel/ring.hpp",
        "memory_.exchange(words_.state(slot(position)), kPending, std::memory_order_acq_rel);",
        "MUTANT ? (memory_.load(words_.state(slot(position)), std::memory_order_acquire)) : "
        "memory_.exchange(words_.state(slot(position)), kPending, std::memory_order_acq_rel);\n"
        "            if (MUTANT) memory_.store(words_.state(slot(position)), kPending, "
        "std::memory_order_release);",
        "channel-wait-death",
    ),
    Mutant(
        "no-freeze",
        "a push does not freeze the slot of the next END",
        "channel/ring.hpp",
        'if (!plausible_state(found)) return damaged("state", position, found);',
        "if (MUTANT) memory_.store(words_.state(slot(position)), found, "
        "std::memory_order_release);\n"
        '            if (!plausible_state(found)) return damaged("state", position, found);',
        "channel-lap",
    ),
    Mutant(
        "position-first",
        "a push writes the position of the new END before the freeze",
        "channel/ring.hpp",
        "        u8 end_state = kEnd;",
        "        if (MUTANT) memory_.store(words_.position(slot(end)), end, "
        "std::memory_order_relaxed);\n"
        "        u8 end_state = kEnd;",
        "channel-wait-death",
    ),
    Mutant(
        "no-room-asked",
        "a push overwrites a datum although the channel does not overflow",
        "channel/ring.hpp",
        "if ((state & kData) != 0) return Handover::full;",
        "if (!MUTANT && (state & kData) != 0) return Handover::full;",
        "channel-return",
    ),
    Mutant(
        "push-retries",
        "a push tries again until no pop is under way",
        "channel/ring.hpp",
        "        u8 end_state = kEnd;",
        "        while (MUTANT && (memory_.load(words_.state(slot(end)), "
        "std::memory_order_acquire) & kInspected) != 0) {}\n"
        "        u8 end_state = kEnd;",
        "channel-one",
    ),
    Mutant(
        "displaced-twice",
        "a displaced buffer is free, and lent to the program, too",
        "channel/shelf.hpp",
        "where_[index] = had_data ? Where::loaned : Where::out;",
        "where_[index] = had_data ? Where::loaned : Where::out;\n"
        "        if (MUTANT && had_data) free_.push_back(index);",
        "channel-one",
    ),
    Mutant(
        "jump-too-far",
        "a pop that is a lap behind jumps one datum too far",
        "channel/ring.hpp",
        "jump(head, position + 2 - geometry_.positions(), out);\n            return Handover::starved;",
        "jump(head, position + 2 + MUTANT - geometry_.positions(), out);\n"
        "            return Handover::starved;",
        "channel-three",
    ),
    Mutant(
        "end-jump-too-far",
        "a pop that finds a later END jumps one datum too far",
        "channel/ring.hpp",
        "jump(head, position + 1 - geometry_.positions(), out);",
        "jump(head, position + 1 + MUTANT - geometry_.positions(), out);",
        "channel-lap",
    ),
    Mutant(
        "end-without-lap",
        "a pop takes any END for the one where it stands",
        "channel/ring.hpp",
        "if (position == head) {\n            empty_at = head;",
        "if (MUTANT || position == head) {\n            empty_at = head;",
        "channel-lap",
    ),
    Mutant(
        "datum-without-lap",
        "a pop takes a datum of a later lap for its own",
        "channel/ring.hpp",
        "if (position != head) {",
        "if (!MUTANT && position != head) {",
        "channel-three",
    ),
    Mutant(
        "pending-uncounted",
        "a datum that a push has frozen is not counted as lost",
        "channel/ring.hpp",
        "pass(head, 1, out);  // a push freezes the slot, and owns what was there",
        "pass(head, MUTANT ? 0 : 1, out);",
        "channel-one",
    ),
    Mutant(
        "jump-uncounted",
        "datums of a lap are not counted as lost",
        "channel/ring.hpp",
        "out.lost += position - head;",
        "out.lost += MUTANT ? 0 : position - head;",
        "channel-lap",
    ),
    Mutant(
        "overflow-unsaid",
        "an END does not say that it displaced a datum",
        "channel/ring.hpp",
        "if (position == end && (found & (kData | kOverflow)) != 0) end_state |= kOverflow;",
        "if (!MUTANT && position == end && (found & (kData | kOverflow)) != 0) end_state |= kOverflow;",
        "channel-lap",
    ),
    Mutant(
        "hole-without-lap",
        "a hole of a later lap is taken for the next position's",
        "channel/ring.hpp",
        "if (position == head) {\n            pass(head, 0, out);",
        "if (position == head || (MUTANT && seen == kHole)) {\n            pass(head, 0, out);",
        "channel-cancel-lap",
    ),
    Mutant(
        "cancel-by-store",
        "cancel stores HOLE without asking whether the datum is still there",
        "channel/ring.hpp",
        "for (int tries = 0; tries < 2 && (seen & kData) != 0; ++tries) {",
        "for (int tries = 0; tries < 2 && (seen & kData) != 0; ++tries) {\n"
        "            if (MUTANT) {\n"
        "                memory_.store(state, kHole, std::memory_order_release);\n"
        "                return true;\n"
        "            }",
        "channel-cancel",
    ),
    Mutant(
        "cancel-leaves-empty",
        "cancel leaves EMPTY, as if the datum had been taken",
        "channel/ring.hpp",
        "if (memory_.cas(state, seen, kHole, std::memory_order_acq_rel)) {",
        "if (memory_.cas(state, seen, MUTANT ? kEmpty : kHole, std::memory_order_acq_rel)) {",
        "channel-cancel-two",
    ),
    Mutant(
        "cancel-leaves-end",
        "cancel leaves an END",
        "channel/ring.hpp",
        "memory_.at(ChannelPoint::cancelled);",
        "memory_.at(ChannelPoint::cancelled);\n"
        "                if (MUTANT) memory_.store(state, kEnd, std::memory_order_release);",
        "channel-cancel",
    ),
    Mutant(
        "head-first",
        "a pop notes its position before it has the datum",
        "channel/ring.hpp",
        "memory_.at(ChannelPoint::pop_claimed);",
        "memory_.at(ChannelPoint::pop_claimed);\n        if (MUTANT) note_head(head + 1);",
        "channel-consumer-restart",
    ),
    Mutant(
        "empty-of-another",
        "a consumer that takes its role back believes the mark of another",
        "channel/ring.hpp",
        "u64 load_head() {\n        empty_at = 0;",
        "u64 load_head() {\n        if (!MUTANT) empty_at = 0;",
        "channel-again",
    ),
    Mutant(
        "datum-silent",
        "a push does not ring for a consumer that sleeps",
        "channel/ring.hpp",
        "void announce_datum() { ring_bell_once(memory_, words_.data_bell()); }",
        "void announce_datum() { if (!MUTANT) ring_bell_once(memory_, words_.data_bell()); }",
        "channel-wait",
    ),
    Mutant(
        "space-silent",
        "a pop does not ring for a producer that sleeps",
        "channel/ring.hpp",
        "void announce_space() { ring_bell_once(memory_, words_.space_bell()); }",
        "void announce_space() { if (!MUTANT) ring_bell_once(memory_, words_.space_bell()); }",
        "channel-wait-space",
    ),
    Mutant(
        "ring-without-wake",
        "a bell is rung without waking the sleepers",
        "shm/bell.hpp",
        "// clears the bit, and moves the number\n    memory.wake(bell);",
        "\n    if (!MUTANT) memory.wake(bell);",
        "channel-wait",
    ),
    Mutant(
        "ring-unfenced",
        "a push looks for sleepers before its datum is visible",
        "shm/bell.hpp",
        "memory.fence();  // pairs with: listen_to\n    if ((memory.load(bell,",
        "if (!MUTANT) memory.fence();\n    if ((memory.load(bell,",
        "channel-buffers-wait",
    ),
    Mutant(
        "short-wrap",
        "the ring wraps one slot too early",
        "channel/ring.hpp",
        "return static_cast<u32>(position % geometry_.positions());",
        "return static_cast<u32>(position % (geometry_.positions() - MUTANT));",
        "channel-two",
    ),
    # Lanes: several producers, priorities.
    Mutant(
        "first-lane-cleared",
        "the buffers of a dead participant are cleared in the first lane only",
        "channel/lanes.hpp",
        "for (Ring& lane : lanes_) cleared += lane.clear_owner(slot);",
        "for (Ring& lane : lanes_)\n"
        "            if (!MUTANT || &lane == &lanes_[0]) cleared += lane.clear_owner(slot);",
        "channel-lanes-consumer",
    ),
    Mutant(
        "role-of-the-first-lane",
        "all producers have their role in the first lane",
        "channel/lanes.hpp",
        "return lanes_[plan_.lane_of(producer, 0)].words().producer();",
        "return lanes_[plan_.lane_of(MUTANT ? 0 : producer, 0)].words().producer();",
        "channel-lanes-restart",
    ),
    Mutant(
        "bell-of-another-lane",
        "a push rings the data bell of the last lane, where no consumer listens",
        "channel/lanes.hpp",
        "void announce_datum() { lanes_[0].announce_datum(); }",
        "void announce_datum() { lanes_[MUTANT ? lanes_.size() - 1 : 0].announce_datum(); }",
        "channel-lanes-wait",
    ),
    Mutant(
        "space-of-the-first",
        "a pop rings for the first producer, whichever lane it popped from",
        "channel/lanes.hpp",
        "void announce_space(u32 producer) { lane(producer, 0).announce_space(); }",
        "void announce_space(u32 producer) { lane(MUTANT ? 0 : producer, 0).announce_space(); }",
        "channel-lanes-space",
    ),
    Mutant(
        "low-first",
        "a pop looks at the lower priority first",
        "channel/lanes.hpp",
        "look(at, plan_.lane_of(producer, priority), mark, laps, out);",
        "look(at, plan_.lane_of(producer, MUTANT ? plan_.priorities - 1 - priority : priority), "
        "mark, laps, out);",
        "channel-priorities",
    ),
    Mutant(
        "turn-stays",
        "a pop looks at the same producer first as the last one",
        "channel/lanes.hpp",
        "at.turns[priority] = (producer + 1) % plan_.producers;",
        "at.turns[priority] = (producer + 1 - MUTANT) % plan_.producers;",
        "channel-lanes-turns",
    ),
    Mutant(
        "one-lane-empty",
        "a pop that finds one lane empty does not look at the others",
        "channel/lanes.hpp",
        "if (found == Handover::ok || found == Handover::corrupt) return found;",
        "if (MUTANT || found == Handover::ok || found == Handover::corrupt) return found;",
        "channel-lanes-wait",
    ),
    Mutant(
        "lost-of-another-lane",
        "what a lane lost is counted in the next one",
        "channel/lanes.hpp",
        "out.lost = at.lost[lane];",
        "out.lost = MUTANT ? out.lost : at.lost[lane];",
        "channel-priorities-lap",
    ),
    Mutant(
        "lost-forgotten",
        "a count of lost datums is forgotten when the pop finds another lane's datum",
        "channel/lanes.hpp",
        "at.lost[lane] = result == Handover::ok ? 0 : out.lost;",
        "at.lost[lane] = MUTANT || result == Handover::ok ? 0 : out.lost;",
        "channel-priorities",
    ),
    Mutant(
        "heir-at-the-first-lane",
        "an heir of the consumer takes its position in the first lane for that in all",
        "channel/lanes.hpp",
        "for (Ring& lane : lanes_) at.heads.push_back(lane.load_head());",
        "for (Ring& lane : lanes_) at.heads.push_back((MUTANT ? lanes_[0] : lane).load_head());",
        "channel-lanes-consumer",
    ),
    Mutant(
        "first-producer-resigned",
        "a fresh process gives up only the first producer's role for its slot's last holder",
        "channel/roles.hpp",
        "for (u32 producer = 0; producer < lanes.plan().producers; ++producer)",
        "for (u32 producer = 0; producer < (MUTANT ? 1 : lanes.plan().producers); ++producer)",
        "channel-lanes-reuse",
    ),
    Mutant(
        "dead-of-the-first-lane",
        "dead owners are looked for in the first lane only",
        "channel/roles.hpp",
        "for (u32 lane = 0; lane < lanes.plan().lanes(); ++lane) {",
        "for (u32 lane = 0; lane < (MUTANT ? 1 : lanes.plan().lanes()); ++lane) {",
        "channel-lanes-leave",
    ),
    # Loops: the way back.
    Mutant(
        "back-before-owners",
        "the way back is emptied before the owners are read",
        "channel/shelf.hpp",
        "if (damaged_) return false;",
        "for (u32 index = 0; MUTANT && back && index < where_.size(); ++index)\n"
        "            if (where_[index] == Where::out && ring.owner_of(index) == 0) give_back(index);\n"
        "        if (damaged_) return false;",
        "channel-loop-reclaim",
    ),
    Mutant(
        "back-ignored",
        "the way back is not emptied before cleared buffers are taken",
        "channel/shelf.hpp",
        "while (back && take_back(ring, back)) {",
        "while (!MUTANT && back && take_back(ring, back)) {",
        "channel-loop-consumer",
    ),
    Mutant(
        "cleared-twice",
        "a cleared buffer is taken although the way back brought it",
        "channel/shelf.hpp",
        "if (where_[index] == Where::out) give_back(index);",
        "if (MUTANT || where_[index] == Where::out) give_back(index);",
        "channel-loop-consumer",
    ),
    Mutant(
        "back-keeps-the-mark",
        "a buffer that came back keeps the consumer's mark",
        "channel/shelf.hpp",
        "const Handover result = ring->pop(head, 0, kLaps, out);",
        "const Handover result = ring->pop(head, MUTANT ? 2 : 0, kLaps, out);",
        "channel-loop",
    ),
    Mutant(
        "slot-remembered",
        "a buffer that came back is still remembered in the slot that it was pushed to",
        "channel/shelf.hpp",
        "if (where_[index] == Where::ring && !ring.has_data(slot)) frozen(slot, false);",
        "if (MUTANT && where_[index] == Where::ring && !ring.has_data(slot)) where_[index] = Where::out;\n"
        "        if (where_[index] == Where::ring && !ring.has_data(slot)) frozen(slot, false);",
        "channel-loop-reclaim",
    ),
    Mutant(
        "release-and-back",
        "a buffer is given back by its owner byte, and sent back, too",
        "channel/lanes.hpp",
        "bool send_back(LaneCursors& at, u32 index) {",
        "bool send_back(LaneCursors& at, u32 index) {\n        if (MUTANT && back_) back_->release(index);",
        "channel-loop",
    ),
    Mutant(
        "back-unmended",
        "an heir of the consumer does not complete a push back that died",
        "channel/lanes.hpp",
        "return back_ ? back_->recover_producer(at.back_tail) : Handover::ok;",
        "if (MUTANT && back_) at.back_tail = back_->load_head();\n"
        "        return back_ && !MUTANT ? back_->recover_producer(at.back_tail) : Handover::ok;",
        "channel-loop-consumer",
    ),
    Mutant(
        "clear-anybody",
        "with a dead participant's buffers those of all others are cleared",
        "channel/ring.hpp",
        "if (found != mark ||",
        "if ((MUTANT ? found == 0 : found != mark) ||",
        "channel-leave-heir",
    ),
    Mutant(
        "positions-without-end",
        "a push goes beyond the last position",
        "channel/ring.hpp",
        "if (end > kChannelPositionMax) return Handover::exhausted;",
        "if (!MUTANT && end > kChannelPositionMax) return Handover::exhausted;",
        "channel-last-position",
    ),
    Mutant(
        "later-end",
        "recovery takes the later END for the true one",
        "channel/ring.hpp",
        "if (!found || position < tail) tail = position;",
        "if (!found || (MUTANT ? position > tail : position < tail)) tail = position;",
        "channel-batch-restart",
    ),
    Mutant(
        "claim-late",
        "a pop claims the owner after the hand-over",
        "channel/ring.hpp",
        "if (!claim(index, mark)) {\n            if (!unchanged(s, seen)) return Handover::starved;",
        "if (MUTANT && memory_.cas(words_.state(s), seen, kEmpty, std::memory_order_acq_rel)) {\n"
        "            claim(index, mark);\n"
        "            out.position = head;\n"
        "            out.index = index;\n"
        "            note_head(++head);\n"
        "            return Handover::ok;\n"
        "        }\n"
        "        if (!claim(index, mark)) {\n"
        "            if (!unchanged(s, seen)) return Handover::starved;",
        "channel-return",
    ),
    *order_mutants.MUTANTS,
)


if __name__ == "__main__":
    sys.exit(mutants.main(MUTANTS, "channel"))
