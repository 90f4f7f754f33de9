// The invariants of a service after every access: V1 to V5 (samples.hpp), L1, L2 (logs.hpp), M1 to M3 (calls.hpp).
#pragma once

#include "model/service/setting.hpp"

namespace model {

class ServiceAccount {
 public:
    explicit ServiceAccount(const ServiceSetting& setting) : setting_(setting) {}

    void after(const Runner& runner, const State& before, const State& now, int p,
               const Access& access, bool completed) const {
        if (setting_.samples() != 0) {
            words(now);
            numbers(before, now);
            written(before, access);
        }
        logs(runner, now);
        u8 ran = 0, told = 0, answered = 0;
        std::array<u8, kNumbersOfModel> contents{};
        for (int q = 0; q < setting_.processes(); ++q) {
            const ServiceGhost ghost = runner.local(now, q).as<ServiceGhost>();
            if ((ran & ghost.ran) != 0) throw Violation("M1", "a call runs twice");
            ran |= ghost.ran;
            told |= ghost.unexecuted;
            answered |= ghost.answered;
            same_contents(contents, ghost);
            if (runner.alive(now, q)) held(runner, now, q, ghost);
        }
        if ((ran & told) != 0)
            throw Violation("M1", "a call runs, and its caller was told that it never will");
        if ((answered & ~ran) != 0) throw Violation("M2", "a response of a call that never ran");
        if (completed && p != setting_.processes()) complete(runner, before, now, p);
    }

    // A sleeper has no reason to wake.
    bool nothing_new(const State& s, const ServiceGhost& ghost) const {
        return published(s) == setting_.origin + ghost.last || published(s) == 0;
    }
    bool nothing_traced(const State& s, const ServiceGhost& ghost) const {
        for (u32 i = 0; i < setting_.samples(); ++i) {
            const u64 found = word(s, i);
            if ((found >> setting_.slots.tracer() & 1) != 0 &&
                (found & setting_.slots.writing()) == 0 &&
                sequence(s, i) > setting_.origin + ghost.last && sequence(s, i) <= published(s))
                return false;
        }
        return true;
    }
    bool nothing_called(const State& s) const {
        for (u32 place = 0; place < setting_.calls(); ++place) {
            if (call_state(call(s, place)) == CallState::call) return false;
        }
        return true;
    }
    bool not_answered(const State& s, const ServiceGhost& ghost) const {
        const CallState state = call_state(call(s, ghost.ticket_place));
        return state == CallState::call || state == CallState::running;
    }

 private:
    u64 word(const State& s, u32 i) const { return setting_.value(s, setting_.words.word(i)); }
    u64 sequence(const State& s, u32 i) const {
        return setting_.value(s, setting_.words.sequence(i));
    }
    u64 published(const State& s) const { return setting_.value(s, setting_.words.published()); }
    u64 call(const State& s, u32 i) const { return setting_.value(s, setting_.words.call(i)); }
    u32 log(const State& s, u32 slot) const {
        return static_cast<u32>(setting_.value(s, setting_.words.log(slot)));
    }
    bool writing(const State& s, u32 i) const {
        return (word(s, i) & setting_.slots.writing()) != 0;
    }

    void words(const State& s) const {
        u32 lent = 0;
        for (u32 i = 0; i < setting_.samples(); ++i) {
            if ((word(s, i) & ~setting_.slots.all()) != 0)
                throw Violation("word", text_of("word ", i, " is ", word(s, i)));
            lent += writing(s, i);
            if (sequence(s, i) == 0) continue;
            for (u32 j = 0; j < i; ++j) {
                if (sequence(s, i) == sequence(s, j))
                    throw Violation("V4", text_of("samples ", j, " and ", i, " have one number"));
            }
        }
        if (lent > setting_.loans())
            throw Violation("loans", text_of(lent, " samples are WRITING"));
    }

    // V4, and numbers have no gap: a subscriber that counts them knows what it missed.
    void numbers(const State& before, const State& now) const {
        const u64 was = published(before), is = published(now);
        if (was != is && is != was + 1 && (was != 0 || is != setting_.config.first))
            throw Violation("V4", text_of("number ", is, " was published after ", was));
        if (is == 0 || now.buffered != 0) return;
        for (u32 i = 0; i < setting_.samples(); ++i) {
            if (sequence(now, i) == is && !writing(now, i)) return;
        }
        throw Violation("newest", text_of("the newest sample, ", is, ", is not there"));
    }

