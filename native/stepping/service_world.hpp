// A service instance with a provider, proxies and a tracer, and the account of the survivor. No sample, log or call is left
// behind, numbers rise, and there is room for as much as at the start.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/service/check.hpp"
#include "holdfast/service/holds.hpp"
#include "stepping/situation.hpp"
#include "tests/check.hpp"

namespace holdfast::stepping {

constexpr u32 kEvent = 0, kMethod = 1;
constexpr u32 kEventSamples = 6, kEventSize = 64, kCalls = 2;
constexpr u32 kRoom =
    kEventSamples - 3;         // for one subscriber: all but one more, a loan and the newest
constexpr u64 kPublished = 3;  // before each operation

inline std::vector<ElementSpec> service_elements() {
    ElementSpec event{}, method{};
    std::string("event").copy(event.name, sizeof event.name - 1);
    event.kind = static_cast<u32>(ElementKind::event);
    event.samples = kEventSamples;
    event.loans = 1;
    event.max_subscribers = 4;
    event.size = kEventSize;
    std::string("method").copy(method.name, sizeof method.name - 1);
    method.kind = static_cast<u32>(ElementKind::method);
    method.calls = kCalls;
    method.request_size = method.response_size = 8;
    return {event, method};
}

// One process's holds on the instance.
class ServiceParty {
 public:
    ServiceParty(const std::string& directory, const std::string& name)
        : directory_(directory), name_(name) {}

    std::unique_ptr<ProviderHold> provider;
    std::unique_ptr<ProxyHold> proxy, tracer;
    u32 sample = 0;  // lent, or taken
    CallTicket ticket{};
    RunningCall running;

    void offer(const char* application = "stepping") {
        OfferSpec spec;
        spec.directory = directory_;
        spec.name = name_;
        spec.application = application;
        spec.elements = service_elements();
        provider = ProviderHold::offer(spec);
    }
    void connect(const char* application = "stepping") {
        proxy = ProxyHold::connect(directory_, name_, application);
    }
    void trace() { tracer = ProxyHold::connect(directory_, name_, "stepping", true); }
    // Another process finds the segment in use as long as this one is connected.
    void connect_and_offer() {
        connect();
        offer();
    }
    void leave() {
        if (provider) provider->stop();
        if (tracer) tracer->leave();
        if (proxy) proxy->leave();
    }

    bool lend() {
        sample = provider->lend(kEvent);
        return sample != SampleOrder::kNone;
    }
    void fill() {
        u64* words = reinterpret_cast<u64*>(provider->room(kEvent, sample));
        for (u64 i = 0; i < kEventSize / 8; ++i)
            words[i] = provider->next_sequence(kEvent) * 100 + i;
    }
    u64 publish() { return provider->publish(kEvent, sample, kEventSize); }
    u64 send() {
        if (!lend()) return 0;
        fill();
        return publish();
    }
    bool whole(const TakenSample& taken) const {
        const u64* words = reinterpret_cast<const u64*>(proxy->bytes(kEvent, taken.sample));
        for (u64 i = 0; i < kEventSize / 8; ++i)
            if (words[i] != taken.sequence * 100 + i) return false;
        return proxy->length(kEvent, taken.sample) == kEventSize;
    }
    bool subscribe(u32 samples, u64 last) {
        if (proxy->subscribe(kEvent, samples) != Subscribing::ok) return false;
        proxy->rewind(kEvent, last);
        return true;
    }
    // How many it got; the last of them is remembered.
    u32 take(u32 count) {
        TakenSample out[kEventSamples];
        u32 taken = 0;
        proxy->take(kEvent, count, out, taken);
        if (taken != 0) sample = out[taken - 1].sample;
        return taken;
    }
    bool call() {
        constexpr u64 kRequest = 5;
        return proxy->claim(kMethod, ticket) &&
               proxy->submit(kMethod, ticket, reinterpret_cast<const std::byte*>(&kRequest), 8);
    }
    bool run() { return provider->run(running); }
    bool answer() {
        const u64 response = 6;
        provider->answer(running, 0, reinterpret_cast<const std::byte*>(&response), 8);
        return true;
    }

