// The operations of a channel that are stepped, one of each kind.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "stepping/channel_world.hpp"

namespace holdfast::stepping {

namespace detail {

inline u32 held_buffer = 0;  // of the traced process

inline void produces(ChannelParty& party) {
    CHECK(party.produce());
}
inline void consumes(ChannelParty& party) {
    CHECK(party.consume());
}
inline void pops_one(ChannelParty& party) {
    PoppedDatum out;
    CHECK(party.pop(out) == Handover::ok);
    held_buffer = out.buffer;
}
inline void holds_one(ChannelParty& party) {
    consumes(party);
    pops_one(party);
}
inline bool takes(ChannelParty& party, u64 number) {
    PoppedDatum out;
    return party.pop(out) == Handover::ok && party.number_in(out) == number;
}
inline bool releases(ChannelParty& party) {
    party.release(held_buffer);
    return true;
}
inline bool pushes_one(ChannelParty& party) {
    return party.push(4);
}
inline bool pushes_two(ChannelParty& party) {
    constexpr std::array<u64, 2> numbers{4, 5};
    return party.push(numbers);
}

// Stands still at a named point of a push, of a pop and of a push back, until it is killed.
inline void stops_in_a_push(ChannelParty& party) {
    produces(party);
    arm(ChannelPoint::push_ended, PointAction::stop);
    pushes_two(party);
}
inline void stops_in_a_pop(ChannelParty& party) {
    holds_one(party);
    arm(ChannelPoint::pop_claimed, PointAction::stop);
    takes(party, 0);
}
inline void stops_in_a_release(ChannelParty& party) {
    holds_one(party);
    arm(ChannelPoint::push_ended, PointAction::stop);
    releases(party);
}
// The same from another slot than the first, so that its successor does not get the slot, and has to ask for the byte.
inline void stops_in_a_push_elsewhere(ChannelParty& party) {
    consumes(party);
    produces(party);
    party.leave_consumer();
    arm(ChannelPoint::push_ended, PointAction::stop);
    pushes_two(party);
}

inline std::vector<ChannelKind> pushes() {
    ChannelKind one{.name = "push", .before = {1, 2}, .ready = produces, .operate = pushes_one};
    one.allowed = {{Outcome::not_begun, {1, 2}}, {Outcome::done, {1, 2, 4}}};
    ChannelKind displaces = one;
    displaces.name = "push that displaces the oldest datum";
    displaces.before = {1, 2, 3};
    displaces.allowed = {{Outcome::not_begun, {1, 2, 3}},
                         {Outcome::recovered, {2, 3}, 1},
                         {Outcome::done, {2, 3, 4}, 1}};
    ChannelKind batch = displaces;
    batch.name = "push of a batch";
    batch.operate = pushes_two;
    batch.allowed = {{Outcome::not_begun, {1, 2, 3}},
                     {Outcome::recovered, {2, 3}, 1},
                     {Outcome::recovered, {3}, 2},
                     {Outcome::done, {3, 4, 5}, 2}};
    ChannelKind cancel{.name = "cancel", .before = {1, 2}};
    // The handle of a datum is its producer's: this one pushes it.
    cancel.ready = [](ChannelParty& party) { CHECK(party.produce() && party.push(3)); };
    cancel.operate = [](ChannelParty& party) { return party.cancel(); };
    cancel.allowed = {{Outcome::not_begun, {1, 2, 3}}, {Outcome::done, {1, 2}}};
    return {one, displaces, batch, cancel};
}

inline std::vector<ChannelKind> pops() {
    ChannelKind pop{.name = "pop", .before = {1, 2}, .ready = consumes};
    pop.beside = Role::producer;
    pop.operate = [](ChannelParty& party) { return takes(party, 1); };
    pop.allowed = {{Outcome::not_begun, {1, 2}}, {Outcome::done, {2}}};
    ChannelKind release = pop;
    release.name = "release";
    release.ready = holds_one;
    release.operate = releases;
    release.allowed = {{Outcome::done, {2}}};  // its buffer is free with the process, too
    ChannelKind leave = pop;
    leave.name = "leave";
    leave.operate = [](ChannelParty& party) {
        party.leave();
        return true;
    };
    leave.allowed = {{Outcome::done, {1, 2}}};
    return {pop, release, leave};
}

// The traced process succeeds one that died in the middle of its operation.
inline std::vector<ChannelKind> successions() {
    ChannelKind producer{.name = "succeed a dead producer", .before = {1, 2, 3}};
    producer.third = stops_in_a_push_elsewhere;
    producer.operate = [](ChannelParty& party) { return party.produce(); };
    producer.allowed = {{Outcome::recovered, {3}, 2}};
    producer.returned = Outcome::recovered;
    producer.alone = true;
    ChannelKind inherit = producer;
    inherit.alone = false;
    inherit.name = "succeed a dead producer, in its slot";
    inherit.third = stops_in_a_push;
    ChannelKind consumer{.name = "succeed a dead consumer, in its slot", .before = {1, 2, 3}};
    consumer.third = stops_in_a_pop;
    consumer.operate = [](ChannelParty& party) { return party.consume(); };
    consumer.allowed = {{Outcome::recovered, {2, 3}}};
    consumer.returned = Outcome::recovered;
    consumer.beside = Role::producer;
    return {producer, inherit, consumer};
}

// Several producers and priorities.
inline std::vector<ChannelKind> lanes() {
    ChannelKind urgent{.name = "push of a higher priority", .params = channel_params(1, 2)};
    urgent.before = {1, 2};
    urgent.ready = produces;
    urgent.operate = [](ChannelParty& party) { return party.push(4, 1); };
    urgent.allowed = {{Outcome::not_begun, {1, 2}}, {Outcome::done, {4, 1, 2}}};
    ChannelKind pop = urgent;
    pop.name = "pop of the higher priority";
    pop.prepare = [](ChannelParty& party) { CHECK(party.push(4, 1)); };
    pop.ready = consumes;
    pop.beside = Role::producer;
    pop.operate = [](ChannelParty& party) { return takes(party, 4); };
    pop.allowed = {{Outcome::not_begun, {4, 1, 2}}, {Outcome::done, {1, 2}}};
    ChannelKind second{.name = "succeed the second of two producers",
                       .params = channel_params(2, 2)};
    second.before = {1, 2};
    second.third = [](ChannelParty& party) {
        CHECK(party.produce(1) && party.push(7, 0, 1) && party.push(8, 1, 1));
        arm(ChannelPoint::push_ended, PointAction::stop);
        party.push(9, 1, 1);
    };
    second.operate = [](ChannelParty& party) { return party.produce(1); };
    second.allowed = {{Outcome::recovered, {8, 1, 7, 2}}};
    second.returned = Outcome::recovered;
    return {urgent, pop, second};
}

// The way back of a loop.
inline std::vector<ChannelKind> loops() {
    const ChannelParams loop = channel_params(1, 1, true);
    ChannelKind release{.name = "release in a loop", .params = loop, .before = {1, 2}};
    release.ready = holds_one;
    release.operate = releases;
    release.allowed = {{Outcome::done, {2}}};
    release.beside = Role::producer;
    // All free buffers of this producer have gone round: the next one comes from the way back.
    ChannelKind taking{.name = "push of a buffer that came back", .params = loop};
    taking.alone = true;
    taking.ready = [](ChannelParty& party) {
        CHECK(party.produce() && party.consume());
        for (u32 i = 0; i < party.plan().lane.pool(); ++i) {
            CHECK(party.push(i));
            pops_one(party);
            releases(party);
        }
    };
    taking.operate = pushes_one;
    taking.allowed = {{Outcome::not_begun, {}}, {Outcome::done, {4}}};
    // A producer that begins takes back what is on its way.
    ChannelKind begin{.name = "become the producer of a loop", .params = loop, .before = {1, 2, 3}};
    begin.prepare = [](ChannelParty& party) {
        holds_one(party);
        releases(party);
        pops_one(party);
        releases(party);
    };
    begin.operate = [](ChannelParty& party) { return party.produce(); };
    begin.allowed = {{Outcome::done, {3}}};
    ChannelKind consumer{.name = "succeed a consumer that died in a push back", .params = loop};
    consumer.before = {1, 2, 3};
    consumer.third = stops_in_a_release;
    consumer.operate = [](ChannelParty& party) { return party.consume(); };
    consumer.allowed = {{Outcome::recovered, {2, 3}}};
    consumer.returned = Outcome::recovered;
    consumer.beside = Role::producer;
    return {release, taking, begin, consumer};
}

}  // namespace detail

inline std::vector<std::unique_ptr<Situation>> channel_situations(const std::string& directory,
                                                                  const std::string& channel) {
    std::vector<std::unique_ptr<Situation>> all;
    for (const auto& kinds : {detail::pushes(), detail::pops(), detail::successions(),
                              detail::lanes(), detail::loops()})
        for (const ChannelKind& kind : kinds)
            all.push_back(std::make_unique<ChannelSituation>(directory, channel, kind));
    return all;
}

}  // namespace holdfast::stepping
