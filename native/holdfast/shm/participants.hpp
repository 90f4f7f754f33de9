// Participants: who is attached to a segment, and how the kernel proves that somebody is gone.
//
// Each attachment has a slot and holds an OFD write lock on byte kLockBase + slot of the segment's own file, through
// one open file description that is never mapped, duplicated, passed on, or unlocked in a child. The holder's lock is
// exclusive. Whoever can share the byte of another slot has the proof that its holder is dead, and keeps the slot from
// being reused while it repairs what the dead one left. Any number may do that at once, so one that stops there, for ever
// perhaps, stops nobody. A newcomer wants the byte alone.
//
// P1 a byte is held exclusively by at most one open file description, and then shared by none.
// P2 a byte can be shared or taken only after its holder's description is gone: its process died, exec'ed or left.
// P3 pids and times in the table are for people. Nothing is ever decided by them.
// P4 no lock is believed before the descriptor is proven to be still ours: its file, its signature, our own byte held.
//    Code that closes descriptors it does not know gives their numbers to other files, where every byte is free.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

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
#include "holdfast/base/forks.hpp"
#include "holdfast/base/points.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

inline constexpr unsigned kSlotsMax = 1024;
inline constexpr std::size_t kCountersPerSlot = 12;
inline constexpr off_t kLockBase =
    off_t{1} << 40;  // beyond the end of any segment: nobody locks there by accident

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

