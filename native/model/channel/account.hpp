// Conservation: every buffer has exactly one owner at every moment, and every datum one end.
#pragma once

#include <bit>

#include "model/channel/picture.hpp"
#include "model/channel/setting.hpp"

namespace model {

class ChannelAccount {
 public:
    explicit ChannelAccount(const ChannelSetting& setting) : setting_(setting) {}

    void after(const Runner& runner, const State& before, const State& now, int p, const Access&,
               bool completed) const {
        const Picture picture(setting_, now);
        picture.check();
        for (int q = 0; q < setting_.processes(); ++q) {
            if (!runner.alive(now, q)) continue;
            const u32 node = now.process[static_cast<std::size_t>(q)].node;
            const ChannelGhost ghost = runner.nodes().local(node).as<ChannelGhost>();
            // A store that has not arrived yet: its process is ahead of the memory.
            const bool idle = runner.nodes().at_root(node) && now.buffered == 0;
            held(picture, q, ghost, idle);
            positions(picture, q, ghost, idle);
            for (u32 i = 0; (ghost.role & 1) != 0 && i < setting_.plan.priorities; ++i)
                shelf(runner, now, picture, q, ghost, setting_.plan.lane_of(ghost.producer, i),
                      idle);
        }
        if (completed && p != setting_.processes()) delivery(runner, before, now, picture, p);
    }

    // All are dead: the auditor drains and recovers, and every datum is accounted for. `before` are the living.
    void settle_up(Runner& runner, const State& before, State& s) const {
        u32 ends = 0, twice = 0, pushed = 0, maybe_pushed = 0;
        const auto add = [&](u32 bits) {
            twice |= ends & bits;
            ends |= bits;
        };
        u32 explained = 0;  // the end of these died with an operation
        int others = 0;     // the same for operations that died earlier, when the ring was another
        for (int p = 0; p < setting_.processes(); ++p) {
            const ChannelGhost ghost = runner.local(s, p).as<ChannelGhost>();
            pushed |= ghost.pushed;
            add(ghost.popped);
            add(ghost.displaced);
            add(ghost.cancelled);
            const ChannelStep* step = setting_.step_of(p, ghost);
            if (step == nullptr) continue;
            for (u32 i = 0; step->pushes() && i < step->count; ++i)
                maybe_pushed |= 1u << (step->first_id + i);
            if (runner.alive(before, p)) {
                explained |= under_way(runner, before, p, ghost, *step);
            } else {
                others += ends_that_died(ghost, *step);
            }
        }
        const ChannelGhost drained = drain(runner, s);
        add(drained.popped);
        if (twice != 0)
            throw Violation("twice", text_of("datum #", std::countr_zero(twice), " has two ends"));
        const u32 known = pushed | maybe_pushed | 1u << kAuditDatum;
        if ((ends & ~known) != 0)
            throw Violation("phantom", text_of("datum #", std::countr_zero(ends & ~known),
                                               " was never pushed but appears"));
        if ((drained.popped >> kAuditDatum & 1) == 0)
            throw Violation("drain",
                            "all are dead and recovered, but a datum does not get through");
        const u32 missing = pushed & ~ends & ~explained;
        if (std::popcount(missing) > others)
            throw Violation("lost", text_of("datum #", std::countr_zero(missing), " has no end"));
        all_or_none(runner, s, ends);
    }

    // Nothing is published that a consumer has not taken.
    bool nothing_to_pop(const State& s) const { return !Picture(setting_, s).any_datum(); }
    bool nothing_to_pop(const State& s, u32 lane) const {
        return !Picture(setting_, s).lane(lane).any_datum();
    }

 private:
    static constexpr int kAuditorAccessesMax = 2000;

    ChannelGhost drain(Runner& runner, State& s) const {
        if (!runner.run_auditor(s, kAuditorAccessesMax))
            throw Violation("drain", "the auditor does not finish");
        return runner.local(s, setting_.processes()).as<ChannelGhost>();
    }

    u8 mark_of(int p) const { return static_cast<u8>(setting_.slot_of(p) + 1); }

    static bool holds(const ChannelGhost& ghost, u32 index) {
        // A datum that was taken but not yet read stands behind those that were.
        const u32 count = ghost.held_count + (ghost.phase == 1 ? 1u : 0u);
        for (u32 i = 0; i < count && i < ghost.held.size(); ++i) {
            if (ghost.held[i] == index) return true;
        }
        return false;
    }

