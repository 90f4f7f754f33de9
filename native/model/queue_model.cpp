// The only file of the explorer that is compiled against the queue's headers: a mutant recompiles this one.
#include "queue_model.hpp"

#include <array>
#include <bit>

#include "holdfast/queue.hpp"
#include "holdfast/queue_check.hpp"
#include "queue_program.hpp"

namespace model {

namespace {

using Block = holdfast::State;  // of a block; model::State is a state of everything

constexpr u32 kMessagesMax = 15;
constexpr u32 kAuditId = 15;  // the message that the auditor puts to see that the queue still works
constexpr int kHeldMax = 3;
constexpr u64 kTime = 1;
constexpr int kAuditSteps = 4000;

struct Held {
    u32 position;
    u16 length;
    u8 id;
    u8 known;  // the payload has been read, `id` is valid
};

// What a process remembers, and what the checks want to know of its past.
struct Ghost {
    u8 pc = 0;
    u8 phase =
        0;  // of a waiting operation: 0 try, 1 listen, 2 try again, 3 sleep; of the auditor: see audit_step
    u8 held_count = 0;
    u8 verdict = 0;          // of the auditor's last take
    u32 bell = 0;            // what listen() returned
    u16 put = 0;             // bit: this message was put, the call returned
    u16 settled = 0;         // bit: this message was settled, the call returned
    u32 first_position = 0;  // of the last first delivery
    u64 delivered = 0;       // 4 bits each: how often this process was given the message
    std::array<Held, kHeldMax> held{};

    u32 deliveries(u32 id) const { return static_cast<u32>(delivered >> (4 * id) & 15); }
};
static_assert(sizeof(Ghost) <= Local::kSize && std::has_unique_object_representations_v<Ghost>);

constexpr u16 bit(u32 id) {
    return static_cast<u16>(1u << id);
}

class QueueModel final : public Model {
 public:
    explicit QueueModel(const QueueConfig& config)
        : Model(region_size(config)), config_(config), geometry_(make_geometry(config)) {
        u32 next_id = 0;
        for (unsigned p = 0; p < config.programs.size(); ++p) {
            programs_.push_back(parse_program(config.programs[p], p, next_id));
        }
        if (next_id > kMessagesMax) throw std::invalid_argument("too many messages");
        messages_ = next_id;
        slots_ = geometry_.participants() - 1;
        initialise_queue(world.base(), geometry_);
        words_ = QueueWords(world.base(), geometry_);
        for (u64 i = 0; i < geometry_.granules(); ++i) {
            world.word(words_.descriptors + i, "D[" + std::to_string(i) + "]");
        }
        head_ = world.word(words_.head, "H");
        read_ = world.word(words_.read, "R");
        tail_ = world.word(words_.tail, "T");
        made_ = world.word(words_.made, "made");
        scanned_ = world.word(words_.scanned, "scanned");
        world.word(words_.data_bell, "data bell");
        world.word(words_.space_bell, "space bell");
        first_side_ = world.cells();
        for (u64 i = 0; i < geometry_.granules(); ++i) {
            world.word(words_.sides + i, "A[" + std::to_string(i) + "]");
        }
        world.ring(words_.ring, config.granules);
        world.bytes(slots_);
    }

    int processes() const override { return static_cast<int>(programs_.size()); }
    Local start(int) const override { return Local::of(Ghost{}); }

    void initial(State& s) const override {
        for (int p = 0; p < processes(); ++p) {
            const Program& program = programs_[static_cast<std::size_t>(p)];
            if (!program.attaches) s.set(world.lock(program.slot), {static_cast<u64>(p) + 1, 0});
        }
    }

    bool step(int p, Local& local, ModelMemory& memory) override {
        Ghost ghost = local.as<Ghost>();
        bool more = p == processes() ? audit_step(ghost, memory) : program_step(p, ghost, memory);
        local = Local::of(ghost);
        return more;
    }

    void check(const Machine& machine, const State& before, const State& after, int p,
               const Access& access, bool completed) const override {
        check_words(before, after, access);
        if (access.kind == Kind::plain_write) check_writer(machine, before, p, access);
        if (p == processes()) return;
        check_owners(machine, after);
        if (completed) check_delivery(machine, before, after, p);
    }

