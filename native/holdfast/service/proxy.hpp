// A proxy's hold on a service instance, and the tracer's: it subscribes, takes samples and calls.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/service/hold.hpp"

namespace holdfast {

class ProxyHold final : public ServiceHold {
 public:
    // `tracer`: the one that is handed every sample.
    static std::unique_ptr<ProxyHold> connect(const std::string& directory, const std::string& name,
                                              const std::string& application, bool tracer = false) {
        constexpr int kTries =
            50;  // each but the last is lost to a segment that was removed meanwhile
        for (int tries = 0;; ++tries) {
            std::shared_ptr<Segment> segment = open_service(directory, name);
            std::unique_ptr<ProxyHold> hold;
            try {
                hold.reset(new ProxyHold(segment, name, application, tracer));
            } catch (const Error& error) {
                // A provider that is about to remove the segment has all bytes.
                if (error.code != Code::too_many_participants || segment->has_name() ||
                    tries == kTries)
                    throw;
                continue;
            }
            if (hold->has_name() || tries == kTries) return hold;
            hold->leave();
        }
    }

    bool tracer() const { return me_ == plan_.slots().tracer(); }

    // ---- samples

    Subscribing subscribe(u32 element, u32 samples) {
        // Before: what is published from the first moment on is new. A tracer would keep what it takes for old.
        const u64 last = newest(element);
        const Subscribing result =
            elements_[element].logs.subscribe(me_, samples, [&] { return reap(element); });
        if (result != Subscribing::ok) return result;
        Watched& watched = watched_[element];
        watched = {true, samples, 0, last};
        if (tracer()) elements_[element].samples.release_strays(last);
        return result;
    }
    bool subscribed(u32 element) const { return watched_[element].subscribed; }
    u32 granted(u32 element) const { return watched_[element].granted; }
    u32 held(u32 element) const { return watched_[element].held; }
    u64 last(u32 element) const { return watched_[element].last; }
    // Samples after this number are new. For a subscriber that wants what was published before.
    void rewind(u32 element, u64 last) { watched_[element].last = last; }
    u64 newest(u32 element) const { return elements_[element].samples.newest(); }
    bool looks_empty(u32 element, u64 last) const {
        if (tracer()) return !traced_waits(element, last);
        return memory_.load(elements_[element].samples.words().published(),
                            std::memory_order_relaxed) == last;
    }

    // Takes the newest samples that this proxy has not had, at most `count` and what it may hold, the oldest first.
    Taking take(u32 element, u32 count, TakenSample* out, u32& taken) {
        Watched& watched = watched_[element];
        auto& samples = elements_[element].samples;
        taken = 0;
        count = std::min(count, std::max(watched.granted, 1u) - watched.held);
        if (count == 0) return Taking::empty;
        Taking result;
        if (tracer()) {
            result = samples.next_traced(watched.last, out[0]);
            taken = result == Taking::ok;
        } else {
            result = take_newest(element, watched.last, count, out, taken);
        }
        if (result == Taking::corrupt) damaged(samples.fault);
        if (taken == 0) return result;
        watched.held += taken;
        watched.last = out[taken - 1].sequence;
        this->count(ServiceCount::taken, taken);
        tick();
        return Taking::ok;
    }
    // Holds the newest sample for a moment, which is not counted; `last` stays. The proxy is subscribed, is not the tracer
    // and does not hold that sample. The caller ends it with let_go().
    Taking peek(u32 element, TakenSample& out) {
        auto& samples = elements_[element].samples;
        const u64 number = samples.newest();
        if (number == 0) return Taking::empty;
        u32 taken = 0;
        const Taking result = take_newest(element, number - 1, 1, &out, taken);
        if (result == Taking::corrupt) damaged(samples.fault);
        return result;
    }
    void let_go(u32 element, u32 sample) {
        if (usable()) elements_[element].samples.release(me_, sample);
    }
    const std::byte* bytes(u32 element, u32 sample) const {
        return elements_[element].samples.words().buffer(sample);
    }
    void release(u32 element, u32 sample) {
        if (!usable()) return;
        elements_[element].samples.release(me_, sample);
        --watched_[element].held;
    }
    void count_missed(u64 missed) { count(ServiceCount::missed, missed); }
    // After the last sample was released.
    void unsubscribe(u32 element) {
        if (!usable() || !watched_[element].subscribed) return;
        if (tracer()) elements_[element].samples.clear_holder(me_);
        elements_[element].logs.leave(me_);
        watched_[element] = {};
    }

    // ---- calls

