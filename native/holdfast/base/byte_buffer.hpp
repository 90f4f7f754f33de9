// Bytes that grow at the end. Unlike std::vector it does not clear bytes that are written next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "holdfast/base/types.hpp"

namespace holdfast {

// The source of a buffer's memory. `lead` bytes before the data and `tail` bytes behind it belong
// to the source. So a finished buffer can become another object without a copy.
struct ByteMemory {
    // null base: new; returns null if there is no memory
    void* (*resize)(void* base, std::size_t size);
    void (*free)(void* base);
    std::size_t lead = 0;
    std::size_t tail = 0;
};

inline constexpr ByteMemory kPlainMemory{
    [](void* base, std::size_t size) { return std::realloc(base, size); },
    [](void* base) { std::free(base); }};

class ByteBuffer {
 public:
    explicit ByteBuffer(const ByteMemory& memory = kPlainMemory) : memory_(&memory) {}
    ByteBuffer(ByteBuffer&& other) noexcept : memory_(other.memory_) { swap(other); }
    ByteBuffer& operator=(ByteBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~ByteBuffer() { drop(); }

    u8* data() { return data_; }
    const u8* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t capacity() const { return capacity_; }
    std::string_view view() const { return {reinterpret_cast<const char*>(data_), size_}; }

    void reserve(std::size_t capacity) {
        if (capacity <= capacity_) return;
        void* grown = memory_->resize(base(), memory_->lead + capacity + memory_->tail);
        if (grown == nullptr) throw std::bad_alloc();
        data_ = static_cast<u8*>(grown) + memory_->lead;
        capacity_ = capacity;
    }

    // Adds `count` bytes, which the caller fills. Every pointer into the buffer is void after it.
    u8* extend(std::size_t count) {
        if (count > capacity_ - size_) [[unlikely]]
            grow(count);
        u8* place = data_ + size_;
        size_ += count;
        return place;
    }

    void append(const void* bytes, std::size_t count) {
        u8* place = extend(count);
        if (count > 0) std::memcpy(place, bytes, count);
    }
    void append(std::string_view bytes) { append(bytes.data(), bytes.size()); }

    // Returns to an earlier size; nothing is freed.
    void cut(std::size_t size) { size_ = std::min(size, size_); }

    // Empties the buffer and frees memory above `keep` bytes.
    void clear(std::size_t keep) {
        size_ = 0;
        if (capacity_ > keep) drop();
    }

    // Releases the memory, lead included, to the caller; the buffer is then empty without memory.
    void* release() {
        void* out = base();
        data_ = nullptr;
        size_ = capacity_ = 0;
        return out;
    }

    // Takes over memory of its kind, of which `capacity` bytes are for data.
    void adopt(void* base, std::size_t capacity) {
        drop();
        data_ = static_cast<u8*>(base) + memory_->lead;
        capacity_ = capacity;
    }

    void swap(ByteBuffer& other) noexcept {
        std::swap(memory_, other.memory_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }

 private:
    static constexpr std::size_t kSizeMax = std::size_t{1} << 62;

    // a function of its own, so that extend() is small
    [[gnu::noinline]] void grow(std::size_t count) {
        if (count > kSizeMax - size_) throw std::bad_alloc();
        reserve(std::max({size_ + count, std::min(2 * capacity_, kSizeMax), std::size_t{256}}));
    }
    void* base() const { return data_ == nullptr ? nullptr : data_ - memory_->lead; }
    void drop() {
        if (void* held = release()) memory_->free(held);
    }

    const ByteMemory* memory_;
    u8* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace holdfast
