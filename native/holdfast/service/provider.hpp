// The provider's hold on a service instance: it offers, lends and publishes samples, runs calls, hears of deaths.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/service/hold.hpp"

namespace holdfast {

struct OfferSpec {
    std::string directory;
    std::string name;
    std::string application;
    std::vector<ElementSpec> elements;
    mode_t mode = 0600;
    gid_t gid = kSameGroup;
    ServiceAge age;  // of a segment that is created
};

// A call that the provider has taken.
struct RunningCall {
    u32 element = 0;
    u32 place = 0;
    u64 word = 0;
    std::vector<std::byte> request;  // a private copy, of run()
};

class ProviderHold final : public ServiceHold {
 public:
    static std::unique_ptr<ProviderHold> offer(const OfferSpec& spec) {
        HeldLock existence = hold_existence(spec.directory, spec.name, spec.mode, spec.gid);
        // `holdfast service rm` has the marker for a moment, to remove an unused segment.
        for (int tries = 0; !existence && tries < kOfferTries && provider_of(spec) == 0; ++tries) {
            ::usleep(1000);
            existence = hold_existence(spec.directory, spec.name, spec.mode, spec.gid);
        }
        if (!existence) throw already_offered(spec);
        try {
            bool reused = false;
            std::shared_ptr<Segment> segment = prepare(spec, reused);
            std::unique_ptr<ProviderHold> hold(new ProviderHold(std::move(segment), spec, reused));
            hold->existence_ = std::move(existence);
            return hold;
        } catch (...) {
            remove_existence(existence, spec.directory, spec.name);  // no offer, no marker
            throw;
        }
    }

    // The segment of an earlier provider is in use, and goes on.
    bool reused() const { return reused_; }

    // ---- samples

    // A sample to fill; kNone: all are held, or the program has `loans` of them.
    u32 lend(u32 element) {
        Lent& lent = lent_[element];
        if (lent.loans >= plan_.element(element).loans) return SampleOrder::kNone;
        auto& samples = elements_[element].samples;
        u32 sample = samples.allocate(lent.order);
        if (sample == SampleOrder::kNone) {
            elements_.clear_strays(element);
            reap(element);
            sample = samples.allocate(lent.order);
        }
        if (sample != SampleOrder::kNone) ++lent.loans;
        return sample;
    }
    std::byte* room(u32 element, u32 sample) const {
        return elements_[element].samples.words().buffer(sample);
    }
    // Returns the sequence number; 0: they are used up, and the loan stays.
    u64 publish(u32 element, u32 sample, u32 length) {
        auto& each = elements_[element];
        Lent& lent = lent_[element];
        const u32 trace = each.logs.granted(plan_.slots().tracer());
        const u64 number = each.samples.publish(lent.order, sample, length, trace);
        if (number == 0) return 0;
        --lent.loans;
        each.samples.announce();
        count(ServiceCount::sent);
        count(ServiceCount::sent_bytes, length);
        tick();
        return number;
    }
    void give_back(u32 element, u32 sample) {
        if (!usable()) return;
        elements_[element].samples.give_back(lent_[element].order, sample);
        --lent_[element].loans;
    }
    u32 loans(u32 element) const { return lent_[element].loans; }
    // The newest sample, for the provider itself. It is not replaced before the next publish(). kNone: there is not one.
    u32 newest(u32 element) const { return lent_[element].order.newest; }
    u64 next_sequence(u32 element) const { return lent_[element].order.next; }

    // ---- calls

    // Takes the next call of any element, in turn, with a copy of its request. False: there is not one.
    bool run(RunningCall& out) {
        if (!take_call(out)) return false;
        const auto [from, length] = request(out);
        out.request.assign(from, from + length);
        return true;
    }
    // The same without the copy.
    bool take_call(RunningCall& out) {
        for (u32 i = 1; i <= plan_.count(); ++i) {
            const u32 element = (last_element_ + i) % plan_.count();
            if (plan_.element(element).calls == 0) continue;
            auto& calls = elements_[element].calls;
            u64 word = 0;
            const u32 place = calls.run(lent_[element].last_place, word);
            if (place == Calls<NativeMemory>::kNone) continue;
            last_element_ = element;
            lent_[element].last_place = place;
            out.element = element;
            out.place = place;
            out.word = word;
            return true;
        }
        return false;
    }
    // The caller can write its request at any time: it is believed once, and from a copy.
    std::pair<const std::byte*, u64> request(const RunningCall& call) const {
        const ElementWords& words = elements_[call.element].calls.words();
        const u32 length =
            memory_.load(words.request_length(call.place), std::memory_order_relaxed);
        return {words.request(call.place),
                std::min<u64>(length, plan_.element(call.element).request_size)};
    }
    bool looks_called() const {
        for (u32 element = 0; element < plan_.count(); ++element) {
            for (u32 place = 0; place < plan_.element(element).calls; ++place) {
                const u64* word = elements_[element].calls.words().call(place);
                if (call_state(memory_.load(word, std::memory_order_relaxed)) == CallState::call)
                    return true;
            }
        }
        return false;
    }
    // `length` is at most the element's response_size. False: the caller does not wait any more.
    bool answer(const RunningCall& call, u32 status, const std::byte* response, u64 length) {
        copy_bytes(response_room(call), response, length);
        return answer(call, status, length);
    }
    std::byte* response_room(const RunningCall& call) const {
        return elements_[call.element].calls.words().response(call.place);
    }
    // After the response was written to its room.
    bool answer(const RunningCall& call, u32 status, u64 length) {
        auto& calls = elements_[call.element].calls;
        memory_.store(calls.words().response_status(call.place), status, std::memory_order_relaxed);
        memory_.store(calls.words().response_length(call.place), static_cast<u32>(length),
                      std::memory_order_relaxed);
        const bool heard = calls.answer(call.place, call.word);
        ring_bell(memory_, bell(call.element));
        count(ServiceCount::answered);
        tick();
        return heard;
    }

