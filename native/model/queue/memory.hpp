// The queue's memory policy under the explorer: blocks, in granules of the ring.
#pragma once

#include <map>
#include <vector>

#include "holdfast/base/block.hpp"
#include "holdfast/queue/layout.hpp"
#include "model/model_memory.hpp"

namespace model {

// A block as it was written. Granules hold its number, so that a torn or foreign block is recognised.
struct Content {
    BlockHeader header{};
    std::vector<std::byte> payload;
};

// All blocks that were ever written, by number.
class Contents {
 public:
    // The number of a block's content; its granules hold this number, + 1 each.
    u64 intern(const BlockHeader& header, const std::byte* payload, std::size_t size) {
        std::string key(reinterpret_cast<const char*>(&header), sizeof header);
        key.append(reinterpret_cast<const char*>(payload), size);
        auto [found, added] = ids_.try_emplace(key, contents_.size() + 1);
        if (added) contents_.push_back({header, {payload, payload + size}});
        return found->second << kPartBits;
    }

    // Null if this is not the first granule of a block.
    const Content* find(u64 number) const {
        if (number == 0 || (number & ((1u << kPartBits) - 1)) != 0) return nullptr;
        return &contents_[(number >> kPartBits) - 1];
    }

 private:
    static constexpr u32 kPartBits = 6;
    std::vector<Content> contents_;
    std::map<std::string, u64> ids_;
};

class QueueMemory final : public ModelMemory {
 public:
    // `whole_blocks`: a block is written in one access, not granule by granule.
    QueueMemory(World& world, Contents& contents, bool whole_blocks)
        : ModelMemory(world), contents_(contents), whole_blocks_(whole_blocks) {}

    void write_block(std::byte* at, BlockHeader header, const std::byte* data, std::size_t size) {
        seal(header, data);
        const u64 content = contents_.intern(header, data, size);
        const u16 granules = granules_of(size);
        if (whole_blocks_) {
            observe(
                {.kind = Kind::plain_write, .cell = granule(at), .count = granules, .a = content});
            return;
        }
        for (u16 i = 0; i < granules; ++i) {
            observe({.kind = Kind::plain_write,
                     .cell = static_cast<u16>(granule(at) + i),
                     .a = content + i});
        }
    }

    BlockHeader read_header(const std::byte* at) {
        const Content* content =
            contents_.find(observe({.kind = Kind::plain_read, .cell = granule(at)}));
        return content ? content->header : BlockHeader{};
    }

    // Reads all of a message, as its holder does. Null: torn, or not the start of a block.
    const Content* read_block(const std::byte* at, std::size_t size) {
        return contents_.find(
            observe({.kind = Kind::plain_read, .cell = granule(at), .count = granules_of(size)}));
    }

 private:
    u16 granule(const std::byte* at) const { return plain(at, kGranule); }
    static u16 granules_of(std::size_t size) {
        return static_cast<u16>((sizeof(BlockHeader) + size + kGranule - 1) / kGranule);
    }

    Contents& contents_;
    bool whole_blocks_;
};

}  // namespace model