    // Asks no kernel. False: all places are in use.
    bool try_claim(u32 element, CallTicket& ticket) {
        return elements_[element].calls.claim(me_, ticket);
    }
    // Each place has had as many calls as its number counts.
    bool used_up(u32 element) const {
        const ElementWords& words = elements_[element].calls.words();
        for (u32 place = 0; place < plan_.element(element).calls; ++place) {
            if (call_number(memory_.load(words.call(place), std::memory_order_relaxed)) <
                kCallNumberMax)
                return false;
        }
        return true;
    }
    bool looks_claimable(u32 element) const {
        const ElementWords& words = elements_[element].calls.words();
        for (u32 place = 0; place < plan_.element(element).calls; ++place) {
            if (call_state(memory_.load(words.call(place), std::memory_order_relaxed)) ==
                CallState::idle)
                return true;
        }
        return false;
    }
    // The same after clearing the dead.
    bool claim(u32 element, CallTicket& ticket) {
        auto& calls = elements_[element].calls;
        if (calls.claim(me_, ticket)) return true;
        for (u32 slot = 0; slot <= plan_.slots().tracer(); ++slot)
            if (slot != me_ && attachment_.participant().marked_active(slot)) clear_if_dead(slot);
        return calls.claim(me_, ticket);
    }
    bool submit(u32 element, const CallTicket& ticket, const std::byte* request, u64 length) {
        copy_bytes(request_room(element, ticket), request, length);
        return submit(element, ticket, length);
    }
    std::byte* request_room(u32 element, const CallTicket& ticket) const {
        return elements_[element].calls.words().request(ticket.place);
    }
    // After the request was written to its room.
    bool submit(u32 element, const CallTicket& ticket, u64 length) {
        auto& calls = elements_[element].calls;
        memory_.store(calls.words().request_length(ticket.place), static_cast<u32>(length),
                      std::memory_order_relaxed);
        const bool submitted = calls.submit(ticket);
        ring_bell(memory_, provider_bell());
        count(ServiceCount::called);
        tick();
        return submitted;
    }
    CallLook look(u32 element, const CallTicket& ticket) const {
        return elements_[element].calls.look(ticket);
    }
    // The response, valid until collect(). Its length is at most response_size.
    std::pair<const std::byte*, u32> response(u32 element, const CallTicket& ticket,
                                              u32& status) const {
        const ElementWords& words = elements_[element].calls.words();
        status = memory_.load(words.response_status(ticket.place), std::memory_order_relaxed);
        const u32 length =
            memory_.load(words.response_length(ticket.place), std::memory_order_relaxed);
        return {words.response(ticket.place),
                static_cast<u32>(std::min<u64>(length, plan_.element(element).response_size))};
    }
    void collect(u32 element, const CallTicket& ticket, CallState from) {
        elements_[element].calls.collect(ticket, from);
        ring_bell(memory_, bell(element));  // others wait for a place
    }
    // The caller gives up. `dead`: because no provider lives; then it is asked once more, and `dead` tells.
    Withdrawn withdraw(u32 element, const CallTicket& ticket, bool& dead) {
        const u32 provider = plan_.slots().provider();
        dead = dead && memory_.take_byte(provider);
        const Withdrawn result = elements_[element].calls.withdraw(ticket, dead);
        if (dead) memory_.drop_byte(provider);
        if (result != Withdrawn::done) ring_bell(memory_, bell(element));
        return result;
    }

 private:
    struct Watched {
        bool subscribed = false;
        u32 granted = 0;
        u32 held = 0;
        u64 last = 0;
    };

    ProxyHold(std::shared_ptr<Segment> segment, const std::string& name,
              const std::string& application, bool tracer)
        : ServiceHold(std::move(segment), name), watched_(plan_.count()) {
        this->segment()->protect(plan_.data_offset(), plan_.size());
        const u32 first = tracer ? plan_.slots().tracer() : 0;
        const u32 end = tracer ? first + 1 : plan_.slots().proxies;
        attach(first, end, application, [] { return true; });
        holdfast::at(OfferPoint::proxy_attached);
        reap_all();
        holdfast::at(OfferPoint::proxy_reaped);
    }

    // Takes; tells a newest sample that cannot be held from one that was replaced. The provider never replaces the newest,
    // so that its number has moved if it was. If not, another process has overwritten its word.
    Taking take_newest(u32 element, u64 last, u32 count, TakenSample* out, u32& taken) {
        auto& samples = elements_[element].samples;
        Taking result = samples.take(me_, last, count, out, taken);
        if (result != Taking::overtaken) [[likely]]
            return result;
        const u64 number = samples.newest();
        result = samples.take(me_, last, count, out, taken);
        if (result != Taking::overtaken || samples.newest() != number) return result;
        const ElementWords& words = samples.words();
        const u32 sample = memory_.load(words.index(number), std::memory_order_relaxed);
        const u64 word = sample < words.samples()
                             ? memory_.load(words.word(sample), std::memory_order_relaxed)
                             : sample;
        samples.fault = {"word of the newest sample, which cannot be held", number, word};
        return Taking::corrupt;
    }

    bool traced_waits(u32 element, u64 last) const {
        const ElementWords& words = elements_[element].samples.words();
        const u64 mine = ServiceSlots::bit(me_);
        const u64 newest = elements_[element].samples.newest();
        for (u32 sample = 0; sample < words.samples(); ++sample) {
            const u64 word = memory_.load(words.word(sample), std::memory_order_relaxed);
            if ((word & mine) == 0 || (word & plan_.slots().writing()) != 0) continue;
            const u64 number = memory_.load(words.sequence(sample), std::memory_order_relaxed);
            if (number > last && number <= newest) return true;
        }
        return false;
    }

    std::vector<Watched> watched_;
};

}  // namespace holdfast
