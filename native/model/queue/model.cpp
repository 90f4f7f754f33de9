// The only file of the explorer that is compiled against the queue's headers: a mutant recompiles this one.
#include "model/queue/model.hpp"

#include "model/queue/account.hpp"
#include "model/queue/checks.hpp"

namespace model {

namespace {

constexpr u64 kTime = 1;
// Phases of a waiting operation. The last one: asleep, and knows for whom it waits.
enum WaitPhase : u8 { kListen, kLook, kSleep, kSleepNamed };

class QueueModel final : public Model {
 public:
    explicit QueueModel(const QueueConfig& config)
        : Model(QueueSetting::geometry_of(config).size()),
          setting_(config),
          checks_(setting_),
          account_(setting_),
          memory_(world, setting_.contents, config.whole_blocks) {
        setting_.declare(world);
    }

    ModelMemory& memory() override { return memory_; }
    int processes() const override { return setting_.processes(); }
    Local start(int) const override { return Local::of(Ghost{}); }

    void initial(State& s) const override {
        for (int p = 0; p < processes(); ++p) {
            if (!setting_.program(p).attaches)
                s.set(world.lock(setting_.slot(p)), {static_cast<u64>(p) + 1, 0});
        }
    }

    bool step(int p, Local& local, ModelMemory&) override {
        Ghost ghost = local.as<Ghost>();
        bool more = p == processes() ? audit_step(ghost, memory_) : program_step(p, ghost, memory_);
        local = Local::of(ghost);
        return more;
    }

    void check(const Runner& runner, const State& before, const State& after, int p,
               const Access& access, bool completed) const override {
        checks_.after(runner, before, after, p, access, completed);
    }

    // As it is, with the living keeping their messages, and as if all processes died now.
    void audit(Runner& runner, const State& s, bool quiescent) const override {
        const bool died = s.crashes_left != runner.rules().crashes;
        if (!runner.releasing(s) && (quiescent || died)) {
            runner.copy(audited_, s);
            if (quiescent) {
                checks_.returns(runner, s);
                account_.settle_up(runner, audited_, false);
            } else {
                account_.hand_on(runner, audited_);
            }
        }
        runner.copy(audited_, s);
        runner.kill_all(audited_);
        account_.settle_up(runner, audited_, true);
    }

    // A process that wants a slot whose holder lives on. And one that waits for the end of the stream until a living
    // holder has settled the last message. No bell is rung for that, but behind a named owner it looks every 0.5 ms.
    bool may_wait_forever(const Runner& runner, const State& s, int p) const override {
        const Ghost ghost = runner.local(s, p).as<Ghost>();
        const Operation* operation = setting_.operation(p, ghost);
        if (operation != nullptr && operation->op == Op::wait_get && ghost.phase == kSleepNamed) {
            return checks_.at_end(s);
        }
        return runner.nodes().access(s.process[static_cast<std::size_t>(p)].node).kind ==
               Kind::await_byte;
    }

    std::string step_name(int p, const Local& local) const override {
        if (p == processes()) return "audit";
        const Ghost ghost = local.as<Ghost>();
        const Operation* operation = setting_.operation(p, ghost);
        if (operation == nullptr) return "finished";
        static const char* const kWaitPhases[] = {": listen", ": look", ": sleep", ": sleep"};
        const bool waits = operation->op == Op::wait_get || operation->op == Op::wait_put;
        return text_of(operation->name, ghost.unread() ? ": read"
                                        : waits        ? kWaitPhases[ghost.phase]
                                                       : "");
    }

    std::string value_text(int cell, u64 value) const override {
        const CellInfo& info = world.info(cell);
        if (cell == setting_.head || cell == setting_.read || cell == setting_.tail)
            return text_of(unsealed(value));
        if (info.name[0] == 'D') return setting_.descriptor_text(value);
        if (info.name[0] == 'A')
            return text_of("lap ", setting_.lap(value), " deliveries ", Geometry::owner(value));
        if (info.kind != CellKind::plain) return text_of(value);
        const Content* content = setting_.contents.find(value);
        if (content == nullptr) return value == 0 ? "nothing" : "a later part";
        return text_of("message #", QueueSetting::id_of(*content), " for ", content->header.tag);
    }

 private:
    // The ghost carries the members that a Queue keeps from one operation to the next.
    struct ModelQueue : Queue<QueueMemory> {
        using Queue<QueueMemory>::Queue;
        void recall(const Ghost& ghost, u64 origin) {
            if (ghost.tail_seen != 0) tail_seen_ = origin + ghost.tail_seen;
        }
        void note(Ghost& ghost, u64 origin) const {
            if (tail_seen_ != 0) ghost.tail_seen = static_cast<u32>(tail_seen_ - origin);
        }
    };

    ModelQueue make_queue(QueueMemory& memory, unsigned slot) {
        return ModelQueue(memory, setting_.geometry, world.base(), slot, setting_.delivery(),
                          setting_.config.fencing ? 0 : kNoStallLimit);
    }

