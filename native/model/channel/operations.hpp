// The operations of the channel model's programs: the templates of the channel, with ghosts in place of holds.
#pragma once

#include "model/channel/setting.hpp"

namespace model {

class ChannelOperations : public Model {
 protected:
    explicit ChannelOperations(const ChannelConfig& config)
        : Model(ChannelSetting::region(config)), setting_(config) {
        setting_.declare(world);
    }

    using Lanes = ChannelLanes<ModelMemory>;
    using Ring = Lanes::Ring;

    // Phases of a push: lend and fill buffers, push them, look at what was displaced; listen to the bell, sleep.
    enum : u8 { kFill, kPush, kLook, kListen, kSleep };

    Lanes make_lanes(ModelMemory& memory) { return Lanes(memory, setting_.plan, world.base()); }
    static u32* word(const Lanes& lanes, Role role, u32 producer) {
        return role == Role::producer ? lanes.producer_word(producer) : lanes.consumer_word();
    }
    u32 pool() const { return setting_.geometry.pool(); }
    u64* content(u32 lane, u32 index) const {
        return ChannelSetting::content(setting_.lanes[lane].words, index);
    }

    // The producer's end of the way back, out of and into a ghost.
    WayBack<Ring> way_back(Lanes& lanes, const ChannelGhost& ghost) const {
        if (!setting_.plan.loop) return {};
        const u64 origin = setting_.back.origin;
        lanes.back()->empty_at = ghost.back_empty == 0 ? 0 : origin + ghost.back_empty;
        return {lanes.back(), origin + ghost.back_head};
    }
    void keep_back(ChannelGhost& ghost, const WayBack<Ring>& back) const {
        if (!back) return;
        ghost.back_head = static_cast<u8>(back.head - setting_.back.origin);
        ghost.back_empty = back.ring->empty_at == back.head ? ghost.back_head : u8{0};
    }
    static void sound(const Shelf& shelf) {
        if (shelf.damaged()) throw Violation("back", "a buffer came back that cannot have");
    }

    // The consumer's place in each lane, likewise.
    LaneCursors cursors_of(Lanes& lanes, const ChannelGhost& ghost) const {
        LaneCursors at;
        at.turns.assign(setting_.plan.priorities, 0);
        at.turns[0] = ghost.turn;
        at.back_tail = setting_.back.origin + ghost.back_tail;
        for (u32 i = 0; i < setting_.plan.lanes(); ++i) {
            const LaneGhost& lane = ghost.lane[i];
            lanes.lane(i).empty_at = lane.empty_at == 0 ? 0 : setting_.origin + lane.empty_at;
            at.heads.push_back(setting_.origin + lane.head);
            at.lost.push_back(lane.lost);
        }
        return at;
    }
    void keep_cursors(Lanes& lanes, ChannelGhost& ghost, const LaneCursors& at) const {
        ghost.turn = static_cast<u8>(at.turns[0]);
        ghost.back_tail = static_cast<u8>(at.back_tail - setting_.back.origin);
        for (u32 i = 0; i < setting_.plan.lanes(); ++i) {
            LaneGhost& lane = ghost.lane[i];
            lane.head = static_cast<u8>(at.heads[i] - setting_.origin);
            lane.lost = static_cast<u8>(at.lost[i]);
            // An older one is not compared any more: it would only tell states apart.
            lane.empty_at = lanes.lane(i).empty_at == at.heads[i] ? lane.head : u8{0};
        }
    }

    [[noreturn]] static void corrupt(const Ring& ring) {
        throw Violation("corrupt", text_of("an operation reports: ", ring.fault.what, " at ",
                                           ring.fault.position, " is ", ring.fault.value));
    }

