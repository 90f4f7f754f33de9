// Samples: order and loss, writes by a proxy, and the state after the death of a provider, proxy or tracer.
// (V1 V2 V3 V4 V5)
#include <sys/wait.h>

#include <set>
#include <string>
#include <vector>

#include "tests/service/small_service.hpp"

using namespace holdfast;
using namespace holdfast::test;

static std::vector<u64> range(u64 first, u64 last) {
    std::vector<u64> out;
    for (u64 number = first; number <= last; ++number) out.push_back(number);
    return out;
}

static void test_order() {
    const Provider provider = offer("order");
    const Proxy proxy = join("order");
    send(*provider);
    CHECK(proxy->subscribe(kSpeed, 3) == Subscribing::ok);
    CHECK(proxy->last(kSpeed) == 1 && take(*proxy, 3).empty());  // what was before it is not new
    for (int i = 0; i < 5; ++i) send(*provider);
    CHECK(!proxy->looks_empty(kSpeed, 1));
    const std::vector<TakenSample> held = take(*proxy, 9);
    CHECK(numbers(held) == range(4, 6));  // the newest three, the oldest first; 2 and 3 are missed
    CHECK(take(*proxy, 9).empty());       // it holds what it may
    send(*provider);
    CHECK(take(*proxy, 9).empty());
    release(*proxy, {held[0]});
    CHECK(numbers(take(*proxy, 9)) == range(7, 7) && proxy->held(kSpeed) == 3);
    CHECK(proxy->looks_empty(kSpeed, 7) && proxy->newest(kSpeed) == 7);
}

static void test_loans() {
    const Provider provider = offer("loans", {event("speed", 8, 2), method("stop")});
    const u32 one = provider->lend(kSpeed), two = provider->lend(kSpeed);
    CHECK(one != two && provider->lend(kSpeed) == SampleOrder::kNone);
    CHECK(sample_word(*provider, one) == ServiceSlots{}.writing());
    provider->give_back(kSpeed, one);
    CHECK(sample_word(*provider, one) == 0 && provider->loans(kSpeed) == 1);
    fill(*provider, kSpeed, two, 1);
    CHECK(provider->publish(kSpeed, two, 64) == 1 && provider->newest(kSpeed) == two);
    for (u64 number = 2; number < 30; ++number) {
        const u32 newest = provider->newest(kSpeed);
        const u32 sample = provider->lend(kSpeed), unused = provider->lend(kSpeed);
        CHECK(sample != newest && unused != newest);  // the newest is never replaced
        fill(*provider, kSpeed, sample, number);
        CHECK(provider->publish(kSpeed, sample, 64) == number);
        provider->give_back(kSpeed, unused);
    }
}

// A sample whose number is looked for may have a newer number by now, and be held under that one.
static void test_a_number_that_was_replaced_out_of_turn() {
    const Provider provider = offer("turn", {event("speed", 12), method("stop")});
    const Proxy slow = join("turn"), fast = join("turn");
    CHECK(slow->subscribe(kSpeed, 4) == Subscribing::ok);
    CHECK(fast->subscribe(kSpeed, 4) == Subscribing::ok);
    for (int i = 0; i < 4; ++i) send(*provider);
    const std::vector<TakenSample> kept = take(*slow, 4);
    for (int i = 0; i < 9; ++i) send(*provider);  // 13 has the place of 5: those of 1 to 4 are held
    const std::vector<TakenSample> got = take(*fast, 4);
    CHECK(numbers(got) == range(10, 13));
    release(*fast, got);
    release(*slow, kept);
    slow->unsubscribe(kSpeed);
    fast->unsubscribe(kSpeed);
    const Proxy wide = join("turn");
    CHECK(wide->subscribe(kSpeed, 9) == Subscribing::ok);
    wide->rewind(kSpeed, 4);
    const std::vector<u64> all = numbers(take(*wide, 9));
    CHECK(all == range(6, 13) || all == range(5, 13));
}