    [[noreturn]] static void corrupt(const ModelQueue& q) {
        throw Violation("corrupt",
                        text_of("an operation reports: ", q.fault.what ? q.fault.what : "?", " at ",
                                q.fault.position));
    }

    // ---- programs

    bool program_step(int p, Ghost& ghost, QueueMemory& memory) {
        const Program& program = setting_.program(p);
        if (ghost.pc >= program.operations.size()) return false;
        const Operation& operation = program.operations[ghost.pc];
        ModelQueue q = make_queue(memory, program.slot);
        if (setting_.config.caches_tail) q.recall(ghost, setting_.origin);
        if (ghost.unread()) {
            read_next(q, ghost, memory);
            if (!ghost.unread()) ++ghost.pc;
            return true;
        }
        switch (operation.op) {
            case Op::attach:
                attach(q, ghost, memory, program.slot);
                break;
            case Op::put:
                if (put(q, operation, ghost) || !operation.persists) ++ghost.pc;
                break;
            case Op::get:
                if (get(q, operation, ghost)) {
                    if (!ghost.unread()) ++ghost.pc;  // the end of the stream
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
                    if (!q.give_back(setting_.taken_of(ghost.held[0], program.slot)))
                        lost("give_back");
                    if (setting_.config.at_most_once) ghost.settled |= bit(ghost.held[0].id);
                    ghost.drop_oldest();
                }
                ++ghost.pc;
                break;
            case Op::close:
                if (q.close() != Verdict::ok) corrupt(q);
                ++ghost.pc;
                break;
            case Op::recover:
                q.recover_if_dead(ghost.phase);
                if (++ghost.phase == setting_.slots) {
                    ghost.phase = 0;
                    ++ghost.pc;
                }
                break;
            case Op::leave:
                memory.drop_byte(program.slot);
                ++ghost.pc;
                break;
        }
        if (setting_.config.caches_tail) q.note(ghost, setting_.origin);
        return true;
    }

    // As in production: the blocks of the last holder are repaired while the byte is shared. A process that stops there
    // does not stop others. Then the process takes the slot alone.
    void attach(ModelQueue& q, Ghost& ghost, QueueMemory& memory, unsigned slot) {
        if (ghost.phase == 0) {
            if (memory.take_byte(slot)) {
                if (!recover_holding(q, slot, 0, 0).complete) corrupt(q);
                memory.drop_byte(slot);
            }
            ghost.phase = 1;
            return;
        }
        memory.await_byte(slot);
        if (!recover_holding(q, slot, 0, 0).complete) corrupt(q);
        ghost.phase = 0;
        ++ghost.pc;
    }

    [[noreturn]] static void lost(const char* what) {
        throw Violation("owner",
                        std::string(what) + " says that the message was not ours any more (I5)");
    }

    void settle(ModelQueue& q, Ghost& ghost, unsigned slot) {
        if (ghost.held_count != 0) {
            if (!q.settle(setting_.taken_of(ghost.held[0], slot))) lost("settle");
            q.announce_space();
            ghost.settled |= bit(ghost.held[0].id);
            ghost.drop_oldest();
        }
        ++ghost.pc;
    }

    // True: there is no reason to try again.
    bool put(ModelQueue& q, const Operation& operation, Ghost& ghost) {
        std::array<std::array<std::byte, 64 * 4>, 4> data{};
        std::array<Payload, 4> payloads{};
        const std::size_t count = operation.granules.size();
        for (std::size_t i = 0; i < count; ++i) {
            data[i][0] = static_cast<std::byte>(operation.first_id + i);
            payloads[i] = {data[i].data(), operation.granules[i] * kGranule - sizeof(BlockHeader)};
        }
        switch (q.put(std::span(payloads.data(), count), kTime, false, operation.probes)) {
            case Verdict::ok:
                for (u32 i = 0; i < count; ++i) ghost.put |= bit(operation.first_id + i);
                return true;
            case Verdict::full:
                return false;
            case Verdict::closed:
            case Verdict::fenced:
            case Verdict::exhausted:
                return true;
            default:
                corrupt(q);
        }
    }

    bool get(ModelQueue& q, const Operation& operation, Ghost& ghost) {
        std::array<Taken, kHeldMax> taken{};
        u32 count = 0;
        const u32 wanted =
            std::min(operation.wanted, static_cast<u32>(kHeldMax - ghost.held_count));
        if (wanted == 0) return true;
        switch (q.take(taken.data(), wanted, count, operation.probes,
                       static_cast<u32>(setting_.config.deliveries_max))) {
            case Verdict::ok:
                break;
            case Verdict::empty:
                return false;
            case Verdict::closed:
                if (operation.probes) ghost.saw_end = 1;
                return true;
            default:
                corrupt(q);
        }
        for (u32 i = 0; i < count; ++i) {
            ghost.held[ghost.held_count++] = {
                setting_.remembered(taken[i].position),
                static_cast<u16>(setting_.geometry.length(taken[i].word)),
                static_cast<u8>(taken[i].redelivered), 0};
        }
        return true;
    }

