#include "model/explorer.hpp"

#include <algorithm>
#include <chrono>
#include <deque>

#include "model/visited.hpp"

namespace model {

namespace {

// The common part of both orders of search.
class Search {
 public:
    Search(Model& model, const Rules& rules, const Limits& limits)
        : runner_(model, rules), limits_(limits), visited_(limits.bytes) {}

    Report depth_first();
    Report breadth_first();

 private:
    struct Frame {
        State state;
        u32 first = 0;  // its transitions stand in moves_ from here on
        u32 next = 0;
        u32 end = 0;
    };

    void arrive(const State& s);
    void check_progress(const State& s);
    void check_end(const State& s, const std::vector<Transition>& moves) const;
    void fail(const Violation& violation, const std::vector<Transition>& path);
    void finish();

    Runner runner_;
    Limits limits_;
    Visited visited_;
    Report report_;
    State scratch_{};
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// A state that was not seen before.
void Search::arrive(const State& s) {
    ++report_.states;
    const u64 dice = scramble(s.cells_hash.high + report_.states);
    // Drained successors of this state are audited instead.
    if (s.buffered != 0) {
        for (const Process& process : s.process)
            report_.buffered = std::max(report_.buffered, int{process.buffered});
        return;
    }
    const bool quiet = runner_.quiescent(s);
    if (quiet || (limits_.audit_every != 0 && dice % limits_.audit_every == 0)) {
        ++report_.audits;
        runner_.model().audit(runner_, s, quiet);
    }
    if (limits_.progress_every != 0 && (dice >> 20) % limits_.progress_every == 0)
        check_progress(s);
}

void Search::check_progress(const State& s) {
    for (int p = 0; p < runner_.processes(); ++p) {
        if (s.process[static_cast<std::size_t>(p)].status != Status::running) continue;
        runner_.copy(scratch_, s);
        ++report_.solo_runs;
        std::optional<int> steps = runner_.run_step_alone(scratch_, p, limits_.solo_steps_max);
        if (steps) {
            report_.solo_steps = std::max(report_.solo_steps, *steps);
            continue;
        }
        // It may sleep or wait for a byte, if that is what its operation is for.
        const Process& process = scratch_.process[static_cast<std::size_t>(p)];
        const Kind kind = runner_.nodes().access(process.node).kind;
        if (process.status == Status::sleeping || kind == Kind::await_byte) continue;
        throw Violation("progress", "p" + std::to_string(p) +
                                        ", running alone, does not finish its operation within " +
                                        std::to_string(limits_.solo_steps_max) + " accesses");
    }
}

void Search::check_end(const State& s, const std::vector<Transition>& moves) const {
    for (const Transition& t : moves) {
        if (t.kind == TransitionKind::step || t.kind == TransitionKind::spurious ||
            t.kind == TransitionKind::timeout || t.kind == TransitionKind::drain)
            return;
    }
    for (int p = 0; p < runner_.processes(); ++p) {
        const Status status = s.process[static_cast<std::size_t>(p)].status;
        if (status != Status::running && status != Status::sleeping) continue;
        if (runner_.model().may_wait_forever(runner_, s, p)) continue;
        throw Violation("deadlock", "p" + std::to_string(p) + " waits for ever");
    }
}

void Search::fail(const Violation& violation, const std::vector<Transition>& path) {
    report_.check = violation.check;
    report_.violation = violation.what();
    if (path.empty()) return;  // perhaps there is no initial state
    State now = runner_.initial();
    State next{};
    for (const Transition& t : path) {
        report_.schedule.push_back(runner_.describe(now, t));
        runner_.copy(next, now);
        try {
            runner_.apply(next, now, t);
        } catch (const Violation&) {
            break;  // the last one
        }
        runner_.copy(now, next);
    }
}

void Search::finish() {
    report_.histories = runner_.nodes().size();
    report_.bounded_accesses = runner_.nodes().bounded_accesses();
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

Report Search::depth_first() {
    std::vector<Frame> stack(1);
    std::vector<Transition> moves, scratch_moves;
    std::size_t depth = 0;  // of the frame on top
    auto open = [&](Frame& frame) {
        runner_.transitions(frame.state, scratch_moves);
        frame.first = frame.next = static_cast<u32>(moves.size());
        moves.insert(moves.end(), scratch_moves.begin(), scratch_moves.end());
        frame.end = static_cast<u32>(moves.size());
    };
    bool stopped = false;
    bool opened = false;
    try {
        stack[0].state = runner_.initial();
        visited_.insert(runner_.hash(stack[0].state));
        open(stack[0]);
        opened = true;
        arrive(stack[0].state);
        for (;;) {
            if (stack[depth].next == stack[depth].end) {
                moves.resize(stack[depth].first);
                if (depth == 0) break;
                --depth;
                continue;
            }
            if (depth + 1 == stack.size()) stack.resize(stack.size() * 2);
            Frame& frame = stack[depth];
            Frame& child = stack[depth + 1];
            const Transition t = moves[frame.next++];
            runner_.copy(child.state, frame.state);
            runner_.apply(child.state, frame.state, t);
            ++report_.transitions;
            if (!visited_.insert(runner_.hash(child.state))) continue;
            if (report_.states >= limits_.states) {
                stopped = true;
                break;
            }
            ++depth;
            report_.depth = std::max(report_.depth, depth);
            open(child);
            arrive(child.state);
            if (scratch_moves.empty()) ++report_.terminal;
            check_end(child.state, scratch_moves);
        }
        report_.exhausted = !stopped && !visited_.full();
    } catch (const Violation& violation) {
        std::vector<Transition> path;
        for (std::size_t i = 0; opened && i <= depth; ++i) {
            if (stack[i].next > stack[i].first) path.push_back(moves[stack[i].next - 1]);
        }
        fail(violation, path);
    }
    finish();
    return report_;
}

Report Search::breadth_first() {
    struct Origin {
        u32 parent;
        Transition transition;
    };
    std::deque<State> queue;
    std::vector<Origin> origins;  // by order of arrival
    std::vector<Transition> moves;
    u32 at = 0;
    Transition t{};
    auto path_to = [&](u32 index) {
        std::vector<Transition> path;
        for (; index != 0; index = origins[index].parent) path.push_back(origins[index].transition);
        std::reverse(path.begin(), path.end());
        return path;
    };
    bool arriving = true;
    try {
        queue.push_back(runner_.initial());
        origins.push_back({0, {}});
        visited_.insert(runner_.hash(queue.front()));
        arrive(queue.front());
        State child{};
        for (; !queue.empty() && report_.states < limits_.states; ++at) {
            const State now = queue.front();
            queue.pop_front();
            runner_.transitions(now, moves);
            arriving = true;
            check_end(now, moves);
            for (const Transition& move : moves) {
                t = move;
                arriving = false;
                runner_.copy(child, now);
                runner_.apply(child, now, t);
                ++report_.transitions;
                if (!visited_.insert(runner_.hash(child))) continue;
                arrive(child);
                origins.push_back({at, t});
                queue.push_back(child);
            }
        }
        report_.exhausted = queue.empty() && !visited_.full();
    } catch (const Violation& violation) {
        std::vector<Transition> path = path_to(at);
        if (!arriving) path.push_back(t);
        fail(violation, path);
    }
    finish();
    return report_;
}

}  // namespace

Report explore(Model& model, const Rules& rules, const Limits& limits) {
    return Search(model, rules, limits).depth_first();
}

Report explore_shortest(Model& model, const Rules& rules, const Limits& limits) {
    return Search(model, rules, limits).breadth_first();
}

}  // namespace model
