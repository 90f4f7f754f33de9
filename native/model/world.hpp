// The region that the processes share: laid out as in production, and divided into cells.
//
// The algorithms address memory by pointers into the region, as they do in production. Nothing is ever written there
// but the initial values: the values of a state live in its cells.
//
// A cell has one address and one size, and cells do not overlap. Otherwise two words could be taken for one, and the
// explorer would verify another structure. An access must name a cell exactly. Anything else violates "cell".
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "model/state.hpp"
#include "model/text.hpp"
#include "model/violation.hpp"

namespace model {

enum class CellKind : u8 {
    word,   // atomic
    plain,  // not atomic: its accesses are checked for races
    lock,   // a lock byte of the kernel
};

struct CellInfo {
    CellKind kind = CellKind::word;
    u16 width = 8;  // bytes
    u64 initial = 0;
    std::string name;
    u64 offset = 0;  // in the region; of a lock byte: unused
    int number = 0;  // among the cells of its kind

    u64 mask() const { return width < 8 ? (u64{1} << 8 * width) - 1 : ~u64{0}; }
};

class World {
 public:
    explicit World(std::size_t size) : storage_(size / 64 + 2) {
        auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
        base_ = reinterpret_cast<std::byte*>((address + 63) & ~std::uintptr_t{63});
        cell_at_.assign(size, kNoCell);
    }

    std::byte* base() const { return base_; }
    int cells() const { return static_cast<int>(info_.size()); }
    const CellInfo& info(int cell) const { return info_[static_cast<std::size_t>(cell)]; }
    const std::vector<int>& locks() const { return locks_; }
    int lock(unsigned slot) const { return locks_.at(slot); }
    int words() const { return words_; }
    int plains() const { return static_cast<int>(plains_.size()); }
    const CellInfo& plain_info(int plain) const {
        return info(plains_[static_cast<std::size_t>(plain)]);
    }

    // Declares an atomic word. Its initial value is what stands in the region now.
    template <AtomicWord Word>
    int word(const Word* at, std::string name) {
        CellInfo info{CellKind::word, sizeof(Word), *at, std::move(name)};
        info.number = words_++;
        return declare(at, std::move(info));
    }

    // Declares bytes that are accessed without atomics, by one plain_write or plain_read for all of them. At most 8
    // bytes start with what stands in the region now. The value of more is a number, and starts with 0.
    int plain(const void* at, std::size_t size, std::string name) {
        CellInfo info{CellKind::plain, static_cast<u16>(size), 0, std::move(name)};
        if (size <= sizeof info.initial) std::memcpy(&info.initial, at, size);
        info.number = plains();
        const int cell = declare(at, std::move(info));
        plains_.push_back(cell);
        return cell;
    }

    void bytes(unsigned slots) {
        for (unsigned i = 0; i < slots; ++i) {
            locks_.push_back(cells());
            add({CellKind::lock, 1, 0, text_of("byte[", i, "]")});
        }
    }

    // The cell with this address, size and kind.
    int cell(const void* at, std::size_t size, CellKind kind) const {
        const u64 offset = offset_of(at);
        const u16 found = offset < cell_at_.size() ? cell_at_[offset] : kNoCell;
        if (found == kNoCell)
            throw Violation("cell", text_of("access to ", size, " bytes at offset ", offset,
                                            ", where the model has not declared a cell"));
        const CellInfo& info = info_[found];
        if (info.offset != offset || info.width != size || info.kind != kind) [[unlikely]]
            throw Violation("cell", text_of(kind == CellKind::plain ? "plain" : "atomic",
                                            " access to ", size, " bytes at offset ", offset,
                                            ", but the cell there is ", described(info)));
        return found;
    }
    template <AtomicWord Word>
    int cell(const Word* at) const {
        return cell(at, sizeof(Word), CellKind::word);
    }

 private:
    static constexpr u16 kNoCell = 0xffff;
    struct alignas(64) Line {
        std::byte bytes[64];
    };

    u64 offset_of(const void* at) const {
        return static_cast<u64>(static_cast<const std::byte*>(at) - base_);
    }

    static std::string described(const CellInfo& info) {
        return text_of(info.name, ", ", info.width,
                       info.kind == CellKind::plain ? " plain bytes" : " atomic bytes",
                       " at offset ", info.offset);
    }

    int declare(const void* at, CellInfo info) {
        info.offset = offset_of(at);
        if (info.offset + info.width > cell_at_.size())
            throw Violation("cell",
                            text_of("the cell ", described(info), " is outside the region"));
        for (u64 i = info.offset; i < info.offset + info.width; ++i) {
            if (cell_at_[i] != kNoCell)
                throw Violation("cell", text_of("the cell ", described(info), " overlaps ",
                                                described(info_[cell_at_[i]])));
        }
        for (u64 i = 0; i < info.width; ++i) cell_at_[info.offset + i] = static_cast<u16>(cells());
        return add(std::move(info));
    }

    int add(CellInfo info) {
        if (cells() == kCellsMax) throw std::logic_error("too many cells: raise kCellsMax");
        info_.push_back(std::move(info));
        return cells() - 1;
    }

    std::vector<Line> storage_;
    std::byte* base_;
    std::vector<u16> cell_at_;  // by offset
    std::vector<CellInfo> info_;
    std::vector<int> locks_;
    std::vector<int> plains_;
    int words_ = 0;
};

}  // namespace model
