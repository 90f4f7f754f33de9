// The operations of a queue that are stepped, one of each kind.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stepping/queue_world.hpp"

namespace holdfast::stepping {

// Of the traced process: arguments and results of its operation, made before the mark.
struct Hands {
    std::array<std::string, 3> bytes;
    std::array<Payload, 3> payloads;
    std::vector<Delivered> out;
    Taken taken;

    template <class... Messages>
    void write(const Messages&... messages) {
        std::size_t at = 0;
        ((bytes[at] = messages.bytes(), payloads[at] = payload(bytes[at]), ++at), ...);
    }
};
inline Hands hands;

namespace detail {

using Body = std::function<void(QueueAttachment&)>;
using Operation = std::function<bool(QueueAttachment&)>;

template <class... Messages>
Body put_all(const Messages&... messages) {
    return [=](QueueAttachment& queue) { CHECK(((put(queue, messages) == Verdict::ok) && ...)); };
}
inline Body takes() {
    return [](QueueAttachment& queue) { hands.taken = take(queue); };
}
inline Operation gets(u32 wanted, std::size_t expected) {
    return [=](QueueAttachment& queue) {
        return queue.get(hands.out, wanted, true) == Verdict::ok && hands.out.size() == expected;
    };
}
inline void has_room(QueueAttachment&) {
    hands.out.reserve(8);
}
// Holds the first message, and is in the middle of a put.
inline void reads_and_writes(QueueAttachment& queue) {
    take(queue);
    claim(queue, kLarge);
}
// Is in the middle of a put, behind which there is another message.
inline void writes_in_the_way(QueueAttachment& queue) {
    claim(queue, kLarge);
    CHECK(put(queue, kMedium) == Verdict::ok);
}

inline std::vector<QueueKind> puts() {
    const auto one = [](QueueAttachment& queue) {
        return queue.put({hands.payloads.data(), 1}, true) == Verdict::ok;
    };
    const Body large = [](QueueAttachment&) { hands.write(kLarge); };
    QueueKind plain{.name = "put", .ready = large, .operate = one};
    plain.before = [](QueueAttachment& queue) {
        put_all(kSmall, kMedium)(queue);
        queue.listen_data();  // a consumer sleeps
    };
    plain.allowed = {{Outcome::not_begun, {{1, 0}, {2, 0}}},
                     {Outcome::recovered, {{1, 0}, {2, 0}}, 1},
                     {Outcome::done, {{1, 0}, {2, 0}, {3, 0}}}};
    QueueKind summed = plain;
    summed.name = "put with a full checksum";
    summed.params.full_checksum = 1;
    QueueKind padded{.name = "put over the end of the ring", .ready = large, .operate = one};
    padded.before = [](QueueAttachment& queue) {
        turn_to(queue, 13);
        CHECK(put(queue, kSmall) == Verdict::ok);
    };
    padded.allowed = {{Outcome::not_begun, {{1, 0}}},
                      {Outcome::recovered, {{1, 0}}, 1},
                      {Outcome::done, {{1, 0}, {3, 0}}}};
    QueueKind many{.name = "put_many"};
    many.before = put_all(kSmall);
    many.ready = [](QueueAttachment&) { hands.write(kMedium, kLarge, Message{4, 30}); };
    many.operate = [](QueueAttachment& queue) {
        return queue.put(hands.payloads, true) == Verdict::ok;
    };
    many.allowed = {{Outcome::not_begun, {{1, 0}}},
                    {Outcome::recovered, {{1, 0}}, 1},
                    {Outcome::done, {{1, 0}, {2, 0}, {3, 0}, {4, 0}}}};
    return {plain, summed, padded, many};
}

inline std::vector<QueueKind> gets() {
    QueueKind one{.name = "get", .ready = has_room, .operate = gets(1, 1)};
    one.before = put_all(kSmall, kMedium);
    one.allowed = {{Outcome::not_begun, {{1, 0}, {2, 0}}},
                   {Outcome::recovered, {{1, 1}, {2, 0}}, 0, 1}};
    one.returned = Outcome::recovered;
    QueueKind many = one;
    many.name = "get_many";
    many.operate = gets(3, 2);
    many.allowed.push_back({Outcome::recovered, {{1, 1}, {2, 1}}, 0, 2});
    QueueKind returned = one;
    returned.name = "get of a message that came back";
    returned.before = [](QueueAttachment& queue) {
        put_all(kSmall, kMedium)(queue);
        give_back(queue);
    };
    returned.allowed = {{Outcome::not_begun, {{1, 1}, {2, 0}}},
                        {Outcome::recovered, {{1, 2}, {2, 0}}, 0, 1}};
    QueueKind once = one;
    once.name = "get at most once";
    once.params.delivery = Delivery::at_most_once;
    once.allowed = {{Outcome::not_begun, {{1, 0}, {2, 0}}},
                    {Outcome::recovered, {{2, 0}}, 0, 0, 1}};
    return {one, many, returned, once};
}

// Of a message that the traced process has.
inline std::vector<QueueKind> ends() {
    QueueKind settle{.name = "settle", .before = put_all(kSmall, kMedium), .ready = takes()};
    settle.operate = [](QueueAttachment& queue) {
        const bool ours = queue.settle(hands.taken);
        queue.announce_space();
        return ours;
    };
    settle.allowed = {{Outcome::recovered, {{1, 1}, {2, 0}}, 0, 1}, {Outcome::done, {{2, 0}}}};
    QueueKind back = settle;
    back.name = "give_back";
    back.operate = [](QueueAttachment& queue) { return queue.give_back(hands.taken); };
    back.allowed = {{Outcome::recovered, {{1, 1}, {2, 0}}, 0, 1},
                    {Outcome::done, {{1, 1}, {2, 0}}}};
    QueueKind aside = settle;
    aside.name = "give back undelivered";
    aside.operate = [](QueueAttachment& queue) { return queue.put_aside(hands.taken); };
    aside.allowed = {{Outcome::recovered, {{1, 1}, {2, 0}}, 0, 1},
                     {Outcome::done, {{1, 0}, {2, 0}}}};
    aside.ordered = false;
    QueueKind leave = back;
    leave.name = "detach";
    leave.operate = [](QueueAttachment& queue) {
        queue.detach();
        return !queue.usable();
    };
    QueueKind close{.name = "close", .before = put_all(kSmall)};
    close.operate = [](QueueAttachment& queue) { return queue.close() == Verdict::ok; };
    close.allowed = {{Outcome::not_begun, {{1, 0}}},
                     {.outcome = Outcome::done, .found = {{1, 0}}, .closed = true}};
    return {settle, back, aside, leave, close};
}

// The traced process attaches, or recovers another one: its survivor is the second to recover that one.
inline std::vector<QueueKind> recoveries() {
    QueueKind attach{.name = "attach", .before = put_all(kSmall)};
    attach.allowed = {{.outcome = Outcome::not_begun, .found = {{1, 0}}, .marked = 0},
                      {.outcome = Outcome::recovered, .found = {{1, 0}}, .marked = 1}};
    attach.returned = Outcome::recovered;
    QueueKind recover{.name = "recover", .before = put_all(kSmall, kMedium)};
    recover.third = reads_and_writes;
    recover.third_dies = Third::dies_before;
    recover.operate = [](QueueAttachment& queue) {
        const Recovered sum = queue.recover_all();
        return sum.skipped == 1 && sum.handed_on == 1;
    };
    recover.allowed = {{Outcome::recovered, {{1, 1}, {2, 0}}, 1, 1},
                       {Outcome::recovered, {{1, 1}, {2, 0}}, 1, 0},
                       {Outcome::done, {{1, 1}, {2, 0}}}};
    QueueKind inherit = recover;
    inherit.name = "attach in the slot of a dead participant";
    inherit.operate = {};
    QueueKind behind{.name = "get behind a dead writer", .third = writes_in_the_way};
    behind.third_dies = Third::dies_before;
    behind.ready = has_room;
    behind.operate = gets(1, 1);
    behind.allowed = {{Outcome::not_begun, {{2, 0}}, 1},
                      {Outcome::not_begun, {{2, 0}}},
                      {Outcome::recovered, {{2, 1}}, 0, 1}};
    behind.returned = Outcome::recovered;
    QueueKind fence{.name = "get past a stopped writer", .third = writes_in_the_way};
    fence.params.stall_limit_ms = 0;
    fence.third_dies = Third::dies_after;
    fence.ready = has_room;
    fence.operate = gets(1, 1);
    fence.allowed = {{Outcome::not_begun, {{2, 0}}, 1}, {Outcome::recovered, {{2, 1}}, 1, 1}};
    fence.returned = Outcome::recovered;
    QueueKind room{.name = "put into the space of a dead writer"};
    room.third = [](QueueAttachment& queue) {
        claim(queue, {3, 400});  // 7 granules; one is kept for the end
        for (u64 number = 10; number < 10 + kRing - 8; ++number)
            CHECK(put(queue, {number, 32}) == Verdict::ok);
    };
    room.third_dies = Third::dies_before;
    room.ready = [](QueueAttachment&) { hands.write(Message{99, 100}); };
    room.operate = [](QueueAttachment& queue) {
        return queue.put({hands.payloads.data(), 1}, true) == Verdict::ok;
    };
    std::vector<Found> there;
    for (u64 number = 10; number < 10 + kRing - 8; ++number) there.push_back({number, 0});
    std::vector<Found> with_it = there;
    with_it.push_back({99, 0});
    room.allowed = {
        {Outcome::not_begun, there, 0}, {Outcome::recovered, there, 1}, {Outcome::done, with_it}};
    return {attach, recover, inherit, behind, fence, room};
}

}  // namespace detail

// A get that moves a message to the dead letters, and gets the next one.
class DeadLetterSituation : public QueueSituation {
 public:
    DeadLetterSituation(const QueueWorld& world, const std::string& queue)
        : QueueSituation(world, queue, kind(queue)), letters_(queue + ".dead") {}

