"""Mutants of the queue that native tests notice: locks, contention, stall limits, counts, copy steps."""

from __future__ import annotations

from tests.kit.native import Mutant

QUEUE = (
    Mutant(
        "recoverer-alone",
        "a recoverer takes a dead one's byte for itself",
        "shm/lock_bytes.hpp",
        "set_lock(fd(), F_RDLCK, byte_of(slot), 1)",
        "set_lock(fd(), F_WRLCK, byte_of(slot), 1)",
        "test_participants",
    ),
    Mutant(
        "joiner-alone",
        "a joiner recovers what the last holder left while it has the byte alone",
        "shm/lock_bytes.hpp",
        "set_lock(fd, F_RDLCK, byte_of(slot), 1)",
        "set_lock(fd, F_WRLCK, byte_of(slot), 1)",
        "test_participants",
    ),
    Mutant(
        "joined-in-between",
        "a joiner does not look again at what another left between its two locks",
        "shm/lock_bytes.hpp",
        "if (!repaired || !left(slot)) return true;",
        "return true;",
        "test_participants",
    ),
    Mutant(
        "lock-believed",
        "a lock is believed through any number",
        "shm/lock_bytes.hpp",
        """if (still_ours() && set_lock(fd(), F_RDLCK, byte_of(slot), 1)) {
            if (proven()) return true;""",
        """if ((MUTANT || still_ours()) && set_lock(fd(), F_RDLCK, byte_of(slot), 1)) {
            if (MUTANT || proven()) return true;""",
        "test_participants",
    ),
    Mutant(
        "no-signature",
        "another description of the same file passes for ours",
        "shm/segment.hpp",
        "::lseek(fd, 0, SEEK_CUR) == signature",
        "signature != 0",
        "test_participants",
    ),
    Mutant(
        "strangers-closed",
        "a segment closes its number although it is a stranger's by now",
        "shm/segment.hpp",
        "if (!has_descriptor()) fd_.release();",
        "",
        "test_participants",
    ),
    Mutant(
        "contention-is-damage",
        "one who loses every race is told that the queue is damaged",
        "queue/state.hpp",
        "if (patience.others_get_on(*this)) return Verdict::contended;",
        "",
        "test_queue_life",
    ),
    Mutant(
        "damage-is-contention",
        "a queue without progress counts as busy",
        "queue/state.hpp",
        "corrupt(what, position, 0); return Verdict::corrupt;",
        "return Verdict::contended;",
        "test_queue_life",
    ),
    Mutant(
        "limit-not-doubled",
        "a put that was fenced is watched as long as the first time",
        "queue/queue.hpp",
        "u64{stall_limit_ms} << doublings",
        "u64{stall_limit_ms}",
        "test_queue_life",
    ),
    Mutant(
        "limit-forgotten",
        "any put that gets through makes the queue forget how often another was fenced",
        "queue/queue.hpp",
        "std::fill_n(fenced_in_a_row_.begin(), size + 1, 0u);",
        "fenced_in_a_row_.fill(0u);",
        "test_queue_life",
    ),
    Mutant(
        "fences-are-deliveries",
        "how often a put was fenced stays in the mark",
        "queue/queue.hpp",
        "if (claim.fences != 0) stamp(claim.position, payloads.size() == 1 ? claim.length : 0, 0);",
        "",
        "test_queue_life",
    ),
    Mutant(
        "paused-and-served",
        "a paused consumer is given entries within its permits",
        "dispatch/tables.hpp",
        "!each.paused",
        "true",
        "test_dispatch",
    ),
    Mutant(
        "turns-never-forgotten",
        "each number that a consumer had as its priority is remembered for ever",
        "dispatch/tables.hpp",
        "served_.erase(level);",
        "",
        "test_dispatch",
    ),
    Mutant(
        "buried-without-a-name",
        "a dead-letter queue that was removed, or created anew, is still used",
        "queue/dead_letters.hpp",
        "if (queue_ && !queue_->reachable()) queue_.reset();",
        "",
        "test_dead_letter",
    ),
    Mutant(
        "taken-is-shared",
        "what a get has taken is in memory that all calls of the attachment share",
        "queue/attachment.hpp",
        "std::vector<Taken> taken; taken.swap(scratch_);",
        """std::vector<Taken> own;
        std::vector<Taken>& taken = MUTANT ? scratch_ : own;
        if (!MUTANT) taken.swap(scratch_);""",
        "test_copy_step",
    ),
    Mutant(
        "copied-before-the-claim",
        "a put runs its copy step although there is no room",
        "queue/attachment.hpp",
        "if (verdict != Verdict::ok) return verdict; copy(claim.largest,",
        """if (MUTANT && verdict != Verdict::ok) copy(0, [] {});
        if (verdict != Verdict::ok) return verdict;
        copy(claim.largest,""",
        "test_copy_step",
    ),
    Mutant(
        "fences-of-another-thread",
        "whether a mark has a count of fences is asked of the object, which other threads change",
        "queue/queue.hpp",
        "claim.fences != 0",
        "fences_of(claim.length) != 0",
        "test_queue_life",
    ),
    Mutant(
        "limit-for-all-sizes",
        "a large put that was fenced raises the limit of small ones, too",
        "queue/queue.hpp",
        "++fenced_in_a_row_[size];",
        "const u32 most = fenced_in_a_row_[size] + 1; fenced_in_a_row_.fill(most);",
        "test_queue_life",
    ),
    Mutant(
        "count-before-the-swap",
        "recovery writes the count down before the exchange that may fail",
        "queue/recovery.hpp",
        "becomes = Geometry::returned(word, q.deliveries_with_this(position));",
        """q.stamp(position, q.geometry.length(word), q.deliveries_with_this(position));
                becomes = Geometry::returned(word, q.deliveries_with_this(position));""",
        "test_queue_life",
    ),
)
