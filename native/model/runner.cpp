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

// The new value of a word after a read-modify-write that takes effect.
u64 updated(const Access& access, u64 found) {
    switch (access.kind) {
        case Kind::cas:
            return access.b;
        case Kind::fetch_add:
            return found + access.a;
        case Kind::fetch_or:
            return found | access.a;
        case Kind::fetch_and:
            return found & access.a;
        case Kind::exchange:
            return access.a;
        default:
            throw std::logic_error("not a read-modify-write");
    }
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
      nodes_(model),
      knowledge_(model.world, model.processes(), rules.races) {
    if (processes_ + 1 > kProcessesMax)
        throw std::logic_error("too many processes: raise kProcessesMax");
    model.memory().make_fences_accesses(rules.old_values ||
                                        rules.store_buffers != StoreBuffers::none);
    if (rules.old_values && model.world.words() > kWordsWithPastMax)
        throw std::logic_error("too many words for old values: raise kWordsWithPastMax");
}

State Runner::initial() {
    State s{};
    for (int c = 0; c < world().cells(); ++c) s.set(c, {world().info(c).initial, 0});
    for (int p = 0; p < processes_; ++p) {
        u32 node = nodes_.root(p, model_.start(p));
        bool over = nodes_.access(node).kind == Kind::finished;
        process_of(s, p) = {node, over ? Status::finished : Status::running, 0, 0, 0};
    }
    s.crashes_left = static_cast<u8>(rules_.crashes);
    s.has_past = rules_.old_values;
    s.past.count = rules_.old_values ? static_cast<u8>(world().words()) : 0;
    model_.initial(s);
    return s;
}

bool Runner::enabled(const State& s, int p) const {
    const Process& process = process_of(s, p);
    if (process.status != Status::running) return false;
    const Access& access = nodes_.access(process.node);
    if (rules_.store_buffers != StoreBuffers::none &&
        !buffer_allows(s, p, access, rules_.store_buffers,
                       static_cast<std::size_t>(rules_.buffered_max)))
        return false;
    return access.kind != Kind::await_byte || value(s, access.cell) == 0;
}

// One for each value that the next access can see.
void Runner::add_steps(const State& s, int p, std::vector<Transition>& out) const {
    const u8 id = static_cast<u8>(p);
    out.push_back({id, TransitionKind::step, 0});
    if (!rules_.old_values) return;
    const Access& access = nodes_.access(process_of(s, p).node);
    if (access.kind != Kind::load && access.kind != Kind::cas) return;
    const int word = world().info(access.cell).number;
    const int visible = OldValues::visible(s, p, word, access.order == std::memory_order_seq_cst);
    for (int age = 1; age < visible; ++age) {
        const u64 seen = OldValues::version(s, access.cell, word, age).value;
        if (access.kind == Kind::load || seen != access.a)
            out.push_back({id, TransitionKind::step, static_cast<u8>(age)});
    }
}

void Runner::transitions(const State& s, std::vector<Transition>& out) const {
    out.clear();
    for (int p = 0; p < processes_; ++p) {
        const Process& process = process_of(s, p);
        const u8 id = static_cast<u8>(p);
        if (enabled(s, p)) add_steps(s, p, out);
        if (process.status == Status::sleeping) {
            if (rules_.spurious) out.push_back({id, TransitionKind::spurious, 0});
            if (rules_.timeouts) out.push_back({id, TransitionKind::timeout, 0});
        }
        for (std::size_t i = 0; i < process.buffered; ++i) {
            if (can_drain(s, p, i, rules_.store_buffers))
                out.push_back({id, TransitionKind::drain, static_cast<u8>(i)});
        }
        if (process.buffered != 0) continue;  // it dies when its stores are visible
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
            Executed done = rules_.old_values
                                ? execute_seeing(s, p, access, t.cell)
                                : execute(s, p, access, rules_.store_buffers != StoreBuffers::none);
            bool completed = false;
            if (!done.asleep) move(s, p, done.observed, &completed);
            if (access.kind != Kind::load || completed) check(before, s, p, access, completed);
            break;
        }
        case TransitionKind::drain: {
            const Buffered store = drain(s, p, t.cell);
            check(before, s, p, {.kind = Kind::store, .cell = store.cell, .a = store.value}, false);
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
    if (rules_.old_values) OldValues::forget_unseen(s, processes_);
}

// The checks of a model see a buffered read-modify-write as done.
void Runner::check(const State& before, const State& after, int p, const Access& access,
                   bool completed) {
    if (before.buffered == 0 && after.buffered == 0) {
        model_.check(*this, before, after, p, access, completed);
        return;
    }
    copy(shown_before_, before);
    copy(shown_after_, after);
    show_updates(shown_before_);
    show_updates(shown_after_);
    model_.check(*this, shown_before_, shown_after_, p, access, completed);
}

// An access that stays in the buffer, or is served by it.
Runner::Executed Runner::execute_buffered(State& s, int p, const Access& access) {
    const int c = access.cell;
    const u64 mask = world().info(c).mask();
    const bool release = releases(access.order);
    const bool seq_cst = access.order == std::memory_order_seq_cst;
    const bool in_order = rules_.store_buffers == StoreBuffers::in_order;
    const bool fails = access.kind == Kind::cas && seen_value(s, p, c) != access.a;
    if (access.kind == Kind::load || fails) {
        const Buffered* own = newest_store(s, p, c);
        return own != nullptr ? Executed{own->value} : execute(s, p, access, false);
    }
    if (access.kind == Kind::store && !(in_order && seq_cst)) {
        buffer_store(s, p,
                     {access.a & mask, knowledge_.after_store(s, p, release), access.cell, release,
                      false, seq_cst});
        return {};
    }
    if (in_order || !is_update(access.kind)) return execute(s, p, access, false);
    const u64 found = value(s, c);
    if (acquires(access.order)) knowledge_.acquire(s, p, c);
    buffer_store(s, p,
                 {updated(access, found) & mask, knowledge_.after_update(s, p, c, release),
                  access.cell, release, true, seq_cst});
    return {found};
}

// An access that may see an old value.
Runner::Executed Runner::execute_seeing(State& s, int p, const Access& access, int age) {
    const int c = access.cell, word = world().info(c).number;
    const bool release = releases(access.order);
    const bool seq_cst = access.order == std::memory_order_seq_cst;
    const bool fails =
        access.kind == Kind::cas && OldValues::version(s, c, word, age).value != access.a;
    if (access.kind == Kind::load || fails) {
        if (seq_cst) OldValues::fence(s, p);
        const OldValue seen = OldValues::version(s, c, word, age);
        const bool acquire = fails || acquires(access.order);
        OldValues::saw(s, p, word, age, seen, acquire);
        if (acquire) knowledge_.learn(s, p, seen.unknown);
        return {seen.value};
    }
    if (access.kind == Kind::store || is_update(access.kind)) {
        if (seq_cst) OldValues::fence(s, p);
        const bool update = is_update(access.kind);
        if (update)
            OldValues::saw(s, p, word, 0, OldValues::version(s, c, word, 0),
                           acquires(access.order));
        OldValues::push(s, p, c, word, release, update);
        Executed done = execute(s, p, access, false);
        if (seq_cst) OldValues::fence(s, p);
        return done;
    }
    if (access.kind != Kind::plain_read && access.kind != Kind::plain_write) OldValues::fence(s, p);
    return execute(s, p, access, false);
}

// This and drain() are the only places where an access takes effect.
Runner::Executed Runner::execute(State& s, int p, const Access& access, bool buffered) {
    if (buffered) return execute_buffered(s, p, access);
    const int c = access.cell;
    const Cell cell = s.cell[static_cast<std::size_t>(c)];
    const u64 mask = world().info(c).mask();
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
        case Kind::fetch_or:
        case Kind::fetch_and:
        case Kind::exchange: {
            if (acquire) knowledge_.acquire(s, p, c);
            s.set(c,
                  {updated(access, cell.value) & mask, knowledge_.after_update(s, p, c, release)});
            return {cell.value};
        }
        case Kind::plain_write:
            for (int i = 0; i < access.count; ++i) {
                std::string text = knowledge_.write(s, p, world().info(c + i).number);
                if (!text.empty()) race(text);
                s.set(c + i, {access.a + static_cast<u64>(i), 0});
            }
            return {};
        case Kind::plain_read: {
            bool whole = true;
            for (int i = 0; i < access.count; ++i) {
                std::string text = knowledge_.read(s, p, world().info(c + i).number);
                if (!text.empty()) race(text);
                whole = whole && value(s, c + i) == cell.value + static_cast<u64>(i);
            }
            return {whole ? cell.value : 0};
        }
        case Kind::fence:
            return {};
        case Kind::finished:
            throw std::logic_error("a finished process was scheduled");
        default:
            return execute_in_kernel(s, p, access);
    }
}

// Lock bytes and bells.
Runner::Executed Runner::execute_in_kernel(State& s, int p, const Access& access) {
    const int c = access.cell;
    const Cell cell = s.cell[static_cast<std::size_t>(c)];
    switch (access.kind) {
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
        default:
            throw std::logic_error("not a call of the kernel");
    }
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
    if (s.has_past) OldValues::fence(s, p);
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
        if (process.status == Status::sleeping || process.buffered != 0) return false;
        if (process.status == Status::running && !nodes_.at_root(process.node)) return false;
    }
    return true;
}