    void audit(Machine& machine, const State& s, bool quiescent) const override {
        if (quiescent && !machine.releasing(s)) {
            check_returns(machine, s);
            machine.copy(audit_state_, s);
            account(machine, false);
        }
        machine.copy(audit_state_, s);
        machine.kill_all(audit_state_);
        account(machine, true);
    }

    // One that wants a slot whose holder lives on.
    bool may_wait_forever(const Machine& machine, const State& s, int p) const override {
        return machine.nodes().access(s.process[static_cast<std::size_t>(p)].node).kind ==
               Kind::await_byte;
    }

    std::string step_name(int p, const Local& local) const override {
        Ghost ghost = local.as<Ghost>();
        if (p == processes()) return "audit";
        const Program& program = programs_[static_cast<std::size_t>(p)];
        if (ghost.pc >= program.operations.size()) return "finished";
        const Operation& operation = program.operations[ghost.pc];
        static const char* const kWaitPhases[] = {"", ": listen", ": once more", ": sleep"};
        if (unread(ghost)) return operation.name + ": read";
        if (operation.op == Op::wait_get || operation.op == Op::wait_put) {
            return operation.name + kWaitPhases[ghost.phase];
        }
        return operation.name;
    }

    std::string value_text(int cell, u64 value) const override {
        const CellInfo& info = world.info(cell);
        if (cell == head_ || cell == read_ || cell == tail_) return std::to_string(unsealed(value));
        if (info.name[0] == 'D') {
            const u64 lap = value >> (13 + std::countr_zero(geometry_.granules()) - 1);
            if (lap == 0) return "fresh";
            return std::string(state_name(Geometry::state(value))) + "(lap " + std::to_string(lap) +
                   ", " + std::to_string(geometry_.length(value)) + ", slot " +
                   std::to_string(Geometry::owner(value)) + ")";
        }
        if (info.name[0] == 'A') {
            return "lap " + std::to_string(value >> 40) + " deliveries " +
                   std::to_string(value >> 32 & 0xff);
        }
        if (info.kind == CellKind::granule) {
            const Content* content = world.content(value);
            if (content == nullptr) return value == 0 ? "nothing" : "a later part";
            return "message #" + std::to_string(id_of(*content)) + " for " +
                   std::to_string(content->header.tag);
        }
        return std::to_string(value);
    }

    std::string point_text(int point) const override {
        return point == 0 ? std::string() : std::string(point_name(static_cast<Point>(point)));
    }

 private:
    using ModelQueue = Queue<ModelMemory>;

    static Geometry make_geometry(const QueueConfig& config) {
        // One slot for each program and one for the auditor, which owns nothing for long.
        return Geometry(static_cast<u64>(config.granules),
                        static_cast<u32>(config.programs.size() + 1));
    }
    static std::size_t region_size(const QueueConfig& config) {
        return make_geometry(config).size();
    }

    static u32 id_of(const Content& content) { return static_cast<u32>(content.payload.at(0)); }
    static bool unread(const Ghost& ghost) {
        for (int i = 0; i < ghost.held_count; ++i) {
            if (!ghost.held[static_cast<std::size_t>(i)].known) return true;
        }
        return false;
    }

    ModelQueue make_queue(ModelMemory& memory, unsigned slot) {
        return ModelQueue(memory, geometry_, world.base(), slot, delivery(),
                          config_.fencing ? 0 : kNoStallLimit);
    }
    Delivery delivery() const {
        return config_.at_most_once ? Delivery::at_most_once : Delivery::at_least_once;
    }

    Taken taken_of(const Held& held, unsigned slot) const {
        return {held.position, geometry_.word(held.position, held.length, Block::taken, slot), 0};
    }

    [[noreturn]] static void corrupt(const ModelQueue& q) {
        throw Violation("corrupt", std::string("an operation reports: ") +
                                       (q.fault.what ? q.fault.what : "?") + " at " +
                                       std::to_string(q.fault.position));
    }

