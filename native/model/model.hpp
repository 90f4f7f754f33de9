// A structure as the explorer sees it: its world, its processes, and its invariants.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "model/model_memory.hpp"
#include "model/violation.hpp"

namespace model {

// A process between two steps: its program counter and what it remembers, as bytes that can be compared. A model puts
// its own plain struct in here. Every byte counts: two locals that differ tell two states apart.
struct Local {
    static constexpr std::size_t kSize = 128;
    std::array<std::byte, kSize> bytes{};

    template <class T>
    static Local of(const T& value) {
        static_assert(sizeof(T) <= kSize && std::is_trivially_copyable_v<T> &&
                      std::has_unique_object_representations_v<T>);
        Local local;
        std::memcpy(local.bytes.data(), &value, sizeof(T));
        return local;
    }
    template <class T>
    T as() const {
        T value;
        std::memcpy(&value, bytes.data(), sizeof(T));
        return value;
    }
};

class Runner;

class Model {
 public:
    explicit Model(std::size_t region_size) : world(region_size) {}
    virtual ~Model() = default;

    World world;
    // The argument of step(). A structure with blocks of its own derives a memory of its own.
    virtual ModelMemory& memory() { return memory_; }

    // Processes 0 .. processes()-1 are scheduled. There is one more, the auditor, which runs alone and only when
    // audit() wants it: it recovers, drains, and counts.
    virtual int processes() const = 0;
    virtual Local start(int p) const = 0;
    // Does one step (one operation of the structure). False: the program was over already.
    virtual bool step(int p, Local& local, ModelMemory& memory) = 0;
    // The lock bytes that are held at the beginning.
    virtual void initial(State&) const {}

    // After every access that changed something or completed a step. Throws Violation.
    virtual void check(const Runner&, const State& /*before*/, const State& /*after*/, int /*p*/,
                       const Access&, bool /*completed*/) const {}
    // In states in which no operation is under way (`quiescent`), and in some of the others. May kill processes and run
    // the auditor in the copies it makes. Throws Violation.
    virtual void audit(Runner&, const State&, bool /*quiescent*/) const {}
    // Nothing can happen any more, and this process is not finished: is that as it should be?
    virtual bool may_wait_forever(const Runner&, const State&, int /*p*/) const { return false; }
    // The most accesses that one execution of the step that starts with `local` makes, in any interleaving. 0: not
    // bounded. A bounded step is wait-free, and must not call again().
    virtual int access_bound(int /*p*/, const Local& /*local*/) const { return 0; }

    virtual std::string step_name(int p, const Local& local) const = 0;
    virtual std::string value_text(int cell, u64 value) const;

 private:
    ModelMemory memory_{world};
};

}  // namespace model