    // ---- notices

    bool next_notice(u32 from, Notice& out) const { return notices_.next(from, out); }
    void notice_taken(const Notice& notice) { notices_.taken(notice); }

    // ---- the end

    // Withdraws the offer. The slot and the marker stay until stop(), for samples that the program still writes to.
    void resign() {
        if (!still_usable()) return;
        attachment_.participant().mark_inactive(me_);
        wake_all();
    }
    // Withdraws the offer, and removes the segment if it is unused.
    void stop() {
        if (!existence_) return;
        if (attachment_.still_usable()) {
            attachment_.leave();
            holdfast::at(OfferPoint::stop_left);
            wake_all();
            remove_unused(directory_, name_);
            holdfast::at(OfferPoint::stop_removed);
        }
        remove_existence(existence_, directory_, name_);
    }
    ~ProviderHold() { stop(); }

 private:
    struct Lent {
        SampleOrder order;
        u32 loans = 0;
        u32 last_place = 0;
    };

    ProviderHold(std::shared_ptr<Segment> segment, const OfferSpec& spec, bool reused)
        : ServiceHold(std::move(segment), spec.name),
          directory_(spec.directory),
          reused_(reused),
          lent_(plan_.count()) {
        attach(plan_.slots().provider(), plan_.slots().count(), spec.application,
               [&] { return clean(); });
        holdfast::at(OfferPoint::offer_open);
        reap_all();
    }

    // Repairs what the last provider left, and begins a new epoch.
    bool clean() {
        for (u32 element = 0; element < plan_.count(); ++element) {
            auto& each = elements_[element];
            if (!each.samples.start(lent_[element].order)) {
                fault_ = each.samples.fault;
                return false;
            }
            each.calls.clean();
        }
        holdfast::at(OfferPoint::offer_cleaned);
        const u64 epoch = memory_.load(epoch_word(), std::memory_order_relaxed);
        memory_.store(epoch_word(), epoch + 1, std::memory_order_release);  // pairs with: epoch
        holdfast::at(OfferPoint::offer_counted);
        return true;
    }

    // The segment to offer: a new one, or the last one if proxies still use it. The caller has the existence marker.
    static std::shared_ptr<Segment> prepare(const OfferSpec& spec, bool& reused) {
        SegmentSpec wanted;
        wanted.directory = spec.directory;
        wanted.name = spec.name;
        wanted.mode = spec.mode;
        wanted.gid = spec.gid;
        if (const std::string fault = fault_of(spec.elements); !fault.empty())
            throw Error(Code::misuse, "service " + spec.name + ": " + fault);
        if (remove_unused(spec.directory, spec.name)) {
            holdfast::at(OfferPoint::offer_unused);
            std::shared_ptr<Segment> made = create_service(wanted, spec.elements, spec.age);
            holdfast::at(OfferPoint::offer_created);
            return made;
        }
        if (provider_of(spec) != 0) throw already_offered(spec);  // its marker was removed
        reused = true;
        std::shared_ptr<Segment> segment = open_service(spec.directory, spec.name);
        const std::vector<ElementSpec> there = service_plan(*segment).elements();
        if (there.size() != spec.elements.size() ||
            std::memcmp(there.data(), spec.elements.data(), there.size() * sizeof(ElementSpec)) !=
                0)
            throw Error(Code::layout_mismatch,
                        "service " + spec.name +
                            " is in use with other elements than this class has, by " +
                            users(*segment) +
                            ". End these processes, or offer the class as another instance");
        return segment;
    }

    // "pid 12, pid 13"
    static std::string users(const Segment& segment) {
        const ServicePlan plan = service_plan(segment);
        ParticipantEntry* table =
            participant_table(segment, plan.participants_offset(), plan.slots().count());
        std::string out;
        for (u32 slot = 0; slot <= plan.slots().tracer(); ++slot) {
            const ParticipantInfo info = describe_slot(segment, table[slot], slot);
            if (info.locked) out += (out.empty() ? "pid " : ", pid ") + std::to_string(info.pid);
        }
        return out.empty() ? "a process that is just leaving" : out;
    }

    static constexpr int kOfferTries = 50;

    // The pid of the living provider; 0: there is not one, or the segment is just being created or removed.
    static u32 provider_of(const OfferSpec& spec) {
        try {
            const std::shared_ptr<Segment> segment = open_service(spec.directory, spec.name);
            const ServicePlan plan = service_plan(*segment);
            const u32 slot = plan.slots().provider();
            const ParticipantInfo info = describe_slot(
                *segment,
                participant_table(*segment, plan.participants_offset(), plan.slots().count())[slot],
                slot);
            return info.locked ? info.pid : 0;
        } catch (const Error&) {
            return 0;
        }
    }

    static Error already_offered(const OfferSpec& spec) {
        const u32 pid = provider_of(spec);
        return Error(
            Code::exists,
            "service " + spec.name + " is offered already" +
                (pid == 0 ? "" : " by pid " + std::to_string(pid)) +
                ". An instance has one provider; end that process, or offer another instance");
    }

    std::string directory_;
    HeldLock existence_;
    bool reused_;
    std::vector<Lent> lent_;
    u32 last_element_ = 0;
};

}  // namespace holdfast