    // C1 for the consumer: what a living process holds is nowhere else, and what has its mark it holds.
    void held(const Picture& picture, int p, const ChannelGhost& ghost, bool idle) const {
        const ChannelStep* step = setting_.step_of(p, ghost);
        const bool releases = !idle && step != nullptr && step->act == Act::release;
        for (u32 i = 0; i < ghost.held_count; ++i) {
            if (releases && i == 0) continue;
            const u32 buffer = ghost.held[i];
            if (picture.in_a_ring(buffer))
                throw Violation("owner",
                                text_of("buffer ", buffer, " is in a ring, and p", p, " holds it"));
            if (picture.owner(buffer) != mark_of(p))
                throw Violation(
                    "owner", text_of("p", p, " holds buffer ", buffer, ", whose owner is another"));
        }
        if (!idle || (step != nullptr && step->act == Act::attach)) return;
        for (u32 buffer = 0; buffer < setting_.buffers(); ++buffer) {
            if (picture.owner(buffer) == mark_of(p) && !picture.in_a_ring(buffer) &&
                !holds(ghost, buffer))
                throw Violation(
                    "leak", text_of("buffer ", buffer, " is p", p, "'s, which does not have it"));
        }
    }

    // C2 and C4, as far as the holder of a role knows.
    void positions(const Picture& picture, int p, const ChannelGhost& ghost, bool idle) const {
        if (!idle) return;
        const ChannelPlan& plan = setting_.plan;
        const bool produces = (ghost.role & 1) != 0, consumes = (ghost.role & 2) != 0;
        for (u32 i = 0; produces && i < plan.priorities; ++i) {
            const u32 lane = plan.lane_of(ghost.producer, i);
            at_end(picture.lane(lane), p, ghost.lane[lane].tail);
        }
        for (u32 lane = 0; consumes && lane < plan.lanes(); ++lane)
            before_end(picture.lane(lane), setting_.geometry, p, ghost.lane[lane].head);
        if (!plan.loop) return;
        if (consumes) at_end(picture.back(), p, ghost.back_tail);
        if (produces) before_end(picture.back(), setting_.back.geometry, p, ghost.back_head);
    }
    static void at_end(const RingPicture& ring, int p, u8 tail) {
        if (ring.ends != 1 || ring.end != tail)
            throw Violation("C4",
                            text_of("p", p, " is at ", int{tail}, ", and the END at ", ring.end));
    }
    static void before_end(const RingPicture& ring, const ChannelGeometry& geometry, int p,
                           u8 head) {
        if (head > ring.end)
            throw Violation("C2", text_of("p", p, " is at ", int{head}, ", behind the END"));
        for (u32 slot = 0; slot < geometry.positions(); ++slot) {
            if (ring.committed(slot) && ring.position[slot] < head)
                throw Violation("C2", text_of("p", p, " is at ", int{head}, ", and the ring has ",
                                              ring.position[slot]));
        }
    }

    // C1 for the producer: the owner that the bytes tell is the one that its account of a lane has.
    void shelf(const Runner& runner, const State& s, const Picture& picture, int p,
               const ChannelGhost& ghost, u32 lane, bool idle) const {
        const ChannelStep* step = setting_.step_of(p, ghost);
        const LaneGhost& account = ghost.lane[lane];
        u32 moving = 0;  // what the push under way moves
        const bool moves =
            !idle && step != nullptr && step->pushes() && setting_.lane_of(ghost, *step) == lane;
        for (u32 i = 0; moves && i < ghost.loan_count; ++i) moving |= 1u << ghost.loan[i];
        u32 free = 0;
        for (u32 i = 0; i < account.free_count; ++i) {
            if ((free >> account.free[i] & 1) != 0)
                throw Violation("shelf",
                                text_of("buffer ", int{account.free[i]}, " is free twice"));
            free |= 1u << account.free[i];
        }
        for (u32 index = 0; index < setting_.geometry.pool(); ++index) {
            const u32 buffer = lane * setting_.geometry.pool() + index;
            const Where where = static_cast<Where>(account.where[index]);
            if ((free >> index & 1) != (where == Where::free))
                throw Violation("shelf", text_of("buffer ", buffer, " is free, and is not"));
            if ((moving >> index & 1) != 0) continue;
            const bool mine = where == Where::free || where == Where::loaned;
            if (picture.in_ring(buffer)) {
                if (where != Where::ring)
                    throw Violation("owner",
                                    text_of("buffer ", buffer, " is in the ring, and ",
                                            mine ? "the producer's" : "unknown to the producer"));
            } else if (mine && picture.on_its_way_back(buffer)) {
                throw Violation(
                    "owner", text_of("buffer ", buffer, " is on its way back, and the producer's"));
            } else if (mine && picture.owner(buffer) != 0) {
                marked_by_an_intent(runner, s, buffer, picture.owner(buffer));
            }
        }
    }

