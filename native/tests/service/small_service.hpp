// Small services for tests: elements, offers, deaths at a named point, and the account of an instance where nothing is left.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/service/holds.hpp"
#include "tests/check.hpp"

namespace holdfast::test {

using Provider = std::unique_ptr<ProviderHold>;
using Proxy = std::unique_ptr<ProxyHold>;

constexpr u32 kSpeed = 0, kStop = 1;  // the elements of small_service()
constexpr u32 kWhole = 5;  // samples that one subscriber of `speed` may hold: 8 - newest - loan - 1

inline ElementSpec event(const std::string& name, u32 samples = 8, u32 loans = 1,
                         u32 max_subscribers = 4, u64 size = 64) {
    ElementSpec out{};
    name.copy(out.name, sizeof out.name - 1);
    out.kind = static_cast<u32>(ElementKind::event);
    out.samples = samples;
    out.loans = loans;
    out.max_subscribers = max_subscribers;
    out.size = size;
    return out;
}

inline ElementSpec method(const std::string& name, u32 calls = 2) {
    ElementSpec out{};
    name.copy(out.name, sizeof out.name - 1);
    out.kind = static_cast<u32>(ElementKind::method);
    out.calls = calls;
    out.request_size = out.response_size = 64;
    return out;
}

inline std::vector<ElementSpec> small_service() {
    return {event("speed"), method("stop")};
}

inline OfferSpec offer_spec(const std::string& name,
                            std::vector<ElementSpec> elements = small_service()) {
    OfferSpec spec;
    spec.directory = default_directory();
    spec.name = name;
    spec.application = "provider";
    spec.elements = std::move(elements);
    return spec;
}

inline Provider offer(const std::string& name,
                      std::vector<ElementSpec> elements = small_service()) {
    return ProviderHold::offer(offer_spec(name, std::move(elements)));
}

inline Proxy join(const std::string& name, const std::string& application = "proxy",
                  bool tracer = false) {
    return ProxyHold::connect(default_directory(), name, application, tracer);
}

// Every word of a sample follows from `value`.
inline void fill(ProviderHold& provider, u32 element, u32 sample, u64 value) {
    u64* words = reinterpret_cast<u64*>(provider.room(element, sample));
    const u64 count = provider.plan().element(element).size / 8;
    for (u64 i = 0; i < count; ++i) words[i] = value * 0x9E3779B97F4A7C15u + i;
}
inline bool filled_with(const ProxyHold& proxy, u32 element, u32 sample, u64 value) {
    const u64* words = reinterpret_cast<const u64*>(proxy.bytes(element, sample));
    const u64 count = proxy.plan().element(element).size / 8;
    for (u64 i = 0; i < count; ++i)
        if (words[i] != value * 0x9E3779B97F4A7C15u + i) return false;
    return proxy.length(element, sample) == count * 8;
}

// Publishes a sample that is filled with its own number.
inline u64 send(ProviderHold& provider, u32 element = kSpeed) {
    const u32 sample = provider.lend(element);
    CHECK(sample != SampleOrder::kNone);
    fill(provider, element, sample, provider.next_sequence(element));
    return provider.publish(element, sample,
                            static_cast<u32>(provider.plan().element(element).size));
}

// Takes at most `count` new samples, and checks their bytes.
inline std::vector<TakenSample> take(ProxyHold& proxy, u32 count, u32 element = kSpeed) {
    std::vector<TakenSample> out(count);
    u32 taken = 0;
    const Taking result = proxy.take(element, count, out.data(), taken);
    if (result == Taking::corrupt) std::fprintf(stderr, "%s\n", proxy.fault_words().c_str());
    CHECK(result == Taking::ok || result == Taking::empty);
    out.resize(taken);
    for (const TakenSample& each : out)
        CHECK(filled_with(proxy, element, each.sample, each.sequence));
    return out;
}
inline std::vector<u64> numbers(const std::vector<TakenSample>& samples) {
    std::vector<u64> out;
    for (const TakenSample& each : samples) out.push_back(each.sequence);
    return out;
}
inline void release(ProxyHold& proxy, const std::vector<TakenSample>& samples,
                    u32 element = kSpeed) {
    for (const TakenSample& each : samples) proxy.release(element, each.sample);
}

inline u64 sample_word(ServiceHold& hold, u32 sample, u32 element = kSpeed) {
    return std::atomic_ref<u64>(*hold.elements()[element].samples.words().word(sample)).load();
}
inline u64 call_word_of(ServiceHold& hold, u32 place, u32 element = kStop) {
    return std::atomic_ref<u64>(*hold.elements()[element].calls.words().call(place)).load();
}

// No sample is held, no process subscribes, no call is under way.
inline void require_idle(ServiceHold& hold) {
    for (u32 element = 0; element < hold.plan().count(); ++element) {
        const ElementSpec& spec = hold.plan().element(element);
        for (u32 sample = 0; sample < spec.samples; ++sample)
            CHECK(sample_word(hold, sample, element) == 0);
        for (u32 slot = 0; spec.samples != 0 && slot < 64; ++slot)
            CHECK(hold.elements()[element].logs.word(slot) == 0);
        for (u32 place = 0; place < spec.calls; ++place)
            CHECK(call_state(call_word_of(hold, place, element)) == CallState::idle);
    }
}

// The instance has room for all that it had room for at its start.
inline void require_whole(ProviderHold& provider) {
    provider.reap_all();
    require_idle(provider);
    const Proxy one = join(provider.name(), "one"), two = join(provider.name(), "two");
    CHECK(one->subscribe(kSpeed, kWhole) == Subscribing::ok);
    CHECK(two->subscribe(kSpeed, 1) == Subscribing::full);
    const u64 first = provider.next_sequence(kSpeed);
    std::vector<u64> sent;
    for (u32 i = 0; i < kWhole; ++i) sent.push_back(send(provider));
    CHECK(sent.front() == first && sent.back() == first + kWhole - 1);
    const std::vector<TakenSample> held = take(*one, kWhole);
    CHECK(numbers(held) == sent);
    for (u32 i = 0; i < 20; ++i) send(provider);  // all of it held: the provider gets on
    for (const TakenSample& each : held)
        CHECK(filled_with(*one, kSpeed, each.sample, each.sequence));
    release(*one, held);
    one->unsubscribe(kSpeed);
    std::vector<CallTicket> tickets(provider.plan().element(kStop).calls);
    for (CallTicket& each : tickets) CHECK(two->claim(kStop, each));
    for (const CallTicket& each : tickets) two->collect(kStop, each, CallState::claimed);
    one->leave();
    two->leave();
    require_idle(provider);
}

// Runs `body` in a child, which dies when it passes `point` for the `countdown`-th time.
template <class Body>
void dies_at(Point point, Body body, u64 countdown = 1) {
    const int status = finish(start([&] {
        arm(point, PointAction::kill, countdown);
        body();
    }));
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        std::fprintf(stderr, "the point %s was not passed\n", std::string(point.name()).c_str());
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace holdfast::test