    bool program_step(int p, ChannelGhost& ghost, ModelMemory& memory) {
        const ChannelProgram& program = setting_.program(p);
        if (ghost.pc >= program.steps.size()) return false;
        const ChannelStep& step = program.steps[ghost.pc];
        Lanes lanes = make_lanes(memory);
        switch (step.act) {
            case Act::attach:
                attach(lanes, ghost, memory, program.slot);
                break;
            case Act::claim:
                claim(lanes, ghost, memory, step.role, step.producer, program.slot);
                break;
            case Act::leave:
                leave(lanes, ghost, memory, step, program.slot);
                break;
            case Act::push:
            case Act::wait_push:
                push(lanes, ghost, memory, step, program.slot);
                break;
            case Act::cancel:
                cancel(lanes.lane(ghost.handle_lane), ghost, memory);
                break;
            case Act::pop:
                if (ghost.phase == 0 && !pop(lanes, ghost, memory, program.slot)) {
                    if (!step.persists) ++ghost.pc;
                } else if (ghost.phase == 1) {
                    read(ghost, memory);
                    ++ghost.pc;
                }
                break;
            case Act::wait_pop:
                wait(lanes, ghost, memory, program.slot);
                break;
            case Act::release:
                if (ghost.held_count != 0) release(lanes, ghost);
                ++ghost.pc;
                break;
            case Act::mend:
                clear_dead_owners(memory, lanes, program.slot);
                ++ghost.pc;
                break;
        }
        return true;
    }

    // As in production: what the last holder left is repaired while the byte is shared, and again when it is taken alone.
    void attach(Lanes& lanes, ChannelGhost& ghost, ModelMemory& memory, unsigned slot) {
        if (ghost.phase == 0) {
            if (memory.take_byte(slot)) {
                clear_participant(memory, lanes, slot);
                memory.drop_byte(slot);
            }
            ghost.phase = 1;
            return;
        }
        memory.await_byte(slot);
        clear_participant(memory, lanes, slot);
        ghost.phase = 0;
        ++ghost.pc;
    }

    void claim(Lanes& lanes, ChannelGhost& ghost, ModelMemory& memory, Role role, u32 producer,
               unsigned slot) {
        if (ghost.phase == 0) {
            u32 holder = 0;
            if (claim_role(memory, lanes, word(lanes, role, producer), slot, holder) ==
                Claim::taken)
                ghost.phase = 1;
            else if (holder == slot)
                throw Violation("role", "a process finds its own number in a role");
            return;
        }
        if (role == Role::producer) {
            start_producing(lanes, ghost, producer);
        } else {
            start_consuming(lanes, ghost);
        }
        ghost.phase = 0;
        ++ghost.pc;
    }

    void leave(Lanes& lanes, ChannelGhost& ghost, ModelMemory& memory, const ChannelStep& step,
               unsigned slot) {
        const bool produces = (ghost.role & 1) != 0;
        if (step.keeps) {
            const u32 lane = setting_.plan.lane_of(ghost.producer, 0);
            WayBack<Ring> back = way_back(lanes, ghost);
            Shelf shelf = shelf_of(ghost.lane[lane], setting_.geometry);
            const u32 index = shelf.lend(lanes.lane(lane), back);
            if (index == Shelf::kNone) throw Violation("room", "no buffer is free for a loan");
            lanes.lane(lane).keep(index, static_cast<u8>(slot + 1));
            ghost.held[ghost.held_count++] =
                static_cast<u8>(lane * setting_.geometry.pool() + index);
        }
        resign_role(memory, word(lanes, produces ? Role::producer : Role::consumer, ghost.producer),
                    slot);
        for (u32 i = 0; produces && i < setting_.plan.priorities; ++i) {
            LaneGhost& lane = ghost.lane[setting_.plan.lane_of(ghost.producer, i)];
            lane.free = {};
            lane.free_count = 0;
            lane.where = {};
            lane.in_slot = {};
        }
        ghost.role = 0;
        ++ghost.pc;
    }