    // The mark of a pop that is under way, or died: an intent that came to nothing.
    void marked_by_an_intent(const Runner& runner, const State& s, u32 buffer, u8 mark) const {
        for (int p = 0; p < setting_.processes(); ++p) {
            const u32 node = s.process[static_cast<std::size_t>(p)].node;
            if (mark_of(p) != mark || !runner.alive(s, p) || s.buffered != 0) continue;
            const ChannelGhost ghost = runner.nodes().local(node).as<ChannelGhost>();
            const ChannelStep* step = setting_.step_of(p, ghost);
            // A producer that gives up its role marks what it keeps.
            if (step != nullptr && (step->act == Act::attach || step->act == Act::leave)) continue;
            if (runner.nodes().at_root(node) || step == nullptr || !step->pops())
                throw Violation("owner",
                                text_of("buffer ", buffer, " is the producer's, and p", p, "'s"));
        }
    }

    // An operation of p is complete. The datum of a pop is later than all that were popped before, and its count of lost
    // ones fits. If there was none, the END is where it looked.
    void delivery(const Runner& runner, const State& before, const State& now,
                  const Picture& picture, int p) const {
        const ChannelGhost old = runner.local(before, p).as<ChannelGhost>();
        const ChannelGhost fresh = runner.local(now, p).as<ChannelGhost>();
        const ChannelStep* step = setting_.step_of(p, old);
        if (step == nullptr || !step->pops() || old.held_count == setting_.holds()) return;
        for (u32 lane = 0; lane < setting_.plan.lanes(); ++lane) {
            if (old.lane[lane].last == fresh.lane[lane].last) continue;
            in_turn(picture, fresh);
            in_order(runner, now, p, old, fresh, lane);
            return;
        }
        // The lane that was looked at last.
        const u32 producers = setting_.plan.producers;
        const u32 lane = setting_.plan.lane_of((old.turn + producers - 1) % producers, 0);
        const u8 head = fresh.lane[lane].head;
        const bool looked = step->act == Act::pop || old.phase == 2;
        // A store that arrives late, or an old value, may show the END of an earlier moment.
        const bool newest = now.buffered == 0 && !now.has_past;
        if (looked && newest && !picture.lane(lane).is_end(head))
            throw Violation("empty", text_of("a pop says that the END is at ", int{head}));
    }

    // A datum of a higher priority, or of the producer whose turn it was, did not stand there from the pop's beginning to
    // its end.
    void in_turn(const Picture& picture, const ChannelGhost& fresh) const {
        if (fresh.passed_lane == 0) return;
        const u32 lane = fresh.passed_lane - 1u;
        if (picture.lane(lane).holds_position(fresh.passed))
            throw Violation("turn", text_of("a pop passed over position ", int{fresh.passed},
                                            " of lane ", lane));
    }

    void in_order(const Runner& runner, const State& now, int p, const ChannelGhost& old,
                  const ChannelGhost& fresh, u32 lane) const {
        u32 last = old.lane[lane].last, holes = 0;
        const u32 popped = fresh.lane[lane].last;
        bool forgotten = false;
        for (int q = 0; q < setting_.processes(); ++q) {
            const ChannelGhost ghost = runner.local(now, q).as<ChannelGhost>();
            if (q != p) last = std::max<u32>(last, ghost.lane[lane].last);
            holes |= ghost.holes[lane];
            const ChannelStep* other = setting_.step_of(q, ghost);
            if (other == nullptr) continue;
            // A cancel under way has happened, perhaps. A pop that died takes its count along.
            if (other->act == Act::cancel && ghost.phase == 0 && ghost.handle_lane == lane)
                holes |= 1u << ghost.handle;
            forgotten |= !runner.alive(now, q) && other->pops();
        }
        if (popped <= last)
            throw Violation("order", text_of("position ", popped, " was popped after ", last));
        const u32 start =
            std::max<u32>(last, static_cast<u32>(setting_.first - setting_.origin) - 1);
        const u32 passed = popped - start - 1;
        const u32 between = ((1u << popped) - 1) & ~((2u << start) - 1);
        const u32 unseen = forgotten ? passed : static_cast<u32>(std::popcount(holes & between));
        if (fresh.lost_now > passed || fresh.lost_now + unseen < passed)
            throw Violation("lost",
                            text_of("p", p, " passed over ", passed, " datums, and says that ",
                                    int{fresh.lost_now}, " were lost"));
    }

