#include "model/toy_model.hpp"

namespace model {

namespace {

// Each sets its own flag, then looks at the other's: at least one must see the other (Dekker).
enum class Raise { store, store_fence, update, update_fence, store_seq_cst };

class Flags final : public ToyModel {
 public:
    explicit Flags(Raise raise) : ToyModel(2, 2), raise_(raise) {}
    void audit(Runner& runner, const State& s, bool) const override {
        if (over(s) && runner.local(s, 0).as<ToyLocal>().value == 0 &&
            runner.local(s, 1).as<ToyLocal>().value == 0)
            throw Violation("both-missed", "each set its flag and did not see the other's");
    }

 private:
    bool run(int p, u32 pc, ToyLocal& mine, ModelMemory& memory) override {
        if (pc != 0) return false;
        const bool seq_cst = raise_ == Raise::store_seq_cst;
        const auto order = seq_cst ? std::memory_order_seq_cst : std::memory_order_relaxed;
        if (raise_ == Raise::update || raise_ == Raise::update_fence) {
            memory.fetch_or(word(p), 1, std::memory_order_acq_rel);
        } else {
            memory.store(word(p), 1, order);
        }
        if (raise_ == Raise::store_fence || raise_ == Raise::update_fence) memory.fence();
        mine.value = static_cast<u32>(memory.load(word(1 - p), order));
        return true;
    }
    Raise raise_;
};

// One stores a value, then a flag. The other sees the flag, then must see the value.
class Message final : public ToyModel {
 public:
    explicit Message(std::memory_order flag, std::memory_order look = std::memory_order_acquire)
        : ToyModel(2, 2), flag_(flag), look_(look) {}

 private:
    bool run(int p, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (p == 0) {
            memory.store(word(0), 1, std::memory_order_relaxed);
            memory.store(word(1), 1, flag_);
        } else if (memory.load(word(1), look_) == 1 &&
                   memory.load(word(0), std::memory_order_relaxed) != 1) {
            throw Violation("stale", "the flag is there, the value is not");
        }
        return true;
    }
    std::memory_order flag_, look_;
};

// A process reads what it has just stored, and adds to it while the other adds.
class OwnStore final : public ToyModel {
 public:
    OwnStore() : ToyModel(2, 2) { world.bytes(1); }
    void initial(State& s) const override { s.set(world.lock(0), {1, 0}); }
    void audit(Runner&, const State& s, bool) const override {
        if (over(s) && value(s, 1) != 2)
            throw Violation("lost-update", "two added one, there is one");
    }

 private:
    bool run(int p, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (p == 0) {
            memory.store(word(0), 7, std::memory_order_relaxed);
            if (memory.load(word(0), std::memory_order_relaxed) != 7)
                throw Violation("stale", "a process does not see its own store");
        } else if (memory.take_byte(0)) {
            // p0 is dead, perhaps in the middle: its stores arrived before its byte was released.
            if (memory.load(word(1), std::memory_order_relaxed) == 1 &&
                memory.load(word(0), std::memory_order_relaxed) != 7)
                throw Violation("stale", "a dead process's store is not visible");
            memory.drop_byte(0);
        }
        memory.fetch_add(word(1), 1, std::memory_order_release);
        return true;
    }
};

// Two words are set by two processes; two others look at both, in opposite orders.
class Order final : public ToyModel {
 public:
    explicit Order(bool fence) : ToyModel(4, 2), fence_(fence) {}
    void audit(Runner& runner, const State& s, bool) const override {
        if (over(s) && runner.local(s, 2).as<ToyLocal>().value == 1 &&
            runner.local(s, 3).as<ToyLocal>().value == 1)
            throw Violation("disagree", "two see two stores in opposite orders");
    }

 private:
    bool run(int p, u32 pc, ToyLocal& mine, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (p < 2) {
            memory.store(word(p), 1, std::memory_order_release);
            return true;
        }
        const u64 first = memory.load(word(p - 2), std::memory_order_acquire);
        if (fence_) memory.fence();
        const u64 second = memory.load(word(3 - p), std::memory_order_acquire);
        mine.value = first == 1 && second == 0 ? 1 : 0;
        return true;
    }
    bool fence_;
};

// One counts with a word of its own on the way; the other's exchange must hand the first one's value on.
class HandOn final : public ToyModel {
 public:
    explicit HandOn(bool update) : ToyModel(3, 2), update_(update) {}

