// Calls: at most one run, the answer of its own number, and a free place after every death. (M1 M2 M3)
#include <sys/wait.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/service/small_service.hpp"

using namespace holdfast;
using namespace holdfast::test;

static const std::byte* bytes_of(const std::string& text) {
    return reinterpret_cast<const std::byte*>(text.data());
}

static CallTicket call(ProxyHold& proxy, const std::string& request) {
    CallTicket ticket;
    CHECK(proxy.claim(kStop, ticket));
    CHECK(proxy.submit(kStop, ticket, bytes_of(request), request.size()));
    return ticket;
}

static std::string text(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Runs the next call, and answers it with its own request behind an "a".
static bool serve(ProviderHold& provider) {
    RunningCall running;
    if (!provider.run(running)) return false;
    const std::string answer = "a" + text(running.request);
    return provider.answer(running, 7, bytes_of(answer), answer.size());
}

static std::string collect(ProxyHold& proxy, const CallTicket& ticket) {
    CHECK(proxy.look(kStop, ticket) == CallLook::done);
    u32 status = 0;
    const auto [at, length] = proxy.response(kStop, ticket, status);
    CHECK(status == 7);
    const std::string out(reinterpret_cast<const char*>(at), length);
    proxy.collect(kStop, ticket, CallState::done);
    return out;
}

static CallState state(ServiceHold& hold, const CallTicket& ticket) {
    return call_state(call_word_of(hold, ticket.place));
}

static void test_answers() {
    const Provider provider = offer("answers");
    const Proxy proxy = join("answers"), other = join("answers");
    CHECK(!provider->looks_called() && !serve(*provider));
    const CallTicket one = call(*proxy, "x"), two = call(*other, "yy");
    CallTicket none;
    CHECK(one.place != two.place && !proxy->claim(kStop, none));  // all places are in use
    CHECK(proxy->look(kStop, one) == CallLook::waiting && provider->looks_called());
    CHECK(serve(*provider) && serve(*provider) && !serve(*provider));
    CHECK(collect(*other, two) == "ayy" && collect(*proxy, one) == "ax");
    require_idle(*provider);
    // A ticket is worth nothing after its call: numbers move.
    const u64 before = call_number(call_word_of(*proxy, one.place));
    const CallTicket next = call(*proxy, "z");
    CHECK(next.place == one.place && call_number(next.word) == before + 1);
    CHECK(proxy->look(kStop, one) == CallLook::gone);
    proxy->collect(kStop, one, CallState::done);
    bool dead = false;
    proxy->withdraw(kStop, one, dead);
    CHECK(proxy->look(kStop, next) == CallLook::waiting);
    CHECK(serve(*provider) && collect(*proxy, next) == "az");
}

static void test_a_caller_gives_up() {
    const Provider provider = offer("gives");
    const Proxy proxy = join("gives");
    bool dead = false;
    CHECK(proxy->withdraw(kStop, call(*proxy, "x"), dead) == Withdrawn::unexecuted);
    require_idle(*provider);
    CallTicket ticket = call(*proxy, "x");
    RunningCall running;
    CHECK(provider->run(running) && proxy->look(kStop, ticket) == CallLook::running);
    dead = true;  // it is asked again, and lives
    CHECK(proxy->withdraw(kStop, ticket, dead) == Withdrawn::running && !dead);
    CHECK(state(*proxy, ticket) == CallState::abandoned);
    CHECK(proxy->look(kStop, ticket) == CallLook::gone);
    CHECK(!provider->answer(running, 7, bytes_of("a"), 1));
    require_idle(*provider);
    ticket = call(*proxy, "x");
    CHECK(serve(*provider) && proxy->withdraw(kStop, ticket, dead) == Withdrawn::done);
    CHECK(collect(*proxy, ticket) == "ax");
    require_idle(*provider);
}

static void test_the_last_number() {
    const Provider provider = offer("last");
    const Proxy proxy = join("last");
    for (u32 place = 0; place < 2; ++place)
        *proxy->elements()[kStop].calls.words().call(place) =
            call_word(CallState::idle, 0, kCallNumberMax - (place == 0 ? 1 : 0));
    const CallTicket ticket = call(*proxy, "x");
    CallTicket none;
    CHECK(call_number(ticket.word) == kCallNumberMax && !proxy->claim(kStop, none));
    CHECK(serve(*provider) && collect(*proxy, ticket) == "ax");
    CHECK(!proxy->claim(kStop, none));  // its numbers are used up: the place stays unused
}

// The caller dies in each state of its call.
static void test_a_caller_dies() {
    const Provider provider = offer("caller");
    for (const Point point : {Point(CallPoint::call_claimed), Point(CallPoint::call_written),
                              Point(CallPoint::call_submitted)}) {
        dies_at(point, [&] { call(*join("caller"), "x"); });
        CHECK(provider->looks_called() == (point == Point(CallPoint::call_submitted)));
        require_whole(*provider);
        CHECK(!serve(*provider));
    }
    const Line asked, go;
    const auto dying = [&](Point point) {
        return start([&, point] {
            const Proxy proxy = join("caller");
            const CallTicket ticket = call(*proxy, "x");
            asked.tell();
            go.wait();
            arm(point);
            bool dead = false;
            if (proxy->withdraw(kStop, ticket, dead) == Withdrawn::done) collect(*proxy, ticket);
        });
    };
    // RUNNING: the provider frees the place with its answer.
    pid_t child = dying(CallPoint::call_claimed);
    asked.wait();
    RunningCall running;
    CHECK(provider->run(running));
    kill_and_reap(child);
    CHECK(provider->reap_all() == 1);
    CHECK(call_state(call_word_of(*provider, running.place)) == CallState::abandoned);
    CHECK(!provider->answer(running, 7, bytes_of("a"), 1));
    require_whole(*provider);
    // DONE
    child = dying(CallPoint::call_claimed);
    asked.wait();
    CHECK(serve(*provider));
    kill_and_reap(child);
    require_whole(*provider);
    // It dies just after it has collected, or withdrawn.
    for (const Point point : {Point(CallPoint::call_collected), Point(CallPoint::call_withdrawn)}) {
        child = dying(point);
        asked.wait();
        if (point == Point(CallPoint::call_collected)) CHECK(serve(*provider));
        go.tell();
        CHECK(WIFSIGNALED(finish(child)));
        require_whole(*provider);
    }
}

// Its places are in use by a dead caller: a claim finds out.
static void test_a_claim_clears_the_dead() {
    const Provider provider = offer("claims");
    const Proxy proxy = join("claims");
    dies_at(
        CallPoint::call_claimed,
        [&] {
            const Proxy dead = join("claims");
            CallTicket ticket;
            dead->claim(kStop, ticket);
            dead->claim(kStop, ticket);
        },
        2);
    const CallTicket ticket = call(*proxy, "x");
    CHECK(serve(*provider) && collect(*proxy, ticket) == "ax");
    proxy->leave();
    require_whole(*provider);
}

// The provider dies at each step of a call. It is run again only if it had not begun.
static void test_a_provider_dies() {
    struct Case {
        Point point;
        CallLook after;  // as the caller sees it under the next provider
        bool runs_again;
    };
    const Case cases[] = {{OfferPoint::stop_left, CallLook::waiting, true},
                          {CallPoint::call_running, CallLook::failed, false},
                          {CallPoint::call_answered, CallLook::failed, false},
                          {CallPoint::call_done, CallLook::done, false}};
    for (const bool withdraws : {false, true}) {
        for (const Case& each : cases) {
            const Line ready, go;
            const pid_t child = start([&] {
                const Provider provider = offer("server");
                ready.tell();
                go.wait();
                arm(each.point);
                if (each.runs_again) provider->stop();
                serve(*provider);
            });
            ready.wait();
            const Proxy proxy = join("server");
            const CallTicket ticket = call(*proxy, "x");
            go.tell();
            CHECK(WIFSIGNALED(finish(child)));
            bool dead = true;
            if (withdraws && !each.runs_again && each.after == CallLook::failed) {
                CHECK(proxy->look(kStop, ticket) == CallLook::running);
                CHECK(proxy->withdraw(kStop, ticket, dead) == Withdrawn::running && dead);
                require_idle(*proxy);
            }
            const Provider next = offer("server");
            CHECK(next->reused());
            if (withdraws && each.after == CallLook::failed) {
                CHECK(!serve(*next));
            } else {
                CHECK(proxy->look(kStop, ticket) == each.after);
                CHECK(serve(*next) == each.runs_again);
                if (each.after == CallLook::failed) {
                    CHECK(proxy->withdraw(kStop, ticket, dead) == Withdrawn::running);
                } else {
                    CHECK(collect(*proxy, ticket) == "ax");
                }
            }
            proxy->leave();
            require_whole(*next);
        }
    }
}

// Caller and provider die both, in each order.
static void test_both_die() {
    for (const bool caller_first : {false, true}) {
        const Line ready, go, asked;
        const pid_t server = start([&] {
            const Provider provider = offer("both");
            ready.tell();
            go.wait();
            RunningCall running;
            CHECK(provider->run(running));
            ready.tell();
            for (;;) ::pause();
        });
        ready.wait();
        const Proxy user = join("both");  // keeps the segment
        const pid_t caller = start([&] {
            const Proxy proxy = join("both");
            call(*proxy, "x");
            asked.tell();
            for (;;) ::pause();
        });
        asked.wait();
        go.tell();
        ready.wait();
        kill_and_reap(caller_first ? caller : server);
        if (caller_first) CHECK(user->reap_all() == 1);
        kill_and_reap(caller_first ? server : caller);
        const Provider next = offer("both");
        CHECK(next->reused());
        user->leave();
        require_whole(*next);
    }
}

int main() {
    test_answers();
    test_a_caller_gives_up();
    test_the_last_number();
    test_a_caller_dies();
    test_a_claim_clears_the_dead();
    test_a_provider_dies();
    test_both_die();
}
