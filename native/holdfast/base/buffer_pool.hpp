// A few large buffers, kept for their next use. Memory that goes back to the system costs a page
// fault for every 4 KiB when it is used again. That is more than reading the bytes costs.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "holdfast/base/byte_buffer.hpp"

namespace holdfast {

// Any thread may call.
class BufferPool {
 public:
    static constexpr std::size_t kWorth = std::size_t{64} << 10;  // smaller ones are not kept
    static constexpr std::size_t kTotalMax = std::size_t{16} << 20;

    explicit BufferPool(std::size_t total_max = kTotalMax) : total_max_(total_max) {}

    // An empty buffer with room for `size` bytes.
    ByteBuffer get(std::size_t size) {
        ByteBuffer out = size < kWorth ? ByteBuffer() : find(size);
        out.reserve(size);
        return out;
    }

    void put(ByteBuffer&& buffer) {
        if (buffer.capacity() < kWorth) return;
        ByteBuffer taken = std::move(buffer);
        taken.cut(0);
        const std::lock_guard lock(mutex_);
        if (taken.capacity() > total_max_ - total_) return;
        total_ += taken.capacity();
        free_.push_back(std::move(taken));
    }

    std::size_t total() {
        const std::lock_guard lock(mutex_);
        return total_;
    }

 private:
    // The buffer that was put last among those that fit and are not far too large.
    ByteBuffer find(std::size_t size) {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = free_.size(); i-- > 0;) {
            if (free_[i].capacity() < size || free_[i].capacity() / 4 > size) continue;
            ByteBuffer out = std::move(free_[i]);
            free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
            total_ -= out.capacity();
            return out;
        }
        return ByteBuffer();
    }

    std::mutex mutex_;
    std::vector<ByteBuffer> free_;
    const std::size_t total_max_;
    std::size_t total_ = 0;
};

}  // namespace holdfast
