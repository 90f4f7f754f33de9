// Participants: the processes that are attached to a segment.
//
// Each attachment has a slot: the lock byte that proves its life (lock_bytes.hpp), and an entry in a table for people.
//
// P3 pids and times in the table are for people. Nothing is ever decided by them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "holdfast/base/clock.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/base/points.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/shm/lock_bytes.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

HOLDFAST_POINTS(AttachPoint, attach_locked, attach_recovered, attach_active, detach_begin,
                detach_inactive);

inline constexpr std::size_t kCountersPerSlot = 12;

// One slot of the table, two cache lines, so that counting disturbs no neighbour.
//
//      0  who         u64   bit 63: active; low 32 bits: pid of the holder, or of the last one
//      8  since       u64   start of that process, in clock ticks after boot (field 22 of /proc/PID/stat)
//     16  joined_ms   u64   when it attached, ms since the epoch
//     24  spare       u64
//     32  counts[12]  u64   written by the holder only; kept when the slot is reused, so that sums only grow
struct ParticipantEntry {
    u64 who;
    u64 since;
    u64 joined_ms;
    u64 spare;
    std::array<u64, kCountersPerSlot> counts;
};
static_assert(sizeof(ParticipantEntry) == 128);

inline constexpr u64 kActiveBit = u64{1} << 63;

struct ParticipantInfo {
    bool active;  // marked so in the table: a holder that left properly is not
    bool locked;  // its byte is held exclusively: alive
    u32 pid;      // as its own pid namespace sees it
    u64 since_ticks;
    u64 joined_ms;
};

namespace detail {

// Field 22 of /proc/self/stat. The second field, the name, may contain anything: count after its last ')'.
inline u64 process_start_ticks() {
    const OwnedFd fd(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
    char text[1024];
    const ssize_t got = fd.get() < 0 ? -1 : ::read(fd.get(), text, sizeof text - 1);
    if (got <= 0) return 0;
    text[got] = '\0';
    const char* p = std::strrchr(text, ')');
    for (int field = 2; p != nullptr && field < 22; ++field) {
        p = std::strchr(p, ' ');
        if (p != nullptr) ++p;
    }
    return p == nullptr ? 0 : std::strtoull(p, nullptr, 10);
}

}  // namespace detail

// Describes a slot by the table and the kernel. The segment's own open file holds no lock, so it sees the locks of all
// participants; it may be open for reading only.
inline ParticipantInfo describe_slot(const Segment& segment, ParticipantEntry& entry,
                                     unsigned slot) {
    std::atomic_ref<u64> who_word(entry.who);
    const u64 who = who_word.load(std::memory_order_acquire);  // pairs with: activate
    return {(who & kActiveBit) != 0, slot_locked(segment.fd(), slot), static_cast<u32>(who),
            std::atomic_ref<u64>(entry.since).load(std::memory_order_relaxed),
            std::atomic_ref<u64>(entry.joined_ms).load(std::memory_order_relaxed)};
}

// The table at `offset` of a segment; an error if it does not fit into the mapping.
inline ParticipantEntry* participant_table(const Segment& segment, u64 offset, unsigned slots) {
    const u64 bytes = u64{slots} * sizeof(ParticipantEntry);
    if (slots == 0 || slots > kSlotsMax || offset % 64 != 0 || offset > segment.size() ||
        bytes > segment.size() - offset) {
        throw Error(Code::corrupt, segment.path() + ": a table of " + std::to_string(slots) +
                                       " participants at byte " + std::to_string(offset) +
                                       " does not fit; the file is damaged: remove it");
    }
    return reinterpret_cast<ParticipantEntry*>(segment.base() + offset);
}

// One attachment's slot. Attach = join(), recover what its last holder left, activate(); see attachment.hpp.
// Without leave(), going away looks like a death: the slot stays marked and the next one recovers it.
class Participant {
 public:
    Participant(std::shared_ptr<Segment> segment, u64 table_offset, unsigned slots)
        : segment_(std::move(segment)),
          entries_(participant_table(*segment_, table_offset, slots)),
          bytes_(segment_, slots) {}

