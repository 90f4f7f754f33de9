// A channel, the datums that it may hold after a kill, and the account of the survivor: each buffer is in one hand.
#pragma once

#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/channel/attachment.hpp"
#include "holdfast/channel/check.hpp"
#include "stepping/situation.hpp"
#include "tests/check.hpp"

namespace holdfast::stepping {

inline ChannelParams channel_params(u16 producers = 1, u8 priorities = 1, bool loop = false) {
    ChannelParams params{};
    params.slot_size = 64;
    params.slots = 3;
    params.loans = 2;
    params.holds = 2;
    params.overflow = 1;
    params.laps = 100;
    params.producers = producers;
    params.priorities = priorities;
    params.loop = loop;
    return params;
}

// One process's hold on a channel: the roles that it has, as the library takes them.
class ChannelParty {
 public:
    static std::string path(const std::string& directory, const std::string& name) {
        return Segment::path_of(directory, kChannelKind, name);
    }
    static void create(const std::string& directory, const std::string& name,
                       const ChannelParams& params) {
        SegmentSpec spec;
        spec.directory = directory;
        spec.name = name;
        create_channel(spec, params);
    }

    ChannelParty(const std::string& directory, const std::string& name)
        : segment_(open_channel(directory, name, false)) {}

    // False: a living participant has the role, or the channel is damaged.
    bool produce(u32 number = 0) {
        try {
            producers_[number] = std::make_unique<ProducerHold>(*segment_, number);
        } catch (const Error&) {
            return false;
        }
        return true;
    }
    bool consume() {
        try {
            consumer_ = std::make_unique<ConsumerHold>(*segment_);
        } catch (const Error&) {
            return false;
        }
        return true;
    }
    bool produces(u32 number) const { return producers_[number] != nullptr; }
    bool consumes() const { return consumer_ != nullptr; }

    // Fills a buffer for each number, and pushes them at once. The program lets go what was displaced.
    bool push(std::span<const u64> numbers, u32 priority = 0, u32 producer = 0) {
        ProducerHold& hold = *producers_[producer];
        std::array<u32, 4> buffers{};
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            if (hold.lend(priority, buffers[i]) != Lending::ok) return false;
            *reinterpret_cast<u64*>(hold.room(buffers[i])) = numbers[i];
            hold.set_length(buffers[i], sizeof(u64));
        }
        const Handover result =
            hold.push(priority, std::span(buffers.data(), numbers.size()), displaced_);
        for (const DisplacedDatum& each : displaced_)
            if (each.buffer != Shelf::kNone) hold.give_back(each.buffer);
        return result == Handover::ok;
    }
    bool push(u64 number, u32 priority = 0, u32 producer = 0) {
        return push({&number, 1}, priority, producer);
    }
    // Withdraws the last datum that was pushed.
    bool cancel() { return producers_[0]->cancel(0, producers_[0]->tail(0) - 1); }

    Handover pop(PoppedDatum& out) { return consumer_->pop(out); }
    u64 number_in(const PoppedDatum& datum) const {
        return *reinterpret_cast<const u64*>(consumer_->room(datum.buffer));
    }
    void release(u32 buffer) { consumer_->release(buffer); }
    std::string fault() const { return consumer_->fault_words(); }

    void leave_consumer() {
        consumer_->resign();
        consumer_->leave();
        consumer_.reset();
    }
    void leave() {
        for (const std::unique_ptr<ProducerHold>& each : producers_) {
            if (!each) continue;
            each->resign();
            each->leave();
        }
        if (consumer_) leave_consumer();
    }

    const ChannelPlan plan() const { return plan_of(holdfast::channel_params(*segment_)); }
    ChannelSurvey survey() const { return survey_channel(segment_->base(), plan()); }

 private:
    std::shared_ptr<Segment> segment_;
    std::array<std::unique_ptr<ProducerHold>, 2> producers_;
    std::unique_ptr<ConsumerHold> consumer_;
    std::vector<DisplacedDatum> displaced_;
};

// A result that the survivor may find.
struct AllowedDatums {
    Outcome outcome;
    std::vector<u64> found;  // in order
    u64 lost = 0;            // as the survivor's pops count them
};

// One kind of operation of a channel. An empty function does nothing.
struct ChannelKind {
    using Body = std::function<void(ChannelParty&)>;

    std::string name;
    ChannelParams params = channel_params();
    std::vector<u64> before = {};  // datums in the ring
    Body prepare = {};             // what else happened before
    Body third = {};
    Body ready = {};
    std::function<bool(ChannelParty&)> operate = {};
    std::vector<AllowedDatums> allowed = {};
    Outcome returned = Outcome::done;
    // The role that a bystander has: not that of the traced process. Without one, `alone`.
    Role beside = Role::consumer;
    bool alone = false;
};

