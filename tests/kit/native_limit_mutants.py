"""Mutants of the core's numbers at their end (docs/reference/limits.md); see `native_mutants`."""

from __future__ import annotations

from tests.kit.native import Mutant

LIMITS = (
    Mutant(
        "batch-over-the-end",
        "a batch may cover sequences beyond the last",
        "wire/reader.hpp",
        "return possible_sequence(static_cast<i64>(row.sequence), std::max<u64>(row.span, 1));",
        "return row.span <= std::numeric_limits<u32>::max();",
        "test_wire",
    ),
    Mutant(
        "written-and-not-read",
        "a frame is written with a sequence that its reader refuses",
        "log/frame_writer.hpp",
        "if (span == 0 || !possible_sequence(sequence, span))",
        "if (span == 0 || (!possible_sequence(sequence, span) && !possible_sequence(sequence, span - 1)))",
        "test_wire",
    ),
    Mutant(
        "redeliveries-wrap",
        "the count of deliveries wraps",
        "dispatch/tables.hpp",
        "count += count < kRedeliveriesMax ? 1 : 0;",
        "++count;",
        "test_dispatch",
    ),
    Mutant(
        "chunks-of-one",
        "of two chunked messages of one key, the end of one forgets the consumer of the other",
        "dispatch/chunks.hpp",
        "holders_[hash] = {consumers[taker].id, before + 1};",
        "holders_[hash] = {consumers[taker].id, MUTANT ? 1 : before + 1};",
        "test_dispatch",
    ),
    Mutant(
        "nothing-times-infinity",
        "a back-off from nothing grows",
        "dispatch/handed.hpp",
        "if (first_ns == 0) return 0;",
        "",
        "test_dispatch",
    ),
    Mutant(
        "due-wraps",
        "a delay beyond the end of the clock is over at once",
        "dispatch/tables.hpp",
        "now_ns + std::min(delay_ns, ~u64{0} - now_ns)",
        "now_ns + delay_ns",
        "test_dispatch",
    ),
    Mutant(
        "replay-above-the-position",
        "an entry at or above the read position is to be read again (I266)",
        "dispatch/tables.hpp",
        "return halted_ ? end : std::min(end, position_);",
        "return end;",
        "test_keys",
    ),
    Mutant(
        "a-key-at-two-consumers",
        "a key moves before its old consumer has acknowledged it (I260)",
        "dispatch/keys.hpp",
        "(node->held > 0 && node->holder != slot)",
        "(node->held > 0 && false)",
        "test_keys",
    ),
    Mutant(
        "later-before-earlier",
        "an entry overtakes an earlier one of its key that waits (I261)",
        "dispatch/keys.hpp",
        "return node->waiting > 0 && first_waiting(hash) < ordinal ? kNoNode : slot;",
        "return slot;",
        "test_keys",
    ),
    Mutant(
        "views-by-size",
        "of two copies the one with the larger number is the newer one, which wraps",
        "log/publication.hpp",
        "follows((*second)[kViewBegin], (*first)[kViewBegin])",
        "((*second)[kViewBegin] > (*first)[kViewBegin])",
        "test_publication",
    ),
    Mutant(
        "events-without-end",
        "a frame is applied whatever numbers are left",
        "log/log.hpp",
        "        require_numbers();",
        "",
        "test_log",
    ),
    Mutant(
        "ordinals-without-end",
        "a topic takes entries whatever positions are left",
        "log/log.hpp",
        "topic.has_room(view.count())",
        "true",
        "test_log",
    ),
)