    std::vector<std::string> files() const override {
        return {world_.path(queue_), world_.path(letters_)};
    }

    void prepare() override {
        ::unlink(world_.path(letters_).c_str());
        world_.create(letters_, QueueWorld::params());
        QueueSituation::prepare();
    }

    void clean() override {
        QueueSituation::clean();
        ::unlink(world_.path(letters_).c_str());
    }

    // At least once: a death between the copy and the settlement makes a second copy.
    Outcome account(bool returned) override {
        const Outcome outcome = QueueSituation::account(returned);
        const auto letters = world_.open(letters_);
        Audit audit(*letters);
        audit.check("of the dead letters", false);
        std::vector<Delivered> out;
        while (letters->get(out, 4, true) == Verdict::ok) {
        }
        if (out.empty() || out.size() > 2) throw Wrong("the dead letter was lost, or multiplied");
        for (const Delivered& each : out) {
            const std::string bytes(reinterpret_cast<const char*>(each.data), each.size);
            if (bytes != kSmall.bytes()) throw Wrong("the dead letter is not whole: " + bytes);
            if (!letters->settle(each.taken)) throw Wrong("a dead letter cannot be settled");
        }
        audit.fill_and_drain();
        audit.check("of the dead letters at the end", true);
        letters->detach();
        return outcome;
    }

