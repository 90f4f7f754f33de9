#include "model/channel/model.hpp"

#include "model/channel/account.hpp"
#include "model/channel/operations.hpp"

namespace model {

namespace {

class ChannelModel final : public ChannelOperations {
 public:
    explicit ChannelModel(const ChannelConfig& config)
        : ChannelOperations(config), account_(setting_) {}

    int processes() const override { return setting_.processes(); }

    Local start(int p) const override {
        const u32 number = static_cast<u32>(p);
        if (number < setting_.plan.producers) return Local::of(setting_.starts[number]);
        const bool consumes = number == setting_.first_consumer() && setting_.has_consumer();
        return Local::of(consumes ? setting_.consumer : ChannelGhost{});
    }

    void initial(State& s) const override {
        for (int p = 0; p < processes(); ++p) {
            if (!setting_.program(p).attaches)
                s.set(world.lock(setting_.slot_of(p)), {static_cast<u64>(p) + 1, 0});
        }
    }

    bool step(int p, Local& local, ModelMemory& memory) override {
        ChannelGhost ghost = local.as<ChannelGhost>();
        const bool more =
            p == processes() ? audit_step(ghost, memory) : program_step(p, ghost, memory);
        local = Local::of(ghost);
        return more;
    }

    int access_bound(int p, const Local& local) const override {
        const ChannelGhost ghost = local.as<ChannelGhost>();
        const ChannelStep* step = setting_.step_of(p, ghost);
        if (step == nullptr) return 0;
        if (step->pushes()) return ghost.phase == kPush ? setting_.push_bound(step->count) : 0;
        if (step->act == Act::release) return setting_.plan.loop ? setting_.release_bound() : 0;
        return step->act == Act::pop && ghost.phase == 0 ? setting_.config.pop_bound : 0;
    }

    void check(const Runner& runner, const State& before, const State& after, int p,
               const Access& access, bool completed) const override {
        account_.after(runner, before, after, p, access, completed);
    }

    void audit(Runner& runner, const State& s, bool quiescent) const override {
        (void)quiescent;
        runner.copy(audited_, s);
        runner.kill_all(audited_);
        account_.settle_up(runner, s, audited_);
    }

    bool may_wait_forever(const Runner& runner, const State& s, int p) const override {
        const ChannelGhost ghost = runner.local(s, p).as<ChannelGhost>();
        const ChannelStep* step = setting_.step_of(p, ghost);
        if (step != nullptr && step->act == Act::wait_pop) return account_.nothing_to_pop(s);
        if (step != nullptr && step->act == Act::wait_push)
            return !account_.nothing_to_pop(s, setting_.lane_of(ghost, *step));
        return runner.nodes().access(s.process[static_cast<std::size_t>(p)].node).kind ==
               Kind::await_byte;
    }

    std::string step_name(int p, const Local& local) const override {
        if (p == processes()) return "audit";
        const ChannelGhost ghost = local.as<ChannelGhost>();
        const ChannelStep* step = setting_.step_of(p, ghost);
        return step == nullptr ? "finished" : text_of(step->name, " ", int{ghost.phase});
    }

    std::string value_text(int cell, u64 value) const override {
        if (world.info(cell).name[0] == 'S') return state_words(static_cast<u8>(value));
        const std::string& name = world.info(cell).name;
        if (name.rfind("position", 0) == 0 || name.rfind("head", 0) == 0)
            return text_of(value -
                           (name.ends_with("back") ? setting_.back.origin : setting_.origin));
        return text_of(value);
    }

 private:
    // ---- the auditor: all are dead. It drains all lanes and takes the producers' roles. In each lane it pushes a datum and
    // pops it; then it counts the buffers.

    bool audit_step(ChannelGhost& ghost, ModelMemory& memory) {
        enum : u8 { consumer, drain = 2, producer = 4, fill, send, receive = 8, done = 9 };
        const unsigned me = setting_.slot_of(processes());
        Lanes lanes = make_lanes(memory);
        const u8 stage = ghost.pc;
        const u32 lane = stage == fill || stage == send ? ghost.audited : 0;
        if (stage == consumer || stage == producer) {
            claim(lanes, ghost, memory, stage == consumer ? Role::consumer : Role::producer,
                  ghost.audited, me);
            if (ghost.pc == stage && ghost.phase == 0)
                throw Violation("role", "a dead holder's role cannot be taken");
            if (stage == consumer && ghost.pc != stage) ghost.pc = drain;
            if (ghost.pc == fill) again(ghost, producer, setting_.plan.producers);
        } else if (stage == drain || stage == receive) {
            if (ghost.phase == 1) {
                read(ghost, memory);
                release(lanes, ghost);
            } else if (!pop(lanes, ghost, memory, me)) {
                ghost.pc = stage == drain ? producer : done;
                if (stage == receive && (ghost.popped >> kAuditDatum & 1) != 0 &&
                    again(ghost, fill, setting_.plan.lanes()))
                    ghost.popped ^= 1u << kAuditDatum;
                if (ghost.pc == done) count_free(lanes, ghost, memory, me);
            }
        } else if (stage == fill) {
            Shelf shelf = shelf_of(ghost.lane[lane], setting_.geometry);
            WayBack<Ring> back = way_back(lanes, ghost);
            const u32 index = shelf.lend(lanes.lane(lane), back);
            sound(shelf);
            if (index == Shelf::kNone)
                throw Violation("leak", "all are dead, and there is no buffer for a push");
            memory.plain_write(content(lane, index), kAuditDatum + 1);
            ghost.loan[0] = static_cast<u8>(index);
            ghost.loan_count = 1;
            keep_shelf(ghost.lane[lane], shelf);
            keep_back(ghost, back);
            ghost.pc = send;
        } else if (stage == send) {
            Shelf shelf = shelf_of(ghost.lane[lane], setting_.geometry);
            ChannelStep step;
            step.first_id = kAuditDatum;
            ghost.phase = kPush;
            push_now(lanes, lane, ghost, shelf, step);
            ghost.phase = 0;
            ghost.pc = receive;
            if (ghost.loan_count != 0) throw Violation("full", "an empty ring displaces a datum");
        }
        return ghost.pc < done;
    }

    // The same stage for the next of `count`. False: all are done.
    static bool again(ChannelGhost& ghost, u8 stage, u32 count) {
        if (++ghost.audited == count) {
            ghost.audited = 0;
            return false;
        }
        ghost.pc = stage;
        return true;
    }

    void count_free(Lanes& lanes, ChannelGhost& ghost, ModelMemory& memory, unsigned me) {
        // Else the role leads to what a dead process held.
        if (setting_.has(Act::leave)) clear_dead_owners(memory, lanes, me);
        for (u32 lane = 0; lane < setting_.plan.lanes(); ++lane) {
            WayBack<Ring> back = way_back(lanes, ghost);
            Shelf shelf = shelf_of(ghost.lane[lane], setting_.geometry);
            shelf.reclaim(lanes.lane(lane), back);
            sound(shelf);
            keep_back(ghost, back);
            keep_shelf(ghost.lane[lane], shelf);
            if (shelf.free_count() == pool()) continue;
            throw Violation("leak", text_of("all are dead and recovered, and ", shelf.free_count(),
                                            " of ", pool(), " buffers are free"));
        }
    }

    ChannelAccount account_;
    mutable State audited_{};
};

}  // namespace

std::unique_ptr<Model> make_channel_model(const ChannelConfig& config) {
    return std::make_unique<ChannelModel>(config);
}

}  // namespace model
