#include "model/service/model.hpp"

#include "model/service/account.hpp"
#include "model/service/operations.hpp"

namespace model {

namespace {

class ServiceModel final : public ServiceOperations {
 public:
    explicit ServiceModel(const ServiceConfig& config)
        : ServiceOperations(config), account_(setting_) {}

    int processes() const override { return setting_.processes(); }

    Local start(int p) const override {
        if (p == processes()) return Local::of(ServiceGhost{});
        const ServiceProgram& program = setting_.program(p);
        if (setting_.provides(p) && !program.attaches) return Local::of(setting_.provider);
        ServiceGhost ghost;
        ghost.granted = static_cast<u8>(program.granted);
        return Local::of(ghost);
    }

    void initial(State& s) const override {
        for (int p = 0; p < processes(); ++p) {
            if (!setting_.program(p).attaches)
                s.set(world.lock(setting_.slot_of(p)), {static_cast<u64>(p) + 1, 0});
        }
    }

    bool step(int p, Local& local, ModelMemory& memory) override {
        ServiceGhost ghost = local.as<ServiceGhost>();
        const bool more =
            p == processes() ? audit_step(ghost, memory) : program_step(p, ghost, memory);
        local = Local::of(ghost);
        return more;
    }

    // Wait-free: publish, take and release.
    int access_bound(int p, const Local& local) const override {
        const ServiceGhost ghost = local.as<ServiceGhost>();
        const ServiceStep* step = setting_.step_of(p, ghost);
        if (step == nullptr) return 0;
        const bool tracer = setting_.slot_of(p) == setting_.slots.tracer();
        switch (step->act) {
            case ServiceAct::send:
            case ServiceAct::lend:
                if (ghost.phase == kPublish) return setting_.publish_bound();
                return setting_.has_tracer() ? 0 : setting_.lend_bound();
            case ServiceAct::publish:
                return setting_.publish_bound();
            case ServiceAct::take:
                if (ghost.phase == kRead) return 2;
                return tracer ? 3 * static_cast<int>(setting_.samples()) + 1
                              : setting_.take_bound();
            case ServiceAct::release:
                return 1;
            default:
                return 0;
        }
    }

    void check(const Runner& runner, const State& before, const State& after, int p,
               const Access& access, bool completed) const override {
        account_.after(runner, before, after, p, access, completed);
    }

    void audit(Runner& runner, const State& s, bool) const override {
        runner.copy(audited_, s);
        runner.kill_all(audited_);
        if (!runner.run_auditor(audited_, kAuditorAccessesMax))
            throw Violation("audit", "the auditor does not finish");
    }

    bool may_wait_forever(const Runner& runner, const State& s, int p) const override {
        const ServiceGhost ghost = runner.local(s, p).as<ServiceGhost>();
        const ServiceStep* step = setting_.step_of(p, ghost);
        if (step == nullptr) return false;
        switch (step->act) {
            case ServiceAct::wait_take:
                return setting_.slot_of(p) == setting_.slots.tracer()
                           ? account_.nothing_traced(s, ghost)
                           : account_.nothing_new(s, ghost);
            case ServiceAct::wait_run:
                return account_.nothing_called(s);
            case ServiceAct::wait_collect:
                return account_.not_answered(s, ghost);
            default:
                return runner.nodes().access(s.process[static_cast<std::size_t>(p)].node).kind ==
                       Kind::await_byte;
        }
    }

    std::string step_name(int p, const Local& local) const override {
        if (p == processes()) return "audit";
        const ServiceGhost ghost = local.as<ServiceGhost>();
        const ServiceStep* step = setting_.step_of(p, ghost);
        return step == nullptr ? "finished" : text_of(step->name, " ", int{ghost.phase});
    }

    std::string value_text(int cell, u64 value) const override {
        const std::string& name = world.info(cell).name;
        if (name.rfind("word", 0) == 0) return word_text(value);
        if (name.rfind("log", 0) == 0) return log_text(static_cast<u32>(value));
        if (name.rfind("call", 0) == 0) return call_text(value);
        return text_of(value);
    }

 private:
    static constexpr int kAuditorAccessesMax = 2000;

    std::string word_text(u64 word) const {
        std::string text;
        for (u32 slot = 0; slot < setting_.slots.count(); ++slot) {
            if ((word >> slot & 1) == 0) continue;
            if (!text.empty()) text += "|";
            text += slot == setting_.slots.provider() ? "WRITING"
                    : slot == setting_.slots.tracer() ? "tracer"
                                                      : text_of("p", slot);
        }
        return text.empty() ? "free" : text;
    }
    static std::string log_text(u32 word) {
        if (word == 0) return "0";
        return text_of(log_state(word) == kLogAsking ? "ASKING|" : "ACTIVE|", log_samples(word));
    }
    static std::string call_text(u64 word) {
        constexpr const char* kNames[] = {"IDLE", "CLAIMED", "CALL",      "RUNNING",
                                          "DONE", "FAILED",  "ABANDONED", "?"};
        return text_of(kNames[word & 7], "(", call_owner(word), ", ", call_number(word), ")");
    }

