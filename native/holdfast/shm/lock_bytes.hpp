// Lock bytes: how the kernel proves that a process is gone.
//
// A slot is one byte beyond the end of a segment's own file. Its holder has an OFD write lock on it, which is exclusive.
// The open file description of that lock is never mapped, duplicated, passed on, or unlocked in a child. A process that
// can share the byte of another slot has the proof that its holder is dead. While it shares the byte, the slot is not
// reused. Any number may share it at once, so one that stops there, for ever perhaps, stops no other. A newcomer takes
// the byte alone.
//
// P1 a byte is held exclusively by at most one open file description, and then shared by none.
// P2 a byte can be shared or taken only after its holder's description is gone: its process died, exec'ed or left.
// P4 no lock is believed before the descriptor is proven to be still ours: its file, its signature, our own byte held.
//    Code that closes descriptors it does not know gives their numbers to other files, where every byte is free.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/forks.hpp"
#include "holdfast/base/points.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

inline constexpr unsigned kSlotsMax = 1024;
inline constexpr off_t kLockBase =
    off_t{1} << 40;  // beyond the end of any segment: nothing locks there by accident

// Is the byte held, exclusively, through any description but `fd`'s own? Works on a read-only descriptor too.
inline bool slot_locked(int fd, unsigned slot) {
    struct flock lock{};
    lock.l_type = F_RDLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = kLockBase + static_cast<off_t>(slot);
    lock.l_len = 1;
    return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// The bytes of one segment, as one description holds them: one alone, its own, and others shared for a while.
class LockBytes final : public ForkAware {
 public:
    LockBytes(std::shared_ptr<Segment> segment, unsigned slots)
        : segment_(std::move(segment)), slots_(slots) {
        remember();
    }

    ~LockBytes() override {
        const ForkPause pause;
        forget(pause);
        close_lock();
    }

    // Takes the first free byte of [first, end) alone, and returns its slot; `end` when no byte is free.
    // `left(slot)`: its last holder may have left something. Then `recover(slot)` is called first, with the byte shared;
    // it returns whether nothing is left.
    template <class Left, class Recover>
    unsigned take_first(unsigned first, unsigned end, Left&& left, Recover&& recover) {
        const ForkPause pause;  // a child that inherited this lock unseen would keep it
        OwnedFd fd(segment_->reopen(O_RDWR));
        signature_ = Segment::sign(fd.get());
        unsigned slot = first;
        while (slot < end && !take_alone(fd.get(), slot, left, recover)) {
            if (errno != EAGAIN && errno != EACCES) {
                throw Error(Code::unsupported,
                            segment_->path() +
                                ": its file system refuses byte locks: " + errno_text(errno) +
                                "; use a local file system, for example /dev/shm",
                            errno);
            }
            ++slot;
        }
        if (slot == end) return slot;
        // Some file systems accept locks and keep none. Another description must see ours; its own never would.
        if (segment_->has_descriptor() && !slot_locked(segment_->fd(), slot)) {
            throw Error(Code::unsupported,
                        segment_->path() +
                            ": its file system accepts byte locks, but does not keep them. Without "
                            "locks no death can be proven; use a local file system, for example "
                            "/dev/shm");
        }
        own_ = slot;
        for (std::atomic<u64>& word : held_) word.store(0, std::memory_order_relaxed);
        held_[slot / 64].store(bit_of(slot), std::memory_order_relaxed);  // its own: never to take
        lost_.store(false, std::memory_order_relaxed);
        lock_fd_.store(fd.release(), std::memory_order_relaxed);
        return slot;
    }

    // True: the holder of `slot` is gone for good, and until drop() no newcomer can have its slot. Others may share it at
    // the same time. False for its own slot, for a living holder, and while any thread of this process shares the byte.
    bool share(unsigned slot) {
        if (slot >= slots_ || !held()) return false;
        // All threads here share one description, which the kernel would give the byte again and again.
        const u64 bit = bit_of(slot);
        std::atomic<u64>& word = held_[slot / 64];
        const u64 before = word.fetch_or(bit, std::memory_order_acquire);  // pairs with: drop
        if (before & bit) return false;
        // First the file: through a stranger's description even the attempt could take a lock away from it.
        if (still_ours() && set_lock(fd(), F_RDLCK, byte_of(slot), 1)) {
            if (proven()) return true;
            if (held()) set_lock(fd(), F_UNLCK, byte_of(slot), 1);
        }
        word.fetch_and(~bit, std::memory_order_relaxed);
        return false;
    }

    // Gives back what share() took.
    void drop(unsigned slot) {
        if (slot >= slots_ || slot == own_ || !held() || !still_ours()) return;
        // First the kernel, then the bit: the other way round a thread could take the byte and lose it to us.
        // A failure (no kernel memory) keeps the bit: the byte stays ours until this process ends.
        if (!set_lock(fd(), F_UNLCK, byte_of(slot), 1)) return;
        std::atomic<u64>& word = held_[slot / 64];
        word.fetch_and(~bit_of(slot), std::memory_order_release);  // pairs with: share
    }

    // P4, in full. False: it cannot be told, or it is not so; then the bytes are lost, see lost().
    bool proven() {
        if (!held() || !still_ours()) return false;
        // Through our own description our own lock is not seen, but another's would be.
        if (slot_locked(fd(), own_)) return lose();
        if (segment_->has_descriptor() && slot_locked(segment_->fd(), own_)) return true;
        const std::string link = "/proc/self/fd/" + std::to_string(fd());
        const OwnedFd other(::open(link.c_str(), O_RDONLY | O_CLOEXEC));
        return other.get() >= 0 && (slot_locked(other.get(), own_) || lose());
    }

    // The lock went with its descriptor, which other code closed. For the others the holder is dead, and its slot may be
    // another's: nothing may be done in its name any more.
    bool lost() const { return lost_.load(std::memory_order_relaxed); }

    // Gives all bytes back.
    void release() {
        // Between taking the number out and closing it, a child would keep it.
        const ForkPause pause;
        if (still_ours()) set_lock(fd(), F_UNLCK, kLockBase, slots_);
        close_lock();
    }

    bool held() const { return fd() >= 0; }  // false in a forked child, too
    unsigned own() const { return own_; }
    unsigned slots() const { return slots_; }

 private:
    static off_t byte_of(unsigned slot) { return kLockBase + static_cast<off_t>(slot); }
    static u64 bit_of(unsigned slot) { return u64{1} << (slot % 64); }
    int fd() const { return lock_fd_.load(std::memory_order_relaxed); }

    static bool set_lock(int fd, short type, off_t start, off_t length) {
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

    // A process that dies or stops while it has the byte alone keeps all others from what the last holder left. So that
    // is repaired before, while the byte is shared.
    template <class Left, class Recover>
    bool take_alone(int fd, unsigned slot, Left& left, Recover& recover) {
        bool repaired = true;
        while (true) {
            if (left(slot) && set_lock(fd, F_RDLCK, byte_of(slot), 1)) {
                repaired = recover(slot);
                set_lock(fd, F_UNLCK, byte_of(slot), 1);
            }
            if (!set_lock(fd, F_WRLCK, byte_of(slot), 1)) return false;
            if (!repaired || !left(slot)) return true;
            // Between the two locks another process joined, and died: what it left is repaired first.
            set_lock(fd, F_UNLCK, byte_of(slot), 1);
        }
    }

    bool still_ours() { return segment_->is_signed(fd(), signature_) || lose(); }

    // The number is not ours any more, so it is not closed.
    bool lose() {
        lock_fd_.store(-1, std::memory_order_relaxed);
        lost_.store(true, std::memory_order_relaxed);
        return false;
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
    unsigned own_ = kSlotsMax;
    std::atomic<int> lock_fd_{-1};
    off_t signature_ = 0;
    std::atomic<bool> lost_{false};
    // Bytes that some thread of this process has, or is trying for.
    std::array<std::atomic<u64>, kSlotsMax / 64> held_{};
};

HOLDFAST_POINTS(RecoverPoint, recover_end);

// Recovers what `owner` left, if the kernel says that it is dead: `recover()` runs with the owner's byte shared, and
// returns whether nothing is left. Any number may do so at once; see LockBytes.
template <class Memory, class Recover>
bool recover_if_dead(Memory& memory, unsigned me, unsigned owner, Recover&& recover) {
    if (owner == me || !memory.take_byte(owner)) return false;
    const bool complete = recover();
    if (complete) memory.retire(owner);
    memory.at(RecoverPoint::recover_end);
    memory.drop_byte(owner);
    return complete;
}

}  // namespace holdfast