    // V1: content, length and number change while the sample is WRITING.
    void written(const State& before, const Access& access) const {
        if (access.kind != Kind::store && access.kind != Kind::plain_write) return;
        for (u32 i = 0; i < setting_.samples(); ++i) {
            const World& world = *setting_.world;
            const int cell = access.cell;
            if (cell != world.cell(setting_.words.sequence(i)) &&
                cell != world.cell(setting_.words.length(i)) &&
                cell != world.cell(setting_.content(i), 8, CellKind::plain))
                continue;
            if (!writing(before, i) && before.buffered == 0)
                throw Violation("V1", text_of("sample ", i, " is altered, and is not WRITING"));
        }
    }

    void logs(const Runner& runner, const State& s) const {
        u64 sum = u64{setting_.loans()} + 1;
        int subscribers = 0;
        for (u32 slot = 0; slot <= setting_.slots.tracer(); ++slot) {
            const u32 found = log(s, slot);
            if (found != 0 && log_state(found) != kLogAsking && log_state(found) != kLogActive)
                throw Violation("L2", text_of("log ", slot, " is ", found));
            if (log_state(found) == kLogActive) {
                sum += log_samples(found) + 1;
                subscribers += slot != setting_.slots.tracer();
            } else if (slot != setting_.slots.tracer()) {
                no_bits(runner, s, slot, found);
            }
        }
        if (sum > setting_.samples() && setting_.samples() != 0)
            throw Violation("L1", text_of("logs, loans and the newest take ", sum, " samples"));
        if (subscribers > setting_.config.max_subscribers)
            throw Violation("L1", text_of("there are ", subscribers, " subscribers"));
    }
    // V3
    void no_bits(const Runner&, const State& s, u32 slot, u32 found) const {
        for (u32 i = 0; i < setting_.samples(); ++i) {
            if ((word(s, i) >> slot & 1) != 0)
                throw Violation(
                    "V3", text_of("slot ", slot, " has sample ", i, ", and its log is ", found));
        }
    }

    static void same_contents(std::array<u8, kNumbersOfModel>& all, const ServiceGhost& ghost) {
        for (u32 n = 0; n < kNumbersOfModel; ++n) {
            const u8 id = ghost.content[n];
            if (id == 0) continue;
            if (all[n] != 0 && all[n] != id)
                throw Violation("V2", text_of("number ", n, " has two contents"));
            all[n] = id;
        }
    }

    // V1, V2 for what a living process believes to hold; and between two operations it has nothing else.
    void held(const Runner& runner, const State& s, int p, const ServiceGhost& ghost) const {
        const bool idle =
            runner.nodes().at_root(s.process[static_cast<std::size_t>(p)].node) && s.buffered == 0;
        const ServiceStep* step = setting_.step_of(p, ghost);
        const bool releases = !idle && step != nullptr && step->act == ServiceAct::release;
        const bool leaves = !idle && step != nullptr && step->act == ServiceAct::unsubscribe;
        const unsigned slot = setting_.slot_of(p);
        u64 mine = 0;
        for (u32 i = 0; i < ghost.held_count && !leaves; ++i) {
            const u32 sample = ghost.held[i];
            mine |= u64{1} << sample;
            if (releases && i == 0) continue;
            const u64 found = word(s, sample);
            if ((found >> slot & 1) == 0)
                throw Violation("V2", text_of("p", p, " holds sample ", sample, " without a bit"));
            if ((found & setting_.slots.writing()) != 0)
                throw Violation("V1",
                                text_of("sample ", sample, " is WRITING, and p", p, " holds it"));
            if (sequence(s, sample) != setting_.origin + ghost.held_number[i])
                throw Violation("V2", text_of("the number of sample ", sample, " changed"));
            if (ghost.held_id[i] != 0 &&
                setting_.plain(s, setting_.content(sample)) != ghost.held_id[i])
                throw Violation("V2", text_of("the content of sample ", sample, " changed"));
        }
        if (!idle || (step != nullptr && step->act == ServiceAct::attach)) return;
        if (ghost.granted != 0 && log(s, slot) != log_word(kLogActive, ghost.granted))
            throw Violation("L2", text_of("p", p, " has subscribed, and its log is another"));
        places(s, p, ghost);
        for (u32 i = 0; i < setting_.samples() && !setting_.provides(p); ++i) {
            const u64 found = word(s, i);
            if ((found >> slot & 1) == 0 || (mine >> i & 1) != 0) continue;
            if (slot != setting_.slots.tracer())
                throw Violation("leak", text_of("p", p, " has a bit in sample ", i));
            if (ghost.granted == 0 || (found & setting_.slots.writing()) != 0) continue;
            const u64 number = sequence(s, i);
            if (number != 0 && number <= setting_.origin + ghost.last)
                throw Violation("stray", text_of("sample ", i, " takes room of the tracer"));
        }
        if (!setting_.provides(p)) return;
        for (u32 i = 0; i < setting_.samples(); ++i) {
            bool lent = false;
            for (u32 j = 0; j < ghost.lent_count; ++j) lent |= ghost.lent[j] == i;
            if (lent != writing(s, i))
                throw Violation("loans", text_of("sample ", i, " and the provider's account"));
        }
    }

