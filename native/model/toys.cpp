#include "model/toys.hpp"

namespace model {

namespace {

struct ToyLocal {
    u32 pc = 0;
    u32 value = 0;
};

// Programs as one function: step `pc` of process `p`. It returns false after the last step.
class ToyModel : public Model {
 public:
    ToyModel(int processes, int words) : Model(4096), processes_(processes) {
        for (int i = 0; i < words; ++i)
            world.word(word(i), std::string(1, static_cast<char>('a' + i)));
    }
    int processes() const override { return processes_; }
    Local start(int) const override { return Local::of(ToyLocal{}); }
    bool step(int p, Local& local, ModelMemory& memory) override {
        ToyLocal mine = local.as<ToyLocal>();
        const u32 pc = mine.pc++;
        bool more = run(p, pc, mine, memory);
        local = Local::of(mine);
        return more;
    }
    std::string step_name(int, const Local& local) const override {
        return "step " + std::to_string(local.as<ToyLocal>().pc);
    }

 protected:
    virtual bool run(int p, u32 pc, ToyLocal& mine, ModelMemory& memory) = 0;

    u64* word(int i) { return reinterpret_cast<u64*>(world.base()) + i; }
    u32* bell() { return reinterpret_cast<u32*>(world.base() + 1024); }
    std::byte* ring() { return world.base() + 2048; }
    u64 value(const State& s, int cell) const {
        return s.cell[static_cast<std::size_t>(cell)].value;
    }
    bool over(const State& s) const {
        for (int p = 0; p < processes_; ++p) {
            if (s.process[static_cast<std::size_t>(p)].status != Status::finished) return false;
        }
        return true;
    }

 private:
    int processes_;
};

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

// Writes a block, then says so. The other reads it when told.
class Publish final : public ToyModel {
 public:
    Publish(std::memory_order publish, std::memory_order look)
        : ToyModel(2, 1), publish_(publish), look_(look) {
        world.ring(ring(), 2);
    }

 private:
    bool run(int p, u32 pc, ToyLocal&, ModelMemory& memory) override {
        if (pc != 0) return false;
        const std::byte data[64] = {std::byte{7}};
        if (p == 0) {
            memory.write_block(ring(), make_block(kMessageBlock, 0, 64, 0, 0), data, 64);
            memory.store(word(0), 1, publish_);
        } else if (memory.load(word(0), look_) == 1) {
            if (memory.read_block(ring(), 64) == nullptr)
                throw Violation("content", "a block that is not whole");
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

template <class M, class... Args>
std::function<std::unique_ptr<Model>()> maker(Args... args) {
    return [=] { return std::make_unique<M>(args...); };
}

}  // namespace

const std::vector<Toy>& toys() {
    constexpr auto relaxed = std::memory_order_relaxed;
    constexpr auto acquire = std::memory_order_acquire;
    constexpr auto release = std::memory_order_release;
    static const std::vector<Toy> all = {
        {"counter", "two processes add with one atomic operation", "", {}, maker<Counter>(true)},
        {"counter-torn", "they load, then store", "lost-update", {}, maker<Counter>(false)},
        {"publish", "a block is written, then published", "", {}, maker<Publish>(release, acquire)},
        {"publish-relaxed",
         "published without release",
         "race",
         {},
         maker<Publish>(relaxed, acquire)},
        {"look-relaxed", "looked at without acquire", "race", {}, maker<Publish>(release, relaxed)},
        {"wake", "a sleeper sets its bit, looks again, sleeps", "", {}, maker<Wake>(true)},
        {"wake-lost", "it does not look again", "deadlock", {}, maker<Wake>(false)},
        {"wake-spurious",
         "not looking again does not matter if one wakes by oneself",
         "",
         {.spurious = true},
         maker<Wake>(false)},
        {"hand-over",
         "intent, effect, and a survivor who redoes it",
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
    return all;
}

}  // namespace model