 private:
    static QueueKind kind(const std::string& queue) {
        QueueKind made{.name = "get with a dead letter", .ready = detail::has_room};
        made.params.max_deliveries = 2;  // message 1 has had them
        (queue + ".dead").copy(made.params.dead_letter, sizeof made.params.dead_letter - 1);
        made.before = [](QueueAttachment& work) {
            CHECK(put(work, kSmall) == Verdict::ok && put(work, kMedium) == Verdict::ok);
            for (int delivery = 0; delivery < 2; ++delivery) give_back(work);
        };
        made.operate = detail::gets(1, 1);
        made.allowed = {{Outcome::not_begun, {{2, 0}}},
                        {Outcome::recovered, {{2, 0}}, 0, 1},
                        {Outcome::recovered, {{2, 1}}, 0, 1}};
        made.returned = Outcome::recovered;
        return made;
    }

    std::string letters_;
};

// The creation of a queue: complete, or not there.
class CreateSituation : public Situation {
 public:
    CreateSituation(const QueueWorld& world, const std::string& queue)
        : world_(world), queue_(queue), path_(world.path(queue)) {}

    std::string name() const override { return "create"; }
    bool has_bystander() const override { return false; }
    void reset() override { ::unlink(path_.c_str()); }
    void clean() override { reset(); }
    bool operate() override {
        world_.create(queue_, QueueWorld::params());
        return true;
    }

    Outcome account(bool returned) override {
        if (::access(path_.c_str(), F_OK) != 0) {
            if (returned) throw Wrong("the queue was created, and is not there");
            return Outcome::not_begun;
        }
        const auto queue = world_.open(queue_);
        Audit audit(*queue);
        audit.check("after the creation", true);
        audit.fill_and_drain();
        queue->detach();
        return Outcome::done;
    }

 private:
    const QueueWorld& world_;
    std::string queue_;
    std::string path_;
};

inline std::vector<std::unique_ptr<Situation>> queue_situations(const QueueWorld& world,
                                                                const std::string& queue) {
    std::vector<std::unique_ptr<Situation>> all;
    for (const auto& kinds : {detail::puts(), detail::gets(), detail::ends(), detail::recoveries()})
        for (const QueueKind& kind : kinds)
            all.push_back(std::make_unique<QueueSituation>(world, queue, kind));
    all.push_back(std::make_unique<DeadLetterSituation>(world, queue));
    all.push_back(std::make_unique<CreateSituation>(world, queue));
    return all;
}

}  // namespace holdfast::stepping
