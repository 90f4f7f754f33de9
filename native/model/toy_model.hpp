// The common part of the toy structures.
#pragma once

#include "model/toys.hpp"

namespace model {

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
    u64* plain(int i) { return reinterpret_cast<u64*>(world.base() + 2048) + i; }
    u8* byte(int i) { return reinterpret_cast<u8*>(world.base() + 3072) + i; }
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

template <class M, class... Args>
std::function<std::unique_ptr<Model>()> maker(Args... args) {
    return [=] { return std::make_unique<M>(args...); };
}

}  // namespace model