class ChannelSituation : public Situation {
 public:
    ChannelSituation(const std::string& directory, const std::string& channel, ChannelKind kind)
        : directory_(directory), channel_(channel), kind_(std::move(kind)) {}

    std::string name() const override { return "channel: " + kind_.name; }
    Third third() const override { return kind_.third ? Third::dies_before : Third::none; }
    bool has_bystander() const override { return !kind_.alone; }
    std::vector<std::string> files() const override {
        return {ChannelParty::path(directory_, channel_)};
    }

    void prepare() override {
        clean();
        ChannelParty::create(directory_, channel_, kind_.params);
        ChannelParty party(directory_, channel_);
        CHECK(party.produce());
        for (const u64 number : kind_.before) CHECK(party.push(number));
        if (kind_.prepare) kind_.prepare(party);
        party.leave();
    }
    void clean() override { ::unlink(ChannelParty::path(directory_, channel_).c_str()); }

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
        CHECK(kind_.beside == Role::consumer ? party_->consume() : party_->produce());
    }

    Outcome account(bool returned) override {
        if (!party_) open();
        const auto party = std::move(party_);
        require_sound(*party);
        for (u32 number = 0; number < kind_.params.producers; ++number)
            if (!party->produces(number) && !party->produce(number))
                throw Wrong("the survivor cannot take the role of a dead producer");
        if (!party->consumes() && !party->consume())
            throw Wrong("the survivor cannot take the role of the dead consumer");
        u64 lost = 0;
        const std::vector<u64> found = drain(*party, lost);
        for (u32 number = 0; number < kind_.params.producers; ++number)
            for (u32 priority = 0; priority < kind_.params.priorities; ++priority)
                refill(*party, priority, number);
        require_free(*party);
        require_sound(*party);
        party->leave();
        for (const AllowedDatums& each : kind_.allowed) {
            if (each.found != found || each.lost != lost) continue;
            if (returned && each.outcome != kind_.returned)
                throw Wrong("the operation had returned, but the survivor found a part of it");
            return each.outcome;
        }
        std::string text = "the survivor found";
        for (const u64 number : found) {
            text += ' ';
            text += std::to_string(number);
        }
        throw Wrong(text + ", and counted " + std::to_string(lost) + " as lost");
    }

 private:
    void open() { party_ = std::make_unique<ChannelParty>(directory_, channel_); }

    static void require_sound(ChannelParty& party) {
        const ChannelSurvey survey = party.survey();
        if (!survey.faults.empty()) throw Wrong("check: " + survey.faults[0]);
    }

    // Nothing is in a ring, and no buffer has another owner than its producer.
    static void require_free(ChannelParty& party) {
        const ChannelSurvey survey = party.survey();
        for (const RingSurvey& lane : survey.lanes) {
            if (lane.datums() != 0) throw Wrong("the ring is not empty");
            for (u32 index = 0; index < lane.owners.size(); ++index)
                if (lane.owners[index] != 0 && !returning(survey, index))
                    throw Wrong("buffer " + std::to_string(index) + " leaked");
        }
    }
    static bool returning(const ChannelSurvey& survey, u32 index) {
        if (!survey.back) return false;
        for (const ChannelSlotLook& each : survey.back->slots)
            if ((each.state & kData) != 0 && each.index == index) return true;
        return false;
    }

    static std::vector<u64> drain(ChannelParty& party, u64& lost) {
        std::vector<u64> found;
        for (;;) {
            PoppedDatum out;
            const Handover result = party.pop(out);
            if (result == Handover::empty) return found;
            if (result == Handover::corrupt) throw Wrong("a pop fails: " + party.fault());
            if (result != Handover::ok) throw Wrong("a pop is starved");
            lost += out.lost;
            found.push_back(party.number_in(out));
            party.release(out.buffer);
        }
    }

    // Every buffer is lent and comes back: the lane takes as many datums as a fresh one, more than once.
    static void refill(ChannelParty& party, u32 priority, u32 producer) {
        const ChannelGeometry lane = party.plan().lane;
        for (u64 first = 1000; first < 1000 + 2 * lane.pool(); first += lane.slots()) {
            std::vector<u64> expected;
            for (u64 number = first; number < first + lane.slots(); ++number) {
                if (!party.push(number, priority, producer))
                    throw Wrong("the survivor cannot push");
                expected.push_back(number);
            }
            u64 lost = 0;
            if (drain(party, lost) != expected) throw Wrong("later datums were lost");
        }
    }

    std::string directory_;
    std::string channel_;
    ChannelKind kind_;
    std::unique_ptr<ChannelParty> party_;
};

}  // namespace holdfast::stepping
