// Looks at a whole service instance without touching it: what it holds, and whether it can be what it says.
//
// On an instance in use, a look may be overtaken; it then starts anew, and says so if it never got through. Words that
// are wrong by themselves are judged all the same.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "holdfast/service/notices.hpp"
#include "holdfast/service/params.hpp"
#include "holdfast/shm/memory.hpp"

namespace holdfast {

struct SampleLook {
    u64 word = 0;
    u64 sequence = 0;
    u32 length = 0;

    bool operator==(const SampleLook&) const = default;
};

struct ServiceCallLook {
    u64 word = 0;
    u32 request_length = 0;
    u32 response_length = 0;

    bool operator==(const ServiceCallLook&) const = default;
};

struct ElementSurvey {
    u64 published = 0;
    std::vector<SampleLook> samples;
    std::vector<u32> index;
    std::vector<u32> logs;  // by slot
    std::vector<ServiceCallLook> calls;
    std::vector<u64> people;  // by slot: `who` of its entry
    bool still = false;       // two looks agreed

    bool same(const ElementSurvey& other) const {
        return published == other.published && samples == other.samples && index == other.index &&
               logs == other.logs && calls == other.calls && people == other.people;
    }
};

struct ServiceSurvey {
    u64 epoch = 0;
    bool overtaken = false;
    std::vector<ElementSurvey> elements;
    std::vector<Notice> notices;  // that wait for the provider
    std::vector<std::string> faults;
};

namespace detail {

// All words of a service, to be read only.
class ServiceLook {
 public:
    ServiceLook(std::byte* base, const ServicePlan& plan) : base_(base), plan_(plan) {}

    u64 epoch() const {
        return memory_.load(at<u64>(plan_.epoch_offset()), std::memory_order_relaxed);
    }
    u64 notice_state(u32 place) const {
        return memory_.load(&at<NoticeEntry>(plan_.notices_offset())[place].state,
                            std::memory_order_relaxed);
    }
    std::vector<Notice> notices() {
        const Notices<NativeMemory> all(memory_, at<NoticeEntry>(plan_.notices_offset()));
        std::vector<Notice> out;
        Notice each;
        for (u32 from = 0; all.next(from, each); from = each.place + 1) out.push_back(each);
        return out;
    }

    ElementSurvey element_until_still(u32 element) const {
        constexpr int kLooks = 64;
        ElementSurvey now = look_at(element);
        for (int looks = 0; looks < kLooks && !now.still; ++looks) {
            ElementSurvey again = look_at(element);
            again.still = again.same(now);
            now = std::move(again);
        }
        return now;
    }

 private:
    template <class T>
    T* at(u64 offset) const {
        return reinterpret_cast<T*>(base_ + offset);
    }

    template <class Word>
    Word load(const Word* word) const {
        // pairs with: publish, release, subscribe, submit, answer, activate
        return memory_.load(word, std::memory_order_acquire);
    }

    ElementSurvey look_at(u32 element) const {
        const ElementWords words = plan_.words(base_, element);
        const ElementSpec& spec = plan_.element(element);
        ElementSurvey out;
        out.published = load(words.published());
        for (u32 sample = 0; sample < spec.samples; ++sample) {
            out.samples.push_back({load(words.word(sample)), load(words.sequence(sample)),
                                   load(words.length(sample))});
            out.index.push_back(load(words.index(sample)));
        }
        const auto* people = at<ParticipantEntry>(plan_.participants_offset());
        for (u32 slot = 0; slot < plan_.slots().count(); ++slot) {
            out.logs.push_back(load(words.log(slot)));
            out.people.push_back(load(&people[slot].who));
        }
        for (u32 place = 0; place < spec.calls; ++place)
            out.calls.push_back({load(words.call(place)), load(words.request_length(place)),
                                 load(words.response_length(place))});
        return out;
    }