    // ---- the auditor: all are dead. It clears every slot and becomes the provider. Then nothing is left of them, and the
    // element works.

    bool audit_step(ServiceGhost& ghost, ModelMemory& memory) {
        enum : u8 { clear, offer_it, look, use, done };
        All all = make_elements(memory);
        switch (ghost.pc) {
            case clear:
                for (u32 slot = 0; slot <= setting_.slots.tracer(); ++slot) {
                    bool dead = false;
                    all.clear_if_dead(slot, [&](u32) { dead = true; });
                    if (!dead) throw Violation("audit", "a dead process's byte cannot be shared");
                }
                break;
            case offer_it:
                memory.await_byte(setting_.slots.provider());
                offer(all, ghost);
                if (setting_.samples() != 0) all.clear_strays(0);
                break;
            case look:
                expect_nothing(memory);
                break;
            case use:
                if (setting_.samples() != 0) use_samples(all, ghost, memory);
                if (setting_.calls() != 0) use_calls(all);
                break;
            default:
                return false;
        }
        ++ghost.pc;
        return ghost.pc < done + 1;
    }

    void expect_nothing(ModelMemory& memory) {
        const ElementWords& words = setting_.words;
        for (u32 i = 0; i < setting_.samples(); ++i) {
            if (memory.load(words.word(i), std::memory_order_relaxed) != 0)
                throw Violation("leak", text_of("all are dead, and sample ", i, " is in use"));
        }
        for (u32 slot = 0; slot <= setting_.slots.tracer(); ++slot) {
            if (memory.load(words.log(slot), std::memory_order_relaxed) != 0)
                throw Violation("leak", text_of("all are dead, and log ", slot, " is there"));
        }
        for (u32 place = 0; place < setting_.calls(); ++place) {
            const u64 found = memory.load(words.call(place), std::memory_order_relaxed);
            if (call_state(found) != CallState::idle)
                throw Violation("M3", text_of("all are dead, and place ", place, " is not free"));
        }
    }
    // All loans at once, one of them published, and a subscriber that takes all that the samples allow.
    void use_samples(All& all, ServiceGhost& ghost, ModelMemory& memory) {
        const u32 samples = setting_.samples() - setting_.loans() - 2;
        if (all[0].logs.subscribe(0, samples, [] { return false; }) != Subscribing::ok)
            throw Violation("audit", "all are dead, and there is no room for a subscriber");
        const u64 newest = all[0].samples.newest();
        SampleOrder order = order_of(ghost, setting_.origin);
        u32 sample = 0;
        for (u32 i = 0; i < setting_.loans(); ++i) {
            sample = all[0].samples.allocate(order);
            if (sample == SampleOrder::kNone)
                throw Violation("V5", "all are dead, and no sample is free");
        }
        memory.plain_write(setting_.content(sample), setting_.contents + 1);
        const u64 number = all[0].samples.publish(order, sample, setting_.contents + 1, 0);
        if (number == 0) {
            if (newest < kSequenceMax) throw Violation("audit", "a number is left, and refused");
            return;
        }
        TakenSample out;
        u32 taken = 0;
        if (all[0].samples.take(0, newest, 1, &out, taken) != Taking::ok || taken != 1 ||
            out.sequence != number || out.sample != sample)
            throw Violation("audit", "all are dead, and a sample does not get through");
        all[0].samples.release(0, sample);
        all[0].logs.leave(0);
    }
    void use_calls(All& all) {
        for (u32 i = 0; i < setting_.calls(); ++i) {
            CallTicket ticket;
            u64 word = 0;
            if (!all[0].calls.claim(0, ticket)) {
                if (setting_.config.first_call == 0)
                    throw Violation("M3", "all are dead, and no call place can be claimed");
                return;  // their numbers are used up
            }
            if (!all[0].calls.submit(ticket) || all[0].calls.run(0, word) != ticket.place)
                throw Violation("audit", "all are dead, and a call does not get through");
        }
    }

    ServiceAccount account_;
    mutable State audited_{};
};

}  // namespace

std::unique_ptr<Model> make_service_model(const ServiceConfig& config) {
    return std::make_unique<ServiceModel>(config);
}

}  // namespace model
