// Conservation (I7): recovers, drains, and accounts for every message, after any history.
#pragma once

#include "model/queue/setting.hpp"

namespace model {

class QueueAccount {
 public:
    explicit QueueAccount(const QueueSetting& setting)
        : setting_(setting), geometry_(setting.geometry) {}

    // Lets the auditor recover and drain `s`, and compares what it found with what the processes remember.
    void settle_up(Runner& runner, State& s, bool all_dead) const {
        Pasts pasts{};
        for (int p = 0; p < setting_.processes(); ++p) remember(runner, s, p, pasts);
        if (!runner.run_auditor(s, kAuditorAccessesMax))
            throw Violation("drain", "the auditor does not finish");
        const Ghost auditor = runner.local(s, setting_.processes()).as<Ghost>();
        for (u32 id = 0; id < setting_.messages; ++id) message(id, pasts[id], auditor);
        all_or_none(runner, s, pasts, auditor);
        if (all_dead) nothing_left(s, auditor);
    }

    // The living stand still in the middle of what they do, perhaps for ever: what the dead left is handed on nevertheless.
    // (The auditor itself complains of what it finds only after explicit recovery.)
    void hand_on(Runner& runner, State& s) const {
        if (!runner.run_auditor(s, kAuditorAccessesMax))
            throw Violation("drain", "the auditor does not finish while others stand still");
        nothing_left_of_the_dead(s);
    }

 private:
    static constexpr int kAuditorAccessesMax = 4000;

    enum class Fate { not_put, maybe_put, put };

    struct Past {
        Fate fate = Fate::not_put;
        bool maybe_settled = false;  // a process died while settling it
        u32 settled = 0;
        u32 held = 0;  // by the living
        u32 delivered = 0;
    };
    using Pasts = std::array<Past, kMessagesMax + 1>;

    void remember(const Runner& runner, const State& s, int p, Pasts& pasts) const {
        const Ghost ghost = runner.local(s, p).as<Ghost>();
        for (u32 id = 0; id < setting_.messages; ++id) {
            if (ghost.put & bit(id)) pasts[id].fate = Fate::put;
            pasts[id].settled += (ghost.settled & bit(id)) != 0;
            pasts[id].delivered += ghost.deliveries(id);
        }
        if (runner.alive(s, p)) {
            for (int i = 0; i < ghost.held_count; ++i) ++pasts[held_id(s, ghost.at(i))].held;
            return;
        }
        const Operation* last =
            setting_.operation(p, ghost);  // it may have died in the middle of this
        if (last == nullptr) return;
        for (u32 i = 0; i < last->granules.size(); ++i)
            pasts[last->first_id + i].fate = Fate::maybe_put;
        if (setting_.releasing(p, ghost) &&
            (last->op != Op::back || setting_.config.at_most_once)) {
            pasts[ghost.at(0).id].maybe_settled = true;
        }
    }

    u32 held_id(const State& s, const Held& held) const {
        if (held.known) return held.id;
        const int granule =
            setting_.first_granule + static_cast<int>(geometry_.index(setting_.position_of(held)));
        const Content* content = setting_.contents.find(QueueSetting::value(s, granule));
        if (content == nullptr)
            throw Violation("content", "a block is held that no process has written");
        return QueueSetting::id_of(*content);
    }

    void message(u32 id, const Past& past, const Ghost& auditor) const {
        const u32 drained = auditor.deliveries(id);
        const u32 ends = past.settled + past.held + drained;
        auto fail = [&](const char* check, const char* text) {
            throw Violation(
                check,
                text_of("message #", id, " ", text, ": settled ", past.settled, ", held ",
                        past.held, ", found when everything was recovered and drained ", drained));
        };
        if (ends > 1) fail("twice", "ends more than once");
        if (past.fate == Fate::not_put && ends + past.delivered > 0)
            fail("phantom", "was never put but appears");
        if (setting_.config.at_most_once) {
            if (past.delivered + drained > 1) fail("at-most-once", "is delivered twice");
            return;
        }
        if (past.fate == Fate::put && ends == 0 && !past.maybe_settled) fail("lost", "is lost");
    }

    // The messages of one put_many appear together or not at all, also if the writer died.
    void all_or_none(const Runner& runner, const State& s, const Pasts& pasts,
                     const Ghost& auditor) const {
        if (setting_.config.at_most_once) return;
        for (int p = 0; p < setting_.processes(); ++p) {
            const Operation* last = setting_.operation(p, runner.local(s, p).as<Ghost>());
            if (runner.alive(s, p) || last == nullptr) continue;
            u32 seen = 0, hidden = 0;
            for (u32 i = 0; i < last->granules.size(); ++i) {
                const u32 id = last->first_id + i;
                const Past& past = pasts[id];
                const bool appears =
                    past.settled + past.held + past.delivered + auditor.deliveries(id) > 0;
                // One that died while settling may have been the only one to see it.
                (appears || past.maybe_settled ? seen : hidden) += 1;
            }
            if (seen != 0 && hidden != 0)
                throw Violation("all-or-none", text_of("a part of ", last->name, " appears"));
        }
    }

    // A process that stands still in the middle of a recovery does not keep others from doing it. The exception is a slot
    // that a newcomer has, before it has recovered the blocks of the last holder.
    void nothing_left_of_the_dead(const State& s) const {
        for (u64 position = unsealed(QueueSetting::value(s, setting_.tail));;) {
            const u64 word = setting_.descriptor(s, position);
            const Block state = Geometry::state(word);
            if (geometry_.tag(word, position) != Tag::current || state == Block::end) return;
            const bool owned =
                state == Block::taken || state == Block::reserved || state == Block::fenced;
            const u32 owner = Geometry::owner(word);
            if (owned && owner < setting_.slots &&
                shareable(QueueSetting::value(s, setting_.world->lock(owner)))) {
                throw Violation("left", text_of("one stands still, and the block at ", position,
                                                " stays ", setting_.descriptor_text(word)));
            }
            position += geometry_.length(word);
        }
    }

    // All processes are dead and recovered: the queue works, and nothing is in use.
    void nothing_left(const State& s, const Ghost& auditor) const {
        const bool closed = static_cast<Verdict>(auditor.verdict) == Verdict::closed;
        if (!closed && !setting_.exhausted(s) && auditor.deliveries(kAuditId) != 1) {
            throw Violation("drain",
                            "all are dead and recovered, but a new message does not get through");
        }
        for (u64 position = unsealed(QueueSetting::value(s, setting_.tail));;) {
            const u64 word = setting_.descriptor(s, position);
            const Block state = Geometry::state(word);
            if (geometry_.tag(word, position) != Tag::current || state == Block::end) return;
            if (state != Block::done && state != Block::skip) {
                throw Violation("leak", text_of("all are dead and recovered, but the block at ",
                                                position, " is ", setting_.descriptor_text(word)));
            }
            position += geometry_.length(word);
        }
    }

    const QueueSetting& setting_;
    const Geometry& geometry_;
};

}  // namespace model