 private:
    bool run(int p, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        if (p == 0) {
            memory.store(word(0), 1, std::memory_order_relaxed);
            memory.store(word(1), 1, std::memory_order_release);
        } else if (p == 1) {
            if (update_) {
                memory.fetch_add(word(1), 1, std::memory_order_relaxed);
            } else if (memory.load(word(1), std::memory_order_relaxed) == 1) {
                memory.store(word(1), 2, std::memory_order_relaxed);
            }
        } else if (memory.load(word(1), std::memory_order_acquire) == 2 &&
                   memory.load(word(0), std::memory_order_relaxed) != 1) {
            throw Violation("stale", "the number is there, the value is not");
        }
        return true;
    }
    bool update_;
};

Rules with_old_values(int crashes = 0) {
    return {.crashes = crashes, .old_values = true};
}

Rules with(StoreBuffers buffers, int crashes = 0) {
    return {.crashes = crashes, .store_buffers = buffers};
}

}  // namespace

std::vector<Toy> buffer_toys() {
    constexpr auto relaxed = std::memory_order_relaxed;
    constexpr auto release = std::memory_order_release;
    constexpr auto in_order = StoreBuffers::in_order, by_cell = StoreBuffers::by_cell;
    const char* const missed = "both-missed";
    return {
        {"flags-consistent", "two set a flag, and look", "", {}, maker<Flags>(Raise::store)},
        {"flags", "with a fence between", "", with(in_order), maker<Flags>(Raise::store_fence)},
        {"flags-no-fence", "and no fence", missed, with(in_order), maker<Flags>(Raise::store)},
        {"flags-seq-cst", "seq_cst", "", with(in_order), maker<Flags>(Raise::store_seq_cst)},
        {"flags-seq-cst-cell", "seq_cst", "", with(by_cell), maker<Flags>(Raise::store_seq_cst)},
        {"flags-update", "set by one update", "", with(in_order), maker<Flags>(Raise::update)},
        {"flags-update-cell", "an update is not a fence on weaker machines", missed, with(by_cell),
         maker<Flags>(Raise::update)},
        {"flags-update-fence", "a fence", "", with(by_cell), maker<Flags>(Raise::update_fence)},
        {"message", "a value, then a release flag", "", with(by_cell), maker<Message>(release)},
        {"message-relaxed", "a relaxed flag", "stale", with(by_cell), maker<Message>(relaxed)},
        {"message-in-order", "x86 keeps stores in order", "", with(in_order),
         maker<Message>(relaxed)},
        {"own-store", "one sees its own stores, and may die", "", with(in_order, 1),
         maker<OwnStore>()},
        {"own-store-cell", "the same", "", with(by_cell, 1), maker<OwnStore>()},
    };
}

std::vector<Toy> old_value_toys() {
    constexpr auto relaxed = std::memory_order_relaxed;
    constexpr auto release = std::memory_order_release;
    const Rules old = with_old_values();
    return {
        {"old-flags", "two set a flag, fence, look", "", old, maker<Flags>(Raise::store_fence)},
        {"old-flags-no-fence", "no fence", "both-missed", old, maker<Flags>(Raise::store)},
        {"old-flags-seq-cst", "seq_cst", "", old, maker<Flags>(Raise::store_seq_cst)},
        {"old-flags-update", "no fence", "both-missed", old, maker<Flags>(Raise::update)},
        {"old-flags-update-fence", "a fence", "", old, maker<Flags>(Raise::update_fence)},
        {"old-message", "a value, then a release flag", "", old, maker<Message>(release)},
        {"old-message-relaxed", "a relaxed flag", "stale", old, maker<Message>(relaxed)},
        {"old-look-relaxed", "the flag is read without acquire", "stale", old,
         maker<Message>(release, relaxed)},
        {"old-hand-on", "an update between hands a view on", "", old, maker<HandOn>(true)},
        {"old-hand-on-store", "a store does not", "stale", old, maker<HandOn>(false)},
        {"old-order", "two look at two words, with fences", "", old, maker<Order>(true)},
        {"old-order-no-fence", "no fences", "disagree", old, maker<Order>(false)},
        {"old-own-store", "one sees its own stores, and may die", "", with_old_values(1),
         maker<OwnStore>()},
    };
}

}  // namespace model
