// One process's hold on a segment: the mapping, a slot of it, and whether both are still what they were.
//
// Attach = join (take the byte of a slot), recover what its last holder left, activate (tell the others). The structure
// in the segment supplies its recovery.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

#include "holdfast/shm/participants.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

class Attachment {
 public:
    // `table_offset`, `slots`: where the structure keeps its participants.
    Attachment(std::shared_ptr<Segment> segment, u64 table_offset, unsigned slots)
        : segment_(std::move(segment)), participant_(segment_, table_offset, slots) {}

    // `recover(slot)` repairs what the dead holder of `slot` left, with its byte shared or our own; it returns whether
    // nothing is left. It may run several times, for several slots.
    // Of the slots [first, end), without them of all.
    template <class Recover>
    void attach(Recover&& recover, unsigned first = 0, unsigned end = kSlotsMax) {
        join(recover, first, end);
        recover(participant_.slot());
        at(AttachPoint::attach_recovered);
        participant_.activate();
    }

    // False after leave(), in a forked child, and when the lock's descriptor was closed by others.
    bool usable() const { return participant_.joined(); }
    bool lost() const { return participant_.lost(); }
    bool forked() const { return participant_.forked(); }
    // Asks the kernel whether we are still what we believe. For the slow paths.
    bool still_usable() {
        if (usable()) participant_.proven();
        return usable();
    }
    // Processes that open the segment by its name meet us there.
    bool reachable() { return still_usable() && segment_->has_name(); }

    // Every kTickEvery-th call chooses another participant, in turn, and calls `probe(slot)`: so a death is noticed
    // although nothing waits behind it.
    template <class Probe>
    void tick(Probe&& probe) {
        if (++operations_ % kTickEvery != 0) [[likely]]
            return;
        if (!still_usable()) return;
        for (unsigned tries = 0; tries < participant_.slots(); ++tries) {
            next_probe_ = (next_probe_ + 1) % participant_.slots();
            if (next_probe_ == participant_.slot() || !participant_.marked_active(next_probe_))
                continue;
            probe(next_probe_);
            return;
        }
    }

    void leave() { participant_.leave(); }

    const std::shared_ptr<Segment>& segment() const { return segment_; }
    Participant& participant() { return participant_; }

 private:
    static constexpr int kJoinTries = 20;
    static constexpr u32 kTickEvery = 1024;

    // A slot that looks taken may be in the hands of a recoverer for a moment: a dead one's is soon free.
    template <class Recover>
    void join(Recover& recover, unsigned first, unsigned end) {
        for (int tries = 0;; ++tries) {
            try {
                return participant_.join(recover, first, end);
            } catch (const Error& error) {
                if (error.code != Code::too_many_participants || tries == kJoinTries) throw;
                ::usleep(1000);
            }
        }
    }

    std::shared_ptr<Segment> segment_;
    Participant participant_;
    u32 operations_ = 0;
    unsigned next_probe_ = 0;
};

}  // namespace holdfast