// Words that no provider writes are told as damage. Samples that were taken before are in order.
static void test_damage() {
    const Provider provider = offer("damage");
    const Proxy proxy = join("damage");
    CHECK(proxy->subscribe(kSpeed, 4) == Subscribing::ok);
    for (int i = 0; i < 4; ++i) send(*provider);
    const ElementWords& words = provider->elements()[kSpeed].samples.words();
    const u32 right = *words.index(2);
    *words.index(2) = 99;
    TakenSample out[4];
    u32 taken = 0;
    CHECK(proxy->take(kSpeed, 4, out, taken) == Taking::ok && taken == 2);
    CHECK(out[0].sequence == 3 && out[1].sequence == 4 && proxy->last(kSpeed) == 4);
    CHECK(proxy->fault_words().find("index of a sample") != std::string::npos);
    *words.index(2) = right;
    release(*proxy, {out[0], out[1]});
    for (const u64 number : {u64{3}, kSequenceMax + 1}) {
        *words.published() = number;
        CHECK(proxy->take(kSpeed, 1, out, taken) == Taking::corrupt && taken == 0);
    }
    *words.published() = 4;
    CHECK(numbers(take(*proxy, 1)).empty());
    *words.sequence(0) = kSequenceMax + 1;  // the next provider refuses it
    provider->stop();
    CHECK_ERROR(Code::corrupt, offer("damage"), "sequence number");
}

// The last number is published; then there is an error, and not a number that comes twice.
static void test_the_last_number() {
    Provider provider = offer("number");
    const Proxy proxy = join("number");
    *provider->elements()[kSpeed].samples.words().published() = kSequenceMax - 1;
    provider->stop();
    provider = offer("number");
    CHECK(proxy->subscribe(kSpeed, 1) == Subscribing::ok && send(*provider) == kSequenceMax);
    CHECK(numbers(take(*proxy, 1)) == range(kSequenceMax, kSequenceMax));
    const u32 sample = provider->lend(kSpeed);
    CHECK(provider->publish(kSpeed, sample, 64) == 0 && provider->loans(kSpeed) == 1);
    provider->give_back(kSpeed, sample);
}

