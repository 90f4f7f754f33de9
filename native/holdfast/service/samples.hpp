// Samples: the provider writes and publishes, proxies hold and release; a sample is never altered while it is held.
//
//   allocate   1  0 -> WRITING             (cas)        the oldest sample that no participant holds; never the newest
//   publish    2  length, sequence, index               while it is WRITING, no proxy believes them
//              3  tracer's bit             (fetch_or)   if a tracer is there and has room
//              4  WRITING removed          (fetch_and)  the sample is complete
//              5  published <- sequence    (store)      proxies look for it
//   take       1  index of the newest sequence number
//              2  my bit                   (fetch_or)   WRITING was set: my bit is removed again; it is being replaced
//              3  is its sequence number the one?       no: my bit is removed again
//   release    1  my bit removed           (fetch_and)
//
// A crash leaves one of these pictures:
//
//   provider died after   sample           what the next provider does
//   1, 2, 3               WRITING          sequence <- 0, then WRITING removed: nothing was shown, and nothing is lost
//   4                     published        published <- its sequence number: it is shown after all
//   5                     published        -
//
//   proxy died            a bit of it      cleared by any process that shares its lock byte (clear_holder)
//
// V1 a sample changes only while it is WRITING, and then no participant holds it (but for a moment: take 2).
// V2 a sample that a proxy holds is complete, and stays as it is until the proxy releases it.
// V3 a bit of a proxy is set only while its log is ACTIVE, or its process is dead and its log not cleared.
// V4 sequence numbers rise by one with every publication, also over restarts of the provider.
// V5 the provider finds a sample for each of its loans (L1 in logs.hpp).
#pragma once

#include <atomic>
#include <vector>

#include "holdfast/base/points.hpp"
#include "holdfast/service/layout.hpp"
#include "holdfast/shm/bell.hpp"
#include "holdfast/shm/fault.hpp"

namespace holdfast {

HOLDFAST_POINTS(SamplePoint,
                // the provider
                sample_allocated, sample_written, sample_traced, sample_shown, sample_announced,
                sample_dropped, clean_invalid, clean_cleared,
                // proxies
                sample_marked, sample_unmarked, sample_taken, sample_released,
                // anyone, of a dead participant
                holder_cleared);

// The provider's account of the samples. Private to its process; a successor makes its own.
struct SampleOrder {
    static constexpr u32 kNone = 0xffffffffu;

    std::vector<u32> oldest_first;  // all but those that are lent
    u32 newest = kNone;
    u64 next = 1;  // the next sequence number
};

// A sample that a proxy holds.
struct TakenSample {
    u32 sample = 0;
    u64 sequence = 0;
};

enum class Taking {
    ok,
    empty,      // nothing newer was published
    overtaken,  // the provider has replaced what was looked at, again and again
    corrupt,    // `fault` says which word
};

template <class Memory>
class Samples {
 public:
    Samples(Memory& memory, const ElementWords& words, const ServiceSlots& slots)
        : memory_(memory), words_(words), slots_(slots) {}

    Fault fault{};
    const ElementWords& words() const { return words_; }

    // ---- the provider's side

    // Makes the samples that a dead provider was writing free again, and returns the account of them all. Only the holder
    // of the provider's byte may call it; a crash in it is recovered by calling it again. False: damage.
    bool start(SampleOrder& order) {
        order = {};
        u64 shown = memory_.load(words_.published(), std::memory_order_relaxed);
        u64 newest = 0;
        std::vector<u64> sequences(words_.samples());
        for (u32 sample = 0; sample < words_.samples(); ++sample) {
            // pairs with: release, publish (of the dead provider)
            const u64 word = memory_.load(words_.word(sample), std::memory_order_acquire);
            u64 sequence = memory_.load(words_.sequence(sample), std::memory_order_relaxed);
            if (sequence > kSequenceMax) return damaged("sequence number", sample, sequence);
            if ((word & slots_.writing()) != 0) {
                // First the number: a half-written sample with its old number would be taken. If it has a new number, that
                // was not shown, and is used again: numbers have no gap.
                memory_.store(words_.sequence(sample), 0,
                              std::memory_order_release);  // pairs with: hold
                memory_.at(SamplePoint::clean_invalid);
                memory_.fetch_and(words_.word(sample), ~slots_.writing(),
                                  std::memory_order_release);  // pairs with: hold
                memory_.at(SamplePoint::clean_cleared);
                sequence = 0;
            }
            sequences[sample] = sequence;
            order.next = std::max(order.next, sequence + 1);
            if (sequence > newest) {
                newest = sequence;
                order.newest = sample;
            }
            order.oldest_first.push_back(sample);
        }
        if (shown > kSequenceMax) return damaged("number of the newest sample", 0, shown);
        order.next = std::max(order.next, shown + 1);
        std::sort(order.oldest_first.begin(), order.oldest_first.end(),
                  [&](u32 a, u32 b) { return sequences[a] < sequences[b]; });
        // A number that is older than all that a take looks for shares its place in the index with a newer one.
        for (u32 sample : order.oldest_first) {
            if (sequences[sample] != 0 && newest - sequences[sample] < words_.samples())
                memory_.store(words_.index(sequences[sample]), sample,
                              std::memory_order_release);  // pairs with: hold
        }
        if (newest > shown)
            memory_.store(words_.published(), newest,
                          std::memory_order_release);  // pairs with: take
        return true;
    }