    // M3, between two operations: a place is in use for a call that its caller or the provider knows.
    void places(const State& s, int p, const ServiceGhost& ghost) const {
        for (u32 place = 0; place < setting_.calls(); ++place) {
            const CallState state = call_state(call(s, place));
            const bool runs = state == CallState::running || state == CallState::abandoned;
            if (setting_.provides(p)) {
                if (runs && (ghost.runs == 0 || ghost.run_place != place))
                    throw Violation("M3", text_of("place ", place, " runs, and p", p, " does not"));
            } else if (call_owner(call(s, place)) == setting_.slot_of(p) &&
                       state != CallState::idle && state != CallState::abandoned &&
                       (ghost.ticket == 0 || ghost.ticket_place != place)) {
                throw Violation("M3", text_of("place ", place, " is p", p, "'s, without a call"));
            }
        }
    }

    void complete(const Runner& runner, const State& before, const State& now, int p) const {
        const ServiceGhost old = runner.local(before, p).as<ServiceGhost>();
        const ServiceGhost fresh = runner.local(now, p).as<ServiceGhost>();
        const ServiceStep* step = setting_.step_of(p, old);
        if (step == nullptr || now.buffered != 0) return;
        if (step->takes() && fresh.held_count > old.held_count &&
            setting_.slot_of(p) != setting_.slots.tracer())
            passed_over(now, *step, old, fresh);
        if (step->act == ServiceAct::subscribe) refused(now, p, *step, fresh);
    }

    // A sample that a take passed over is gone, or there was no room for it.
    void passed_over(const State& now, const ServiceStep& step, const ServiceGhost& old,
                     const ServiceGhost& fresh) const {
        u32 count = u32{old.granted} - old.held_count;
        if (step.count != 0) count = std::min(count, step.count);
        const u32 taken = u32{fresh.held_count} - old.held_count;
        const u32 oldest = taken == count ? fresh.held_number[old.held_count] : old.last + 1u;
        for (u32 number = oldest; number < fresh.last; ++number) {
            bool has = false;
            for (u32 i = old.held_count; i < fresh.held_count; ++i)
                has |= fresh.held_number[i] == number;
            if (has) continue;
            const u64 absolute = setting_.origin + number;
            const u64 index = setting_.value(now, setting_.words.index(absolute));
            if (index < setting_.samples() && !writing(now, static_cast<u32>(index)) &&
                sequence(now, static_cast<u32>(index)) == absolute)
                throw Violation("missed",
                                text_of("number ", number, " was there, and passed over"));
        }
    }

    // Only logs that are ACTIVE are a reason. Checked where no log can have left meanwhile.
    void refused(const State& now, int p, const ServiceStep& step,
                 const ServiceGhost& fresh) const {
        const auto result = static_cast<Subscribing>(fresh.refused);
        if (setting_.has(ServiceAct::unsubscribe) || setting_.config.crashes != 0) return;
        if (result != Subscribing::full && result != Subscribing::crowded) return;
        u64 sum = u64{step.count} + 1 + setting_.loans() + 1;
        int subscribers = 1;
        for (u32 slot = 0; slot <= setting_.slots.tracer(); ++slot) {
            const u32 found = log(now, slot);
            if (slot == setting_.slot_of(p) || log_state(found) != kLogActive) continue;
            sum += log_samples(found) + 1;
            subscribers += slot != setting_.slots.tracer();
        }
        if (result == Subscribing::full ? sum <= setting_.samples()
                                        : subscribers <= setting_.config.max_subscribers)
            throw Violation("refused", text_of("p", p, " may not subscribe, and there is room"));
    }

    const ServiceSetting& setting_;
};

}  // namespace model
