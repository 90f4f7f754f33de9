// The common part of operations and account of the service model: the configuration, the cells, and what came before.
#pragma once

#include <cstring>
#include <stdexcept>
#include <utility>

#include "model/runner.hpp"
#include "model/service/ghost.hpp"
#include "model/service/model.hpp"
#include "model/service/program.hpp"
#include "model/text.hpp"

namespace model {

inline constexpr u64 kResponse = 0x10;  // added to the id of a call

struct ServiceSetting {
    ServiceConfig config;
    ServiceSlots slots;
    ServicePlan plan;
    std::vector<ServiceProgram> programs;
    u64 origin = 0;
    u32 contents = 0, call_ids = 0;
    const World* world = nullptr;
    ElementWords words;
    u32* provider_bell = nullptr;
    ServiceGhost provider;  // of the first provider, after what was done before

    explicit ServiceSetting(const ServiceConfig& config_)
        : config(config_),
          slots{static_cast<u32>(config_.proxies), static_cast<u32>(config_.tries)},
          plan(plan_of(config_)),
          origin(config_.first - 1),
          contents(static_cast<u32>(config_.before)) {
        unsigned next = 0;
        for (const std::string& text : config.programs)
            programs.push_back(parse_service_program(text, slots, next, contents, call_ids));
        if (contents + 2 > kNumbersOfModel || call_ids > kCallIdsMax ||
            plan.element(0).samples > kSamplesOfModel)
            throw std::invalid_argument("too large a service");
    }

    static ServicePlan plan_of(const ServiceConfig& config) {
        ElementSpec spec{};
        std::memcpy(spec.name, "element", 8);
        spec.kind = static_cast<u32>(config.samples == 0 ? ElementKind::method
                                     : config.calls == 0 ? ElementKind::event
                                                         : ElementKind::field);
        spec.samples = static_cast<u32>(config.samples);
        spec.loans = static_cast<u32>(config.loans);
        spec.max_subscribers = static_cast<u32>(config.max_subscribers);
        spec.calls = static_cast<u32>(config.calls);
        spec.size = spec.request_size = spec.response_size = 8;
        if (!valid_element(spec)) throw std::invalid_argument("not a valid element");
        return ServicePlan({spec},
                           {static_cast<u32>(config.proxies), static_cast<u32>(config.tries)});
    }
    static std::size_t region(const ServiceConfig& config) { return plan_of(config).size(); }

    void declare(World& world_) {
        world = &world_;
        words = plan.words(world_.base(), 0);
        provider_bell = reinterpret_cast<u32*>(world_.base() + plan.provider_bell_offset());
        publish_before();
        for (const ServiceProgram& program : programs) {
            if (program.granted != 0)
                *words.log(program.slot) = log_word(kLogActive, program.granted);
        }
        for (u32 i = 0; i < calls(); ++i)
            *words.call(i) = call_word(CallState::idle, 0, config.first_call);
        declare_cells(world_);
        world_.bytes(slots.count());
    }

    u32 samples() const { return plan.element(0).samples; }
    u32 loans() const { return plan.element(0).loans; }
    u32 calls() const { return plan.element(0).calls; }
    int processes() const { return static_cast<int>(programs.size()); }
    const ServiceProgram& program(int p) const { return programs[static_cast<std::size_t>(p)]; }
    unsigned slot_of(int p) const { return p == processes() ? slots.provider() : program(p).slot; }
    bool provides(int p) const { return slot_of(p) == slots.provider(); }
    const ServiceStep* step_of(int p, const ServiceGhost& ghost) const {
        if (p == processes() || ghost.pc >= program(p).steps.size()) return nullptr;
        return &program(p).steps[ghost.pc];
    }
    bool has(ServiceAct act) const {
        for (const ServiceProgram& each : programs) {
            for (const ServiceStep& step : each.steps) {
                if (step.act == act) return true;
            }
        }
        return false;
    }
    bool has_tracer() const {
        for (const ServiceProgram& each : programs) {
            if (each.slot == slots.tracer()) return true;
        }
        return false;
    }
    // Without a process that sleeps, bells would only multiply the states. But the fence of a bell that follows a
    // publication is a part of the protocol: with store buffers it is there.
    bool rings_samples() const {
        return has(ServiceAct::wait_take) || config.store_buffers != StoreBuffers::none ||
               config.old_values;
    }
    bool rings_calls() const { return has(ServiceAct::wait_run); }
    bool rings_responses() const { return has(ServiceAct::wait_collect); }

