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

    explicit ModelMemory(World& world) : world_(world) {}
    ModelMemory(const ModelMemory&) = delete;
    ModelMemory& operator=(const ModelMemory&) = delete;
    virtual ~ModelMemory() = default;

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
    template <class Word>
    Word fetch_and(Word* at, std::type_identity_t<Word> value, std::memory_order order) {
        return static_cast<Word>(
            observe({.kind = Kind::fetch_and, .order = order, .cell = cell(at), .a = value}));
    }
    template <class Word>
    Word exchange(Word* at, std::type_identity_t<Word> value, std::memory_order order) {
        return static_cast<Word>(
            observe({.kind = Kind::exchange, .order = order, .cell = cell(at), .a = value}));
    }

    // Under sequential consistency a fence does nothing. With store buffers it waits until the process's buffer is empty.
    void fence() {
        if (fences_) observe({.kind = Kind::fence});
    }
    void make_fences_accesses(bool accesses) { fences_ = accesses; }

    // Bytes that are not atomic: a data race is a violation. See knowledge.hpp.
    template <class Word>
    void plain_write(Word* at, std::type_identity_t<Word> value) {
        observe({.kind = Kind::plain_write, .cell = plain(at, sizeof(Word)), .a = value});
    }
    template <class Word>
    Word plain_read(const Word* at) {
        return static_cast<Word>(
            observe({.kind = Kind::plain_read, .cell = plain(at, sizeof(Word))}));
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

 protected:
    // The value that the process observed here, or the end of what it has done so far.
    u64 observe(Access access) {
        if (next_ < observed_->size()) return (*observed_)[next_++];
        access.point = point_;
        throw Pending{access};
    }
    u16 plain(const void* at, std::size_t size) const {
        return static_cast<u16>(world_.cell(at, size, CellKind::plain));
    }

 private:
    template <class Word>
    u16 cell(const Word* at) const {
        return static_cast<u16>(world_.cell(at));
    }

    Access lock_access(Kind kind, unsigned slot) const {
        return {.kind = kind, .cell = static_cast<u16>(world_.lock(slot))};
    }

    World& world_;
    bool fences_ = false;
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
    template <class Word>
    Word plain_read(const Word* at) {
        const int cell = world_.cell(at, sizeof(Word), CellKind::plain);
        return static_cast<Word>(state_.cell[static_cast<std::size_t>(cell)].value);
    }
    void fence() {}
    u64 now_ms() { return 1000; }

 private:
    const World& world_;
    const State& state_;
};

}  // namespace model
