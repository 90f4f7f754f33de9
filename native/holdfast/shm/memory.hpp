// The memory policy of production: the real mapping, the real kernel.
//
// The algorithms are templates over a policy with these members; native/model has the one that explores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "holdfast/base/block.hpp"
#include "holdfast/base/clock.hpp"
#include "holdfast/base/points.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/shm/futex.hpp"
#include "holdfast/shm/participants.hpp"

namespace holdfast {

// Copies a payload; an empty one may come with a null pointer.
inline void copy_bytes(void* to, const void* from, std::size_t size) {
    if (size != 0) std::memcpy(to, from, size);
}

// Of a block that is written in pieces (the seed's cases b to e).
HOLDFAST_POINTS(BlockPoint, put_magic, put_size, put_payload, put_checksum);

class NativeMemory {
 public:
    explicit NativeMemory(Participant* participant = nullptr) : participant_(participant) {}

    // Atomic words of 8, 16, 32 or 64 bits. One location is always accessed with one size.
    template <AtomicWord Word>
    Word load(const Word* word, std::memory_order order) const {
        return ref(word).load(order);
    }
    template <AtomicWord Word>
    void store(Word* word, std::type_identity_t<Word> value, std::memory_order order) {
        ref(word).store(value, order);
    }
    // Strong. On failure `expected` holds what was found, read with acquire.
    template <AtomicWord Word>
    bool cas(Word* word, Word& expected, std::type_identity_t<Word> desired,
             std::memory_order success) {
        // Compilers want success to be at least as strong as failure, although the language no longer does.
        // pairs with: store, cas (of the writer of the value found)
        if (success == std::memory_order_relaxed) success = std::memory_order_acquire;
        // pairs with: store, cas (of the writer of the value found)
        return ref(word).compare_exchange_strong(expected, desired, success,
                                                 std::memory_order_acquire);
    }
    template <AtomicWord Word>
    Word exchange(Word* word, std::type_identity_t<Word> value, std::memory_order order) {
        return ref(word).exchange(value, order);
    }
    template <AtomicWord Word>
    Word fetch_add(Word* word, std::type_identity_t<Word> value, std::memory_order order) {
        return ref(word).fetch_add(value, order);
    }
    template <AtomicWord Word>
    Word fetch_or(Word* word, std::type_identity_t<Word> value, std::memory_order order) {
        return ref(word).fetch_or(value, order);
    }
    template <AtomicWord Word>
    Word fetch_and(Word* word, std::type_identity_t<Word> value, std::memory_order order) {
        return ref(word).fetch_and(value, order);
    }

    // Words that are not atomic: releases and acquires of other words order their accesses.
    template <AtomicWord Word>
    void plain_write(Word* word, std::type_identity_t<Word> value) {
        *word = value;
    }
    template <AtomicWord Word>
    Word plain_read(const Word* word) const {
        return *word;
    }

    // pairs with: fence (of the other side: publish then look for waiters, announce then look again)
    void fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }

    // Plain stores: the caller owns these bytes, and publishes them with a release afterwards. The sum is made here, of
    // the bytes that were stored: those that they came from may have changed meanwhile.
    void write_block(std::byte* to, BlockHeader header, const std::byte* data, std::size_t size) {
        if (any_armed()) [[unlikely]]
            return write_block_piecewise(to, header, data, size);
        copy_bytes(to + sizeof header, data, size);
        seal(header, to + sizeof header);
        std::memcpy(to, &header, sizeof header);
    }

    // A private copy, to be verified before anything in it is believed.
    BlockHeader read_header(const std::byte* from) const {
        BlockHeader header;
        std::memcpy(&header, from, sizeof header);
        return header;
    }

    bool take_byte(unsigned slot) {
        return participant_ != nullptr && participant_->take_byte(slot);
    }
    void drop_byte(unsigned slot) {
        if (participant_ != nullptr) participant_->drop_byte(slot);
    }

    // Nothing is left of the dead holder of `slot`, whose byte we have.
    void retire(unsigned slot) {
        if (participant_ != nullptr) participant_->mark_inactive(slot);
    }

    // Writes the time down, for people to read; nothing is decided by it.
    void note(u64* at_ms) { ref(at_ms).store(coarse_ms(), std::memory_order_relaxed); }

    void wake(u32* bell) { futex_wake_all(bell); }
    u64 now_ms() const { return coarse_ms(); }
    void at(Point point) { holdfast::at(point); }
    void again() {}

 private:
    template <class Word>
    static std::atomic_ref<Word> ref(const Word* word) {
        static_assert(std::atomic_ref<Word>::is_always_lock_free);
        return std::atomic_ref<Word>(
            *const_cast<Word*>(word));  // atomic_ref<const T> came after C++20
    }

    // The same bytes in the seed's order, so that a test can die with the magic but no size, half a payload, no sum.
    // The signal fences keep the compiler from merging what a survivor is meant to see apart.
    [[gnu::noinline, gnu::cold]] static void write_block_piecewise(std::byte* to,
                                                                   BlockHeader header,
                                                                   const std::byte* data,
                                                                   std::size_t size) {
        BlockHeader part{};
        const auto show = [&](Point point) {
            std::memcpy(to, &part, sizeof part);
            std::atomic_signal_fence(std::memory_order_seq_cst);  // pairs with: fire
            holdfast::at(point);
        };
        part.magic = header.magic;
        show(BlockPoint::put_magic);
        part.kind = header.kind;
        part.flags = header.flags;
        part.size = header.size;
        show(BlockPoint::put_size);
        part.tag = header.tag;
        part.time = header.time;
        std::byte* payload = to + sizeof part;
        copy_bytes(payload, data, size / 2);
        show(BlockPoint::put_payload);
        copy_bytes(payload + size / 2, data + size / 2, size - size / 2);
        seal(header, payload);
        part = header;
        show(BlockPoint::put_checksum);
    }

    Participant* participant_;
};

}  // namespace holdfast
