// The operations of a service that are stepped, one of each kind.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stepping/service_world.hpp"

namespace holdfast::stepping {

namespace detail {

inline void offers(ServiceParty& party) {
    party.connect_and_offer();
}
inline void lends(ServiceParty& party) {
    offers(party);
    CHECK(party.lend());
    party.fill();
}
inline void connects(ServiceParty& party) {
    party.connect();
}
inline void subscribes(ServiceParty& party) {
    party.connect();
    CHECK(party.subscribe(2, kPublished - 2));
}
inline bool publishes(ServiceParty& party) {
    return party.publish() == kPublished + 1;
}
// A sample of the provider: none, WRITING, shown.
inline Outcome look_at_publication(const ServiceLook& look) {
    return look.published() > kPublished ? Outcome::done
           : look.writing()              ? Outcome::not_begun
                                         : Outcome::recovered;
}

inline std::vector<ServiceKind> publications() {
    ServiceKind lend{.name = "lend", .ready = offers};
    lend.operate = [](ServiceParty& party) { return party.lend(); };
    lend.look = [](const ServiceLook& look) {
        return look.writing() ? Outcome::done : Outcome::not_begun;
    };
    ServiceKind publish{.name = "publish", .ready = lends, .operate = publishes};
    publish.look = look_at_publication;
    publish.publishes = true;
    ServiceKind traced = publish;
    traced.name = "publish with a tracer";
    traced.ready = [](ServiceParty& party) {
        offers(party);
        party.trace();
        CHECK(party.tracer->subscribe(kEvent, 2) == Subscribing::ok && party.lend());
        party.fill();
    };
    ServiceKind give_back{.name = "give back", .ready = lends};
    give_back.operate = [](ServiceParty& party) {
        party.provider->give_back(kEvent, party.sample);
        return true;
    };
    give_back.look = [](const ServiceLook& look) {
        return look.writing() ? Outcome::not_begun : Outcome::done;
    };
    return {lend, publish, traced, give_back};
}

inline std::vector<ServiceKind> subscriptions() {
    ServiceKind take{.name = "take", .ready = subscribes};
    take.operate = [](ServiceParty& party) { return party.take(2) == 2; };
    take.look = [](const ServiceLook& look) {
        return look.held() == 2   ? Outcome::done
               : look.held() == 0 ? Outcome::not_begun
                                  : Outcome::recovered;
    };
    ServiceKind release{.name = "release"};
    release.ready = [](ServiceParty& party) {
        subscribes(party);
        CHECK(party.take(1) == 1);
    };
    release.operate = [](ServiceParty& party) {
        party.proxy->release(kEvent, party.sample);
        return true;
    };
    release.look = [](const ServiceLook& look) {
        return look.held() == 0 ? Outcome::done : Outcome::not_begun;
    };
    ServiceKind subscribe{.name = "subscribe", .ready = connects};
    subscribe.operate = [](ServiceParty& party) { return party.subscribe(kRoom, 0); };
    subscribe.look = [](const ServiceLook& look) {
        return look.logs(kLogActive) != 0   ? Outcome::done
               : look.logs(kLogAsking) != 0 ? Outcome::recovered
                                            : Outcome::not_begun;
    };
    ServiceKind leave{.name = "unsubscribe and leave", .ready = subscribes};
    leave.operate = [](ServiceParty& party) {
        party.proxy->unsubscribe(kEvent);
        party.proxy->leave();
        return true;
    };
    leave.look = [](const ServiceLook& look) {
        return look.logs(0) == 64 ? Outcome::done : Outcome::not_begun;
    };
    return {take, release, subscribe, leave};
}

// A third process dies with all that a proxy can have.
inline void has_everything(ServiceParty& party) {
    party.connect("third");
    CHECK(party.subscribe(2, kPublished - 2) && party.take(2) == 2 && party.call());
}
inline Outcome look_at_clearing(const ServiceLook& look) {
    if (look.idle()) return Outcome::done;
    return look.held() == 2 ? Outcome::not_begun : Outcome::recovered;
}

inline std::vector<ServiceKind> clearings() {
    ServiceKind clear{.name = "clear a dead proxy", .third = has_everything, .ready = connects};
    clear.operate = [](ServiceParty& party) { return party.proxy->reap_all() == 1; };
    clear.look = look_at_clearing;
    ServiceKind subscribe = clear;
    subscribe.name = "subscribe in the room of a dead proxy";
    subscribe.operate = [](ServiceParty& party) { return party.subscribe(kRoom, 0); };
    subscribe.look = [](const ServiceLook& look) {
        return look.held() == 2              ? Outcome::not_begun
               : look.logs(kLogActive) == 0  ? Outcome::recovered
               : look.logs(kLogAsking) != 0  ? Outcome::recovered
               : look.calls(CallState::call) ? Outcome::recovered
                                             : Outcome::done;
    };
    ServiceKind connect{.name = "connect after a dead proxy", .third = has_everything};
    connect.operate = [](ServiceParty& party) {
        party.connect();
        return true;
    };
    connect.look = look_at_clearing;
    return {clear, subscribe, connect};
}

// A provider that died in a publication, while it ran a call.
inline std::vector<ServiceKind> offerings() {
    ServiceKind clean{.name = "offer after a dead provider", .ready = connects};
    clean.third = [](ServiceParty& party) {
        party.connect("third");
        party.offer("third");
        CHECK(party.call() && party.run() && party.lend());
        party.fill();
        arm(SamplePoint::sample_written, PointAction::stop);
        party.publish();
    };
    clean.operate = [](ServiceParty& party) {
        party.offer();
        return party.provider->reused();
    };
    clean.look = [](const ServiceLook& look) {
        if (look.writing()) return Outcome::not_begun;
        return look.epoch() == 3 && look.idle() ? Outcome::done : Outcome::recovered;
    };
    ServiceKind stop{.name = "stop", .ready = lends};
    stop.operate = [](ServiceParty& party) {
        party.provider->give_back(kEvent, party.sample);
        party.provider->stop();
        return true;
    };
    stop.look = [](const ServiceLook& look) {
        return look.writing() ? Outcome::not_begun : Outcome::done;
    };
    return {clean, stop};
}

// A bystander has called, else this process calls itself.
inline void is_called(ServiceParty& party) {
    offers(party);
    if (!party.provider->looks_called()) CHECK(party.call());
}
inline void has_called(ServiceParty& party) {
    offers(party);
    CHECK(party.call());
}

inline std::vector<ServiceKind> calls() {
    ServiceKind call{.name = "call", .ready = connects};
    call.operate = [](ServiceParty& party) { return party.call(); };
    call.look = [](const ServiceLook& look) {
        return look.calls(CallState::call)      ? Outcome::done
               : look.calls(CallState::claimed) ? Outcome::recovered
                                                : Outcome::not_begun;
    };
    ServiceKind run{.name = "run a call", .ready = is_called};
    run.called = true;
    run.operate = [](ServiceParty& party) { return party.run(); };
    run.look = [](const ServiceLook& look) {
        return look.calls(CallState::running) ? Outcome::done : Outcome::not_begun;
    };
    ServiceKind answer = run;
    answer.name = "answer a call";
    answer.ready = [](ServiceParty& party) {
        is_called(party);
        CHECK(party.run());
    };
    answer.operate = [](ServiceParty& party) { return party.answer(); };
    answer.look = [](const ServiceLook& look) {
        return look.calls(CallState::done) ? Outcome::done : Outcome::recovered;
    };
    ServiceKind collect{.name = "collect a response"};
    collect.ready = [](ServiceParty& party) {
        has_called(party);
        CHECK(party.run() && party.answer());
    };
    collect.operate = [](ServiceParty& party) {
        party.proxy->collect(kMethod, party.ticket, CallState::done);
        return true;
    };
    collect.look = [](const ServiceLook& look) {
        return look.calls(CallState::idle) == kCalls ? Outcome::done : Outcome::not_begun;
    };
    ServiceKind withdraw{.name = "withdraw a call that runs"};
    withdraw.ready = [](ServiceParty& party) {
        has_called(party);
        CHECK(party.run());
    };
    withdraw.operate = [](ServiceParty& party) {
        bool dead = false;
        return party.proxy->withdraw(kMethod, party.ticket, dead) == Withdrawn::running;
    };
    withdraw.look = [](const ServiceLook& look) {
        return look.calls(CallState::abandoned) ? Outcome::done : Outcome::not_begun;
    };
    return {call, run, answer, collect, withdraw};
}

}  // namespace detail

inline std::vector<std::unique_ptr<Situation>> service_situations(const std::string& directory,
                                                                  const std::string& service) {
    std::vector<std::unique_ptr<Situation>> all;
    for (const auto& kinds : {detail::publications(), detail::subscriptions(), detail::clearings(),
                              detail::offerings(), detail::calls()})
        for (const ServiceKind& kind : kinds)
            all.push_back(std::make_unique<ServiceSituation>(directory, service, kind));
    return all;
}

}  // namespace holdfast::stepping