    // ---- programs

    bool program_step(int p, Ghost& ghost, ModelMemory& memory) {
        const Program& program = programs_[static_cast<std::size_t>(p)];
        if (ghost.pc >= program.operations.size()) return false;
        const Operation& operation = program.operations[ghost.pc];
        ModelQueue q = make_queue(memory, program.slot);
        if (unread(ghost)) {
            read_next(q, ghost, memory);
            if (!unread(ghost)) ++ghost.pc;
            return true;
        }
        switch (operation.op) {
            case Op::attach:
                memory.await_byte(program.slot);
                if (!recover_holding(q, program.slot, 0, 0).complete) corrupt(q);
                ++ghost.pc;
                break;
            case Op::put:
                if (put(q, operation, ghost, true) || !operation.persists) ++ghost.pc;
                break;
            case Op::get:
                if (get(q, operation.wanted, ghost, true)) {
                    if (!unread(ghost)) ++ghost.pc;  // the end of the stream
                } else if (!operation.persists) {
                    ++ghost.pc;
                }
                break;
            case Op::wait_put:
            case Op::wait_get:
                wait(q, operation, ghost, memory);
                break;
            case Op::settle:
                settle(q, ghost, program.slot);
                break;
            case Op::settle_all:
                if (ghost.held_count == 0) {
                    ++ghost.pc;
                } else {
                    settle(q, ghost, program.slot);
                    if (ghost.held_count != 0) --ghost.pc;
                }
                break;
            case Op::back:
                if (ghost.held_count != 0) {
                    if (!q.give_back(taken_of(ghost.held[0], program.slot))) lost("give_back");
                    if (delivery() == Delivery::at_most_once)
                        ghost.settled |= bit(ghost.held[0].id);
                    drop_oldest(ghost);
                }
                ++ghost.pc;
                break;
            case Op::close:
                if (q.close() != Verdict::ok) corrupt(q);
                ++ghost.pc;
                break;
        }
        return true;
    }

    [[noreturn]] static void lost(const char* what) {
        throw Violation("owner",
                        std::string(what) + " says that the message was not ours any more (I5)");
    }

    static void drop_oldest(Ghost& ghost) {
        for (std::size_t i = 1; i < kHeldMax; ++i) ghost.held[i - 1] = ghost.held[i];
        ghost.held[kHeldMax - 1] = {};
        --ghost.held_count;
    }

    void settle(ModelQueue& q, Ghost& ghost, unsigned slot) {
        if (ghost.held_count != 0) {
            if (!q.settle(taken_of(ghost.held[0], slot))) lost("settle");
            q.announce_space();
            ghost.settled |= bit(ghost.held[0].id);
            drop_oldest(ghost);
        }
        ++ghost.pc;
    }

    // True: there is no reason to try again.
    bool put(ModelQueue& q, const Operation& operation, Ghost& ghost, bool probe) {
        std::array<std::array<std::byte, 64 * 4>, 4> data{};
        std::array<Payload, 4> payloads{};
        const std::size_t count = operation.granules.size();
        for (std::size_t i = 0; i < count; ++i) {
            data[i][0] = static_cast<std::byte>(operation.first_id + i);
            payloads[i] = {data[i].data(), operation.granules[i] * kGranule - sizeof(BlockHeader)};
        }
        switch (q.put(std::span(payloads.data(), count), kTime, false, probe)) {
            case Verdict::ok:
                for (u32 i = 0; i < count; ++i) ghost.put |= bit(operation.first_id + i);
                return true;
            case Verdict::full:
                return false;
            case Verdict::closed:
                return true;
            case Verdict::fenced:
                return true;
            default:
                corrupt(q);
        }
    }