    NativeMemory memory_;
    std::byte* base_;
    const ServicePlan& plan_;
};

// The faults of one element.
class ElementJudge {
 public:
    ElementJudge(const ElementSpec& spec, const ServiceSlots& slots, const ElementSurvey& seen,
                 std::vector<std::string>& faults)
        : spec_(spec), slots_(slots), seen_(seen), faults_(faults) {}

    void judge() {
        for (u32 slot = 0; slot < slots_.count(); ++slot) log_alone(slot);
        for (u32 place = 0; place < seen_.calls.size(); ++place) call_alone(place);
        if (seen_.published > kSequenceMax)
            say("the number of its newest sample is " + std::to_string(seen_.published) +
                ", beyond all that are used");
        for (u32 number = 0; number < seen_.index.size(); ++number)
            if (seen_.index[number] >= spec_.samples)
                say("its index " + std::to_string(number) + " leads to sample " +
                    std::to_string(seen_.index[number]) + ", which does not exist");
        if (!seen_.still) return;
        logs();
        for (u32 place = 0; place < seen_.calls.size(); ++place) call(place);
        if (spec_.samples == 0) return;
        for (u32 sample = 0; sample < spec_.samples; ++sample) holders(sample);
        held();
        sequences();
    }

 private:
    void say(const std::string& words) {
        faults_.push_back("element " + std::string(spec_.name_text()) + ": " + words);
    }
    static std::string number(const char* what, u64 which) {
        return what + std::string(" ") + std::to_string(which);
    }
    bool active(u32 slot) const { return (seen_.people[slot] & kActiveBit) != 0; }
    bool writing(const SampleLook& each) const { return (each.word & slots_.writing()) != 0; }

    void log_alone(u32 slot) {
        const u32 word = seen_.logs[slot];
        if (word == 0) return;
        if (log_state(word) != kLogAsking && log_state(word) != kLogActive)
            say("the log of slot " + std::to_string(slot) + " is " + std::to_string(word) +
                ", which no participant writes");
        if (slot == slots_.provider()) say("the provider has a log");
        if (log_samples(word) > spec_.samples)
            say("the log of slot " + std::to_string(slot) + " allows " +
                std::to_string(log_samples(word)) + " samples, more than there are");
    }

    // L1, and logs without a participant.
    void logs() {
        u64 sum = 0;
        u32 subscribers = 0;
        for (u32 slot = 0; slot <= slots_.tracer(); ++slot) {
            const u32 word = seen_.logs[slot];
            if (word == 0) continue;
            if (!active(slot))
                say("the log of slot " + std::to_string(slot) + " belongs to no participant");
            if (log_state(word) != kLogActive) continue;
            sum += u64{log_samples(word)} + 1;
            subscribers += slot != slots_.tracer();
        }
        if (sum != 0 && sum + spec_.loans + 1 > spec_.samples)
            say("its logs allow " + std::to_string(sum) + " samples of " +
                std::to_string(spec_.samples) + ", and the provider needs " +
                std::to_string(spec_.loans + 1) + " (L1)");
        if (subscribers > spec_.max_subscribers)
            say("it has " + std::to_string(subscribers) + " subscribers, and may have " +
                std::to_string(spec_.max_subscribers) + " (L1)");
    }

    // V3
    void holders(u32 sample) {
        const u64 word = seen_.samples[sample].word;
        for (u32 slot = 0; slot < slots_.tracer(); ++slot) {
            if ((word & ServiceSlots::bit(slot)) == 0) continue;
            if (log_state(seen_.logs[slot]) != kLogActive)
                say(number("sample", sample) + " is held by slot " + std::to_string(slot) +
                    ", which has not subscribed (V3)");
        }
    }

    void held() {
        u32 written = 0;
        for (const SampleLook& each : seen_.samples) written += writing(each);
        if (written > spec_.loans)
            say("the provider writes " + std::to_string(written) + " samples, and may write " +
                std::to_string(spec_.loans));
        for (u32 slot = 0; slot < slots_.tracer(); ++slot) {
            u64 count = 0;
            for (const SampleLook& each : seen_.samples) count += (each.word >> slot & 1) != 0;
            if (count > u64{log_samples(seen_.logs[slot])} + 1)
                say("slot " + std::to_string(slot) + " holds " + std::to_string(count) +
                    " samples, and may hold " + std::to_string(log_samples(seen_.logs[slot])));
        }
    }

