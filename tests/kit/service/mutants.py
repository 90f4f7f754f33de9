"""Mutants of services: each changes a header, and the explorer must catch it.

As those of the queue (tests/kit/queue/mutants.py), each names the space that kills it.
`python -m tests.kit.service.mutants` prints the table of results; NAME --schedule shows what kills one.
"""

from __future__ import annotations

import sys

from tests.kit.native import Mutant
from tests.kit.queue import mutants


def weaker(name: str, breaks: str, file: str, old: str, order: str, space: str) -> Mutant:
    """Return a mutant without the memory order at the end of `old`."""
    full = f"std::memory_order_{order}"
    head, found, tail = old.rpartition(full)
    assert found
    return Mutant(name, breaks, file, old, f"{head}MUTANT ? std::memory_order_relaxed : {full}{tail}", space)


SAMPLES, LOGS, CALLS, ELEMENTS = (f"service/{name}.hpp" for name in ("samples", "logs", "calls", "elements"))

OF_SAMPLES = (
    Mutant(
        "hold-without-writing",
        "a proxy believes its mark without looking at WRITING",
        SAMPLES,
        "if ((found & slots_.writing()) == 0 &&",
        "if ((MUTANT || (found & slots_.writing()) == 0) &&",
        "service-take",
    ),
    Mutant(
        "hold-without-number",
        "a proxy believes its mark without looking at the sequence number",
        SAMPLES,
        "memory_.load(words_.sequence(sample), std::memory_order_relaxed) == number) {",
        "(memory_.load(words_.sequence(sample), std::memory_order_relaxed) == number || MUTANT)) {",
        "service-take",
    ),
    Mutant(
        "hold-number-first",
        "a proxy looks at the sequence number before it sets its mark",
        SAMPLES,
        "const u64 mine = ServiceSlots::bit(me);",
        "const u64 mine = ServiceSlots::bit(me);\n"
        "        if (MUTANT) {\n"
        "            if (memory_.load(words_.sequence(sample), std::memory_order_acquire) != number)\n"
        "                return Taking::empty;\n"
        "            memory_.fetch_or(words_.word(sample), mine, std::memory_order_acquire);\n"
        "            return Taking::ok;\n"
        "        }",
        "service-take",
    ),
    weaker(
        "hold-relaxed",
        "a proxy sets its mark without acquire",
        SAMPLES,
        "const u64 found = memory_.fetch_or(words_.word(sample), mine, std::memory_order_acquire); "
        "memory_.at(SamplePoint::sample_marked);",
        "acquire",
        "service-old-take",
    ),
    Mutant(
        "hold-mark-stays",
        "a mark that came to nothing stays",
        SAMPLES,
        "memory_.fetch_and(words_.word(sample), ~mine, std::memory_order_release);",
        "if (!MUTANT) memory_.fetch_and(words_.word(sample), ~mine, std::memory_order_release);",
        "service-take",
    ),
    Mutant(
        "hold-own-is-damage",
        "a sample that this proxy holds under a later number is reported as damage",
        SAMPLES,
        "if (memory_.load(words_.sequence(sample), std::memory_order_relaxed) != number) "
        "return Taking::empty;",
        "if (!MUTANT && memory_.load(words_.sequence(sample), std::memory_order_relaxed) != number)\n"
        "                return Taking::empty;",
        "service-four",
    ),
    weaker(
        "release-relaxed",
        "a sample is released without release",
        SAMPLES,
        "memory_.fetch_and(words_.word(sample), ~ServiceSlots::bit(me), std::memory_order_release);",
        "release",
        "service-take",
    ),
    Mutant(
        "allocate-unacquired",
        "a sample is lent without acquire",
        SAMPLES,
        "memory_.cas(words_.word(sample), found, slots_.writing(), std::memory_order_acq_rel)) {",
        "memory_.cas(words_.word(sample), found, slots_.writing(), "
        "MUTANT ? std::memory_order_release : std::memory_order_acq_rel)) {",
        "service-take",
    ),
    Mutant(
        "allocate-unreleased",
        "a proxy that finds WRITING need not see a newer number",
        SAMPLES,
        "std::memory_order_acq_rel",
        "std::memory_order_acquire",
        "service-old-take",
    ),
    Mutant(
        "allocate-blind",
        "a sample is lent by a store, not by compare-and-swap",
        SAMPLES,
        "// pairs with: release (the holders' reads are over), hold "
        "(a proxy that finds WRITING sees a newer number)",
        "if (MUTANT && found == 0) {\n"
        "                    memory_.store(words_.word(sample), slots_.writing(), "
        "std::memory_order_release);\n"
        "                    order.oldest_first.erase(order.oldest_first.begin() + "
        "static_cast<std::ptrdiff_t>(i));\n"
        "                    return sample;\n"
        "                }",
        "service-take",
    ),
    Mutant(
        "allocate-newest",
        "the newest sample is lent first",
        SAMPLES,
        "const u32 sample = order.oldest_first[i]; if (sample == order.newest) continue;",
        "if (MUTANT && i == 0) std::swap(order.oldest_first.front(), order.oldest_first.back());\n"
        "                const u32 sample = order.oldest_first[i];\n"
        "                if (!MUTANT && sample == order.newest) continue;",
        "service-take",
    ),
    Mutant(
        "allocate-once",
        "a loan passes over the samples once",
        SAMPLES,
        "if (seen == last_seen) break;",
        "if (MUTANT || seen == last_seen) break;",
        "service-four",
    ),
    Mutant(
        "publish-early",
        "the new number is announced before WRITING is removed",
        SAMPLES,
        "memory_.at(SamplePoint::sample_written);",
        "memory_.at(SamplePoint::sample_written);\n"
        "        if (MUTANT) memory_.store(words_.published(), number, std::memory_order_release);",
        "service-provider-restart",
    ),
    weaker(
        "publish-relaxed",
        "WRITING is removed without release",
        SAMPLES,
        "memory_.fetch_and(words_.word(sample), ~slots_.writing(), std::memory_order_release); "
        "// pairs with: hold, next_traced",
        "release",
        "service-old-take",
    ),
    weaker(
        "announce-relaxed",
        "the new number is announced without release",
        SAMPLES,
        "memory_.store(words_.published(), number, std::memory_order_release); // pairs with: take\n"
        "memory_.at(SamplePoint::sample_announced);",
        "release",
        "service-old-take",
    ),
    Mutant(
        "publish-past-the-last",
        "the last sequence number is not noticed",
        SAMPLES,
        "if (number > kSequenceMax) return 0;",
        "if (!MUTANT && number > kSequenceMax) return 0;",
        "service-last-number",
    ),
    Mutant(
        "start-word-first",
        "the next provider removes WRITING before the sequence number",
        SAMPLES,
        "memory_.store(words_.sequence(sample), 0, std::memory_order_release);  // pairs with: hold "
        "memory_.at(SamplePoint::clean_invalid);",
        "if (MUTANT)\n"
        "                    memory_.fetch_and(words_.word(sample), ~slots_.writing(), "
        "std::memory_order_release);\n"
        "                memory_.store(words_.sequence(sample), 0, std::memory_order_release);\n"
        "                memory_.at(SamplePoint::clean_invalid);",
        "service-provider-restart",
    ),
    Mutant(
        "start-keeps-number",
        "the next provider leaves the number of a sample that was half written",
        SAMPLES,
        "memory_.at(SamplePoint::clean_cleared); sequence = 0;",
        "memory_.at(SamplePoint::clean_cleared);\n                if (!MUTANT) sequence = 0;",
        "service-provider-restart",
    ),
    Mutant(
        "start-shows-nothing",
        "a sample that was complete and not announced is not announced by the next provider",
        SAMPLES,
        "if (newest > shown) memory_.store(",
        "if (!MUTANT && newest > shown) memory_.store(",
        "service-provider-restart",
    ),
    Mutant(
        "start-gap",
        "the number of a half-written sample is skipped",
        SAMPLES,
        "if ((word & slots_.writing()) != 0) { // First the number",
        "if (MUTANT) order.next = std::max(order.next, sequence + 1);\n"
        "            if ((word & slots_.writing()) != 0) {\n                // First the number",
        "service-provider-restart",
    ),
    Mutant(
        "start-old-index",
        "the next provider writes the index of samples that are too old to be looked for",
        SAMPLES,
        "newest - sequences[sample] < words_.samples())",
        "(MUTANT || newest - sequences[sample] < words_.samples()))",
        "service-restart-old",
    ),
    Mutant(
        "drop-number-stays",
        "a loan that is dropped keeps its old number",
        SAMPLES,
        "memory_.store(words_.sequence(sample), 0, std::memory_order_release);  // pairs with: hold "
        "memory_.fetch_and(",
        "if (!MUTANT) memory_.store(words_.sequence(sample), 0, std::memory_order_release);\n"
        "        memory_.fetch_and(",
        "service-drop",
    ),
    Mutant(
        "take-newest-first",
        "a take returns the newest sample first",
        SAMPLES,
        "std::reverse(out, out + taken);",
        "if (!MUTANT) std::reverse(out, out + taken);",
        "service-take-two",
    ),
    Mutant(
        "trace-not-announced",
        "the tracer takes a sample that was announced after its first look",
        SAMPLES,
        "number > newest_number || (any",
        "(!MUTANT && number > newest_number) || (any",
        "service-trace-two",
    ),
    Mutant(
        "trace-strays",
        "a tracer that subscribes leaves what was marked before",
        SAMPLES,
        "if (memory_.load(words_.sequence(sample), std::memory_order_relaxed) <= last)",
        "if (!MUTANT && memory_.load(words_.sequence(sample), std::memory_order_relaxed) <= last)",
        "service-trace",
    ),
    Mutant(
        "trace-without-room",
        "the provider marks more samples for the tracer than it may hold",
        SAMPLES,
        "if (trace != 0 && traced() < trace) {",
        "if (trace != 0 && (MUTANT || traced() < trace)) {",
        "service-trace-strays",
    ),
)