    // As ProducerHold and ConsumerHold do when they have got the role.
    void start_producing(Lanes& lanes, ChannelGhost& ghost, u32 producer) {
        ghost.producer = static_cast<u8>(producer);
        for (u32 priority = 0; priority < setting_.plan.priorities; ++priority) {
            const u32 lane = setting_.plan.lane_of(producer, priority);
            Ring& ring = lanes.lane(lane);
            WayBack<Ring> back = way_back(lanes, ghost);
            u64 tail = 0;
            if (ring.recover_producer(tail) != Handover::ok) corrupt(ring);
            ghost.lane[lane].tail = static_cast<u8>(tail - setting_.origin);
            Shelf shelf(setting_.geometry);
            if (!shelf.start(ring, back)) throw Violation("shelf", "the ring names a buffer twice");
            keep_shelf(ghost.lane[lane], shelf);
            keep_back(ghost, back);
        }
        ghost.role |= 1;
    }
    void start_consuming(Lanes& lanes, ChannelGhost& ghost) {
        LaneCursors at = cursors_of(lanes, ghost);
        if (lanes.start_consumer(at) != Handover::ok) corrupt(*lanes.back());
        keep_cursors(lanes, ghost, at);  // what is lost is counted from here on
        ghost.last_lane = 0;
        ghost.role |= 2;
    }

    void push(Lanes& lanes, ChannelGhost& ghost, ModelMemory& memory, const ChannelStep& step,
              unsigned slot) {
        const u32 lane = setting_.lane_of(ghost, step);
        Ring& ring = lanes.lane(lane);
        u32* const bell = lanes.space_bell(ghost.producer);
        WayBack<Ring> back = way_back(lanes, ghost);
        Shelf shelf = shelf_of(ghost.lane[lane], setting_.geometry);
        if (ghost.phase == kFill) {
            while (ghost.loan_count < step.count) {
                u32 index = shelf.lend(ring, back);
                sound(shelf);
                if (index == Shelf::kNone) {
                    clear_dead_owners(memory, lanes, slot);
                    index = shelf.lend(ring, back);
                    sound(shelf);
                }
                if (index == Shelf::kNone) {
                    // The pool is large enough, unless a process without a role keeps buffers.
                    if (!setting_.has(Act::leave) &&
                        step.count <= static_cast<u32>(setting_.config.loans))
                        throw Violation("room", "a push finds no buffer");
                    break;
                }
                memory.plain_write(content(lane, index), step.first_id + ghost.loan_count + 1);
                ghost.loan[ghost.loan_count++] = static_cast<u8>(index);
            }
            if (ghost.loan_count == step.count) {
                ghost.phase = kPush;
            } else {
                while (ghost.loan_count != 0) {
                    shelf.give_back(ghost.loan[--ghost.loan_count]);
                    ghost.loan[ghost.loan_count] = 0;
                }
                if (!step.persists) ++ghost.pc;
            }
            keep_shelf(ghost.lane[lane], shelf);
            keep_back(ghost, back);
            return;
        }
        if (ghost.phase == kPush) {
            push_now(lanes, lane, ghost, shelf, step);
            return;
        }
        if (ghost.phase == kListen) {
            ghost.bell = listen_to(memory, bell);
            ghost.phase = kPush;
            return;
        }
        if (ghost.phase == kSleep) {
            memory.wait(bell, ghost.bell);
            ghost.bell = 0;
            ghost.phase = kListen;
            return;
        }
        // The program looks at what was displaced, and lets it go.
        const u32 index = ghost.loan[--ghost.loan_count];
        ghost.loan[ghost.loan_count] = 0;
        const u64 id = memory.plain_read(content(lane, index));
        if (id == 0 || id > kDatumsMax)
            throw Violation("content", "a displaced buffer is not a datum's");
        ghost.displaced |= static_cast<u16>(1u << (id - 1));
        shelf.give_back(index);
        keep_shelf(ghost.lane[lane], shelf);
        if (ghost.loan_count == 0) end_push(ghost);
    }