    bool get(ModelQueue& q, u32 wanted, Ghost& ghost, bool probe) {
        std::array<Taken, kHeldMax> taken{};
        u32 count = 0;
        wanted = std::min(wanted, static_cast<u32>(kHeldMax - ghost.held_count));
        if (wanted == 0) return true;
        switch (
            q.take(taken.data(), wanted, count, probe, static_cast<u32>(config_.deliveries_max))) {
            case Verdict::ok:
                break;
            case Verdict::empty:
                return false;
            case Verdict::closed:
                return true;
            default:
                corrupt(q);
        }
        for (u32 i = 0; i < count; ++i) {
            ghost.held[ghost.held_count++] = {static_cast<u32>(taken[i].position),
                                              static_cast<u16>(geometry_.length(taken[i].word)),
                                              static_cast<u8>(taken[i].redelivered), 0};
        }
        return true;
    }

    // Reads the oldest message held that was not read yet. Until then `id` keeps the count of earlier deliveries.
    void read_next(ModelQueue& q, Ghost& ghost, ModelMemory& memory) {
        Held* held = ghost.held.data();
        while (held->known) ++held;
        const u64 position = held->position;
        const u32 redelivered = held->id;
        const BlockHeader header = memory.read_header(q.block(position));
        if (verify(header, position, static_cast<u32>(geometry_.size_max())) != BlockFault::none) {
            throw Violation("content",
                            "the block at " + std::to_string(position) + " has a wrong header");
        }
        const Content* content = memory.read_block(q.block(position), header.size);
        if (content == nullptr)
            throw Violation("content", "the block at " + std::to_string(position) + " is torn");
        const u32 id = id_of(*content);
        if (Geometry::blocks_granules(header.size) != held->length) {
            throw Violation("content",
                            "message #" + std::to_string(id) + " does not fill its block");
        }
        if (redelivered == 0) {
            if (position <= ghost.first_position) {
                throw Violation("fifo", "message #" + std::to_string(id) + " came too late");
            }
            ghost.first_position = static_cast<u32>(position);
        }
        ghost.delivered += u64{1} << (4 * id);
        held->id = static_cast<u8>(id);
        held->known = 1;
    }

    void wait(ModelQueue& q, const Operation& operation, Ghost& ghost, ModelMemory& memory) {
        const bool putting = operation.op == Op::wait_put;
        u32* bell = putting ? words_.space_bell : words_.data_bell;
        switch (ghost.phase) {
            case 0:
            case 2:
                if (putting ? put(q, operation, ghost, false)
                            : get(q, operation.wanted, ghost, false)) {
                    ghost.phase = 0;
                    ghost.bell = 0;
                    if (!unread(ghost)) ++ghost.pc;
                } else {
                    ++ghost.phase;
                }
                break;
            case 1:
                ghost.bell = q.listen(bell);
                ghost.phase = 2;
                break;
            default:
                memory.wait(bell, ghost.bell);
                ghost.bell = 0;
                ghost.phase = 0;
        }
    }

    // ---- the auditor: recovers whoever is dead, drains, and shows that the queue still takes a message

    bool audit_step(Ghost& ghost, ModelMemory& memory) {
        const u8 draining = static_cast<u8>(slots_), done = static_cast<u8>(slots_ + 4);
        ModelQueue q = make_queue(memory, slots_);
        if (unread(ghost)) {
            read_next(q, ghost, memory);
            return true;
        }
        if (ghost.held_count != 0) {
            if (!q.settle(taken_of(ghost.held[0], slots_))) lost("settle");
            ghost.settled |= bit(ghost.held[0].id);
            drop_oldest(ghost);
            return true;
        }
        if (ghost.phase < draining) {
            q.recover_if_dead(ghost.phase);
            ++ghost.phase;
            return true;
        }
        if (ghost.phase == draining || ghost.phase == draining + 2) {  // until nothing is left
            Taken taken{};
            u32 count = 0;
            Verdict verdict = q.take(&taken, 1, count, true);
            if (verdict == Verdict::corrupt) corrupt(q);
            ghost.verdict = static_cast<u8>(verdict);
            if (verdict == Verdict::ok) {
                // The auditor's own count of first deliveries says nothing about order: others took some.
                ghost.held[0] = {static_cast<u32>(taken.position),
                                 static_cast<u16>(geometry_.length(taken.word)), 1, 0};
                ghost.held_count = 1;
            } else {
                ++ghost.phase;
            }
            return true;
        }
        if (ghost.phase == draining + 1) {
            Operation operation;
            operation.granules = {1};
            operation.first_id = kAuditId;
            put(q, operation, ghost, true);
            ++ghost.phase;
            return true;
        }
        if (ghost.phase == draining + 3) ghost.phase = done;
        return false;
    }