    static std::string path(const std::string& directory, const std::string& name) {
        return Segment::path_of(directory, kServiceKind, name);
    }

 private:
    std::string directory_, name_;
};

// The words as the killed process left them.
class ServiceLook {
 public:
    ServiceLook(const std::string& directory, const std::string& name)
        : segment_(open_service(directory, name)), plan_(service_plan(*segment_)) {}

    u64 epoch() const { return *reinterpret_cast<u64*>(segment_->base() + plan_.epoch_offset()); }
    u64 published() const { return *event().published(); }
    bool writing() const { return holds(plan_.slots().provider()) != 0; }
    // Samples with the bit of this slot.
    u32 holds(u32 slot) const {
        u32 count = 0;
        for (u32 sample = 0; sample < kEventSamples; ++sample)
            count += (*event().word(sample) & ServiceSlots::bit(slot)) != 0;
        return count;
    }
    // Of all participants.
    u32 held() const {
        u32 count = 0;
        for (u32 sample = 0; sample < kEventSamples; ++sample) count += *event().word(sample) != 0;
        return count;
    }
    u32 logs(u32 state) const {
        u32 count = 0;
        for (u32 slot = 0; slot < 64; ++slot) count += log_state(*event().log(slot)) == state;
        return count;
    }
    u32 calls(CallState state) const {
        const ElementWords words = plan_.words(segment_->base(), kMethod);
        u32 count = 0;
        for (u32 place = 0; place < kCalls; ++place)
            count += call_state(*words.call(place)) == state;
        return count;
    }
    void require_sound() const {
        const ServiceSurvey survey = survey_service(segment_->base(), plan_);
        if (!survey.faults.empty()) throw Wrong("check: " + survey.faults[0]);
    }
    bool idle() const { return held() == 0 && logs(0) == 64 && calls(CallState::idle) == kCalls; }

 private:
    ElementWords event() const { return plan_.words(segment_->base(), kEvent); }

    std::shared_ptr<Segment> segment_;
    ServicePlan plan_;
};

// One kind of operation of a service. An empty function does nothing.
struct ServiceKind {
    using Body = std::function<void(ServiceParty&)>;

    std::string name;
    Body third = {};
    Body ready = {};
    std::function<bool(ServiceParty&)> operate = {};
    std::function<Outcome(const ServiceLook&)> look = {};  // before anything is recovered
    bool publishes = false;                                // one sample more, if it is complete
    // A bystander calls before the operation. Otherwise the traced process has to.
    bool called = false;
};

class ServiceSituation : public Situation {
 public:
    ServiceSituation(const std::string& directory, const std::string& service, ServiceKind kind)
        : directory_(directory), service_(service), kind_(std::move(kind)) {}

    std::string name() const override { return "service: " + kind_.name; }
    Third third() const override { return kind_.third ? Third::dies_before : Third::none; }
    std::vector<std::string> files() const override {
        return {ServiceParty::path(directory_, service_)};
    }

    void prepare() override {
        clean();
        ServiceParty party(directory_, service_);
        party.offer();
        party.connect();
        for (u64 number = 1; number <= kPublished; ++number) CHECK(party.send() == number);
        party.leave();  // the proxy after the provider: the segment stays
    }
    void clean() override {
        ::unlink(ServiceParty::path(directory_, service_).c_str());
        ::unlink(existence_path(directory_, service_).c_str());
    }

    void be_third() override {
        open();
        kind_.third(*party_);
    }
    void ready() override {
        open();
        if (kind_.ready) kind_.ready(*party_);
    }
    bool operate() override { return kind_.operate(*party_); }

    void attach() override {
        open();
        party_->connect();
        if (kind_.called) CHECK(party_->call());
    }

