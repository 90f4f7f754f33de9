"""Mutants of a channel's attachment, shelf, roles, check, parameters and bindings.

All are compiled into one extension, and chosen at run time. Each names the tests that must notice it.
"""

from __future__ import annotations

from tests.kit.native import Mutant

UNIT = "tests/unit/channel/"
DAMAGE, THREADS, MISUSE = UNIT + "test_damage.py", UNIT + "test_threads.py", UNIT + "test_misuse.py"
PROCESSES = "tests/process/channel/test_processes.py"
ATTACHMENT, SHELF = "holdfast/channel/attachment.hpp", "holdfast/channel/shelf.hpp"
ROLES, CHECK = "holdfast/channel/roles.hpp", "holdfast/channel/check.hpp"
PARAMS, RING = "holdfast/channel/params.hpp", "holdfast/channel/ring.hpp"
PRODUCER, BUFFERS = "bindings/channel/producer.cpp", "bindings/channel/buffers.cpp"
ROLE = "bindings/channel/role.cpp"

MUTANTS = (
    Mutant(
        "loans-without-a-limit",
        "a program borrows buffers that pushes need",
        ATTACHMENT,
        "if (held.loans >= params_.loans) return Lending::limit;",
        "",
        MISUSE,
    ),
    Mutant(
        "displaced-not-counted",
        "displaced data that a program keeps do not count as loans",
        ATTACHMENT,
        "held.loans += taken;",
        "held.loans += 0;",
        UNIT,
    ),
    Mutant(
        "cancelled-buffer-leaks",
        "the buffer of a cancelled datum does not come back",
        ATTACHMENT,
        "held.shelf.give_back(held.shelf.withdrawn(slot));",
        "held.shelf.withdrawn(slot);",
        THREADS,
    ),
    Mutant(
        "kept-buffer-has-no-owner",
        "a closed producer's view keeps a buffer that its successor uses",
        ATTACHMENT,
        "ring_of(buffer).keep(index_of(buffer), static_cast<u8>(me_ + 1));",
        "ring_of(buffer).keep(index_of(buffer), static_cast<u8>(MUTANT ? 0 : me_ + 1));",
        UNIT,
    ),
    Mutant(
        "length-believed",
        "a datum that is longer than a buffer is handed out",
        ATTACHMENT,
        "if (size > params_.slot_size) {",
        "if (false) {",
        DAMAGE,
    ),
    Mutant(
        "role-word-believed",
        "a role of a participant that does not exist is taken for another producer",
        ATTACHMENT,
        "if (holder >= kChannelParticipants) {",
        "if (false) {",
        DAMAGE,
    ),
    Mutant(
        "data-writable",
        "a consumer can write into the data",
        ATTACHMENT,
        "if (role == Role::consumer) protect_data();",
        "",
        UNIT + "test_api.py",
    ),
    Mutant(
        "starved-uncounted",
        "pops that were overtaken too often are not counted",
        ATTACHMENT,
        "if (result == Handover::starved) count(ChannelCount::starved);",
        "",
        UNIT + "test_starved.py",
    ),
    Mutant(
        "twice-in-the-ring",
        "a producer begins with a ring that names a buffer twice",
        SHELF,
        "if (index >= geometry.pool() || where_[index] == Where::ring) return false;",
        "if (index >= geometry.pool()) return false;",
        DAMAGE,
    ),
    Mutant(
        "owners-unread",
        "buffers that the consumer holds are used again",
        SHELF,
        "if (where_[index] != Where::out || ring.owner_of(index) != 0) continue;",
        "if (where_[index] != Where::out) continue;",
        UNIT,
    ),
    Mutant(
        "taken-counts-as-lent",
        "a buffer that the consumer took stays with the producer's program for ever",
        SHELF,
        "where_[index] = had_data ? Where::loaned : Where::out;",
        "where_[index] = Where::loaned;",
        UNIT,
    ),
    Mutant(
        "dead-keep-their-buffers",
        "what a dead participant held does not come back",
        ROLES,
        "const u32 cleared = lanes.clear_owner(static_cast<u8>(slot));",
        "const u32 cleared = MUTANT ? 0 : lanes.clear_owner(static_cast<u8>(slot));",
        PROCESSES,
    ),
    Mutant(
        "living-holder-succeeded",
        "the role of a living process is taken over",
        ROLES,
        "if (holder == me || !memory.take_byte(holder)) return Claim::busy;",
        "if (holder == me) return Claim::busy;",
        MISUSE,
    ),
    Mutant(
        "two-slots-unseen",
        "check() does not see a buffer that is in two slots",
        CHECK,
        'if (used[each.index]) say(slot, buffer + " is in two slots");',
        "",
        DAMAGE,
    ),
    Mutant(
        "owners-unchecked",
        "check() does not see an owner that does not exist",
        CHECK,
        "if (out.owners[index] > kChannelParticipants)",
        "if (false)",
        DAMAGE,
    ),
    Mutant(
        "head-unchecked",
        "check() does not see a consumer that is beyond the END",
        CHECK,
        "if (ends != 0 && out.head > out.end)",
        "if (false)",
        DAMAGE,
    ),
    Mutant(
        "shape-believed",
        "a shape that is not one is read by Python's int()",
        PARAMS,
        "params.shape[std::strspn(params.shape, \"0123456789,\")] == '\\0'",
        "true",
        DAMAGE,
    ),
    Mutant(
        "size-believed",
        "parameters of a channel that is larger than its file are believed",
        PARAMS,
        "plan_of(params).size(kStateStride) <= segment.size()",
        "true",
        DAMAGE,
    ),
    Mutant(
        "an-end-anywhere",
        "a producer begins at a position from which a batch wraps round 64 bits",
        RING,
        "if (slot(position) != s || position > kChannelPositionMax)",
        "if (slot(position) != s)",
        DAMAGE,
    ),
    Mutant(
        "pushed-loan-stays",
        "a loan whose push met damage stays with the program, and in the ring",
        PRODUCER,
        "if (call.pushed()) give_to_ring(loan);",
        "",
        DAMAGE,
    ),
    Mutant(
        "loan-unmarked",
        "another thread ends a loan while its push waits",
        PRODUCER,
        "each.loan->stage = Stage::pushing;",
        "",
        THREADS,
    ),
    Mutant(
        "late-displaced-given-back",
        "data that a closed producer displaced are given back over the head of its successor",
        PRODUCER,
        "if (!hold_.usable()) return;  // a callback closed it: all is the next producer's",
        "if (!(MUTANT) && !hold_.usable()) return;",
        THREADS,
    ),
    Mutant(
        "closed-in-a-call",
        "a role is closed while a thread waits in it",
        ROLE,
        "if (self->busy > 0) {",
        "if (false) {",
        THREADS,
    ),
    Mutant(
        "released-under-views",
        "the release of an item ends its buffer, although a view lives",
        BUFFERS,
        "if (self->exports > 0) self->stage = Stage::leaving;",
        "if (!(MUTANT) && self->exports > 0) self->stage = Stage::leaving;",
        UNIT,
    ),
    Mutant(
        "any-handle",
        "the handle of another channel cancels a datum",
        PRODUCER,
        "if (handle->identity != self->hold->identity()) {",
        "if (false) {",
        MISUSE,
    ),
)
