// The common part of programs, checks and account of the queue model: the configuration, the cells, and the memory of a
// process of its past.
#pragma once

#include <array>
#include <bit>

#include "holdfast/queue/queue.hpp"
#include "model/queue/memory.hpp"
#include "model/queue/model.hpp"
#include "model/queue/program.hpp"
#include "model/runner.hpp"
#include "model/text.hpp"

namespace model {

using Block = holdfast::State;  // of a block; model::State is a state of everything

inline constexpr u32 kMessagesMax = 15;
inline constexpr u32 kAuditId =
    15;  // the message that the auditor puts to see that the queue still works
inline constexpr int kHeldMax = 3;

struct Held {
    u32 position;  // from `origin` on
    u16 length;
    u8 id;  // of the message; until it was read: how often it was delivered before, as take() said
    u8 known;  // the message has been read: how often it was delivered before, plus one

    u32 redelivered() const { return known != 0 ? known - 1u : id; }
};

struct Ghost {
    u8 pc = 0;
    u8 phase = 0;  // of a waiting operation, or of the auditor
    u8 held_count = 0;
    u8 verdict = 0;          // of the auditor's last take
    u32 bell = 0;            // what listen() returned
    u16 put = 0;             // bit: this message was put, the call returned
    u16 settled = 0;         // bit: this message was settled, the call returned
    u32 first_position = 0;  // of the last first delivery, from `origin` on
    u32 tail_seen =
        0;  // what its Queue object remembers of T, if the configuration says so; the same
    u32 saw_end = 0;    // a get that asked about the living said that nothing will come
    u64 delivered = 0;  // 4 bits each: how often this process was given the message
    std::array<Held, kHeldMax> held{};

    u32 deliveries(u32 id) const { return static_cast<u32>(delivered >> (4 * id) & 15); }
    const Held& at(int i) const { return held[static_cast<std::size_t>(i)]; }
    bool unread() const {
        for (int i = 0; i < held_count; ++i) {
            if (!at(i).known) return true;
        }
        return false;
    }
    void drop_oldest() {
        for (std::size_t i = 1; i < kHeldMax; ++i) held[i - 1] = held[i];
        held[kHeldMax - 1] = {};
        --held_count;
    }
};
static_assert(sizeof(Ghost) <= Local::kSize && std::has_unique_object_representations_v<Ghost>);

constexpr u16 bit(u32 id) {
    return static_cast<u16>(1u << id);
}

struct QueueSetting {
    QueueConfig config;
    Geometry geometry;
    std::vector<Program> programs;
    u32 messages = 0;
    unsigned slots = 0;  // of the programs; the auditor has the next one
    const World* world = nullptr;
    Contents contents;  // of the ring's blocks
    QueueWords words;
    int head = 0, read = 0, tail = 0, made = 0, scanned = 0;  // cells; descriptor i is cell i
    int first_granule = 0;                                    // a cell; the others follow
    u64 origin = 0;  // one lap before the first position: what ghosts remember fits into 32 bits

    explicit QueueSetting(const QueueConfig& config_)
        : config(config_), geometry(geometry_of(config_)) {
        u32 next_id = 0;
        for (unsigned p = 0; p < config.programs.size(); ++p) {
            programs.push_back(parse_program(config.programs[p], p, next_id));
        }
        if (next_id > kMessagesMax) throw std::invalid_argument("too many messages");
        messages = next_id;
        if (config.first != 0) origin = config.first - geometry.granules();
        slots = geometry.participants() - 1;
    }

    static Geometry geometry_of(const QueueConfig& config) {
        return Geometry(static_cast<u64>(config.granules),
                        static_cast<u32>(config.programs.size() + 1));
    }

    void declare(World& world_) {
        world = &world_;
        initialise_queue(world_.base(), geometry, config.first);
        words = QueueWords(world_.base(), geometry);
        grow_old();
        for (u64 i = 0; i < geometry.granules(); ++i)
            world_.word(words.descriptors + i, text_of("D[", i, "]"));
        head = world_.word(words.head, "H");
        read = world_.word(words.read, "R");
        tail = world_.word(words.tail, "T");
        made = world_.word(words.made, "made");
        scanned = world_.word(words.scanned, "scanned");
        world_.word(words.data_bell, "data bell");
        world_.word(words.space_bell, "space bell");
        for (u64 i = 0; i < geometry.granules(); ++i)
            world_.word(&words.sides[i].mark, text_of("A[", i, "]"));
        first_granule = world_.cells();
        for (int i = 0; i < config.granules; ++i)
            world_.plain(words.ring + static_cast<u64>(i) * kGranule, kGranule,
                         text_of("ring[", i, "]"));
        world_.bytes(slots);
    }

    void grow_old() {
        *words.made = *words.scanned = config.returns;
        *words.data_bell = *words.space_bell = config.bells;
        if (config.stale_laps == 0) return;
        const u64 lap_then = geometry.lap(config.first) - config.stale_laps;
        for (u64 i = 0; i < geometry.granules(); ++i) {
            words.sides[i].mark =
                geometry.mark(lap_then * geometry.granules() + i, 1 + i % 2, kDeliveriesMax);
        }
    }

    int processes() const { return static_cast<int>(programs.size()); }
    const Program& program(int p) const { return programs[static_cast<std::size_t>(p)]; }
    unsigned slot(int p) const { return p == processes() ? slots : program(p).slot; }
    Delivery delivery() const {
        return config.at_most_once ? Delivery::at_most_once : Delivery::at_least_once;
    }

    // The operation that a process is in, or before; null after the last.
    const Operation* operation(int p, const Ghost& ghost) const {
        const Program& one = program(p);
        return ghost.pc < one.operations.size() ? &one.operations[ghost.pc] : nullptr;
    }
    // It is about to let its oldest message go.
    bool releasing(int p, const Ghost& ghost) const {
        const Operation* now = operation(p, ghost);
        return now != nullptr && ghost.held_count != 0 && !ghost.unread() &&
               (now->op == Op::settle || now->op == Op::settle_all || now->op == Op::back);
    }

    Taken taken_of(const Held& held, unsigned slot) const {
        const u64 position = position_of(held);
        return {position, geometry.word(position, held.length, Block::taken, slot),
                held.redelivered()};
    }
    u64 position_of(const Held& held) const { return origin + held.position; }
    u32 remembered(u64 position) const { return static_cast<u32>(position - origin); }
    // No more puts: the positions are used up.
    bool exhausted(const State& s) const {
        return unsealed(value(s, head)) + 2 * geometry.granules() > kPositionMax;
    }
    u64 lap(u64 word) const {
        return word >> (13 + static_cast<u32>(std::countr_zero(geometry.granules())) - 1);
    }

    static u64 value(const State& s, int cell) {
        return s.cell[static_cast<std::size_t>(cell)].value;
    }
    u64 descriptor(const State& s, u64 position) const {
        return value(s, static_cast<int>(geometry.index(position)));
    }
    static u32 id_of(const Content& content) { return static_cast<u32>(content.payload.at(0)); }

    std::string descriptor_text(u64 word) const {
        if (lap(word) == 0) return "fresh";
        return text_of(state_name(Geometry::state(word)), "(lap ", lap(word), ", ",
                       geometry.length(word), ", slot ", Geometry::owner(word), ")");
    }
};

}  // namespace model
