// The common part of programs and account of the channel model: the configuration, the cells, and what came before.
#pragma once

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "model/channel/ghost.hpp"
#include "model/channel/model.hpp"
#include "model/channel/program.hpp"
#include "model/runner.hpp"
#include "model/text.hpp"

namespace model {

// One ring of the channel: a lane's, or the way back's.
struct RingPlace {
    ChannelGeometry geometry;
    ChannelWords<> words;
    u64 origin = 0;  // positions of a ghost count from here
};

struct ChannelSetting {
    ChannelConfig config;
    ChannelPlan plan;
    ChannelGeometry geometry;  // of each lane
    std::vector<ChannelProgram> programs;
    u32 datums = 0;
    u64 first = 0;
    u64 origin = 0;                    // of each lane
    std::vector<ChannelGhost> starts;  // of the first producers, after what was done before
    ChannelGhost consumer;             // of the first consumer
    const World* world = nullptr;
    std::vector<RingPlace> lanes;
    RingPlace back;

    explicit ChannelSetting(const ChannelConfig& config_)
        : config(config_),
          plan(plan_of(config_)),
          geometry(plan.lane),
          datums(static_cast<u32>(config_.returned + config_.before + config_.before_second)) {
        for (unsigned p = 0; p < config.programs.size(); ++p)
            programs.push_back(parse_channel_program(config.programs[p], p, datums));
        if (datums > kDatumsMax) throw std::invalid_argument("too many datums");
        if (geometry.pool() > kPoolMax || geometry.positions() > kPositionsMax ||
            plan.lanes() > kLanesMax)
            throw std::invalid_argument("too large a channel");
        first = config.first == 0 ? geometry.positions() : config.first;
        origin = first - geometry.positions();
    }

    static ChannelPlan plan_of(const ChannelConfig& config) {
        return {{static_cast<u32>(config.slots), static_cast<u32>(config.loans),
                 static_cast<u32>(config.holds), 8},
                static_cast<u32>(config.producers),
                static_cast<u32>(config.priorities),
                config.loop};
    }
    static std::size_t region(const ChannelConfig& config) {
        return plan_of(config).size(kStateStride);
    }

    void declare(World& world_) {
        world = &world_;
        initialise_channel(world_.base(), plan, first);
        for (u32 lane = 0; lane < plan.lanes(); ++lane) {
            std::byte* const base = world_.base() + plan.offset(lane, kStateStride);
            lanes.push_back({geometry, ChannelWords<>(base, geometry), origin});
        }
        if (plan.loop) {
            const ChannelGeometry geometry_back = geometry.back();
            std::byte* const base = world_.base() + plan.back_offset(kStateStride);
            back = {geometry_back, ChannelWords<>(base, geometry_back, lanes[0].words), 0};
            back.origin = *back.words.head() - geometry_back.positions();
        }
        push_before();
        for (u32 k = 0; k < plan.producers; ++k)
            *lanes[plan.lane_of(k, 0)].words.producer() = k + 1;
        *lanes[0].words.consumer() = has_consumer() ? first_consumer() + 1 : 0;
        for (u32 lane = 0; lane < plan.lanes(); ++lane)
            declare_lane(world_, lane, lane == 0 ? "" : text_of(" of lane ", lane));
        if (plan.loop) {
            declare_ring(world_, back, " of the way back");
            world_.word(back.words.head(), "head of the way back");
        }
        world_.bytes(static_cast<unsigned>(programs.size()) + 1);
    }

    // Processes 0, 1, ... have the producers' roles at the beginning, and the next one the consumer's.
    u32 first_consumer() const { return plan.producers; }
    bool has_consumer() const { return programs.size() > plan.producers; }

    // Without a process that sleeps, bells would only multiply the states.
    bool has(Act act) const {
        for (const ChannelProgram& program : programs) {
            for (const ChannelStep& step : program.steps) {
                if (step.act == act) return true;
            }
        }
        return false;
    }
    bool rings_data() const { return has(Act::wait_pop); }
    bool rings_space() const { return has(Act::wait_push); }
    // The most accesses of a push of `count` datums: freeze, index and position of each, END, states of the datums. A
    // channel that does not overflow looks at each slot first. The bell: fence, look, ring, wake.
    int push_bound(u32 count) const {
        const int k = static_cast<int>(count);
        return 4 * k + 1 + (config.overflow ? 0 : k) + (rings_data() ? 4 : 0);
    }
    // In a loop a release is a push into a ring that does not overflow.
    int release_bound() const { return (plan.loop ? 6 : 1) + (rings_space() ? 4 : 0); }
    // Of a position in a lane that counts from the origin.
    u32 slot(u64 position) const {
        return static_cast<u32>((origin + position) % geometry.positions());
    }
    u32 holds() const { return std::min<u32>(static_cast<u32>(config.holds), 2); }
    u32 buffers() const { return plan.lanes() * geometry.pool(); }
    int processes() const { return static_cast<int>(programs.size()); }
    const ChannelProgram& program(int p) const { return programs[static_cast<std::size_t>(p)]; }
    unsigned slot_of(int p) const {
        return p == processes() ? static_cast<unsigned>(p) : program(p).slot;
    }
    const ChannelStep* step_of(int p, const ChannelGhost& ghost) const {
        if (p == processes() || ghost.pc >= program(p).steps.size()) return nullptr;
        return &program(p).steps[ghost.pc];
    }
    // The lane of a push.
    u32 lane_of(const ChannelGhost& ghost, const ChannelStep& step) const {
        return plan.lane_of(ghost.producer, step.priority);
    }
    template <class Word>
    u64 value(const State& s, const Word* at) const {
        return s.cell[static_cast<std::size_t>(world->cell(at))].value;
    }
    static u64* content(const ChannelWords<>& words, u32 index) {
        return reinterpret_cast<u64*>(words.buffer(index));
    }