    // ---- what must hold after every access

    u64 value(const State& s, int cell) const {
        return s.cell[static_cast<std::size_t>(cell)].value;
    }

    void check_words(const State& before, const State& after, const Access& access) const {
        const u64 was = value(before, access.cell), now = value(after, access.cell);
        if (was == now) return;
        if (access.cell == head_ || access.cell == read_ || access.cell == tail_) {
            if (unsealed(now) < unsealed(was))
                throw Violation("I2", world.info(access.cell).name + " went back");
        } else if (access.cell < static_cast<int>(geometry_.granules())) {
            const u32 lap_shift = 13 + static_cast<u32>(std::countr_zero(geometry_.granules())) - 1;
            if (now >> lap_shift < was >> lap_shift) {
                throw Violation("I1", "the tag of " + world.info(access.cell).name + " decreased");
            }
            if (was != 0 && was >> lap_shift != 0 && Geometry::state(was) == Block::end) {
                throw Violation("end", "the end of the stream was overwritten");
            }
        } else {
            return;
        }
        StateMemory memory(world, after);
        QueueState<StateMemory> q(memory, geometry_, const_cast<World&>(world).base(), 0,
                                  delivery(), kNoStallLimit);
        Survey found;
        bool through = survey_once(q, found, [](u64, u64) {});
        if (!through) throw Violation("survey", "the chain of blocks is a lap ahead of the tail");
        if (!found.sound()) {
            throw Violation("survey", std::string(found.fault.what) + " at " +
                                          std::to_string(found.fault.position));
        }
    }

    // I4: bytes are written only into a block that is RESERVED for, or was FENCED while written by, the writer.
    void check_writer(const Machine&, const State& before, int p, const Access& access) const {
        const unsigned slot =
            p == processes() ? slots_ : programs_[static_cast<std::size_t>(p)].slot;
        const u64 first = static_cast<u64>(access.cell - world.first_granule());
        for (u64 granule = first; granule < first + access.count; ++granule) {
            bool allowed = false;
            for (u64 i = 0; i <= granule; ++i) {
                const u64 word = value(before, static_cast<int>(i));
                const auto state = Geometry::state(word);
                allowed |= (state == Block::reserved || state == Block::fenced) &&
                           Geometry::owner(word) == slot && i + geometry_.length(word) > granule;
            }
            if (!allowed) {
                throw Violation("I4", "ring[" + std::to_string(granule) +
                                          "] is written by one who has not reserved it");
            }
        }
    }

    // I5: what a living process holds is TAKEN by it, and by nobody else.
    void check_owners(const Machine& machine, const State& s) const {
        for (int p = 0; p < processes(); ++p) {
            if (!machine.alive(s, p)) continue;
            const u32 node = s.process[static_cast<std::size_t>(p)].node;
            const Ghost ghost = machine.nodes().local(node).as<Ghost>();
            const Program& program = programs_[static_cast<std::size_t>(p)];
            const bool begun = !machine.nodes().at_root(node);
            for (int i = 0; i < ghost.held_count; ++i) {
                if (i == 0 && begun && releasing(program, ghost)) continue;
                const Held& held = ghost.held[static_cast<std::size_t>(i)];
                const u64 word = value(s, static_cast<int>(geometry_.index(held.position)));
                if (word != taken_of(held, program.slot).word) {
                    throw Violation(
                        "I5",
                        "p" + std::to_string(p) + " holds the block at " +
                            std::to_string(held.position) + ", which is " +
                            value_text(static_cast<int>(geometry_.index(held.position)), word));
                }
            }
        }
    }

    static bool releasing(const Program& program, const Ghost& ghost) {
        if (ghost.pc >= program.operations.size() || unread(ghost)) return false;
        const Op op = program.operations[ghost.pc].op;
        return op == Op::settle || op == Op::settle_all || op == Op::back;
    }