OF_LOGS = (
    Mutant(
        "subscribe-unfenced",
        "a subscriber adds up the logs before its own is visible",
        LOGS,
        "memory_.fence();  // pairs with: fence (of others that ask)",
        "if (!MUTANT) memory_.fence();",
        "service-buffers-subscribe",
    ),
    Mutant(
        "subscribe-blind",
        "a subscriber does not count those that ask",
        LOGS,
        "fits(me, samples, sum.active + sum.asking, sum.actives + sum.askings);",
        "fits(me, samples, MUTANT ? sum.active : sum.active + sum.asking,\n"
        "                     MUTANT ? sum.actives : sum.actives + sum.askings);",
        "service-subscribe",
    ),
    Mutant(
        "confirm-blind",
        "a subscriber confirms by a store, although it was withdrawn",
        LOGS,
        "if (memory_.cas(words_.log(me), expected, log_word(kLogActive, samples), "
        "std::memory_order_acq_rel)) {",
        "if (MUTANT)\n"
        "                    memory_.store(words_.log(me), log_word(kLogActive, samples), "
        "std::memory_order_release);\n"
        "                if (MUTANT || memory_.cas(words_.log(me), expected, log_word(kLogActive, samples), "
        "std::memory_order_acq_rel)) {",
        "service-subscribe",
    ),
    Mutant(
        "sum-without-one",
        "a log counts without the one sample that its proxy marks for a moment",
        LOGS,
        "(asks ? sum.asking : sum.active) += u64{log_samples(word)} + 1;",
        "(asks ? sum.asking : sum.active) += u64{log_samples(word)} + (MUTANT ? 0 : 1);",
        "service-subscribe-three",
    ),
    Mutant(
        "crowd-uncounted",
        "the number of subscribers is not limited",
        LOGS,
        "if (me != slots_.tracer() && logs + 1 > max_subscribers_)",
        "if (!MUTANT && me != slots_.tracer() && logs + 1 > max_subscribers_)",
        "service-subscribe-crowded",
    ),
    Mutant(
        "withdraw-active",
        "a subscriber withdraws a log that is ACTIVE by now",
        LOGS,
        "if (log_state(found) != kLogAsking) return; memory_.cas(words_.log(slot), found, 0,",
        "if (log_state(found) != kLogAsking) return;\n"
        "        if (MUTANT) memory_.store(words_.log(slot), 0, std::memory_order_release);\n"
        "        else memory_.cas(words_.log(slot), found, 0,",
        "service-subscribe-three",
    ),
    Mutant(
        "refused-by-asking",
        "a subscriber gives up because of others that only ask",
        LOGS,
        "result = fits(me, samples, sum.active, sum.actives);",
        "if (!MUTANT) result = fits(me, samples, sum.active, sum.actives);",
        "service-subscribe",
    ),
    Mutant(
        "log-first",
        "the log of a dead participant is cleared before its bits",
        LOGS,
        "samples.clear_holder(slot); // Last:",
        "if (MUTANT) memory_.store(words_.log(slot), 0, std::memory_order_release);\n"
        "        samples.clear_holder(slot);\n        // Last:",
        "service-reap",
    ),
)