// Is the byte held, exclusively, through any description but `fd`'s own? Works on a read-only descriptor too.
inline bool slot_locked(int fd, unsigned slot) {
    struct flock lock{};
    lock.l_type = F_RDLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = kLockBase + static_cast<off_t>(slot);
    lock.l_len = 1;
    return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

namespace detail {

inline bool set_lock(int fd, short type, off_t start, off_t length) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = length;
    int result;
    do {
        result = ::fcntl(fd, F_OFD_SETLK, &lock);
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

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

// What the table and the kernel say of a slot. The segment's own description holds no lock and so sees them all; it
// may be open for reading only.
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

// One attachment. Attach = join(), recover what the last holder of the slot left, activate().
// Without leave(), going away looks like a death: the slot stays marked and the next one recovers it.
class Participant : public ForkAware {
 public:
    Participant(std::shared_ptr<Segment> segment, u64 table_offset, unsigned slots)
        : segment_(std::move(segment)),
          slots_(slots),
          entries_(participant_table(*segment_, table_offset, slots)) {
        remember();
    }

    ~Participant() override {
        const ForkPause pause;
        forget(pause);
        close_lock();
    }

    // Takes the first byte that is free. If its last holder died, `recover(slot)` is called before that, with the byte
    // shared; it answers whether nothing is left to recover. Else the slot's entry is left as it is, for recovery to see.
    template <class Recover>
    void join(Recover&& recover) {
        if (segment_->forked() || forked()) {
            throw Error(Code::misuse,
                        segment_->path() + ": opened before fork(); open it again in the child");
        }
        if (joined()) {
            throw Error(Code::misuse, segment_->path() + ": this participant has joined already");
        }
        take_slot(recover);
        at(Point::attach_locked);
    }
    void join() {
        join([](unsigned) { return false; });
    }

    // Tells the others that this slot is in use. From here on its owner may appear in shared words.
    void activate() {
        ParticipantEntry& entry = entries_[slot_];
        const u64 start = detail::process_start_ticks();
        std::atomic_ref<u64>(entry.since).store(start, std::memory_order_relaxed);
        const u64 now_ms = realtime_ns() / 1'000'000u;
        std::atomic_ref<u64>(entry.joined_ms).store(now_ms, std::memory_order_relaxed);
        std::atomic_ref<u64> who(entry.who);
        const u64 me = kActiveBit | static_cast<u32>(::getpid());
        who.store(me, std::memory_order_release);  // pairs with: describe_slot
        active_ = true;
        at(Point::attach_active);
    }

    // Goes properly: nothing is left to recover. The caller has settled or given back all that it held, and no other
    // thread uses this participant any more. Before activate(), the slot stays marked as it was found.
    void leave() {
        if (forked() || !joined()) return;
        at(Point::detach_begin);
        if (active_) mark_inactive(slot_);
        active_ = false;
        at(Point::detach_inactive);
        const ForkPause
            pause;  // between taking the number out and closing it, a child would keep it
        if (still_ours()) detail::set_lock(fd(), F_UNLCK, kLockBase, slots_);
        close_lock();
    }

    // True: the holder of `slot` is gone for good, and until drop_byte() nobody can have its slot. Others may recover it at
    // the same time. False for its own slot, for a living holder, and while any thread of this attachment has the byte.
    bool take_byte(unsigned slot) {
        if (slot >= slots_ || !joined()) return false;
        // All threads here share one description, which the kernel would give the byte again and again.
        const u64 bit = bit_of(slot);
        std::atomic<u64>& held = held_[slot / 64];
        const u64 before = held.fetch_or(bit, std::memory_order_acquire);  // pairs with: drop_byte
        if (before & bit) return false;
        // First the file: through a stranger's description even the attempt could take a lock away from it.
        if (still_ours() && detail::set_lock(fd(), F_RDLCK, byte_of(slot), 1)) {
            if (proven()) return true;
            if (joined()) detail::set_lock(fd(), F_UNLCK, byte_of(slot), 1);
        }
        held.fetch_and(~bit, std::memory_order_relaxed);
        return false;
    }

    // P4, in full. False: it cannot be told, or it is not so; then this participant is lost, see lost().
    bool proven() {
        if (!joined() || !still_ours()) return false;
        // Through our own description our own lock is not seen, but another's would be.
        if (slot_locked(fd(), slot_)) return lose();
        if (segment_->has_descriptor() && slot_locked(segment_->fd(), slot_)) return true;
        const std::string link = "/proc/self/fd/" + std::to_string(fd());
        const OwnedFd other(::open(link.c_str(), O_RDONLY | O_CLOEXEC));
        return other.get() >= 0 && (slot_locked(other.get(), slot_) || lose());
    }

    // The lock went with its descriptor, which other code closed. For the others this participant is dead, and its slot
    // may be another's: nothing may be done in its name any more.
    bool lost() const { return lost_.load(std::memory_order_relaxed); }

    // Gives back what take_byte() took.
    void drop_byte(unsigned slot) {
        if (slot >= slots_ || slot == slot_ || !joined() || !still_ours()) return;
        // First the kernel, then the bit: the other way round a thread could take the byte and lose it to us.
        // A failure (no kernel memory) keeps the bit: the byte stays ours until this process ends.
        if (!detail::set_lock(fd(), F_UNLCK, byte_of(slot), 1)) return;
        std::atomic<u64>& held = held_[slot / 64];
        held.fetch_and(~bit_of(slot), std::memory_order_release);  // pairs with: take_byte
    }

    // For whoever holds the byte of `slot`, when nothing of its holder is left to recover.
    void mark_inactive(unsigned slot) {
        if (slot >= slots_) return;
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
        return slot < slots_ ? describe_slot(*segment_, entries_[slot], slot) : ParticipantInfo{};
    }

    // Adds to a counter of this slot. One writer at a time: threads of one attachment take turns (in Python, by
    // the GIL).
    void count(std::size_t which, u64 by = 1) {
        std::atomic_ref<u64> counter(entries_[slot_].counts[which]);
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }

    u64 count_of(unsigned slot, std::size_t which) const {
        return std::atomic_ref<u64>(entries_[slot].counts[which]).load(std::memory_order_relaxed);
    }

    // The sum over all slots, past and present holders alike.
    u64 count_sum(std::size_t which) const {
        u64 sum = 0;
        for (unsigned slot = 0; slot < slots_; ++slot) sum += count_of(slot, which);
        return sum;
    }

    bool joined() const { return fd() >= 0; }  // false in a forked child, too
    unsigned slot() const { return slot_; }
    unsigned slots() const { return slots_; }
    const std::shared_ptr<Segment>& segment() const { return segment_; }

 private:
    static off_t byte_of(unsigned slot) { return kLockBase + static_cast<off_t>(slot); }
    static u64 bit_of(unsigned slot) { return u64{1} << (slot % 64); }
    int fd() const { return lock_fd_.load(std::memory_order_relaxed); }

    template <class Recover>
    void take_slot(Recover& recover) {
        const ForkPause pause;  // a child that inherited this lock unseen would keep it
        OwnedFd fd(segment_->reopen(O_RDWR));
        signature_ = Segment::sign(fd.get());
        unsigned slot = 0;
        while (slot < slots_ && !take_alone(fd.get(), slot, recover)) {
            if (errno != EAGAIN && errno != EACCES) {
                throw Error(Code::unsupported,
                            segment_->path() + ": its file system refuses byte locks: " +
                                errno_text(errno) + "; use a local one, for example /dev/shm",
                            errno);
            }
            ++slot;
        }
        if (slot == slots_) throw too_many();
        // Some file systems accept locks and keep none. Another description must see ours; its own never would.
        if (segment_->has_descriptor() && !slot_locked(segment_->fd(), slot)) {
            throw Error(Code::unsupported,
                        segment_->path() +
                            ": a lock that was just taken is not seen by others; its file system "
                            "keeps no byte locks, without which no death can be proven: use a "
                            "local one, for example /dev/shm");
        }
        slot_ = slot;
        for (std::atomic<u64>& word : held_) word.store(0, std::memory_order_relaxed);
        held_[slot / 64].store(bit_of(slot), std::memory_order_relaxed);  // its own: never to take
        lost_.store(false, std::memory_order_relaxed);
        lock_fd_.store(fd.release(), std::memory_order_relaxed);
    }

    // One that dies or stops while it has the byte alone keeps everybody from what the last holder left. So that is
    // repaired before, while the byte is shared.
    template <class Recover>
    bool take_alone(int fd, unsigned slot, Recover& recover) {
        bool repaired = true;
        while (true) {
            if (marked_active(slot) && detail::set_lock(fd, F_RDLCK, byte_of(slot), 1)) {
                repaired = recover(slot);
                if (repaired) mark_inactive(slot);
                detail::set_lock(fd, F_UNLCK, byte_of(slot), 1);
            }
            if (!detail::set_lock(fd, F_WRLCK, byte_of(slot), 1)) return false;
            if (!repaired || !marked_active(slot)) return true;
            // Between the two locks another process joined, and died: what it left is repaired first.
            detail::set_lock(fd, F_UNLCK, byte_of(slot), 1);
        }
    }

    bool still_ours() { return segment_->is_signed(fd(), signature_) || lose(); }

    // The number is not ours any more, so it is not closed.
    bool lose() {
        lock_fd_.store(-1, std::memory_order_relaxed);
        lost_.store(true, std::memory_order_relaxed);
        return false;
    }

    Error too_many() const {
        constexpr unsigned kNamed = 8;
        std::string pids;
        for (unsigned slot = 0; slot < slots_ && slot < kNamed; ++slot) {
            pids += (slot == 0 ? "" : ", ") + std::to_string(describe(slot).pid);
        }
        if (slots_ > kNamed) pids += " and " + std::to_string(slots_ - kNamed) + " more";
        return Error(Code::too_many_participants,
                     segment_->path() + ": all " + std::to_string(slots_) +
                         " participants are alive, or being recovered (pids " + pids +
                         "); detach one, or create the segment with more participants");
    }

    // Close, never unlock: the lock is the parent's.
    void in_child() noexcept override { close_lock(); }

    void close_lock() noexcept {
        const int fd = lock_fd_.exchange(-1, std::memory_order_relaxed);
        if (segment_->is_signed(fd, signature_))
            ::close(fd);  // else the number is a stranger's by now
    }

    std::shared_ptr<Segment> segment_;
    unsigned slots_;
    ParticipantEntry* entries_;
    unsigned slot_ = kSlotsMax;
    bool active_ = false;
    std::atomic<int> lock_fd_{-1};
    off_t signature_ = 0;
    std::atomic<bool> lost_{false};
    // Bytes that some thread of this attachment has, or is trying for.
    std::array<std::atomic<u64>, kSlotsMax / 64> held_{};
};

}  // namespace holdfast