    // Takes the first byte of [first, end) that is free; without them, of all. If its last holder died, `recover(slot)` is called before that, with the byte
    // shared; it returns whether nothing is left to recover. Else the slot's entry is left as it is, for recovery to see.
    template <class Recover>
    void join(Recover&& recover, unsigned first = 0, unsigned end = kSlotsMax) {
        if (segment_->forked() || forked()) {
            throw Error(Code::misuse,
                        segment_->path() + ": opened before fork(); open it again in the child");
        }
        if (joined()) {
            throw Error(Code::misuse, segment_->path() + ": this participant is attached already");
        }
        end = std::min(end, slots());
        const unsigned slot = bytes_.take_first(
            first, end, [this](unsigned each) { return marked_active(each); },
            [&](unsigned each) {
                const bool complete = recover(each);
                if (complete) mark_inactive(each);
                return complete;
            });
        if (slot == end) throw too_many(first, end);
        at(AttachPoint::attach_locked);
    }
    void join() {
        join([](unsigned) { return false; });
    }

    // Tells the others that this slot is in use. From here on its owner may appear in shared words.
    void activate() {
        ParticipantEntry& entry = entries_[slot()];
        const u64 start = detail::process_start_ticks();
        std::atomic_ref<u64>(entry.since).store(start, std::memory_order_relaxed);
        const u64 now_ms = realtime_ns() / 1'000'000u;
        std::atomic_ref<u64>(entry.joined_ms).store(now_ms, std::memory_order_relaxed);
        std::atomic_ref<u64> who(entry.who);
        const u64 me = kActiveBit | static_cast<u32>(::getpid());
        who.store(me, std::memory_order_release);  // pairs with: describe_slot
        active_ = true;
        at(AttachPoint::attach_active);
    }

    // Goes properly: nothing is left to recover. The caller has settled or given back all that it held, and no other
    // thread uses this participant any more. Before activate(), the slot stays marked as it was found.
    void leave() {
        if (forked() || !joined()) return;
        at(AttachPoint::detach_begin);
        if (active_) mark_inactive(slot());
        active_ = false;
        at(AttachPoint::detach_inactive);
        bytes_.release();
    }

    // See LockBytes: the proof that the holder of `slot` is dead, and its end.
    bool take_byte(unsigned slot) { return bytes_.share(slot); }
    void drop_byte(unsigned slot) { bytes_.drop(slot); }
    bool proven() { return bytes_.proven(); }
    bool lost() const { return bytes_.lost(); }
    bool forked() const { return bytes_.forked(); }

    // By the holder of the byte of `slot`, when nothing of its last holder is left to recover.
    void mark_inactive(unsigned slot) {
        if (slot >= slots()) return;
        std::atomic_ref<u64> who(entries_[slot].who);
        const u64 last = who.load(std::memory_order_relaxed) & ~kActiveBit;
        who.store(last, std::memory_order_release);  // pairs with: describe_slot
    }

    // A cheap hint, for choosing whom to ask the kernel about.
    bool marked_active(unsigned slot) const {
        std::atomic_ref<u64> who(entries_[slot].who);
        return (who.load(std::memory_order_relaxed) & kActiveBit) != 0;
    }

    ParticipantInfo describe(unsigned slot) const {
        return slot < slots() ? describe_slot(*segment_, entries_[slot], slot) : ParticipantInfo{};
    }

    // Adds to a counter of this slot. One writer at a time: threads of one attachment take turns (in Python, by
    // the GIL).
    void count(std::size_t which, u64 by = 1) {
        std::atomic_ref<u64> counter(entries_[slot()].counts[which]);
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }

    u64 count_of(unsigned slot, std::size_t which) const {
        return std::atomic_ref<u64>(entries_[slot].counts[which]).load(std::memory_order_relaxed);
    }

    // The sum over all slots, past and present holders alike.
    u64 count_sum(std::size_t which) const {
        u64 sum = 0;
        for (unsigned slot = 0; slot < slots(); ++slot) sum += count_of(slot, which);
        return sum;
    }

    bool joined() const { return bytes_.held(); }  // false in a forked child, too
    unsigned slot() const { return bytes_.own(); }
    unsigned slots() const { return bytes_.slots(); }
    const std::shared_ptr<Segment>& segment() const { return segment_; }

 private:
    Error too_many(unsigned first, unsigned end) const {
        constexpr unsigned kNamed = 8;
        std::string pids;
        for (unsigned slot = first; slot < end && slot < first + kNamed; ++slot) {
            pids += (slot == first ? "" : ", ") + std::to_string(describe(slot).pid);
        }
        if (end - first > kNamed) pids += " and " + std::to_string(end - first - kNamed) + " more";
        return Error(Code::too_many_participants,
                     segment_->path() + ": all " + std::to_string(end - first) +
                         " participants are alive, or being recovered (pids " + pids +
                         "); detach one, or create the segment with more participants");
    }

    std::shared_ptr<Segment> segment_;
    ParticipantEntry* entries_;
    LockBytes bytes_;
    bool active_ = false;
};

}  // namespace holdfast