OF_CALLS = (
    Mutant(
        "run-again",
        "the next provider runs calls again that the dead one ran",
        CALLS,
        "case CallState::running: return call_moved(word, CallState::failed);",
        "case CallState::running:\n"
        "                        return call_moved(word, MUTANT ? CallState::call : CallState::failed);",
        "service-call-restart",
    ),
    Mutant(
        "run-blind",
        "the provider takes a call by a store, although its caller withdrew it",
        CALLS,
        "const u64 running = call_moved(found, CallState::running);",
        "const u64 running = call_moved(found, CallState::running);\n"
        "            if (MUTANT) {\n"
        "                memory_.store(words_.call(place), running, std::memory_order_release);\n"
        "                word = running;\n"
        "                return place;\n"
        "            }",
        "service-call",
    ),
    weaker(
        "run-relaxed",
        "the provider takes a call without acquire",
        CALLS,
        "if (!memory_.cas(words_.call(place), found, running, std::memory_order_acq_rel)) continue; word =",
        "acq_rel",
        "service-call",
    ),
    weaker(
        "submit-relaxed",
        "a call is submitted without release",
        CALLS,
        "memory_.cas(words_.call(ticket.place), found, call_moved(ticket.word, CallState::call), "
        "std::memory_order_acq_rel);",
        "acq_rel",
        "service-call",
    ),
    Mutant(
        "answer-blind",
        "a response is stored, although its caller has given up",
        CALLS,
        "memory_.at(CallPoint::call_answered);",
        "memory_.at(CallPoint::call_answered);\n"
        "        if (MUTANT) {\n"
        "            memory_.store(words_.call(place), call_moved(running, CallState::done), "
        "std::memory_order_release);\n"
        "            return true;\n"
        "        }",
        "service-call",
    ),
    weaker(
        "answer-relaxed",
        "a response is complete without release",
        CALLS,
        "memory_.cas(words_.call(place), found, call_moved(running, CallState::done), "
        "std::memory_order_acq_rel); if (!done",
        "acq_rel",
        "service-call",
    ),
    weaker(
        "look-relaxed",
        "a caller looks for its response without acquire",
        CALLS,
        "const u64 found = memory_.load(words_.call(ticket.place), std::memory_order_acquire);",
        "acquire",
        "service-call",
    ),
    Mutant(
        "abandoned-stays",
        "the provider does not free a place whose caller has given up",
        CALLS,
        "if (!done && found == call_moved(running, CallState::abandoned))",
        "if (!MUTANT && !done && found == call_moved(running, CallState::abandoned))",
        "service-call-places",
    ),
    Mutant(
        "abandoned-uncleaned",
        "the next provider does not free a place whose caller has given up",
        CALLS,
        "case CallState::abandoned: return call_moved(word, CallState::idle); default: return word;",
        "case CallState::abandoned:\n"
        "                        return MUTANT ? word : call_moved(word, CallState::idle);\n"
        "                    default:\n                        return word;",
        "service-call-restart",
    ),
    Mutant(
        "withdraw-frees",
        "a caller that gives up frees a place in which a living provider runs its call",
        CALLS,
        "const CallState next = provider_dead ? CallState::idle : CallState::abandoned;",
        "const CallState next = MUTANT || provider_dead ? CallState::idle : CallState::abandoned;",
        "service-call",
    ),
    Mutant(
        "withdraw-lies",
        "a caller that gives up a running call is told that it never ran",
        CALLS,
        "memory_.at(CallPoint::call_withdrawn); return Withdrawn::running;",
        "memory_.at(CallPoint::call_withdrawn);\n"
        "                return MUTANT ? Withdrawn::unexecuted : Withdrawn::running;",
        "service-call",
    ),
    Mutant(
        "clear-frees",
        "the place of a dead caller is freed while its call runs",
        CALLS,
        "case CallState::running: return call_moved(word, CallState::abandoned);",
        "case CallState::running:\n"
        "                        return call_moved(word, MUTANT ? CallState::idle : CallState::abandoned);",
        "service-call-reuse",
    ),
    Mutant(
        "clear-all",
        "the calls of living callers are cleared, too",
        CALLS,
        "if (call_owner(word) != slot) return word;",
        "if (!MUTANT && call_owner(word) != slot) return word;",
        "service-call-reuse",
    ),
    Mutant(
        "change-once",
        "a call that moves while it is cleared is left",
        CALLS,
        "for (int tries = 0; tries < kTries; ++tries) {",
        "for (int tries = 0; tries < (MUTANT ? 1 : kTries); ++tries) {",
        "service-call-reuse",
    ),
    Mutant(
        "call-past-the-last",
        "the last number of a place is not noticed",
        CALLS,
        "call_number(found) >= kCallNumberMax)",
        "(!MUTANT && call_number(found) >= kCallNumberMax))",
        "service-call-last",
    ),
)

