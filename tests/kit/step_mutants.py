"""Mutants of queue, channel and service that only a death shows.

A process is killed before every instruction (tests/kit/stepping.py). Without a death each mutant does what
the structure promises. A mutant's `program` is the operation that shows it.
"""

from __future__ import annotations

from dataclasses import replace

from tests.kit.native import Mutant
from tests.kit.queue import mutants

EXPLORED = {"head-first": "put", "count-not-kept": "get of a message that came back"}
"""Mutants of the explorer that a single process shows by its death, too."""
MUTANTS = (
    *(replace(each, program=EXPLORED[each.name]) for each in mutants.MUTANTS if each.name in EXPLORED),
    Mutant(
        "read-first",
        "the read position is moved before the message is taken",
        "queue/queue.hpp",
        "if (returned) keep_count(position, block.word);",
        "if (returned) keep_count(position, block.word);\n"
        "if (MUTANT) advance(words.read, start.position, block.end());",
        "get",
    ),
    Mutant(
        "published-first",
        "messages are published before they are written",
        "queue/attachment.hpp",
        """copy(claim.largest,
             [&] { queue_.write(claim, payloads, time, params_.full_checksum != 0); });
        verdict = queue_.publish(claim, payloads);""",
        """if (MUTANT) verdict = queue_.publish(claim, payloads);
        copy(claim.largest,
             [&] { queue_.write(claim, payloads, time, params_.full_checksum != 0); });
        if (!MUTANT) verdict = queue_.publish(claim, payloads);""",
        "put_many",
    ),
    Mutant(
        "settled-in-two-stores",
        "settling writes the lap and the state of a block one after the other",
        "queue/queue.hpp",
        "        u64 expected = taken.word;\n        bool ours = memory.cas(",
        "        u64 expected = taken.word;\n"
        "        if (MUTANT) {\n"
        "            const u64 done = Geometry::with(taken.word, State::done, me);\n"
        "            memory.store(descriptor(taken.position), done & 0x1fff, std::memory_order_release);\n"
        "            memory.store(descriptor(taken.position), done, std::memory_order_release);\n"
        "            return true;\n"
        "        }\n"
        "        bool ours = memory.cas(",
        "settle",
    ),
    Mutant(
        "returned-before-counted",
        "a message is given back first, and its delivery counted then",
        "queue/queue.hpp",
        """Geometry::returned(taken.word, taken.redelivered + (counts ? 1 : 0)),
                        std::memory_order_release))  // pairs with: load_descriptor in take_returned
            return false;""",
        """Geometry::returned(taken.word, taken.redelivered + (counts && !MUTANT ? 1 : 0)),
                        std::memory_order_release))
            return false;
        if (MUTANT && counts)
            memory.store(descriptor(taken.position),
                         Geometry::returned(taken.word, taken.redelivered + 1),
                         std::memory_order_release);""",
        "give_back",
    ),
    Mutant(
        "skipped-before-handed-on",
        "recovery frees a dead reader's message before it hands the message on",
        "queue/recovery.hpp",
        "        q.memory.at(QueuePoint::recover_decided);",
        "        q.memory.at(QueuePoint::recover_decided);\n"
        "        if (MUTANT && counter == &sum.handed_on) {\n"
        "            u64 skipped = Geometry::with(word, State::skip, owner);\n"
        "            if (q.memory.cas(q.descriptor(position), word, skipped, std::memory_order_acq_rel))\n"
        "                word = skipped;\n"
        "        }",
        "recover",
    ),
    Mutant(
        "left-before-given-back",
        "a participant settles its messages, and gives them back then",
        "queue/attachment.hpp",
        "for (const Taken& taken : held) give_back(taken);",
        """for (Taken taken : held) {
            if (MUTANT) {
                settle(taken);
                taken.word = Geometry::with(taken.word, State::done, queue_.me);
            }
            give_back(taken);
        }""",
        "detach",
    ),
    Mutant(
        "linked-first",
        "a segment gets its name before its bytes are there",
        "shm/segment.hpp",
        """        std::memcpy(segment->base_, &header, sizeof header);
        if (init) init(segment->base_);""",
        """        if (MUTANT) link(segment->fd_.get(), directory.get(), spec, path);
        std::memcpy(segment->base_, &header, sizeof header);
        if (init) init(segment->base_);
        if (MUTANT) return segment;""",
        "create",
    ),
    Mutant(
        "published-before-the-end",
        "a datum is published before the channel has its new END",
        "channel/ring.hpp",
        "memory_.store(words_.state(slot(end)), end_state, std::memory_order_release);",
        """if (MUTANT) memory_.store(words_.state(slot(tail)), kData, std::memory_order_release);
        memory_.store(words_.state(slot(end)), end_state, std::memory_order_release);
        if (MUTANT) memory_.store(words_.state(slot(tail)), kEnd, std::memory_order_release);""",
        "channel: push",
    ),
    Mutant(
        "emptied-before-marked",
        "a successor empties the slot of a push that died, and marks the overflow then",
        "channel/ring.hpp",
        "memory_.store(words_.state(s), kHole | kOverflow, std::memory_order_release);",
        """if (MUTANT) memory_.store(words_.state(s), kEmpty, std::memory_order_release);
            memory_.store(words_.state(s), kHole | kOverflow, std::memory_order_release);""",
        "channel: succeed a dead producer",
    ),
    Mutant(
        "announced-before-shown",
        "the number of a sample is announced before the sample is complete",
        "service/samples.hpp",
        """memory_.fetch_and(words_.word(sample), ~slots_.writing(),
                          std::memory_order_release);  // pairs with: hold, next_traced""",
        """if (MUTANT) memory_.store(words_.published(), number, std::memory_order_release);
        memory_.fetch_and(words_.word(sample), ~slots_.writing(), std::memory_order_release);""",
        "service: publish",
    ),
    Mutant(
        "log-cleared-first",
        "the log of a dead proxy is cleared before its bits",
        "service/logs.hpp",
        "samples.clear_holder(slot);",
        """if (MUTANT) memory_.store(words_.log(slot), 0, std::memory_order_release);
        samples.clear_holder(slot);""",
        "service: clear a dead proxy",
    ),
)