    // The most accesses of a publication: the tracer's grant, length, sequence, index, the tracer's samples, its bit, the
    // word, `published`; the bell: look, ring, wake.
    int publish_bound() const {
        return 6 + (has_tracer() ? static_cast<int>(samples()) + 1 : 0) + (rings_samples() ? 3 : 0);
    }
    // Each look that finds nothing costs five accesses, and was overtaken by a publication. The last look: four for each
    // number.
    int take_bound() const {
        return 5 * static_cast<int>(contents + 1) + 1 + 4 * static_cast<int>(samples());
    }
    // A proxy that moves from sample to sample costs another pass.
    int lend_bound() const { return 3 * 2 * static_cast<int>(samples()) + 1; }

    u64* content(u32 sample) const { return reinterpret_cast<u64*>(words.buffer(sample)); }
    u64* request(u32 place) const { return reinterpret_cast<u64*>(words.request(place)); }
    u64* response(u32 place) const { return reinterpret_cast<u64*>(words.response(place)); }

    template <class Word>
    u64 value(const State& s, const Word* at) const {
        return s.cell[static_cast<std::size_t>(world->cell(at))].value;
    }
    u64 plain(const State& s, const u64* at) const {
        return s.cell[static_cast<std::size_t>(world->cell(at, 8, CellKind::plain))].value;
    }

 private:
    void declare_cells(World& world_) const {
        const auto named = [](const char* name, u32 i) { return text_of(name, "[", i, "]"); };
        if (rings_samples() || rings_responses()) world_.word(words.bell(), "bell");
        if (rings_calls()) world_.word(provider_bell, "provider bell");
        for (u32 i = 0; i <= slots.tracer(); ++i) world_.word(words.log(i), named("log", i));
        if (samples() != 0) world_.word(words.published(), "published");
        for (u32 i = 0; i < samples(); ++i) {
            world_.word(words.word(i), named("word", i));
            world_.word(words.sequence(i), named("sequence", i));
            world_.word(words.index(i), named("index", i));
            world_.word(words.length(i), named("length", i));
            world_.plain(words.buffer(i), 8, named("sample", i));
        }
        for (u32 i = 0; i < calls(); ++i) {
            world_.word(words.call(i), named("call", i));
            world_.plain(words.request(i), 8, named("request", i));
            world_.plain(words.response(i), 8, named("response", i));
        }
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
        Word fetch_or(Word* at, std::type_identity_t<Word> value, std::memory_order) {
            return std::exchange(*at, *at | value);
        }
        template <class Word>
        Word fetch_and(Word* at, std::type_identity_t<Word> value, std::memory_order) {
            return std::exchange(*at, *at & value);
        }
        template <class Word>
        bool cas(Word* at, Word& expected, std::type_identity_t<Word> value, std::memory_order) {
            const bool same = *at == expected;
            (same ? *at : expected) = same ? value : *at;
            return same;
        }
        void at(Point) {}
    };

    void publish_before() {
        if (samples() == 0) return;
        DirectMemory memory;
        Samples<DirectMemory> direct(memory, words, slots);
        SampleOrder order;
        direct.start(order);
        order.next = config.first;
        for (int i = 0; i < config.before; ++i) {
            const u32 sample = direct.allocate(order);
            const u32 id = static_cast<u32>(i) + 1;
            *content(sample) = id;
            const u64 number = direct.publish(order, sample, id, 0);
            provider.content[number - origin] = static_cast<u8>(id);
        }
        keep_order(provider, order, origin);
    }
};

}  // namespace model
