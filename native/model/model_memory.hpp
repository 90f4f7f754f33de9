// The Memory policy of the explorer: every access is a scheduling point.
//
// A process is deterministic: its next access follows from its local state before the step and the values that it has
// observed since. So no process is suspended. To learn its next access, the step runs again from the start with the
// observed values, until it asks for one more. An exception then ends it. This happens once per local history (nodes.hpp
// remembers the result), not once per state.
#pragma once

#include <cstring>
#include <vector>

#include "model/access.hpp"
#include "model/world.hpp"

namespace model {

class ModelMemory {
 public:
    struct Pending {  // thrown: this access has no observed value yet
        Access access;
    };
    struct Restart {};  // thrown: the same as starting the step anew

    ModelMemory(World& world, bool whole_blocks) : world_(world), whole_blocks_(whole_blocks) {}

    void replay(const std::vector<u64>& observed) {
        observed_ = &observed;
        next_ = 0;
        point_ = {};
    }

    template <class Word>
    Word load(const Word* at, std::memory_order order) {
        return static_cast<Word>(observe({.kind = Kind::load, .order = order, .cell = cell(at)}));
    }
    template <class Word>
    void store(Word* at, std::type_identity_t<Word> value, std::memory_order order) {
        observe({.kind = Kind::store, .order = order, .cell = cell(at), .a = value});
    }
    template <class Word>
    bool cas(Word* at, Word& expected, std::type_identity_t<Word> desired,
             std::memory_order success) {
        auto found = static_cast<Word>(observe(
            {.kind = Kind::cas, .order = success, .cell = cell(at), .a = expected, .b = desired}));
        if (found == expected) return true;
        expected = found;
        return false;
    }
    template <class Word>
    Word fetch_add(Word* at, std::type_identity_t<Word> value, std::memory_order order) {
        return static_cast<Word>(
            observe({.kind = Kind::fetch_add, .order = order, .cell = cell(at), .a = value}));
    }
    template <class Word>
    Word fetch_or(Word* at, std::type_identity_t<Word> value, std::memory_order order) {
        return static_cast<Word>(
            observe({.kind = Kind::fetch_or, .order = order, .cell = cell(at), .a = value}));
    }

    // Under sequential consistency a fence does nothing. SEAM: with store buffers it would be an access that is enabled
    // only when the process's buffer is empty; see the comment on Runner::execute.
    void fence() {}

    void write_block(std::byte* at, BlockHeader header, const std::byte* data, std::size_t size) {
        seal(header, data);
        u64 content = world_.intern(header, data, size);
        auto granules = static_cast<u16>((sizeof header + size + 63) / 64);
        if (whole_blocks_) {
            observe({.kind = Kind::plain_write, .cell = cell(at), .count = granules, .a = content});
            return;
        }
        for (u16 i = 0; i < granules; ++i) {
            observe({.kind = Kind::plain_write,
                     .cell = static_cast<u16>(cell(at) + i),
                     .a = content + i});
        }
    }

    BlockHeader read_header(const std::byte* at) {
        const Content* content =
            world_.content(observe({.kind = Kind::plain_read, .cell = cell(at)}));
        return content ? content->header : BlockHeader{};
    }

    // Reads all of a message, as its holder does. Null: torn, or not the start of a block.
    const Content* read_block(const std::byte* at, std::size_t size) {
        auto granules = static_cast<u16>((sizeof(BlockHeader) + size + 63) / 64);
        return world_.content(
            observe({.kind = Kind::plain_read, .cell = cell(at), .count = granules}));
    }

    bool take_byte(unsigned slot) { return observe(lock_access(Kind::take_byte, slot)) != 0; }
    void drop_byte(unsigned slot) { observe(lock_access(Kind::drop_byte, slot)); }
    void await_byte(unsigned slot) { observe(lock_access(Kind::await_byte, slot)); }

    void retire(unsigned) {}  // for people to read; nothing is decided by it
    void note(u64*) {}        // the same

    void wake(u32* bell) { observe({.kind = Kind::wake, .cell = cell(bell)}); }
    Woken wait(const u32* bell, u32 expected) {
        return static_cast<Woken>(observe({.kind = Kind::wait, .cell = cell(bell), .a = expected}));
    }

    u64 now_ms() {
        return 1000;
    }  // time stands still: with a stall limit of 0 any waiter may fence at once

    void at(Point point) { point_ = point; }

    // At the very start of a step there is nothing to fold.
    void again() {
        if (next_ != 0) throw Restart{};
    }

 private:
    u16 cell(const void* at) const { return static_cast<u16>(world_.cell(at)); }

    Access lock_access(Kind kind, unsigned slot) const {
        return {.kind = kind, .cell = static_cast<u16>(world_.lock(slot))};
    }

    u64 observe(Access access) {
        if (next_ < observed_->size()) return (*observed_)[next_++];
        access.point = point_;
        throw Pending{access};
    }

    World& world_;
    bool whole_blocks_;
    const std::vector<u64>* observed_ = nullptr;
    std::size_t next_ = 0;
    Point point_;
};

// Reads a state's words without scheduling: for the checker of a structure, which runs between two accesses.
class StateMemory {
 public:
    StateMemory(const World& world, const State& state) : world_(world), state_(state) {}

    template <class Word>
    Word load(const Word* at, std::memory_order) {
        return static_cast<Word>(state_.cell[static_cast<std::size_t>(world_.cell(at))].value);
    }
    void fence() {}
    u64 now_ms() { return 1000; }

 private:
    const World& world_;
    const State& state_;
};

}  // namespace model
