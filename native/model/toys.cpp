#include "model/toy_model.hpp"

namespace model {

namespace {

// Each process adds one.
class Counter final : public ToyModel {
 public:
    explicit Counter(bool sound) : ToyModel(2, 1), sound_(sound) {}
    void audit(Runner&, const State& s, bool) const override {
        if (over(s) && value(s, 0) != 2)
            throw Violation("lost-update", "two added one, there is one");
    }

 private:
    bool run(int, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (sound_) {
            memory.fetch_add(word(0), 1, std::memory_order_relaxed);
        } else {
            u64 seen = memory.load(word(0), std::memory_order_relaxed);
            memory.store(word(0), seen + 1, std::memory_order_relaxed);
        }
        return true;
    }
    bool sound_;
};

// Writes two words, then says so. The other reads them when told.
class Publish final : public ToyModel {
 public:
    Publish(std::memory_order publish, std::memory_order look)
        : ToyModel(2, 1), publish_(publish), look_(look) {
        world.plain(plain(0), sizeof(u64), "x");
        world.plain(plain(1), sizeof(u64), "y");
    }

 private:
    bool run(int p, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (p == 0) {
            memory.plain_write(plain(0), 7);
            memory.plain_write(plain(1), 8);
            memory.store(word(0), 1, publish_);
        } else if (memory.load(word(0), look_) == 1) {
            if (memory.plain_read(plain(0)) != 7 || memory.plain_read(plain(1)) != 8)
                throw Violation("content", "the words are not what was published");
        }
        return true;
    }
    std::memory_order publish_, look_;
};

// One sleeps until the other has published.
class Wake final : public ToyModel {
 public:
    explicit Wake(bool looks_again) : ToyModel(2, 1), looks_again_(looks_again) {
        world.word(bell(), "bell");
    }

 private:
    bool run(int p, u32 pc, ToyLocal& mine, ModelMemory& memory) override {
        if (p == 0) {
            if (pc != 0) return false;
            memory.store(word(0), 1, std::memory_order_release);
            u32 seen = memory.load(bell(), std::memory_order_relaxed);
            if (seen != 0 && memory.cas(bell(), seen, 0u, std::memory_order_relaxed))
                memory.wake(bell());
            return true;
        }
        switch (pc) {
            case 0:
                if (memory.load(word(0), std::memory_order_acquire) != 0) mine.pc = 9;
                return true;
            case 1:
                memory.store(bell(), 1, std::memory_order_relaxed);
                if (looks_again_ && memory.load(word(0), std::memory_order_acquire) != 0)
                    mine.pc = 9;
                return true;
            case 2:
                memory.wait(bell(), 1);
                mine.pc = 0;
                return true;
            default:
                return false;
        }
    }
    bool looks_again_;
};

// A token moves from one word to another. If the mover dies, the process that gets its byte completes the move.
class HandOver final : public ToyModel {
 public:
    explicit HandOver(bool intent_first) : ToyModel(2, 3), intent_first_(intent_first) {
        world.bytes(1);
    }
    void initial(State& s) const override {
        s.set(0, {1, 0});
        s.set(world.lock(0), {1, 0});
    }
    void audit(Runner& runner, const State& s, bool) const override {
        State copy = s;
        runner.kill_all(copy);
        if (!runner.run_auditor(copy, 100)) throw Violation("drain", "recovery does not end");
        if (value(copy, 0) + value(copy, 1) != 1)
            throw Violation("lost", "the token is gone, or there are two");
    }

 private:
    bool run(int p, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (p == 0) {
            if (intent_first_) memory.store(word(2), 1, std::memory_order_release);
            memory.store(word(0), 0, std::memory_order_release);
            if (!intent_first_) memory.store(word(2), 1, std::memory_order_release);
            redo(memory);
        } else if (memory.take_byte(0)) {
            if (memory.load(word(2), std::memory_order_acquire) != 0) redo(memory);
            memory.drop_byte(0);
        }
        return true;
    }
    void redo(ModelMemory& memory) {
        memory.store(word(0), 0, std::memory_order_release);
        memory.store(word(1), 1, std::memory_order_release);
        memory.store(word(2), 0, std::memory_order_release);
    }
    bool intent_first_;
};

// Adds one, with a lock or without.
class Lock final : public ToyModel {
 public:
    explicit Lock(bool lock_free) : ToyModel(2, 2), lock_free_(lock_free) {}