    // A step of p is complete: was something delivered, and could it be?
    void check_delivery(const Machine& machine, const State& before, const State& after,
                        int p) const {
        const Ghost was = machine.local(before, p).as<Ghost>();
        const Ghost now = machine.local(after, p).as<Ghost>();
        if (was.delivered == now.delivered) return;
        u32 redelivered = 0, id = 0;
        for (int i = 0; i < was.held_count; ++i) {
            const Held& old = was.held[static_cast<std::size_t>(i)];
            if (old.known) continue;
            redelivered = old.id;
            id = now.held[static_cast<std::size_t>(i)].id;
            break;
        }
        u32 earlier = was.deliveries(id);
        for (int q = 0; q < processes(); ++q) {
            if (q != p) earlier += machine.local(after, q).as<Ghost>().deliveries(id);
        }
        if (earlier > redelivered) {
            throw Violation("count", "message #" + std::to_string(id) + " was delivered " +
                                         std::to_string(earlier) +
                                         " times before, its count says " +
                                         std::to_string(redelivered));
        }
        if (config_.at_most_once && earlier > 0) {
            throw Violation("at-most-once",
                            "message #" + std::to_string(id) + " is delivered a second time");
        }
    }

    // I6, as long as nobody died: a RETRY behind R is announced.
    void check_returns(const Machine& machine, const State& s) const {
        if (s.crashes_left != machine.rules().crashes || config_.deliveries_max != 0) return;
        if (value(s, made_) != value(s, scanned_)) return;
        const u64 read = unsealed(value(s, read_));
        u64 position = unsealed(value(s, tail_));
        while (position < read) {
            const u64 word = value(s, static_cast<int>(geometry_.index(position)));
            if (Geometry::state(word) == Block::retry) {
                throw Violation("I6", "a returned block at " + std::to_string(position) +
                                          " that nobody looks for");
            }
            position += geometry_.length(word);
        }
    }

    u32 held_id(const State& s, const Held& held) const {
        if (held.known) return held.id;
        const int granule =
            world.first_granule() + static_cast<int>(geometry_.index(held.position));
        const Content* content = world.content(value(s, granule));
        if (content == nullptr)
            throw Violation("content", "a block is held that nobody has written");
        return id_of(*content);
    }

    // ---- conservation: recover, drain, and account for every message (I7)

    enum class Fate { not_put, maybe_put, put };

    struct Past {
        Fate fate = Fate::not_put;
        bool maybe_settled = false;
        u32 settled = 0;
        u32 held = 0;
        u32 delivered = 0;
    };

    void account(Machine& machine, bool all_dead) const {
        State& s = audit_state_;
        std::array<Past, kMessagesMax + 1> past{};
        for (int p = 0; p < processes(); ++p) remember(machine, s, p, past);
        if (!machine.run_auditor(s, kAuditSteps))
            throw Violation("drain", "the auditor does not finish");
        const Ghost auditor = machine.local(s, processes()).as<Ghost>();
        for (u32 id = 0; id < messages_; ++id) account_one(id, past[id], auditor);
        check_all_or_none(machine, s, past, auditor);
        if (!all_dead) return;
        const bool closed = static_cast<Verdict>(auditor.verdict) == Verdict::closed;
        if (!closed && auditor.deliveries(kAuditId) != 1) {
            throw Violation("drain",
                            "all are dead and recovered, but a new message does not get through");
        }
        for (int i = 0; i < static_cast<int>(geometry_.granules()); ++i) {
            const u64 word = value(s, i);
            const auto state = Geometry::state(word);
            const bool current = chained(s, static_cast<u64>(i));
            if (current && state != Block::done && state != Block::skip) {
                throw Violation("leak", "all are dead and recovered, but " + world.info(i).name +
                                            " is " + value_text(i, word));
            }
        }
    }

