// One provider, three proxies and a tracer, which are killed at random and replaced. Every sample is whole, their order rises, and
// the missed ones add up. Nothing is left behind. (V1 V2 V4)
#include <sys/wait.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/service/small_service.hpp"

using namespace holdfast;
using namespace holdfast::test;

constexpr u32 kProxies = 3;
constexpr u64 kSize = 512;

static std::vector<ElementSpec> elements() {
    return {event("speed", 14, 2, 4, kSize), method("stop")};
}

// Counters of all processes, in memory that they share.
struct Counts {
    std::atomic<u64> sent, taken, missed, traced, calls, answers;
    std::atomic<bool> over;
};

static void provide(Counts& counts, u64 seed) {
    const Provider provider = offer("storm", elements());
    std::mt19937_64 random(seed);
    while (!counts.over) {
        if (random() % 8 == 0) {  // a second loan, given back
            const u32 sample = provider->lend(kSpeed);
            CHECK(sample != SampleOrder::kNone);
            send(*provider);
            provider->give_back(kSpeed, sample);
        }
        send(*provider);
        ++counts.sent;
        RunningCall running;
        if (!provider->run(running)) continue;
        u64 asked = 0;
        CHECK(running.request.size() == sizeof asked);
        std::memcpy(&asked, running.request.data(), sizeof asked);
        asked = ~asked;
        provider->answer(running, 0, reinterpret_cast<const std::byte*>(&asked), sizeof asked);
    }
}

// One call, answered by whichever provider. A provider that dies in it is not an answer.
static void ask(ProxyHold& proxy, u64 question, Counts& counts) {
    CallTicket ticket;
    if (!proxy.claim(kStop, ticket)) return;
    ++counts.calls;
    CHECK(proxy.submit(kStop, ticket, reinterpret_cast<const std::byte*>(&question), 8));
    for (int tries = 0; tries < 2000; ++tries) {
        const CallLook look = proxy.look(kStop, ticket);
        CHECK(look != CallLook::gone);
        if (look == CallLook::done || look == CallLook::failed) break;
        ::usleep(50);
    }
    bool dead = !proxy.offered();
    if (proxy.withdraw(kStop, ticket, dead) != Withdrawn::done) return;
    u32 status = 0;
    u64 answer = 0;
    const auto [at, length] = proxy.response(kStop, ticket, status);
    CHECK(length == 8);
    std::memcpy(&answer, at, 8);
    CHECK(answer == ~question);
    proxy.collect(kStop, ticket, CallState::done);
    ++counts.answers;
}

static void use(Counts& counts, u64 seed) {
    std::mt19937_64 random(seed);
    const Proxy proxy = join("storm");
    CHECK(proxy->subscribe(kSpeed, 2) == Subscribing::ok);
    const u64 first = proxy->last(kSpeed);
    u64 last = first, taken = 0, missed = 0;
    std::vector<TakenSample> held;
    while (!counts.over) {
        const u32 count = 1 + static_cast<u32>(random() % 2);
        for (const TakenSample& each : take(*proxy, count)) {
            CHECK(each.sequence > last);
            missed += each.sequence - last - 1;
            last = each.sequence;
            ++taken;
            held.push_back(each);
        }
        CHECK(taken + missed == last - first);
        for (const TakenSample& each : held)  // still what it was
            CHECK(filled_with(*proxy, kSpeed, each.sample, each.sequence));
        while (held.size() > random() % 3) {
            release(*proxy, {held.front()});
            held.erase(held.begin());
        }
        if (random() % 64 == 0) ask(*proxy, random(), counts);
    }
    release(*proxy, held);
    proxy->unsubscribe(kSpeed);
    proxy->leave();
    counts.taken += taken;
    counts.missed += missed;
}

static void trace(Counts& counts) {
    const Proxy tracer = join("storm", "tracer", true);
    CHECK(tracer->subscribe(kSpeed, 1) == Subscribing::ok);
    u64 last = tracer->last(kSpeed);
    while (!counts.over) {
        const std::vector<TakenSample> got = take(*tracer, 1);
        for (const TakenSample& each : got) {
            CHECK(each.sequence > last);
            last = each.sequence;
            ++counts.traced;
        }
        release(*tracer, got);
    }
    tracer->unsubscribe(kSpeed);
    tracer->leave();
}

// A provider may mark a sample for a tracer that has just gone. The next tracer releases it.
static void release_strays() {
    const Proxy tracer = join("storm", "tracer", true);
    CHECK(tracer->subscribe(kSpeed, 1) == Subscribing::ok);
    tracer->unsubscribe(kSpeed);
    tracer->leave();
}

int main() {
    void* shared =
        ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    Counts& counts = *new (shared) Counts{};
    std::mt19937_64 random(7);
    // A holder of the segment, so that every provider finds the last one's.
    Provider first = offer("storm", elements());
    const Proxy keeper = join("storm");
    first->stop();
    first.reset();
    const auto start_provider = [&] {
        const u64 seed = random();
        return start([&, seed] { provide(counts, seed); });
    };
    const auto start_user = [&] {
        const u64 seed = random();
        return start([&, seed] { use(counts, seed); });
    };
    std::vector<pid_t> children = {start_provider()};
    for (u32 i = 0; i < kProxies; ++i) children.push_back(start_user());
    const auto start_tracer = [&] { return start([&] { trace(counts); }); };
    children.push_back(start_tracer());
    const int kills = rounds(80, 2000);
    for (int i = 0; i < kills; ++i) {
        ::usleep(static_cast<useconds_t>(2000 + random() % 20000));
        const std::size_t victim = random() % children.size();
        kill_and_reap(children[victim]);
        children[victim] = victim == 0          ? start_provider()
                           : victim <= kProxies ? start_user()
                                                : start_tracer();
    }
    ::usleep(100'000);
    counts.over = true;
    for (const pid_t each : children) CHECK(finish(each) == 0);
    Provider last = offer("storm", elements());
    CHECK(last->reused());
    last->reap_all();
    release_strays();
    require_idle(*last);
    CHECK(keeper->subscribe(kSpeed, 10) == Subscribing::ok);
    const u64 newest = keeper->newest(kSpeed);
    std::vector<u64> sent;
    for (u64 i = 1; i <= 10; ++i) CHECK(send(*last) == last->next_sequence(kSpeed) - 1);
    CHECK(last->next_sequence(kSpeed) > newest + 10 && take(*keeper, 10).size() == 10);
    for (u64 i = 1; i <= 30; ++i) send(*last);
    CHECK(counts.sent > 0 && counts.taken > 0 && counts.traced > 0 && counts.answers > 0);
    std::printf("%d kills in a storm on a service, %llu samples sent, %llu calls answered\n", kills,
                static_cast<unsigned long long>(counts.sent),
                static_cast<unsigned long long>(counts.answers));
}
