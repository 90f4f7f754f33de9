// Runs the processes of a model: the transitions that a state has, and the states that they lead to.
#pragma once

#include <optional>
#include <vector>

#include "model/knowledge.hpp"
#include "model/nodes.hpp"
#include "model/old_values.hpp"
#include "model/store_buffers.hpp"

namespace model {

enum class TransitionKind : u8 {
    step,      // the next access of a process; `cell`: the age of the value that it sees
    crash,     // it dies; the kernel releases the lock byte `cell` first
    release,   // the kernel releases the next lock byte of a dead process
    spurious,  // a sleeper wakes for no reason
    timeout,   // a sleeper's time is over
    drain,     // the buffered store number `cell` of a process reaches memory
};

struct Transition {
    u8 process = 0;
    TransitionKind kind = TransitionKind::step;
    u8 cell = 0;
};

struct Rules {
    int crashes = 0;
    unsigned killable = ~0u;  // bit p: process p may die
    bool spurious = false;    // sleepers may wake for no reason
    bool timeouts = false;    // sleepers may run out of time
    bool races = true;        // check plain accesses
    StoreBuffers store_buffers = StoreBuffers::none;
    bool old_values = false;  // loads may see overwritten values; not together with store buffers
    int buffered_max = 4;     // stores in one buffer; a store waits while it is full
};

class Runner {
 public:
    Runner(Model& model, const Rules& rules);

    Model& model() { return model_; }
    const Model& model() const { return model_; }
    const World& world() const { return model_.world; }
    const Nodes& nodes() const { return nodes_; }
    const Rules& rules() const { return rules_; }
    int processes() const { return processes_; }

    State initial();
    Hash hash(const State& s) const { return s.hash(processes_); }
    void copy(State& to, const State& from) const { to.assign(from, model_.world.cells()); }

    void transitions(const State& s, std::vector<Transition>& out) const;
    // Throws Violation. `before` is the state that `s` was copied from.
    void apply(State& s, const State& before, Transition t);

    bool alive(const State& s, int p) const {
        Status status = s.process[static_cast<std::size_t>(p)].status;
        return status != Status::dead && status != Status::gone && status != Status::absent;
    }
    // No operation is under way.
    bool quiescent(const State& s) const;
    const Local& local(const State& s, int p) const {
        return nodes_.local(s.process[static_cast<std::size_t>(p)].node);
    }
    u64 value(const State& s, int cell) const {
        return s.cell[static_cast<std::size_t>(cell)].value;
    }

    // Runs p alone until its current step is completed. Returns the number of accesses; nothing: more than `limit`, or
    // it sleeps, or waits for a byte.
    std::optional<int> run_step_alone(State& s, int p, int limit);
    // Lets the auditor in and runs it alone until its program is over. False: more than `limit` accesses.
    bool run_auditor(State& s, int limit);
    // All die, and all their bytes are released, at once.
    void kill_all(State& s);
    // A process is dead, and the kernel has not yet released all its locks.
    bool releasing(const State& s) const;

    std::string describe(const State& before, Transition t) const;

 private:
    std::string access_text(const Access& a, u64 found) const;

    struct Executed {
        u64 observed = 0;
        bool asleep = false;
    };

    // With `buffered`, stores go to the store buffer of p.
    Executed execute(State& s, int p, const Access& access, bool buffered);
    Executed execute_in_kernel(State& s, int p, const Access& access);
    Executed execute_seeing(State& s, int p, const Access& access, int age);
    Executed execute_buffered(State& s, int p, const Access& access);
    void check(const State& before, const State& after, int p, const Access& access,
               bool completed);
    void move(State& s, int p, u64 observed, bool* completed = nullptr);
    void let_go(State& s, int p, int cell);
    void release_byte(State& s, int p, int cell);
    bool enabled(const State& s, int p) const;
    void add_steps(const State& s, int p, std::vector<Transition>& out) const;
    [[noreturn]] void race(const std::string& text) const { throw Violation("race", text); }

    Model& model_;
    Rules rules_;
    int processes_;
    Nodes nodes_;
    Knowledge knowledge_;
    State scratch_{};
    State shown_before_{}, shown_after_{};  // for check()
};

}  // namespace model
