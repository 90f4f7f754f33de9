// Visits every state that the processes of a model can reach, and says what it found.
#pragma once

#include <string>
#include <vector>

#include "model/runner.hpp"

namespace model {

struct Limits {
    u64 states = ~u64{0};
    std::size_t bytes = std::size_t{3} << 30;  // of the visited set
    u32 audit_every =
        1;  // of the states with operations under way, one in this many is audited; 0: none
    u32 progress_every = 1;    // of all states, one in this many is tried for progress; 0: none
    int solo_steps_max = 400;  // a survivor that runs alone finishes its operation within this
};

struct Report {
    u64 states = 0;
    u64 transitions = 0;
    u64 terminal = 0;  // states in which nothing can happen any more
    u64 audits = 0;
    u64 solo_runs = 0;
    int solo_steps = 0;  // the most accesses that a survivor alone needed to finish its operation
    int bounded_accesses = 0;  // the most that an execution of a bounded step made; 0: no such step
    int buffered = 0;          // the most stores in one store buffer
    std::size_t depth = 0;
    std::size_t histories = 0;  // local histories of the processes
    bool exhausted = false;
    double seconds = 0;
    std::string check;  // the short name of what was violated; empty: nothing
    std::string violation;
    std::vector<std::string> schedule;  // that leads there
};

// Depth first, which needs memory for the visited set only.
Report explore(Model& model, const Rules& rules, const Limits& limits);

// Breadth first: slower and larger, but finds a shortest schedule that violates something.
Report explore_shortest(Model& model, const Rules& rules, const Limits& limits);

}  // namespace model