static void test_a_proxy_cannot_write() {
    const Provider provider = offer("write");
    send(*provider);
    for (int where = 0; where < 4; ++where) {
        const int status = finish(start([&] {
            ::signal(SIGSEGV, SIG_DFL);  // not the sanitizer's
            const Proxy proxy = join("write");
            const ElementWords words = proxy->plan().words(proxy->segment()->base(), kSpeed);
            const ElementWords stop = proxy->plan().words(proxy->segment()->base(), kStop);
            std::byte* const places[] = {
                words.buffer(0), reinterpret_cast<std::byte*>(words.sequence(0)),
                reinterpret_cast<std::byte*>(words.published()), stop.response(0)};
            *const_cast<volatile std::byte*>(places[where]) = std::byte{1};
        }));
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    require_whole(*provider);
}

static void test_a_proxy_dies() {
    const Provider provider = offer("proxy");
    const std::vector<Point> points = {
        OfferPoint::proxy_attached,   OfferPoint::proxy_reaped,     LogPoint::log_asked,
        LogPoint::log_summed,         LogPoint::log_active,         SamplePoint::sample_marked,
        SamplePoint::sample_taken,    SamplePoint::sample_released, LogPoint::log_left,
        AttachPoint::attach_locked,   AttachPoint::attach_active,   AttachPoint::detach_begin,
        AttachPoint::detach_inactive, AttachPoint::attach_recovered};
    for (const Point point : points) {
        dies_at(point, [&] {
            const Proxy proxy = join("proxy");
            CHECK(proxy->subscribe(kSpeed, 3) == Subscribing::ok);
            proxy->rewind(kSpeed, proxy->newest(kSpeed) - 1);
            release(*proxy, take(*proxy, 3));
            proxy->unsubscribe(kSpeed);
            proxy->leave();
        });
        require_whole(*provider);
    }
    // In the second of three samples.
    for (const Point point : {Point(SamplePoint::sample_marked), Point(SamplePoint::sample_taken),
                              Point(SamplePoint::sample_released)}) {
        dies_at(
            point,
            [&] {
                const Proxy proxy = join("proxy");
                CHECK(proxy->subscribe(kSpeed, 3) == Subscribing::ok);
                proxy->rewind(kSpeed, proxy->newest(kSpeed) - 3);
                release(*proxy, take(*proxy, 3));
            },
            2);
        require_whole(*provider);
    }
}

// All samples are marked by a dead proxy, which only damage or a fault of its process explains: lending asks for them.
static void test_lending_clears_the_dead() {
    const Provider provider = offer("lends");
    send(*provider);
    dies_at(OfferPoint::stop_left, [&] {
        const Proxy proxy = join("lends");
        CHECK(proxy->subscribe(kSpeed, 1) == Subscribing::ok);
        for (u32 sample = 0; sample < 8; ++sample)
            std::atomic_ref<u64>(*proxy->elements()[kSpeed].samples.words().word(sample))
                .fetch_or(ServiceSlots::bit(proxy->slot()));
        holdfast::at(OfferPoint::stop_left);
    });
    CHECK(sample_word(*provider, 5) == 1);
    CHECK(send(*provider) == 2);
    require_whole(*provider);
}

// Another process clears what a proxy left, and dies at each of its steps, too.
static void test_the_one_that_clears_dies() {
    const Provider provider = offer("clears");
    for (int i = 0; i < 3; ++i) send(*provider);
    const std::vector<Point> points = {SamplePoint::holder_cleared, LogPoint::log_cleared,
                                       CallPoint::call_cleared,     NoticePoint::notice_busy,
                                       NoticePoint::notice_posted,  RecoverPoint::recover_end};
    for (const Point point : points) {
        const Line ready;
        const pid_t dead = start([&] {
            const Proxy proxy = join("clears");
            CHECK(proxy->subscribe(kSpeed, 3) == Subscribing::ok);
            proxy->rewind(kSpeed, proxy->newest(kSpeed) - 3);
            CHECK(take(*proxy, 3).size() == 3);
            CallTicket ticket;
            CHECK(proxy->claim(kStop, ticket));
            ready.tell();
            for (;;) ::pause();
        });
        ready.wait();
        const Line attached, go;
        const pid_t second = start([&] {
            const Proxy proxy = join("clears");
            attached.tell();
            go.wait();
            arm(point);
            proxy->reap_all();
        });
        attached.wait();
        kill_and_reap(dead);
        go.tell();
        const int status = finish(second);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        require_whole(*provider);
        // Both deaths are told.
        std::set<u64> told;
        Notice notice;
        for (u32 from = 0; provider->next_notice(from, notice); from = notice.place + 1) {
            told.insert(notice.pid);
            provider->notice_taken(notice);
        }
        CHECK(told.contains(static_cast<u64>(dead)) && told.contains(static_cast<u64>(second)));
    }
}

// At each step of a publication. A sample that was shown is there for the next provider's proxies.
static void test_a_provider_dies() {
    struct Case {
        Point point;
        u64 newest;  // as a proxy finds it afterwards; 2 were complete
    };
    const Case cases[] = {{SamplePoint::sample_allocated, 2}, {SamplePoint::sample_written, 2},
                          {SamplePoint::sample_traced, 2},    {SamplePoint::sample_shown, 3},
                          {SamplePoint::sample_announced, 3}, {SamplePoint::sample_dropped, 2}};
    for (const Case& each : cases) {
        const Line ready, go;
        const pid_t child = start([&] {
            const Provider provider = offer("dies");
            ready.tell();
            go.wait();
            for (int i = 0; i < 2; ++i) send(*provider);
            arm(each.point);
            if (each.point == Point(SamplePoint::sample_dropped))
                provider->give_back(kSpeed, provider->lend(kSpeed));
            send(*provider);
        });
        ready.wait();
        const Proxy proxy = join("dies"), tracer = join("dies", "tracer", true);
        CHECK(proxy->subscribe(kSpeed, 1) == Subscribing::ok);
        CHECK(tracer->subscribe(kSpeed, 3) == Subscribing::ok);
        go.tell();
        const int status = finish(child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !proxy->offered());
        Provider next = offer("dies");
        CHECK(next->reused() && next->epoch() == 2 && proxy->offered());
        CHECK(proxy->newest(kSpeed) == each.newest && next->next_sequence(kSpeed) > each.newest);
        std::vector<TakenSample> got = take(*proxy, 1);
        CHECK(numbers(got) == range(each.newest, each.newest));
        release(*proxy, got);
        std::vector<u64> traced;
        for (;;) {
            got = take(*tracer, 1);
            if (got.empty()) break;
            traced.push_back(got[0].sequence);
            release(*tracer, got);
        }
        CHECK(traced == range(1, each.newest));
        const u64 number = send(*next);
        CHECK(number == next->next_sequence(kSpeed) - 1 && number > each.newest);
        CHECK(numbers(take(*tracer, 1)) == range(number, number));
        tracer->unsubscribe(kSpeed);
        proxy->unsubscribe(kSpeed);
        proxy->leave();
        tracer->leave();
        require_whole(*next);
    }
}

// A dead provider's successor dies at each step of its cleaning.
static void test_the_next_provider_dies() {
    const std::vector<Point> points = {SamplePoint::clean_invalid, SamplePoint::clean_cleared,
                                       CallPoint::call_failed,     OfferPoint::offer_cleaned,
                                       OfferPoint::offer_counted,  OfferPoint::offer_open};
    for (const Point point : points) {
        const Line ready, go;
        const pid_t child = start([&] {
            const Provider provider = offer("next");
            ready.tell();
            go.wait();
            for (int i = 0; i < 3; ++i) send(*provider);
            arm(SamplePoint::sample_written);
            send(*provider);
        });
        ready.wait();
        const Proxy proxy = join("next");
        CHECK(proxy->subscribe(kSpeed, 2) == Subscribing::ok);
        go.tell();
        CHECK(WIFSIGNALED(finish(child)));
        dies_at(point, [] { offer("next"); });
        Provider last = offer("next");
        CHECK(last->reused() && proxy->newest(kSpeed) == 3);
        const std::vector<TakenSample> got = take(*proxy, 2);
        CHECK(numbers(got) == range(2, 3));
        CHECK(send(*last) > 3);
        release(*proxy, got);
        proxy->unsubscribe(kSpeed);
        proxy->leave();
        require_whole(*last);
    }
}

static void test_a_tracer() {
    const Provider provider = offer("tracer");
    Proxy tracer = join("tracer", "tracer", true);
    CHECK(tracer->tracer());
    CHECK_ERROR(Code::too_many_participants, join("tracer", "second", true), "pids");
    CHECK(tracer->subscribe(kSpeed, 3) == Subscribing::ok);
    for (int i = 0; i < 9; ++i) send(*provider);
    for (u64 number = 1; number <= 3; ++number) {  // it keeps the first three, and misses the rest
        const std::vector<TakenSample> got = take(*tracer, 3);
        CHECK(numbers(got) == range(number, number));
        release(*tracer, got);
    }
    CHECK(take(*tracer, 3).empty() && tracer->looks_empty(kSpeed, 3));
    tracer->unsubscribe(kSpeed);
    tracer->leave();
    require_whole(*provider);
    for (const Point point : {Point(LogPoint::log_active), Point(AttachPoint::detach_begin)}) {
        dies_at(point, [&] {
            const Proxy dead = join("tracer", "tracer", true);
            CHECK(dead->subscribe(kSpeed, 3) == Subscribing::ok);
            dead->leave();
        });
        for (int i = 0; i < 9; ++i) send(*provider);
        require_whole(*provider);
    }
}

// A provider that saw a tracer sets its bit after the tracer has gone. The next tracer has room in spite of it.
static void test_a_stray_bit_of_a_tracer() {
    const Provider provider = offer("stray");
    const Proxy tracer = join("stray", "tracer", true);
    CHECK(tracer->subscribe(kSpeed, 1) == Subscribing::ok);
    tracer->unsubscribe(kSpeed);
    auto& samples = provider->elements()[kSpeed].samples;
    const u32 late = provider->lend(kSpeed);
    fill(*provider, kSpeed, late, 1);
    SampleOrder order;
    order.next = 1;
    CHECK(samples.publish(order, late, 64, 1) == 1);  // `trace` as it was before
    CHECK(sample_word(*provider, late) == ServiceSlots::bit(ServiceSlots{}.tracer()));
    CHECK(tracer->subscribe(kSpeed, 1) == Subscribing::ok);
    CHECK(take(*tracer, 1).empty());
    CHECK(sample_word(*provider, late) == 0);
}

int main() {
    test_order();
    test_loans();
    test_damage();
    test_the_last_number();
    test_a_proxy_cannot_write();
    test_a_proxy_dies();
    test_lending_clears_the_dead();
    test_the_one_that_clears_dies();
    test_a_provider_dies();
    test_the_next_provider_dies();
    test_a_tracer();
    test_a_number_that_was_replaced_out_of_turn();
    test_a_stray_bit_of_a_tracer();
}