    // Lends the oldest sample that no participant holds. kNone: all are held, which `room` of the logs excludes. A proxy
    // that releases an old sample and takes a newer one can stay ahead of one pass. So there is another pass, unless the
    // last two saw the same holders: then all samples were held at one moment. A proxy takes each number once, so the
    // passes end while nothing is published.
    u32 allocate(SampleOrder& order) {
        u64 last_seen = 0;
        for (u32 passes = 0; passes < kPasses; ++passes) {
            u64 seen = 1;
            for (std::size_t i = 0; i < order.oldest_first.size(); ++i) {
                const u32 sample = order.oldest_first[i];
                if (sample == order.newest) continue;
                u64 found = memory_.load(words_.word(sample), std::memory_order_relaxed);
                // pairs with: release (the holders' reads are over), hold (a proxy that finds WRITING sees a newer number)
                if (found == 0 && memory_.cas(words_.word(sample), found, slots_.writing(),
                                              std::memory_order_acq_rel)) {
                    order.oldest_first.erase(order.oldest_first.begin() +
                                             static_cast<std::ptrdiff_t>(i));
                    memory_.at(SamplePoint::sample_allocated);
                    return sample;
                }
                seen = (seen ^ found) * 0x9E3779B97F4A7C15u;
            }
            if (seen == last_seen) break;
            last_seen = seen;
        }
        return SampleOrder::kNone;
    }

    // Shows a lent sample to all. The caller has written its bytes. `trace`: how many samples a tracer may hold; 0: none.
    // A bounded number of accesses. Returns its sequence number; 0: the numbers are used up.
    u64 publish(SampleOrder& order, u32 sample, u32 length, u32 trace) {
        const u64 number = order.next;
        if (number > kSequenceMax) return 0;
        memory_.store(words_.length(sample), length, std::memory_order_relaxed);
        memory_.store(words_.sequence(sample), number,
                      std::memory_order_release);                                // pairs with: hold
        memory_.store(words_.index(number), sample, std::memory_order_release);  // pairs with: hold
        memory_.at(SamplePoint::sample_written);
        if (trace != 0 && traced() < trace) {
            memory_.fetch_or(words_.word(sample), ServiceSlots::bit(slots_.tracer()),
                             std::memory_order_relaxed);
            memory_.at(SamplePoint::sample_traced);
        }
        memory_.fetch_and(words_.word(sample), ~slots_.writing(),
                          std::memory_order_release);  // pairs with: hold, next_traced
        memory_.at(SamplePoint::sample_shown);
        memory_.store(words_.published(), number, std::memory_order_release);  // pairs with: take
        memory_.at(SamplePoint::sample_announced);
        order.next = number + 1;
        order.newest = sample;
        order.oldest_first.push_back(sample);
        return number;
    }
    // After a publication: wakes the proxies that wait.
    void announce() { ring_bell_once(memory_, words_.bell()); }

    // Ends a loan without publishing it. The sample's last content is gone.
    void give_back(SampleOrder& order, u32 sample) {
        memory_.store(words_.sequence(sample), 0, std::memory_order_release);  // pairs with: hold
        memory_.fetch_and(words_.word(sample), ~slots_.writing(),
                          std::memory_order_release);  // pairs with: hold
        memory_.at(SamplePoint::sample_dropped);
        order.oldest_first.insert(order.oldest_first.begin(), sample);
    }

    // ---- the proxies' side

    u64 newest() const {
        return memory_.load(words_.published(),
                            std::memory_order_acquire);  // pairs with: publish, start
    }

    // Takes the newest samples after the number `last`, at most `count`, the oldest of them first. `out` has room for
    // `count`; `taken` tells how many there are.
    Taking take(u32 me, u64 last, u32 count, TakenSample* out, u32& taken) {
        taken = 0;
        for (u32 looks = 0; looks < kLooks; ++looks) {
            const u64 newest_number = newest();
            if (newest_number == last) return Taking::empty;
            if (newest_number < last || newest_number > kSequenceMax)
                return fails("number of the newest sample", 0, newest_number);
            // The provider never replaces the newest. If it is gone there is a newer one.
            Taking result = Taking::ok;
            for (u64 number = newest_number;
                 number > last && taken < count && newest_number - number < words_.samples();
                 --number) {
                u32 sample = 0;
                result = hold(me, number, sample);
                if (result == Taking::ok)
                    out[taken++] = {sample, number};
                else if (result == Taking::corrupt || taken == 0)
                    break;
            }
            std::reverse(out, out + taken);
            if (result == Taking::corrupt) return result;
            if (taken != 0) return Taking::ok;
        }
        return Taking::overtaken;
    }