    // V4, and the way from the newest number to its sample.
    void sequences() {
        std::vector<u64> shown;
        u32 later = 0;
        for (u32 sample = 0; sample < spec_.samples; ++sample) {
            const SampleLook& each = seen_.samples[sample];
            if (writing(each) || each.sequence == 0) continue;
            shown.push_back(each.sequence);
            later += each.sequence > seen_.published;
            if (each.length > spec_.size)
                say(number("sample", sample) + " is longer than the element's size");
        }
        if (later > 1)
            say(std::to_string(later) + " samples are newer than the newest, " +
                std::to_string(seen_.published) + " (V4)");
        std::sort(shown.begin(), shown.end());
        const auto twice = std::adjacent_find(shown.begin(), shown.end());
        if (twice != shown.end()) say("two samples have the number " + std::to_string(*twice));
        if (seen_.published == 0 || seen_.published > kSequenceMax) return;
        const u32 newest = seen_.index[seen_.published % spec_.samples];
        if (newest < spec_.samples &&
            (seen_.samples[newest].sequence != seen_.published || writing(seen_.samples[newest])))
            say("the newest sample, number " + std::to_string(seen_.published) + ", is not there");
    }

    void call_alone(u32 place) {
        const u64 word = seen_.calls[place].word;
        const CallState state = call_state(word);
        if (state > CallState::abandoned)
            say(number("call", place) + " has the state " +
                std::to_string(static_cast<int>(state)) + ", which does not exist");
        if (call_owner(word) > slots_.tracer())
            say(number("call", place) + " belongs to slot " + std::to_string(call_owner(word)) +
                ", which cannot call");
        if (state != CallState::idle && call_number(word) == 0)
            say(number("call", place) + " is in use, but was never claimed");
    }

    void call(u32 place) {
        const ServiceCallLook& each = seen_.calls[place];
        const CallState state = call_state(each.word);
        const bool needs_owner = state != CallState::idle && state != CallState::abandoned;
        if (needs_owner && call_owner(each.word) <= slots_.tracer() &&
            !active(call_owner(each.word)))
            say(number("call", place) + " belongs to slot " +
                std::to_string(call_owner(each.word)) + ", which no process has (M3)");
        if (state == CallState::call && each.request_length > spec_.request_size)
            say(number("call", place) + " has a request longer than its request_size");
        if (state == CallState::done && each.response_length > spec_.response_size)
            say(number("call", place) + " has a response longer than its response_size");
    }

    const ElementSpec& spec_;
    const ServiceSlots& slots_;
    const ElementSurvey& seen_;
    std::vector<std::string>& faults_;
};

}  // namespace detail

inline ServiceSurvey survey_service(std::byte* base, const ServicePlan& plan) {
    detail::ServiceLook look(base, plan);
    ServiceSurvey out;
    out.epoch = look.epoch();
    out.notices = look.notices();
    for (u32 place = 0; place < kNotices; ++place) {
        if (look.notice_state(place) > u64{plan.slots().provider()} + 2)
            out.faults.push_back("notice " + std::to_string(place) +
                                 " has a state which no participant writes");
    }
    for (u32 element = 0; element < plan.count(); ++element) {
        out.elements.push_back(look.element_until_still(element));
        out.overtaken |= !out.elements.back().still;
        detail::ElementJudge(plan.element(element), plan.slots(), out.elements.back(), out.faults)
            .judge();
    }
    for (u32 slot = 0; slot < plan.slots().count(); ++slot) {
        const u64 who = out.elements.front().people[slot] & ~kActiveBit;
        if (who > 0xffffffffu)
            out.faults.push_back("the entry of slot " + std::to_string(slot) +
                                 " has bits which no participant writes");
    }
    return out;
}

}  // namespace holdfast