    // Reads the oldest message held that was not read yet. Until then `id` keeps the count of earlier deliveries.
    void read_next(ModelQueue& q, Ghost& ghost, QueueMemory& memory) {
        Held* held = ghost.held.data();
        while (held->known) ++held;
        const u64 position = setting_.position_of(*held);
        const u32 redelivered = held->id;
        const BlockHeader header = memory.read_header(q.block(position));
        if (verify(header, position, static_cast<u32>(setting_.geometry.size_max())) !=
            BlockFault::none) {
            throw Violation("content",
                            "the block at " + std::to_string(position) + " has a wrong header");
        }
        const Content* content = memory.read_block(q.block(position), header.size);
        if (content == nullptr)
            throw Violation("content", "the block at " + std::to_string(position) + " is torn");
        const u32 id = QueueSetting::id_of(*content);
        if (Geometry::blocks_granules(header.size) != held->length) {
            throw Violation("content",
                            "message #" + std::to_string(id) + " does not fill its block");
        }
        if (redelivered == 0) {
            if (held->position <= ghost.first_position) {
                throw Violation("fifo", "message #" + std::to_string(id) + " came too late");
            }
            ghost.first_position = held->position;
        }
        ghost.delivered += u64{1} << (4 * id);
        held->id = static_cast<u8>(id);
        held->known = static_cast<u8>(1 + redelivered);
    }

    // As in the bindings: listen, look (again), sleep.
    void wait(ModelQueue& q, const Operation& operation, Ghost& ghost, QueueMemory& memory) {
        const bool putting = operation.op == Op::wait_put;
        u32* bell = putting ? setting_.words.space_bell : setting_.words.data_bell;
        switch (ghost.phase) {
            case kListen:
                ghost.bell = q.listen(bell);
                ghost.phase = kLook;
                break;
            case kLook:
                if (putting ? put(q, operation, ghost) : get(q, operation, ghost)) {
                    ghost.phase = kListen;
                    ghost.bell = 0;
                    if (!ghost.unread()) ++ghost.pc;
                } else {
                    ghost.phase = q.blocker.owner == Blocker::nobody ? kSleep : kSleepNamed;
                }
                break;
            default:
                memory.wait(bell, ghost.bell);
                ghost.bell = 0;
                ghost.phase = kListen;
        }
    }

    // ---- the auditor: drains, shows that the queue still takes a message, and only then recovers what is left

    bool audit_step(Ghost& ghost, QueueMemory& memory) {
        enum : u8 { drain, put_one, drain_that, recover };
        const u8 drain_rest = static_cast<u8>(recover + setting_.slots),
                 done = static_cast<u8>(drain_rest + 1);
        ModelQueue q = make_queue(memory, setting_.slots);
        if (ghost.unread()) {
            read_next(q, ghost, memory);
        } else if (ghost.held_count != 0) {
            if (!q.settle(setting_.taken_of(ghost.held[0], setting_.slots))) lost("settle");
            ghost.settled |= bit(ghost.held[0].id);
            ghost.drop_oldest();
        } else if (ghost.phase == drain || ghost.phase == drain_that || ghost.phase == drain_rest) {
            if (!audit_take(q, ghost)) {
                ++ghost.phase;
            } else if (ghost.phase == drain_rest) {
                throw Violation("stuck",
                                "a message is found only after an explicit recovery of the dead");
            }
        } else if (ghost.phase == put_one) {
            Operation operation;
            operation.granules = {1};
            operation.first_id = kAuditId;
            put(q, operation, ghost);
            ++ghost.phase;
        } else if (ghost.phase < drain_rest) {
            q.recover_if_dead(ghost.phase - recover);
            ++ghost.phase;
        }
        return ghost.phase < done;
    }

    // True: there was one more.
    bool audit_take(ModelQueue& q, Ghost& ghost) {
        Taken taken{};
        u32 count = 0;
        const Verdict verdict = q.take(&taken, 1, count, true);
        if (verdict == Verdict::corrupt) corrupt(q);
        ghost.verdict = static_cast<u8>(verdict);
        if (verdict != Verdict::ok) return false;
        // Always as if it were delivered again: the auditor comes last, and checks no order.
        ghost.held[0] = {setting_.remembered(taken.position),
                         static_cast<u16>(setting_.geometry.length(taken.word)), 1, 0};
        ghost.held_count = 1;
        return true;
    }

    QueueSetting setting_;
    QueueChecks checks_;
    QueueAccount account_;
    QueueMemory memory_;
    mutable State audited_{};
};

}  // namespace

std::unique_ptr<Model> make_queue_model(const QueueConfig& config) {
    return std::make_unique<QueueModel>(config);
}

}  // namespace model
