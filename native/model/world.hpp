// The region that the processes share: laid out as in production, and divided into cells.
//
// The algorithms address memory by pointers into the region, as they do in production. Nothing is ever written there
// but the initial values: the values of a state live in its cells.
#pragma once

#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "holdfast/base/block.hpp"
#include "model/state.hpp"

namespace model {

enum class CellKind : u8 { word, granule, lock };

struct CellInfo {
    CellKind kind = CellKind::word;
    u8 width = 8;
    u64 initial = 0;
    std::string name;
};

// A block as it was written. Cells hold its number, so that a torn or foreign block is recognised.
struct Content {
    BlockHeader header{};
    std::vector<std::byte> payload;
};

class World {
 public:
    static constexpr u64 kGranuleSize = 64;

    explicit World(std::size_t size) : storage_(size / 64 + 2), size_(size) {
        auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
        base_ = reinterpret_cast<std::byte*>((address + 63) & ~std::uintptr_t{63});
        cell_at_.assign(size / 4, kNoCell);
    }

    std::byte* base() const { return base_; }
    int cells() const { return static_cast<int>(info_.size()); }
    const CellInfo& info(int cell) const { return info_[static_cast<std::size_t>(cell)]; }
    const std::vector<int>& locks() const { return locks_; }
    int lock(unsigned slot) const { return locks_.at(slot); }
    int first_granule() const { return first_granule_; }
    int granules() const { return granules_; }

    // Declares an atomic word. Its initial value is what stands in the region now.
    template <class Word>
    int word(const Word* at, std::string name) {
        CellInfo info{CellKind::word, sizeof(Word), *at, std::move(name)};
        return declare(at, std::move(info));
    }

    void ring(const std::byte* at, int granules) {
        first_granule_ = cells();
        granules_ = granules;
        for (int i = 0; i < granules; ++i) {
            declare(at + static_cast<u64>(i) * kGranuleSize,
                    {CellKind::granule, 64, 0, "ring[" + std::to_string(i) + "]"});
        }
    }

    void bytes(unsigned slots) {
        for (unsigned i = 0; i < slots; ++i) {
            locks_.push_back(cells());
            add({CellKind::lock, 1, 0, "byte[" + std::to_string(i) + "]"});
        }
    }

    int cell(const void* at) const {
        u64 offset = static_cast<u64>(static_cast<const std::byte*>(at) - base_);
        u16 found = offset < size_ ? cell_at_[offset / 4] : kNoCell;
        if (found == kNoCell)
            throw std::logic_error("access to a word that the model did not declare");
        return found;
    }

    // The number of a block's content; its granules hold this number, + 1 each.
    u64 intern(const BlockHeader& header, const std::byte* payload, std::size_t size) {
        std::string key(reinterpret_cast<const char*>(&header), sizeof header);
        key.append(reinterpret_cast<const char*>(payload), size);
        auto [found, added] = content_ids_.try_emplace(key, contents_.size() + 1);
        if (added) contents_.push_back({header, {payload, payload + size}});
        return found->second << kPartBits;
    }

    // Null if this is not the first granule of a block.
    const Content* content(u64 number) const {
        if (number == 0 || (number & ((1u << kPartBits) - 1)) != 0) return nullptr;
        return &contents_[(number >> kPartBits) - 1];
    }

 private:
    static constexpr u16 kNoCell = 0xffff;
    static constexpr u32 kPartBits = 6;
    struct alignas(64) Line {
        std::byte bytes[64];
    };

    int declare(const void* at, CellInfo info) {
        u64 offset = static_cast<u64>(static_cast<const std::byte*>(at) - base_);
        u16& place = cell_at_.at(offset / 4);
        if (place != kNoCell) return place;
        place = static_cast<u16>(cells());
        return add(std::move(info));
    }

    int add(CellInfo info) {
        if (cells() == kCellsMax) throw std::logic_error("too many cells: raise kCellsMax");
        info_.push_back(std::move(info));
        return cells() - 1;
    }

    std::vector<Line> storage_;
    std::size_t size_;
    std::byte* base_;
    std::vector<u16> cell_at_;  // by offset / 4
    std::vector<CellInfo> info_;
    std::vector<int> locks_;
    int first_granule_ = 0;
    int granules_ = 0;
    std::vector<Content> contents_;
    std::map<std::string, u64> content_ids_;
};

}  // namespace model
