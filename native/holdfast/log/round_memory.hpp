// Memory of rounds: chunks that circulate between the loop, which fills them, and the writer, which
// empties them. No entry costs an allocation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "holdfast/base/types.hpp"

namespace holdfast {

inline constexpr std::size_t kChunkSize = std::size_t{256} << 10;

struct FreeMemory {
    void operator()(std::byte* memory) const { std::free(memory); }
};

struct Chunk {
    std::unique_ptr<std::byte, FreeMemory> memory;
    std::size_t used = 0;
};

// Keeps chunks for their next use, so that their pages stay mapped and warm. Any thread may call.
class ChunkPool {
 public:
    Chunk get() {
        {
            const std::lock_guard lock(mutex_);
            if (!kept_.empty()) {
                Chunk chunk = std::move(kept_.back());
                kept_.pop_back();
                return chunk;
            }
        }
        Chunk chunk;
        chunk.memory.reset(static_cast<std::byte*>(std::aligned_alloc(64, kChunkSize)));
        if (chunk.memory == nullptr) throw std::bad_alloc();
        return chunk;
    }

    void put(std::vector<Chunk>& chunks) {
        const std::lock_guard lock(mutex_);
        for (Chunk& chunk : chunks) {
            if (kept_.size() == kKeptMax) break;
            chunk.used = 0;
            kept_.push_back(std::move(chunk));
        }
        chunks.clear();
    }

 private:
    static constexpr std::size_t kKeptMax = (std::size_t{32} << 20) / kChunkSize;

    std::mutex mutex_;
    std::vector<Chunk> kept_;
};

// Bytes that grow at the end and never move.
class Arena {
 public:
    explicit Arena(ChunkPool& pool) : pool_(pool) {}
    Arena(const Arena&) = delete;
    ~Arena() { clear(); }

    void clear() {
        size_ = 0;
        if (!chunks_.empty()) pool_.put(chunks_);
    }

    u64 size() const { return size_; }
    const std::vector<Chunk>& chunks() const { return chunks_; }

    // The rest of the current chunk.
    std::size_t room() const { return chunks_.empty() ? 0 : kChunkSize - chunks_.back().used; }

    // Returns `size` contiguous bytes, at most a chunk. They follow the last reserved ones, unless
    // the chunk had no room for them.
    std::byte* reserve(std::size_t size) {
        if (room() < size) [[unlikely]]
            chunks_.push_back(pool_.get());
        Chunk& chunk = chunks_.back();
        std::byte* place = chunk.memory.get() + chunk.used;
        chunk.used += size;
        size_ += size;
        return place;
    }

    // Copies bytes, in as many pieces as chunks need: no byte of a chunk stays unused.
    void append(const std::byte* bytes, std::size_t size) {
        while (size > 0) {
            if (room() == 0) chunks_.push_back(pool_.get());
            const std::size_t part = std::min(size, room());
            std::memcpy(reserve(part), bytes, part);
            bytes += part;
            size -= part;
        }
    }

 private:
    ChunkPool& pool_;
    std::vector<Chunk> chunks_;
    u64 size_ = 0;
};

}  // namespace holdfast