 private:
    void declare_ring(World& world_, const RingPlace& ring, const std::string& suffix) {
        const auto named = [&](const char* name, u32 i) {
            return text_of(name, "[", i, "]", suffix);
        };
        const u32 n = ring.geometry.positions();
        for (u32 s = 0; s < n; ++s) world_.word(ring.words.state(s), named("S", s));
        for (u32 s = 0; s < n; ++s) world_.word(ring.words.position(s), named("position", s));
        for (u32 s = 0; s < n; ++s) world_.word(ring.words.index(s), named("index", s));
    }
    // All controls of a lane are declared, also those that only lane 0 has in use.
    void declare_lane(World& world_, u32 lane, const std::string& suffix) {
        const ChannelWords<>& words = lanes[lane].words;
        const auto named = [&](const char* name, u32 i) {
            return text_of(name, "[", i, "]", suffix);
        };
        declare_ring(world_, lanes[lane], suffix);
        for (u32 b = 0; b < geometry.pool(); ++b) world_.word(words.owner(b), named("owner", b));
        world_.word(words.producer(), "producer" + suffix);
        world_.word(words.consumer(), "consumer" + suffix);
        world_.word(words.head(), "head" + suffix);
        world_.word(words.data_bell(), "data bell" + suffix);
        world_.word(words.space_bell(), "space bell" + suffix);
        for (u32 b = 0; b < geometry.pool(); ++b)
            world_.plain(words.buffer(b), 8, named("buffer", b));
    }

    // Works on the region itself, while there is one process.
    struct DirectMemory {
        template <class Word>
        Word load(const Word* at, std::memory_order) {
            return *at;
        }
        template <class Word>
        void store(Word* at, std::type_identity_t<Word> value, std::memory_order) {
            *at = value;
        }
        template <class Word>
        Word exchange(Word* at, std::type_identity_t<Word> value, std::memory_order) {
            return std::exchange(*at, value);
        }
        template <class Word>
        bool cas(Word* at, Word& expected, std::type_identity_t<Word> value, std::memory_order) {
            const bool same = *at == expected;
            (same ? *at : expected) = same ? value : *at;
            return same;
        }
        void at(Point) {}
    };

    using Direct = ChannelLanes<DirectMemory>;

    void push_before() {
        DirectMemory memory;
        Direct all(memory, plan, world->base());
        LaneCursors at;
        all.start_consumer(at);
        starts.resize(plan.producers);
        u32 id = 0;
        for (u32 k = 0; k < plan.producers; ++k) {
            ChannelGhost& ghost = starts[k];
            ghost.role = 1;
            ghost.producer = static_cast<u8>(k);
            if (plan.loop) ghost.back_head = static_cast<u8>(back.geometry.positions());
            for (u32 priority = 0; priority < plan.priorities; ++priority) {
                const u32 lane = plan.lane_of(k, priority);
                Shelf shelf(geometry);
                u64 tail = first;
                for (int i = 0; lane == 0 && i < config.returned; ++i) {
                    push_one(all, lane, tail, shelf, ghost, id++);
                    pop_and_return(all, at);
                }
                const int pushes = lane == 0 ? config.before : config.before_second;
                for (int i = 0; i < pushes; ++i) push_one(all, lane, tail, shelf, ghost, id++);
                ghost.lane[lane].tail = static_cast<u8>(tail - origin);
                keep_shelf(ghost.lane[lane], shelf);
            }
        }
        consumer.role = 2;
        for (u32 lane = 0; lane < plan.lanes(); ++lane)
            consumer.lane[lane].head = static_cast<u8>(at.heads[lane] - origin);
        if (plan.loop) consumer.back_tail = static_cast<u8>(at.back_tail - back.origin);
    }

    void push_one(Direct& all, u32 lane, u64& tail, Shelf& shelf, ChannelGhost& ghost, u32 id) {
        const ChannelWords<>& words = lanes[lane].words;
        Direct::Ring& ring = all.lane(lane);
        WayBack<Direct::Ring> none;
        const std::array<u32, 1> index{shelf.lend(ring, none)};
        *content(words, index[0]) = u64{id} + 1;
        const u64 position = tail;
        ring.push(tail, index, true, [&](u32 slot, bool had_data) {
            const u32 displaced = shelf.frozen(slot, had_data);
            if (displaced == Shelf::kNone) return;
            ghost.displaced |= static_cast<u16>(1u << (*content(words, displaced) - 1));
            shelf.give_back(displaced);
        });
        shelf.pushed(ring.slot(position), index[0]);
        ghost.pushed |= static_cast<u16>(1u << id);
        ghost.handle = static_cast<u8>(position - origin);
        ghost.handle_id = static_cast<u8>(id);
        ghost.handle_lane = static_cast<u8>(lane);
    }

    void pop_and_return(Direct& all, LaneCursors& at) {
        Popped out;
        all.pop(at, static_cast<u8>(first_consumer() + 1), 0, out);
        all.send_back(at, out.index);
        consumer.popped |= static_cast<u16>(1u << (*content(lanes[0].words, out.index) - 1));
        consumer.lane[0].last = static_cast<u8>(out.position - origin);
    }
};

}  // namespace model