    Outcome account(bool returned) override {
        const bool bystander = party_ != nullptr;
        if (!bystander) open();
        const auto party = std::move(party_);
        const ServiceLook look(directory_, service_);
        look.require_sound();
        const Outcome outcome = kind_.look(look);
        require(!returned || outcome == Outcome::done,
                "the operation had returned, but the survivor found a part of it");
        if (!bystander) party->connect();
        party->offer();  // cleans what a dead provider left, and clears dead proxies
        require(party->provider->reused(), "the segment was made anew");
        if (kind_.called && bystander) settle(*party, outcome);
        party->provider->reap_all();
        require(look.idle(), words_of(look));
        if (kind_.third) require(told(*party), "the death of the third process is not told");
        const u64 newest = look.published();
        require(newest == kPublished || (kind_.publishes && newest == kPublished + 1),
                "the newest number is " + std::to_string(newest));
        require(!returned || !kind_.publishes || newest > kPublished, "a sample is lost");
        require_room(*party, newest);
        look.require_sound();
        require(look.idle(), words_of(look));
        party->leave();
        return outcome;
    }

 private:
    void open() { party_ = std::make_unique<ServiceParty>(directory_, service_); }

    static void require(bool condition, const std::string& words) {
        if (!condition) throw Wrong(words);
    }

    static std::string words_of(const ServiceLook& look) {
        return std::to_string(look.held()) + " samples are held, " +
               std::to_string(64 - look.logs(0)) + " logs are in use, " +
               std::to_string(kCalls - look.calls(CallState::idle)) + " calls are under way";
    }

    static bool told(ServiceParty& party) {
        Notice notice;
        bool found = false;
        for (u32 from = 0; party.provider->next_notice(from, notice); from = notice.place + 1) {
            found |= notice.application == "third";
            party.provider->notice_taken(notice);
        }
        return found;
    }

    // The bystander's call: it is answered, or its provider died in it, or it did not begin and is run now.
    static void settle(ServiceParty& party, Outcome outcome) {
        const CallLook found = party.proxy->look(kMethod, party.ticket);
        if (found == CallLook::waiting) {
            require(outcome == Outcome::not_begun, "a call that was run is run again");
            require(party.run() && party.answer(), "the call cannot be run");
        }
        bool dead = false;
        const Withdrawn end = party.proxy->withdraw(kMethod, party.ticket, dead);
        require(end == (found == CallLook::failed ? Withdrawn::running : Withdrawn::done),
                "the call is neither answered nor failed");
        if (found == CallLook::failed) return;
        u32 status = 0;
        const auto [at, length] = party.proxy->response(kMethod, party.ticket, status);
        require(length == 8 && *reinterpret_cast<const u64*>(at) == 6, "the response is another");
        party.proxy->collect(kMethod, party.ticket, CallState::done);
    }

    // The newest sample is whole. One subscriber may hold as many samples as at the start, while others are published.
    static void require_room(ServiceParty& party, u64 newest) {
        ProxyHold& proxy = *party.proxy;
        TakenSample held[kRoom];
        u32 taken = 0;
        require(party.subscribe(kRoom, newest - 1), "there is no room for a subscriber");
        proxy.take(kEvent, kRoom, held, taken);
        require(taken == 1 && held[0].sequence == newest && party.whole(held[0]),
                "the newest sample is not there");
        proxy.release(kEvent, held[0].sample);
        const u64 first = party.send();
        require(first == newest + 1, "the numbers do not rise by one");
        for (u32 i = 1; i < kRoom; ++i) require(party.send() == first + i, "numbers are lost");
        proxy.take(kEvent, kRoom, held, taken);
        require(taken == kRoom, "samples are lost");
        for (u32 i = 0; i < 2 * kEventSamples; ++i) require(party.send() != 0, "a sample leaked");
        for (u32 i = 0; i < kRoom; ++i) {
            require(held[i].sequence == first + i && party.whole(held[i]),
                    "a sample that is held was written");
            proxy.release(kEvent, held[i].sample);
        }
        proxy.unsubscribe(kEvent);
        CallTicket tickets[kCalls];
        for (CallTicket& each : tickets) require(proxy.claim(kMethod, each), "a call leaked");
        for (const CallTicket& each : tickets) proxy.collect(kMethod, each, CallState::claimed);
    }

    std::string directory_;
    std::string service_;
    ServiceKind kind_;
    std::unique_ptr<ServiceParty> party_;
};

}  // namespace holdfast::stepping