 private:
    bool run(int, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        u64 seen = 0;
        if (lock_free_) {
            seen = memory.load(word(1), std::memory_order_relaxed);
            while (!memory.cas(word(1), seen, seen + 1, std::memory_order_relaxed)) memory.again();
        } else {
            while (!memory.cas(word(0), seen, 1, std::memory_order_acquire)) memory.again();
            memory.fetch_add(word(1), 1, std::memory_order_relaxed);
            memory.store(word(0), 0, std::memory_order_release);
        }
        return true;
    }
    bool lock_free_;
};

// One takes all that there is while the other adds.
class TakeAll final : public ToyModel {
 public:
    explicit TakeAll(bool sound) : ToyModel(2, 1), sound_(sound) {}
    void initial(State& s) const override { s.set(0, {2, 0}); }
    void audit(Runner& runner, const State& s, bool) const override {
        if (over(s) && runner.local(s, 0).as<ToyLocal>().value + value(s, 0) != 3)
            throw Violation("lost-update", "what was added is neither taken nor there");
    }

 private:
    bool run(int p, u32 pc, ToyLocal& mine, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (p == 1) {
            memory.fetch_add(word(0), 1, std::memory_order_relaxed);
        } else if (sound_) {
            mine.value = static_cast<u32>(memory.exchange(word(0), 0, std::memory_order_relaxed));
        } else {
            mine.value = static_cast<u32>(memory.load(word(0), std::memory_order_relaxed));
            memory.store(word(0), 0, std::memory_order_relaxed);
        }
        return true;
    }
    bool sound_;
};

// Each process clears its bit of one byte.
class ClearBit final : public ToyModel {
 public:
    explicit ClearBit(bool sound) : ToyModel(2, 0), sound_(sound) {
        *byte(0) = 0x83;
        world.word(byte(0), "bits");
    }
    void audit(Runner&, const State& s, bool) const override {
        if (over(s) && value(s, 0) != 0x80)
            throw Violation("lost-update", "a bit that was cleared is set");
    }

 private:
    bool run(int p, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        const u8 others = static_cast<u8>(~(1u << p));
        if (sound_) {
            memory.fetch_and(byte(0), others, std::memory_order_relaxed);
        } else {
            const u8 seen = memory.load(byte(0), std::memory_order_relaxed);
            memory.store(byte(0), seen & others, std::memory_order_relaxed);
        }
        return true;
    }
    bool sound_;
};

// Each process changes its own byte of two neighbours, or its byte of the word that has both.
class Neighbours final : public ToyModel {
 public:
    explicit Neighbours(bool apart) : ToyModel(2, 0), apart_(apart) {
        *byte(0) = 255;
        if (apart_) {
            world.word(byte(0), "left");
            world.word(byte(1), "right");
        } else {
            world.word(both(), "both");
        }
    }
    void audit(Runner&, const State& s, bool) const override {
        if (!over(s)) return;
        const u64 left = value(s, 0) & 0xff, right = apart_ ? value(s, 1) : value(s, 0) >> 8;
        if (left != 0 || right != 1)
            throw Violation("lost-update", "a byte has not the value that its process gave it");
    }

 private:
    bool run(int p, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (apart_) {
            memory.fetch_add(byte(p), 1, std::memory_order_relaxed);  // 255 + 1 is 0 in a byte
        } else {
            const u16 seen = memory.load(both(), std::memory_order_relaxed);
            const u16 now = static_cast<u16>(p == 0 ? seen & 0xff00 : seen | 0x100);
            memory.store(both(), now, std::memory_order_relaxed);
        }
        return true;
    }
    u16* both() { return reinterpret_cast<u16*>(byte(0)); }
    bool apart_;
};

// Cells that the world refuses, and accesses that do not fit their cell.
enum class Misfit { same_twice, overlap, wider, inside, plain_as_word };

class MisfitModel final : public ToyModel {
 public:
    explicit MisfitModel(Misfit misfit) : ToyModel(1, 0), misfit_(misfit) {
        if (misfit_ == Misfit::inside) {
            world.word(four(), "four");
        } else if (misfit_ == Misfit::plain_as_word) {
            world.plain(byte(0), 1, "plain");
        } else {
            world.word(byte(0), "one");
        }
        if (misfit_ == Misfit::same_twice) world.word(byte(0), "one again");
        if (misfit_ == Misfit::overlap) world.word(four(), "four");
    }

 private:
    bool run(int, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (misfit_ == Misfit::wider) {
            memory.load(four(), std::memory_order_relaxed);
        } else {
            memory.load(byte(misfit_ == Misfit::inside ? 1 : 0), std::memory_order_relaxed);
        }
        return true;
    }
    u32* four() { return reinterpret_cast<u32*>(byte(0)); }
    Misfit misfit_;
};

// Adds one within three accesses: by one atomic operation, by a retry that is folded, by a retry that is not.
enum class Adding { at_once, again, loop };

class Bounded final : public ToyModel {
 public:
    explicit Bounded(Adding adding) : ToyModel(2, 1), adding_(adding) {}
    int access_bound(int, const Local& local) const override {
        return local.as<ToyLocal>().pc == 0 ? 3 : 0;
    }

