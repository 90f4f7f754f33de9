// Logs: how many samples may be subscribed, also by many processes at once, and what dead subscribers leave. (L1 L2)
#include <sys/wait.h>

#include <string>
#include <vector>

#include "tests/service/small_service.hpp"

using namespace holdfast;
using namespace holdfast::test;

// Each subscriber takes its samples and one more; the provider its loans and the newest.
static void test_capacity() {
    for (const u32 loans : {1u, 2u, 5u}) {
        for (const u32 samples : {loans + 3, loans + 4, loans + 9}) {
            const std::string name =
                "capacity" + std::to_string(loans) + "." + std::to_string(samples);
            const Provider provider = offer(name, {event("speed", samples, loans), method("stop")});
            const u32 room = samples - loans - 1;
            const Proxy one = join(name), two = join(name);
            CHECK(one->subscribe(kSpeed, room) == Subscribing::full);
            CHECK(one->subscribe(kSpeed, room - 1) == Subscribing::ok &&
                  one->granted(kSpeed) == room - 1);
            CHECK(two->subscribe(kSpeed, 0) == Subscribing::full);
            one->unsubscribe(kSpeed);
            for (u32 part = 1; part + 3 <= room; ++part) {
                CHECK(one->subscribe(kSpeed, part) == Subscribing::ok);
                CHECK(two->subscribe(kSpeed, room - part - 1) == Subscribing::full);
                CHECK(two->subscribe(kSpeed, room - part - 2) == Subscribing::ok);
                one->unsubscribe(kSpeed);
                two->unsubscribe(kSpeed);
            }
            require_idle(*provider);
        }
    }
    ElementSpec small = event("speed", 3, 1);
    CHECK(!valid_element(small));
    CHECK_ERROR(Code::misuse, offer("small", {small}), "speed");
}

static void test_max_subscribers() {
    const Provider provider = offer("crowd", {event("speed", 30, 1, 2), method("stop")});
    const Proxy one = join("crowd"), two = join("crowd"), three = join("crowd");
    CHECK(one->subscribe(kSpeed, 1) == Subscribing::ok &&
          two->subscribe(kSpeed, 1) == Subscribing::ok);
    CHECK(three->subscribe(kSpeed, 1) == Subscribing::crowded);
    const Proxy tracer = join("crowd", "tracer", true);
    CHECK(tracer->subscribe(kSpeed, 4) == Subscribing::ok);  // it is not counted
    two->unsubscribe(kSpeed);
    CHECK(three->subscribe(kSpeed, 1) == Subscribing::ok);
    CHECK(one->subscribe(kSpeed, 1) == Subscribing::busy);  // it has a subscription
}

// The room of a dead subscriber is found by the one that needs it, in whichever state it died.
static void test_the_dead_make_room() {
    const Provider provider = offer("room");
    for (const Point point :
         {Point(LogPoint::log_asked), Point(LogPoint::log_summed), Point(LogPoint::log_active)}) {
        const Line ready, go;
        const pid_t dead = start([&] {
            const Proxy proxy = join("room");
            ready.tell();
            go.wait();
            arm(point);
            proxy->subscribe(kSpeed, kWhole);
        });
        ready.wait();
        const Proxy later = join("room");  // in a higher slot; it was there before the death
        CHECK(later->slot() == 1);
        go.tell();
        CHECK(WIFSIGNALED(finish(dead)));
        CHECK(later->subscribe(kSpeed, kWhole) == Subscribing::ok);
        later->unsubscribe(kSpeed);
        later->leave();
        require_whole(*provider);
    }
    // The same with the dead one in the higher slot.
    const Proxy first = join("room");
    CHECK(first->slot() == 0);
    for (const Point point :
         {Point(LogPoint::log_asked), Point(LogPoint::log_summed), Point(LogPoint::log_active)}) {
        dies_at(point, [&] { join("room")->subscribe(kSpeed, kWhole); });
        CHECK(first->subscribe(kSpeed, kWhole) == Subscribing::ok);
        first->unsubscribe(kSpeed);
    }
    first->leave();
    require_whole(*provider);
}

// Many ask at once: the sum is never more than there is, and those that fit get in.
static void test_a_race() {
    const Provider provider = offer("race", {event("speed", 12, 1, 60), method("stop")});
    constexpr u32 kRacers = 6;  // two of them fit: 10 >= 2 * (4 + 1)
    std::vector<pid_t> racers;
    for (u32 i = 0; i < kRacers; ++i) {
        racers.push_back(start([&] {
            const Proxy proxy = join("race");
            const int turns = rounds(150, 3000);
            for (int got = 0, tries = 0; got < turns && tries < 100 * turns; ++tries) {
                if (proxy->subscribe(kSpeed, 4) != Subscribing::ok) {
                    ::usleep(20);
                    continue;
                }
                u32 sum = 0;
                for (u32 slot = 0; slot < 63; ++slot) {
                    const u32 word = proxy->elements()[kSpeed].logs.word(slot);
                    if (log_state(word) == kLogActive) sum += log_samples(word) + 1;
                }
                CHECK(sum <= 10);
                ++got;
                proxy->unsubscribe(kSpeed);
            }
            proxy->leave();
        }));
    }
    for (const pid_t each : racers) CHECK(finish(each) == 0);
    require_idle(*provider);
}

int main() {
    test_capacity();
    test_max_subscribers();
    test_a_race();
    test_the_dead_make_room();
}