    void release(u32 me, u32 sample) {
        memory_.fetch_and(words_.word(sample), ~ServiceSlots::bit(me),
                          std::memory_order_release);  // pairs with: allocate
        memory_.at(SamplePoint::sample_released);
    }

    // ---- the tracer's side: the provider sets its bit, so that it misses nothing while it has room

    // The sample with the tracer's bit whose number is the next after `last`. A sample that is WRITING at its look must
    // not be passed over for a later one. So only numbers that were announced before the first look count.
    Taking next_traced(u64 last, TakenSample& out) {
        const u64 mine = ServiceSlots::bit(slots_.tracer());
        const u64 newest_number = newest();
        bool any = false;
        for (u32 sample = 0; sample < words_.samples(); ++sample) {
            // pairs with: publish
            const u64 word = memory_.load(words_.word(sample), std::memory_order_acquire);
            if ((word & mine) == 0 || (word & slots_.writing()) != 0) continue;
            const u64 number = memory_.load(words_.sequence(sample), std::memory_order_relaxed);
            if (number == 0) {  // a provider died while it wrote it
                release(slots_.tracer(), sample);
                continue;
            }
            if (number <= last || number > newest_number || (any && number > out.sequence))
                continue;
            out = {sample, number};
            any = true;
        }
        return any ? Taking::ok : Taking::empty;
    }

    // After a tracer subscribed: releases what a provider marked for the tracer before it, up to the number `last`. Such
    // a sample would take room without being handed out. A sample that is WRITING gets a later number.
    void release_strays(u64 last) {
        const u64 mine = ServiceSlots::bit(slots_.tracer());
        for (u32 sample = 0; sample < words_.samples(); ++sample) {
            // pairs with: publish
            const u64 word = memory_.load(words_.word(sample), std::memory_order_acquire);
            if ((word & mine) == 0 || (word & slots_.writing()) != 0) continue;
            if (memory_.load(words_.sequence(sample), std::memory_order_relaxed) <= last)
                release(slots_.tracer(), sample);
        }
    }

    // ---- anyone's

    // Removes the bit of a participant from all samples. The caller shares its lock byte, or is that participant.
    void clear_holder(u32 slot) {
        for (u32 sample = 0; sample < words_.samples(); ++sample) {
            const u64 word = memory_.load(words_.word(sample), std::memory_order_relaxed);
            if ((word & ServiceSlots::bit(slot)) == 0) continue;
            release(slot, sample);
            memory_.at(SamplePoint::holder_cleared);
        }
    }

    // How many samples the tracer has.
    u32 traced() const {
        u32 count = 0;
        for (u32 sample = 0; sample < words_.samples(); ++sample) {
            const u64 word = memory_.load(words_.word(sample), std::memory_order_relaxed);
            count += (word >> slots_.tracer() & 1) != 0;
        }
        return count;
    }

 private:
    static constexpr u32 kLooks = 16;
    static constexpr u32 kPasses = 64;

    // Marks the sample with this number. `empty`: it is gone.
    Taking hold(u32 me, u64 number, u32& sample) {
        sample = memory_.load(words_.index(number), std::memory_order_relaxed);
        if (sample >= words_.samples()) return fails("index of a sample", number, sample);
        const u64 mine = ServiceSlots::bit(me);
        // pairs with: publish, start
        const u64 found = memory_.fetch_or(words_.word(sample), mine, std::memory_order_acquire);
        memory_.at(SamplePoint::sample_marked);
        if ((found & mine) != 0) {
            // The sample was replaced, and this proxy holds its later number. That is not what it looks for.
            if (memory_.load(words_.sequence(sample), std::memory_order_relaxed) != number)
                return Taking::empty;
            return fails("word of a sample that this proxy does not hold", sample, found);
        }
        if ((found & slots_.writing()) == 0 &&
            memory_.load(words_.sequence(sample), std::memory_order_relaxed) == number) {
            memory_.at(SamplePoint::sample_taken);
            return Taking::ok;
        }
        memory_.fetch_and(words_.word(sample), ~mine,
                          std::memory_order_release);  // pairs with: allocate
        memory_.at(SamplePoint::sample_unmarked);
        return Taking::empty;
    }

    bool damaged(const char* what, u64 position, u64 value) {
        fault = {what, position, value};
        return false;
    }
    Taking fails(const char* what, u64 position, u64 value) {
        damaged(what, position, value);
        return Taking::corrupt;
    }

    Memory& memory_;
    ElementWords words_;
    ServiceSlots slots_;
};

}  // namespace holdfast