 private:
    bool run(int, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc == 4) return false;
        u64 seen = memory.load(word(0), std::memory_order_relaxed);
        if (adding_ == Adding::at_once) {
            memory.fetch_add(word(0), 1, std::memory_order_relaxed);
            memory.load(word(0), std::memory_order_relaxed);
            return true;
        }
        while (!memory.cas(word(0), seen, seen + 1, std::memory_order_relaxed)) {
            if (adding_ == Adding::again) memory.again();
        }
        return true;
    }
    Adding adding_;
};

std::vector<Toy> word_toys() {
    constexpr auto relaxed = std::memory_order_relaxed;
    constexpr auto acquire = std::memory_order_acquire;
    constexpr auto release = std::memory_order_release;
    return {
        {"counter", "two processes add with one atomic operation", "", {}, maker<Counter>(true)},
        {"counter-torn", "they load, then store", "lost-update", {}, maker<Counter>(false)},
        {"publish", "words are written, then published", "", {}, maker<Publish>(release, acquire)},
        {"publish-relaxed",
         "published without release",
         "race",
         {},
         maker<Publish>(relaxed, acquire)},
        {"look-relaxed", "looked at without acquire", "race", {}, maker<Publish>(release, relaxed)},
        {"wake", "a sleeper sets its bit, looks again, sleeps", "", {}, maker<Wake>(true)},
        {"wake-lost", "it does not look again", "deadlock", {}, maker<Wake>(false)},
        {"wake-spurious",
         "a process that does not look again is harmless if it wakes spuriously",
         "",
         {.spurious = true},
         maker<Wake>(false)},
        {"hand-over",
         "intent, effect, and a survivor that repeats it",
         "",
         {.crashes = 1},
         maker<HandOver>(true)},
        {"hand-over-late", "effect before intent", "lost", {.crashes = 1}, maker<HandOver>(false)},
        {"lock-free",
         "a retry loop that only another's success repeats",
         "",
         {},
         maker<Lock>(true)},
        {"lock",
         "a spin lock: a survivor waits for a stalled holder",
         "progress",
         {},
         maker<Lock>(false)},
    };
}

std::vector<Toy> cell_toys() {
    return {
        {"take-all", "one exchanges what another adds to", "", {}, maker<TakeAll>(true)},
        {"take-all-torn", "it loads, then stores", "lost-update", {}, maker<TakeAll>(false)},
        {"clear-bit", "two clear a bit of one byte each", "", {}, maker<ClearBit>(true)},
        {"clear-bit-torn", "they load, then store", "lost-update", {}, maker<ClearBit>(false)},
        {"neighbours", "two bytes side by side are two cells", "", {}, maker<Neighbours>(true)},
        {"neighbours-merged", "they are one word", "lost-update", {}, maker<Neighbours>(false)},
        {"cell-twice",
         "a cell is declared twice",
         "cell",
         {},
         maker<MisfitModel>(Misfit::same_twice)},
        {"cell-overlap",
         "a cell is part of another",
         "cell",
         {},
         maker<MisfitModel>(Misfit::overlap)},
        {"cell-wider", "a byte is loaded as a word", "cell", {}, maker<MisfitModel>(Misfit::wider)},
        {"cell-inside",
         "a word is loaded as a byte",
         "cell",
         {},
         maker<MisfitModel>(Misfit::inside)},
        {"cell-plain",
         "plain bytes are loaded as an atomic word",
         "cell",
         {},
         maker<MisfitModel>(Misfit::plain_as_word)},
        {"bounded", "three accesses in any interleaving", "", {}, maker<Bounded>(Adding::at_once)},
        {"bounded-again",
         "a step with a bound begins anew",
         "bound",
         {},
         maker<Bounded>(Adding::again)},
        {"bounded-loop",
         "another's success makes a step longer than its bound",
         "bound",
         {},
         maker<Bounded>(Adding::loop)},
    };
}

}  // namespace

const std::vector<Toy>& toys() {
    static const std::vector<Toy> all = [] {
        std::vector<Toy> found;
        for (const auto& some : {word_toys(), cell_toys(), buffer_toys(), old_value_toys()})
            found.insert(found.end(), some.begin(), some.end());
        return found;
    }();
    return all;
}

}  // namespace model