OF_ELEMENTS = (
    Mutant(
        "clear-without-proof",
        "a participant is cleared without asking the kernel whether it is dead",
        ELEMENTS,
        "if (!memory_.take_byte(slot)) return false; const bool any",
        "if (!memory_.take_byte(slot)) {\n"
        "            if (MUTANT) clear(slot);\n"
        "            return false;\n"
        "        }\n"
        "        const bool any",
        "service-reap",
    ),
    Mutant(
        "drop-early",
        "a recoverer gives the byte back before it clears",
        ELEMENTS,
        "const bool any = clear(slot) != 0;",
        "if (MUTANT) memory_.drop_byte(slot);\n"
        "        const bool any = clear(slot) != 0;\n"
        "        if (MUTANT) {\n"
        "            died(slot);\n"
        "            return any;\n"
        "        }",
        "service-reap",
    ),
    Mutant(
        "calls-uncleared",
        "the calls of a dead participant are left",
        ELEMENTS,
        "cleared += each.calls.clear(slot);",
        "if (!MUTANT) cleared += each.calls.clear(slot);",
        "service-call",
    ),
    Mutant(
        "strays-stay",
        "the provider does not clear the bits of a tracer that has left",
        ELEMENTS,
        "if (each.logs.word(slots_.tracer()) == 0) each.samples.clear_holder(slots_.tracer());",
        "if (!MUTANT && each.logs.word(slots_.tracer()) == 0)\n"
        "            each.samples.clear_holder(slots_.tracer());",
        "service-trace-strays",
    ),
    Mutant(
        "bell-once-unfenced",
        "the provider looks for sleepers before its number is visible",
        "shm/bell.hpp",
        "memory.fence();  // pairs with: listen_to if ((memory.load(",
        "if (!MUTANT) memory.fence();\n    if ((memory.load(",
        "service-buffers-wait",
    ),
)

MUTANTS = (*OF_SAMPLES, *OF_LOGS, *OF_CALLS, *OF_ELEMENTS)


if __name__ == "__main__":
    sys.exit(mutants.main(MUTANTS, "service"))