    // Does a block from the tail on begin at this index?
    bool chained(const State& s, u64 index) const {
        u64 position = unsealed(value(s, tail_));
        for (;;) {
            const u64 word = value(s, static_cast<int>(geometry_.index(position)));
            if (geometry_.tag(word, position) != Tag::current ||
                Geometry::state(word) == Block::end)
                return false;
            if (geometry_.index(position) == index) return true;
            position += geometry_.length(word);
        }
    }

    void remember(const Machine& machine, const State& s, int p,
                  std::array<Past, kMessagesMax + 1>& past) const {
        const Ghost ghost = machine.local(s, p).as<Ghost>();
        const Program& program = programs_[static_cast<std::size_t>(p)];
        const bool dead = !machine.alive(s, p);
        for (u32 id = 0; id < messages_; ++id) {
            if (ghost.put & bit(id)) past[id].fate = Fate::put;
            past[id].settled += (ghost.settled & bit(id)) != 0;
            past[id].delivered += ghost.deliveries(id);
        }
        if (!dead) {
            for (int i = 0; i < ghost.held_count; ++i) {
                ++past[held_id(s, ghost.held[static_cast<std::size_t>(i)])].held;
            }
        }
        if (!dead || ghost.pc >= program.operations.size()) return;
        const Operation& last =
            program.operations[ghost.pc];  // it may have died in the middle of this
        for (u32 i = 0; i < last.granules.size(); ++i)
            past[last.first_id + i].fate = Fate::maybe_put;
        if (releasing(program, ghost) && ghost.held_count != 0 &&
            (last.op != Op::back || delivery() == Delivery::at_most_once)) {
            past[ghost.held[0].id].maybe_settled = true;
        }
    }

    void account_one(u32 id, const Past& past, const Ghost& auditor) const {
        const u32 drained = auditor.deliveries(id);
        const u32 ends = past.settled + past.held + drained;
        auto fail = [&](const char* check, const char* text) {
            throw Violation(check, "message #" + std::to_string(id) + " " + text + ": settled " +
                                       std::to_string(past.settled) + ", held " +
                                       std::to_string(past.held) +
                                       ", found when everything was recovered and drained " +
                                       std::to_string(drained));
        };
        if (ends > 1) fail("twice", "ends more than once");
        if (past.fate == Fate::not_put && ends + past.delivered > 0)
            fail("ghost", "was never put but appears");
        if (config_.at_most_once) {
            if (past.delivered + drained > 1) fail("at-most-once", "is delivered twice");
            return;
        }
        if (past.fate == Fate::put && ends == 0 && !past.maybe_settled) fail("lost", "is lost");
    }

    // The messages of one put_many appear together or not at all, also if the writer died.
    void check_all_or_none(const Machine& machine, const State& s,
                           const std::array<Past, kMessagesMax + 1>& past,
                           const Ghost& auditor) const {
        if (config_.at_most_once) return;
        for (int p = 0; p < processes(); ++p) {
            if (machine.alive(s, p)) continue;
            const Ghost ghost = machine.local(s, p).as<Ghost>();
            const Program& program = programs_[static_cast<std::size_t>(p)];
            if (ghost.pc >= program.operations.size()) continue;
            const Operation& last = program.operations[ghost.pc];
            u32 seen = 0, hidden = 0;
            for (u32 i = 0; i < last.granules.size(); ++i) {
                const u32 id = last.first_id + i;
                const bool appears =
                    past[id].settled + past[id].held + past[id].delivered + auditor.deliveries(id) >
                    0;
                // One that died while settling may have been the only one to see it.
                (appears || past[id].maybe_settled ? seen : hidden) += 1;
            }
            if (seen != 0 && hidden != 0)
                throw Violation("all-or-none", "a part of " + last.name + " appears");
        }
    }

    QueueConfig config_;
    Geometry geometry_;
    QueueWords words_;
    std::vector<Program> programs_;
    u32 messages_ = 0;
    unsigned slots_ = 0;
    int head_ = 0, read_ = 0, tail_ = 0, made_ = 0, scanned_ = 0, first_side_ = 0;
    mutable model::State audit_state_{};
};

}  // namespace

std::unique_ptr<Model> make_queue_model(const QueueConfig& config) {
    return std::make_unique<QueueModel>(config);
}

}  // namespace model