    void push_now(Lanes& lanes, u32 lane, ChannelGhost& ghost, Shelf& shelf,
                  const ChannelStep& step) {
        Ring& ring = lanes.lane(lane);
        std::array<u32, 4> buffers{};
        for (u32 i = 0; i < step.count; ++i) buffers[i] = ghost.loan[i];
        std::array<u8, 4> displaced{};
        u8 displaced_count = 0;
        u64 tail = setting_.origin + ghost.lane[lane].tail;
        const u64 began = tail;
        const Handover result =
            ring.push(tail, std::span(buffers.data(), step.count), setting_.config.overflow,
                      [&](u32 slot, bool had_data) {
                          const u32 index = shelf.frozen(slot, had_data);
                          if (had_data && index == Shelf::kNone)
                              throw Violation("shelf", "a datum that its producer does not know");
                          if (index != Shelf::kNone)
                              displaced[displaced_count++] = static_cast<u8>(index);
                      });
        if (result == Handover::full || result == Handover::exhausted) {
            if (result == Handover::full && step.persists) return;
            if (result == Handover::full && step.act == Act::wait_push) {
                ghost.phase = ghost.bell == 0 ? kListen : kSleep;
                return;
            }
            // The last position is used: a datum that is never in the ring counts as seen.
            if (step.first_id == kAuditDatum) ghost.popped |= 1u << kAuditDatum;
            for (u32 i = 0; i < step.count; ++i) shelf.give_back(buffers[i]);
            ghost.loan = {};
            ghost.loan_count = 0;
            keep_shelf(ghost.lane[lane], shelf);
            end_push(ghost);
            return;
        }
        if (result != Handover::ok) corrupt(ring);
        ghost.bell = 0;
        if (setting_.rings_data()) lanes.announce_datum();
        for (u32 i = 0; i < step.count; ++i) {
            shelf.pushed(ring.slot(began + i), buffers[i]);
            ghost.pushed |= static_cast<u16>(1u << (step.first_id + i));
        }
        ghost.lane[lane].tail = static_cast<u8>(tail - setting_.origin);
        ghost.handle = static_cast<u8>(ghost.lane[lane].tail - 1);
        ghost.handle_lane = static_cast<u8>(lane);
        ghost.handle_id = static_cast<u8>(step.first_id + step.count - 1);
        ghost.loan = displaced;
        ghost.loan_count = displaced_count;
        keep_shelf(ghost.lane[lane], shelf);
        if (displaced_count == 0) {
            end_push(ghost);
        } else {
            ghost.phase = kLook;
        }
    }

    static void end_push(ChannelGhost& ghost) {
        ghost.phase = kFill;
        ++ghost.pc;
    }

    void cancel(Ring& ring, ChannelGhost& ghost, ModelMemory& memory) {
        LaneGhost& lane = ghost.lane[ghost.handle_lane];
        Shelf shelf = shelf_of(lane, setting_.geometry);
        if (ghost.phase == 0) {
            const u64 position = setting_.origin + ghost.handle;
            const u32 index = shelf.in_slot(ring.slot(position));
            // The producer's own account says whether the slot still has this datum.
            if (ghost.handle != 0 && index != Shelf::kNone &&
                lane.tail - ghost.handle < static_cast<int>(setting_.geometry.positions()) &&
                ring.cancel(position)) {
                ghost.loan[0] = static_cast<u8>(shelf.withdrawn(ring.slot(position)));
                ghost.loan_count = 1;
                ghost.cancelled |= static_cast<u16>(1u << ghost.handle_id);
                ghost.holes[ghost.handle_lane] |= 1u << ghost.handle;
                ghost.phase = 1;
                keep_shelf(lane, shelf);
            } else {
                ++ghost.pc;
            }
            ghost.handle = ghost.handle_id = 0;
            return;
        }
        // It is the producer's: it may write there.
        memory.plain_write(content(ghost.handle_lane, ghost.loan[0]), 0);
        shelf.give_back(ghost.loan[0]);
        ghost.loan = {};
        ghost.loan_count = 0;
        ghost.phase = 0;
        keep_shelf(lane, shelf);
        ++ghost.pc;
    }

