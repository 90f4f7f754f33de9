#include "model/runner.hpp"

#include <cstdio>

#include "model/text.hpp"

namespace model {

namespace {
Process& process_of(State& s, int p) {
    return s.process[static_cast<std::size_t>(p)];
}
const Process& process_of(const State& s, int p) {
    return s.process[static_cast<std::size_t>(p)];
}
}  // namespace

std::string Model::value_text(int cell, u64 value) const {
    char text[32];
    std::snprintf(text, sizeof text, world.info(cell).width < 8 ? "%llu" : "%#llx",
                  static_cast<unsigned long long>(value));
    return text;
}

Runner::Runner(Model& model, const Rules& rules)
    : model_(model),
      rules_(rules),
      processes_(model.processes()),
      nodes_(model, rules.whole_blocks),
      knowledge_(model.world, model.processes(), rules.races) {
    if (processes_ + 1 > kProcessesMax)
        throw std::logic_error("too many processes: raise kProcessesMax");
}

State Runner::initial() {
    State s{};
    for (int c = 0; c < world().cells(); ++c) s.set(c, {world().info(c).initial, 0});
    for (int p = 0; p < processes_; ++p) {
        u32 node = nodes_.root(p, model_.start(p));
        bool over = nodes_.access(node).kind == Kind::finished;
        process_of(s, p) = {node, over ? Status::finished : Status::running, 0, 0};
    }
    s.crashes_left = static_cast<u8>(rules_.crashes);
    model_.initial(s);
    return s;
}

bool Runner::enabled(const State& s, int p) const {
    const Process& process = process_of(s, p);
    if (process.status != Status::running) return false;
    const Access& access = nodes_.access(process.node);
    return access.kind != Kind::await_byte || value(s, access.cell) == 0;
}

void Runner::transitions(const State& s, std::vector<Transition>& out) const {
    out.clear();
    for (int p = 0; p < processes_; ++p) {
        const Process& process = process_of(s, p);
        const u8 id = static_cast<u8>(p);
        if (enabled(s, p)) out.push_back({id, TransitionKind::step, 0});
        if (process.status == Status::sleeping) {
            if (rules_.spurious) out.push_back({id, TransitionKind::spurious, 0});
            if (rules_.timeouts) out.push_back({id, TransitionKind::timeout, 0});
        }
        if (process.status == Status::absent || process.status == Status::gone) continue;
        const bool dead = process.status == Status::dead;
        if (!dead && (s.crashes_left == 0 || (rules_.killable >> p & 1) == 0)) continue;
        // A dead process whose bytes are all still locked looks like one that is merely slow. So a death becomes a
        // step of its own only together with the release of its first byte, whichever that is.
        for (int cell : world().locks()) {
            if (holds_byte(value(s, cell), p)) {
                out.push_back({id, dead ? TransitionKind::release : TransitionKind::crash,
                               static_cast<u8>(cell)});
            }
        }
    }
}

void Runner::apply(State& s, const State& before, Transition t) {
    const int p = t.process;
    Process& process = process_of(s, p);
    switch (t.kind) {
        case TransitionKind::step: {
            const Access access = nodes_.access(process.node);
            Executed done = execute(s, p, access);
            bool completed = false;
            if (!done.asleep) move(s, p, done.observed, &completed);
            if (access.kind != Kind::load || completed)
                model_.check(*this, before, s, p, access, completed);
            break;
        }
        case TransitionKind::crash:
            --s.crashes_left;
            process.status = Status::dead;
            process.bell = 0;
            process.node =
                nodes_.root_of(process.node);  // what it had seen in its last step died with it
            release_byte(s, p, t.cell);
            break;
        case TransitionKind::release:
            release_byte(s, p, t.cell);
            break;
        case TransitionKind::spurious:
            process.status = Status::running;
            process.bell = 0;
            move(s, p, static_cast<u64>(Woken::woken));
            break;
        case TransitionKind::timeout:
            process.status = Status::running;
            process.bell = 0;
            move(s, p, static_cast<u64>(Woken::timed_out));
            break;
    }
}

// SEAM for weak memory: this is the only place where an access takes effect. An engine with store buffers would append
// stores to the process's buffer here, and not call set(). (x86: one FIFO per process; weaker: one per process and cell.)
// Loads would look into the own buffer first. Read-modify-writes and Memory::fence() would drain it.
// transitions() would have one more action: "the oldest buffered store of p reaches memory". After a crash, all buffered
// stores reach memory: the kernel does not lose the stores of a dead process.
Runner::Executed Runner::execute(State& s, int p, const Access& access) {
    const int c = access.cell;
    const Cell cell = s.cell[static_cast<std::size_t>(c)];
    const u64 mask = world().info(c).width == 4 ? 0xffffffffu : ~u64{0};
    const bool acquire = acquires(access.order);
    const bool release = releases(access.order);
    switch (access.kind) {
        case Kind::load:
            if (acquire) knowledge_.acquire(s, p, c);
            return {cell.value};
        case Kind::store:
            s.set(c, {access.a & mask, knowledge_.after_store(s, p, release)});
            return {};
        case Kind::cas:
            if (cell.value != access.a) {  // a failed exchange is an acquiring load
                knowledge_.acquire(s, p, c);
                return {cell.value};
            }
            [[fallthrough]];
        case Kind::fetch_add:
        case Kind::fetch_or: {
            if (acquire) knowledge_.acquire(s, p, c);
            u64 now = access.kind == Kind::cas         ? access.b
                      : access.kind == Kind::fetch_add ? cell.value + access.a
                                                       : cell.value | access.a;
            s.set(c, {now & mask, knowledge_.after_update(s, p, c, release)});
            return {cell.value};
        }
        case Kind::plain_write:
            for (int i = 0; i < access.count; ++i) {
                std::string text = knowledge_.write(s, p, c + i - world().first_granule());
                if (!text.empty()) race(text);
                s.set(c + i, {access.a + static_cast<u64>(i), 0});
            }
            return {};
        case Kind::plain_read: {
            bool whole = true;
            for (int i = 0; i < access.count; ++i) {
                std::string text = knowledge_.read(s, p, c + i - world().first_granule());
                if (!text.empty()) race(text);
                whole = whole && value(s, c + i) == cell.value + static_cast<u64>(i);
            }
            return {whole ? cell.value : 0};
        }
        case Kind::take_byte:
        case Kind::await_byte: {
            const bool alone = access.kind == Kind::await_byte;
            if (alone ? cell.value != 0 : !shareable(cell.value)) return {0};
            if (holds_byte(cell.value, p))
                throw Violation("lock", "took a byte that it has already");
            knowledge_.acquire(s, p, c);
            s.set(c, {alone ? static_cast<u64>(p) + 1 : byte_shared_with(cell.value, p),
                      s.cell[static_cast<std::size_t>(c)].unknown});
            return {1};
        }
        case Kind::drop_byte:
            if (!holds_byte(cell.value, p))
                throw Violation("lock", "dropped a byte that it does not hold");
            let_go(s, p, c);
            return {};
        case Kind::wake:
            for (int q = 0; q < processes_; ++q) {
                Process& other = process_of(s, q);
                if (other.status != Status::sleeping || other.bell != c) continue;
                other.status = Status::running;
                other.bell = 0;
                move(s, q, static_cast<u64>(Woken::woken));
            }
            return {};
        case Kind::wait:
            if (cell.value != access.a) return {static_cast<u64>(Woken::changed)};
            process_of(s, p).status = Status::sleeping;
            process_of(s, p).bell = static_cast<u8>(c);
            return {0, true};
        case Kind::finished:
            break;
    }
    throw std::logic_error("a finished process was scheduled");
}

void Runner::move(State& s, int p, u64 observed, bool* completed) {
    Process& process = process_of(s, p);
    Nodes::Child child = nodes_.child(process.node, observed);
    process.node = child.node;
    if (completed) *completed = child.completed;
    if (nodes_.access(child.node).kind == Kind::finished) {
        process.status = Status::finished;
        // Only its death could still hand on what it knows.
        if (s.crashes_left == 0) knowledge_.release_process(s, p);
    }
}

// The next process that takes the byte learns what all processes that released it knew.
void Runner::let_go(State& s, int p, int cell) {
    const Cell now = s.cell[static_cast<std::size_t>(cell)];
    const u64 mine = process_of(s, p).unknown;
    const bool shared = (now.value & kSharedByte) != 0;
    s.set(cell, {byte_without(now.value, p), shared ? now.unknown & mine : mine});
}

void Runner::release_byte(State& s, int p, int cell) {
    let_go(s, p, cell);
    for (int other : world().locks()) {
        if (holds_byte(value(s, other), p)) return;
    }
    process_of(s, p).status = Status::gone;
    knowledge_.release_process(s, p);
}

bool Runner::quiescent(const State& s) const {
    for (int p = 0; p < processes_; ++p) {
        const Process& process = process_of(s, p);
        if (process.status == Status::sleeping) return false;
        if (process.status == Status::running && !nodes_.at_root(process.node)) return false;
    }
    return true;
}

std::optional<int> Runner::run_step_alone(State& s, int p, int limit) {
    for (int steps = 0; steps < limit; ++steps) {
        if (process_of(s, p).status == Status::finished) return steps;
        if (!enabled(s, p)) return std::nullopt;
        const Access access = nodes_.access(process_of(s, p).node);
        Executed done = execute(s, p, access);
        if (done.asleep) return std::nullopt;
        bool completed = false;
        move(s, p, done.observed, &completed);
        if (completed) return steps + 1;
    }
    return std::nullopt;
}

bool Runner::run_auditor(State& s, int limit) {
    const int p = processes_;
    process_of(s, p) = {nodes_.root(p, model_.start(p)), Status::running, 0, 0};
    for (int steps = 0; steps < limit; ++steps) {
        if (nodes_.access(process_of(s, p).node).kind == Kind::finished) return true;
        const Access access = nodes_.access(process_of(s, p).node);
        copy(scratch_, s);
        Executed done = execute(s, p, access);
        if (done.asleep) return false;
        bool completed = false;
        move(s, p, done.observed, &completed);
        if (access.kind != Kind::load || completed)
            model_.check(*this, scratch_, s, p, access, completed);
    }
    return false;
}

void Runner::kill_all(State& s) {
    for (int p = 0; p < processes_; ++p) {
        Process& process = process_of(s, p);
        if (process.status == Status::absent || process.status == Status::gone) continue;
        process.status = Status::gone;
        process.bell = 0;
        process.node = nodes_.root_of(process.node);
        for (int cell : world().locks()) {
            if (holds_byte(value(s, cell), p)) release_byte(s, p, cell);
        }
    }
}

bool Runner::releasing(const State& s) const {
    for (int cell : world().locks()) {
        for (int p = 0; p < processes_; ++p) {
            if (holds_byte(value(s, cell), p) && process_of(s, p).status == Status::dead)
                return true;
        }
    }
    return false;
}

std::string Runner::describe(const State& before, Transition t) const {
    const int p = t.process;
    const Process& process = process_of(before, p);
    switch (t.kind) {
        case TransitionKind::crash:
            return text_of("p", p, " DIES; the kernel releases ", world().info(t.cell).name);
        case TransitionKind::release:
            return text_of("p", p, " (dead): the kernel releases ", world().info(t.cell).name);
        case TransitionKind::spurious:
            return text_of("p", p, " wakes for no reason");
        case TransitionKind::timeout:
            return text_of("p", p, " has waited long enough");
        case TransitionKind::step:
            break;
    }
    const Access& a = nodes_.access(process.node);
    const std::string point(a.point == Point() ? "" : a.point.name());
    std::string text = text_of("p", p, " [", model_.step_name(p, nodes_.local(process.node)), "] ",
                               access_text(a, value(before, a.cell)));
    if (!point.empty()) text += text_of("   (after ", point, ")");
    return text;
}

std::string Runner::access_text(const Access& a, u64 found) const {
    const std::string& name = world().info(a.cell).name;
    const std::string_view order = order_name(a.order);
    auto show = [&](u64 v) { return model_.value_text(a.cell, v); };
    switch (a.kind) {
        case Kind::load:
            return text_of("load ", name, " = ", show(found), " ", order);
        case Kind::store:
            return text_of("store ", name, " = ", show(a.a), " ", order);
        case Kind::cas:
            return text_of(
                "cas ", name, " ", show(a.a), " -> ", show(a.b),
                found == a.a ? std::string(" ok") : text_of(" FAILS, found ", show(found)), " ",
                order);
        case Kind::fetch_add:
            return text_of("add ", name, " ", show(found), " + ", show(a.a), " ", order);
        case Kind::fetch_or:
            return text_of("or ", name, " ", show(found), " | ", show(a.a), " ", order);
        case Kind::plain_write:
            return text_of("write ", name, " +", a.count, " ", show(a.a));
        case Kind::plain_read:
            return text_of("read ", name, " +", a.count, " = ", show(found));
        case Kind::take_byte:
            return text_of("share ", name, shareable(found) ? " ok" : " fails");
        case Kind::await_byte:
            return text_of("lock ", name);
        case Kind::drop_byte:
            return text_of("unlock ", name);
        case Kind::wake:
            return text_of("wake all on ", name);
        case Kind::wait:
            return text_of("wait on ", name, found == a.a ? ": sleeps" : ": changed");
        case Kind::finished:
            break;
    }
    return "finished";
}

}  // namespace model