    u32 datum_in(const State& s, u32 lane, u32 index) const {
        if (index == kNoBuffer) return 0;
        const u64* at = ChannelSetting::content(setting_.lanes[lane].words, index);
        const int cell = setting_.world->cell(at, 8, CellKind::plain);
        const u64 id = s.cell[static_cast<std::size_t>(cell)].value;
        return id == 0 ? 0 : 1u << (id - 1);
    }

    // The datums whose end the living process p knows, or is about to know, and has not noted.
    u32 under_way(const Runner& runner, const State& s, int p, const ChannelGhost& ghost,
                  const ChannelStep& step) const {
        const bool idle = runner.nodes().at_root(s.process[static_cast<std::size_t>(p)].node);
        const u32 lane = setting_.lane_of(ghost, step);
        u32 found = 0;
        if (step.pushes() && ghost.phase == 2) {  // it looks at what was displaced
            for (u32 i = 0; i < ghost.loan_count; ++i) found |= datum_in(s, lane, ghost.loan[i]);
        } else if (step.pushes() && !idle) {
            for (u32 i = 1; i <= step.count; ++i)
                found |= datum_in(s, lane, buffer_at(ghost.lane[lane], i));
        } else if (step.act == Act::cancel && !idle && ghost.handle != 0) {
            found = 1u << ghost.handle_id;
        } else if (step.pops()) {
            const Picture picture(setting_, s);
            const u32 pool = setting_.geometry.pool();
            for (u32 buffer = 0; buffer < setting_.buffers(); ++buffer) {
                if (picture.owner(buffer) == mark_of(p) && !picture.in_a_ring(buffer))
                    found |= datum_in(s, buffer / pool, buffer % pool);
            }
        }
        return found;
    }

    // How many datums an operation that died may have taken along.
    int ends_that_died(const ChannelGhost& ghost, const ChannelStep& step) const {
        if (step.pops() || step.act == Act::cancel) return 1;
        if (!step.pushes()) return 0;
        if (ghost.phase == 2) return ghost.loan_count;
        int count = 0;
        const LaneGhost& lane = ghost.lane[setting_.lane_of(ghost, step)];
        for (u32 i = 1; i <= step.count; ++i) count += buffer_at(lane, i) != kNoBuffer;
        return count;
    }
    // That the producer knows in the slot which is `i` after its END.
    u8 buffer_at(const LaneGhost& lane, u32 i) const {
        return lane.in_slot[setting_.slot(lane.tail + i)];
    }

    // The datums of one batch appear together or not at all, also if the producer died. Here: of a batch whose push died, if
    // one was popped before the death, the others have an end.
    void all_or_none(const Runner& runner, const State& s, u32 ends) const {
        for (int p = 0; p < setting_.processes(); ++p) {
            const ChannelGhost ghost = runner.local(s, p).as<ChannelGhost>();
            const ChannelStep* step = setting_.step_of(p, ghost);
            if (step == nullptr || !step->pushes() || step->count < 2) continue;
            const u32 all = ((1u << step->count) - 1) << step->first_id;
            const u32 seen = ends & all;
            if ((ghost.pushed & all) != 0 || seen == 0 || seen == all) continue;
            bool popping = false;
            for (int q = 0; q < setting_.processes(); ++q) {
                const ChannelStep* other =
                    setting_.step_of(q, runner.local(s, q).as<ChannelGhost>());
                popping |= other != nullptr && other->pops();
            }
            if (!popping) throw Violation("all-or-none", "a part of a batch appears");
        }
    }

    const ChannelSetting& setting_;
};

}  // namespace model