    // True: a datum was taken; it is to be read next.
    bool pop(Lanes& lanes, ChannelGhost& ghost, ModelMemory& memory, unsigned slot) {
        if (ghost.held_count == setting_.holds()) {
            ++ghost.pc;
            ghost.phase = 0;
            return true;
        }
        LaneCursors at = cursors_of(lanes, ghost);
        const Due due = look_whose_turn(ghost, at, memory);
        Popped out;
        const Handover result =
            lanes.pop(at, static_cast<u8>(slot + 1), static_cast<u32>(setting_.config.laps), out);
        keep_cursors(lanes, ghost, at);
        if (result == Handover::corrupt) corrupt(lanes.lane(out.lane));
        if (result == Handover::starved) throw Violation("starved", "more laps than pushes");
        if (result == Handover::empty) return false;
        if (setting_.rings_space()) lanes.announce_space(setting_.plan.producer_of(out.lane));
        ghost.held[ghost.held_count] = static_cast<u8>(out.lane * pool() + out.index);
        ghost.lane[out.lane].last = static_cast<u8>(out.position - setting_.origin);
        ghost.lost_now = static_cast<u8>(out.lost);
        if (setting_.plan.producers > 1) ghost.last_lane = static_cast<u8>(out.lane + 1);
        const bool passed = due.there && due.lane != out.lane;
        ghost.passed_lane = passed ? static_cast<u8>(due.lane + 1) : u8{0};
        ghost.passed = passed ? due.position : u8{0};
        ghost.phase = 1;
        return true;
    }

    // For the account: the oldest datum of the lane that comes first, if one is there before the pop begins. That is the
    // higher priority's lane; or, after a datum of one producer, the lane of the other.
    struct Due {
        u32 lane = 0;
        u8 position = 0;
        bool there = false;
    };
    Due look_whose_turn(const ChannelGhost& ghost, const LaneCursors& at, ModelMemory& memory) {
        if (setting_.plan.lanes() == 1) return {};
        if (setting_.plan.producers > 1 && ghost.last_lane == 0) return {};
        const u32 lane = setting_.plan.producers > 1 ? 2u - ghost.last_lane : 1u;
        const ChannelWords<>& words = setting_.lanes[lane].words;
        const u32 s = static_cast<u32>(at.heads[lane] % setting_.geometry.positions());
        // If the position is an old one, its datum is gone, and it does not stand there at the end of the pop.
        const u64 position = memory.load(words.position(s), std::memory_order_relaxed);
        const u8 state = memory.load(words.state(s), std::memory_order_relaxed);
        return {lane, static_cast<u8>(position - setting_.origin), (state & kData) != 0};
    }

    void read(ChannelGhost& ghost, ModelMemory& memory) {
        const u32 buffer = ghost.held[ghost.held_count];
        const u64 id = memory.plain_read(content(buffer / pool(), buffer % pool()));
        if (id == 0 || id > kDatumsMax + 1)
            throw Violation("content", "a buffer that is not a datum's");
        ghost.held_id[ghost.held_count++] = static_cast<u8>(id - 1);
        ghost.popped |= static_cast<u16>(1u << (id - 1));
        ghost.phase = 0;
    }

    // As ConsumerHold does: in a loop by the way back, unless the role was given up.
    void release(Lanes& lanes, ChannelGhost& ghost) {
        const u32 lane = ghost.held[0] / pool(), index = ghost.held[0] % pool();
        if (setting_.plan.loop && (ghost.role & 2) != 0) {
            LaneCursors at = cursors_of(lanes, ghost);
            if (!lanes.send_back(at, index)) throw Violation("back", "no room on the way back");
            keep_cursors(lanes, ghost, at);
        } else {
            lanes.lane(lane).release(index);
        }
        if (setting_.rings_space()) lanes.announce_space(setting_.plan.producer_of(lane));
        ghost.held = {ghost.held[1], 0};
        ghost.held_id = {ghost.held_id[1], 0};
        --ghost.held_count;
    }

    void wait(Lanes& lanes, ChannelGhost& ghost, ModelMemory& memory, unsigned slot) {
        enum : u8 { kRead = 1 };  // pop() sets it
        if (ghost.phase == kRead) {
            read(ghost, memory);
            ++ghost.pc;
        } else if (ghost.phase == 0) {
            ghost.bell = listen_to(memory, lanes.data_bell());
            ghost.phase = 2;
        } else if (ghost.phase == 2) {
            if (pop(lanes, ghost, memory, slot)) {
                ghost.bell = 0;
            } else {
                ghost.phase = 3;
            }
        } else {
            memory.wait(lanes.data_bell(), ghost.bell);
            ghost.bell = 0;
            ghost.phase = 0;
        }
    }

    ChannelSetting setting_;
};

}  // namespace model
