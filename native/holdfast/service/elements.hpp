// All elements of an instance, and the clearing of a participant that died.
//
// Any process that shares the lock byte of a dead proxy or tracer may clear it. Several may do so at once, and each may die
// or stop in the middle. All steps are idempotent. No step can meet a successor, which would need the byte alone.
// Only the next provider cleans after a dead provider (Samples::start, Calls::clean).
#pragma once

#include <vector>

#include "holdfast/service/calls.hpp"
#include "holdfast/service/logs.hpp"
#include "holdfast/shm/lock_bytes.hpp"

namespace holdfast {

template <class Memory>
class Elements {
 public:
    struct Element {
        Samples<Memory> samples;
        Logs<Memory> logs;
        Calls<Memory> calls;
    };

    Elements(Memory& memory, const ServicePlan& plan, std::byte* base)
        : memory_(memory), slots_(plan.slots()) {
        all_.reserve(plan.count());
        for (u32 i = 0; i < plan.count(); ++i) {
            const ElementSpec& spec = plan.element(i);
            const ElementWords words = plan.words(base, i);
            all_.push_back({Samples<Memory>(memory, words, slots_),
                            Logs<Memory>(memory, words, spec, slots_),
                            Calls<Memory>(memory, words, spec.calls, slots_)});
        }
    }

    Element& operator[](u32 i) { return all_[i]; }
    const Element& operator[](u32 i) const { return all_[i]; }
    u32 count() const { return static_cast<u32>(all_.size()); }
    const ServiceSlots& slots() const { return slots_; }

    // Clears what a proxy or tracer left. The caller shares its lock byte, or has it alone. Returns how many logs and calls.
    u32 clear(u32 slot) {
        u32 cleared = 0;
        for (Element& each : all_) {
            cleared += each.logs.clear(slot, each.samples);
            cleared += each.calls.clear(slot);
        }
        return cleared;
    }

    // Asks the kernel about every participant with a log of this element, and clears the dead. `died(slot)` is called
    // for each, while its byte is shared. True: there was one.
    template <class Died>
    bool reap(u32 element, u32 me, Died&& died) {
        bool any = false;
        for (u32 slot = 0; slot <= slots_.tracer(); ++slot) {
            if (slot == me || all_[element].logs.word(slot) == 0) continue;
            any |= clear_if_dead(slot, died);
        }
        return any;
    }

    template <class Died>
    bool clear_if_dead(u32 slot, Died&& died) {
        if (!memory_.take_byte(slot)) return false;
        const bool any = clear(slot) != 0;
        died(slot);
        memory_.retire(slot);
        memory_.at(RecoverPoint::recover_end);
        memory_.drop_byte(slot);
        return any;
    }

    // The provider: a tracer left in the moment in which its bit was set. The bit belongs to no log.
    void clear_strays(u32 element) {
        Element& each = all_[element];
        if (each.logs.word(slots_.tracer()) == 0) each.samples.clear_holder(slots_.tracer());
    }

 private:
    Memory& memory_;
    ServiceSlots slots_;
    std::vector<Element> all_;
};

}  // namespace holdfast