std::optional<int> Runner::run_step_alone(State& s, int p, int limit) {
    for (int steps = 0; steps < limit; ++steps) {
        if (process_of(s, p).status == Status::finished) return steps;
        if (!enabled(s, p)) return std::nullopt;
        const Access access = nodes_.access(process_of(s, p).node);
        Executed done = execute(s, p, access, false);
        if (done.asleep) return std::nullopt;
        bool completed = false;
        move(s, p, done.observed, &completed);
        if (completed) return steps + 1;
    }
    return std::nullopt;
}

bool Runner::run_auditor(State& s, int limit) {
    const int p = processes_;
    process_of(s, p) = {nodes_.root(p, model_.start(p)), Status::running, 0, 0, 0};
    for (int steps = 0; steps < limit; ++steps) {
        if (nodes_.access(process_of(s, p).node).kind == Kind::finished) return true;
        const Access access = nodes_.access(process_of(s, p).node);
        copy(scratch_, s);
        Executed done = execute(s, p, access, false);
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
        case TransitionKind::drain: {
            const Buffered& store = buffer_of(before, p)[t.cell];
            return text_of("p", p, ": its store ", world().info(store.cell).name, " = ",
                           model_.value_text(store.cell, store.value), " reaches memory");
        }
        case TransitionKind::step:
            break;
    }
    const Access& a = nodes_.access(process.node);
    const std::string point(a.point == Point() ? "" : a.point.name());
    const bool old = t.cell != 0;  // the age of the value seen
    const u64 found =
        old ? OldValues::version(before, a.cell, world().info(a.cell).number, t.cell).value
            : seen_value(before, p, a.cell);
    std::string text = text_of("p", p, " [", model_.step_name(p, nodes_.local(process.node)), "] ",
                               access_text(a, found));
    if (old) text += " (OLD)";
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
        case Kind::fetch_and:
            return text_of("and ", name, " ", show(found), " & ", show(a.a), " ", order);
        case Kind::exchange:
            return text_of("exchange ", name, " ", show(found), " -> ", show(a.a), " ", order);
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
        case Kind::fence:
            return "fence";
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
