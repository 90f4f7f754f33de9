// Roles: the participants that are the producers, and the one that is the consumer.
//
// A role is a word that holds the slot of a participant, plus 1. It changes hands when the holder leaves or is dead. The
// proof is the dead holder's lock byte (lock_bytes.hpp): the successor shares it while it swaps the word.
// Only then does it repair, as the only process that may. A process that stops or dies in between is succeeded likewise.
//
// R1 at most one living participant has a role, and no other writes what the role writes.
#pragma once

#include "holdfast/channel/lanes.hpp"

namespace holdfast {

enum class Role : u8 { producer, consumer };

enum class Claim {
    taken,
    busy,  // a living participant has it; `holder` names it
};

// `word`: where the role stands.
template <class Memory, u32 kStride = kStateStride>
Claim claim_role(Memory& memory, ChannelLanes<Memory, kStride>& lanes, u32* word, u32 me,
                 u32& holder) {
    // Each turn but the last is lost to another participant that got the role.
    for (u32 turns = 0; turns <= kChannelParticipants; ++turns) {
        // pairs with: claim_role, resign_role (of the last holder)
        u32 found = memory.load(word, std::memory_order_acquire);
        if (found == 0) {
            // pairs with: claim_role
            if (!memory.cas(word, found, me + 1, std::memory_order_acq_rel)) continue;
            memory.at(ChannelPoint::role_taken);
            return Claim::taken;
        }
        holder = found - 1;
        if (holder == me || !memory.take_byte(holder)) return Claim::busy;
        // First what it held: afterwards nothing would lead from the role to it.
        lanes.clear_owner(static_cast<u8>(holder));
        // pairs with: claim_role
        const bool taken = memory.cas(word, found, me + 1, std::memory_order_acq_rel);
        memory.at(ChannelPoint::role_taken);
        memory.drop_byte(holder);
        if (taken) return Claim::taken;
    }
    return Claim::busy;
}

template <class Memory>
void resign_role(Memory& memory, u32* word, u32 me) {
    u32 found = me + 1;
    memory.cas(word, found, 0, std::memory_order_release);  // pairs with: claim_role
}

// Repairs all that a dead participant left, except what its role has to repair. The caller shares the byte of `slot`, or
// has it alone.
template <class Memory, u32 kStride = kStateStride>
u32 clear_participant(Memory& memory, ChannelLanes<Memory, kStride>& lanes, u32 slot) {
    const u32 cleared = lanes.clear_owner(static_cast<u8>(slot));
    for (u32 producer = 0; producer < lanes.plan().producers; ++producer)
        resign_role(memory, lanes.producer_word(producer), slot);
    resign_role(memory, lanes.consumer_word(), slot);
    return cleared;
}

// Takes back the buffers of all dead participants.
template <class Memory, u32 kStride = kStateStride>
u32 clear_dead_owners(Memory& memory, ChannelLanes<Memory, kStride>& lanes, u32 me) {
    static_assert(kChannelParticipants <= 64);
    u32 cleared = 0;
    u64 asked = u64{1} << me;  // a bit per participant: the kernel is asked once about each
    for (u32 lane = 0; lane < lanes.plan().lanes(); ++lane) {
        for (u32 index = 0; index < lanes.plan().lane.pool(); ++index) {
            const u32 owner = lanes.lane(lane).owner_of(index);
            if (owner == 0 || owner > kChannelParticipants) continue;
            const u32 slot = owner - 1;
            if ((asked >> slot & 1) != 0) continue;
            asked |= u64{1} << slot;
            if (!memory.take_byte(slot)) continue;
            cleared += lanes.clear_owner(static_cast<u8>(slot));
            memory.drop_byte(slot);
        }
    }
    return cleared;
}

}  // namespace holdfast
