// Holds: notices of deaths, slots and identities, forks, and counters.
#include <sys/wait.h>

#include <set>
#include <string>
#include <vector>

#include "tests/service/small_service.hpp"

using namespace holdfast;
using namespace holdfast::test;

struct Told {
    std::multiset<u64> pids;
    std::set<std::string> applications;
};

static Told hear(ProviderHold& provider) {
    Told out;
    Notice notice;
    for (u32 from = 0; provider.next_notice(from, notice); from = notice.place + 1) {
        CHECK(notice.since != 0);
        out.pids.insert(notice.pid);
        out.applications.insert(notice.application);
        provider.notice_taken(notice);
    }
    return out;
}

static pid_t start_proxy(const std::string& name, const std::string& application) {
    const Line ready;
    const pid_t child = start([&] {
        const Proxy proxy = join(name, application);
        ready.tell();
        for (;;) ::pause();
    });
    ready.wait();
    return child;
}

// Each death is told, with the process and the application. One that leaves is not.
static void test_notices() {
    const Provider provider = offer("notices");
    const pid_t one = start_proxy("notices", "camera"), two = start_proxy("notices", "camera");
    in_child([] { join("notices", "radar")->leave(); });
    CHECK(provider->reap_all() == 0 && hear(*provider).pids.empty());
    kill_and_reap(one);
    CHECK(provider->reap_all() == 1);
    Told told = hear(*provider);
    CHECK(told.pids == std::multiset<u64>{static_cast<u64>(one)});  // `two` lives
    CHECK(told.applications == std::set<std::string>{"camera"});
    CHECK(provider->reap_all() == 0 && hear(*provider).pids.empty());
    kill_and_reap(two);
    const Proxy proxy = join("notices", "radar");  // clears it, or has its slot
    told = hear(*provider);
    CHECK(told.pids.contains(static_cast<u64>(two)) && told.pids.size() == 1);
    CHECK(provider->application_of(proxy->slot()) == "radar");
}

// A newcomer dies in the slot of a dead process, before it is a participant: the first one's name stays the first one's.
static void test_a_newcomer_dies_in_the_slot_of_a_dead_process() {
    const Provider provider = offer("newcomer");
    for (const Point point :
         {Point(AttachPoint::attach_locked), Point(NoticePoint::notice_busy),
          Point(NoticePoint::notice_posted), Point(AttachPoint::attach_recovered)}) {
        const pid_t dead = start_proxy("newcomer", "camera");
        kill_and_reap(dead);
        dies_at(point, [] { join("newcomer", "radar"); });
        Told told = hear(*provider);
        provider->reap_all();
        const Told later = hear(*provider);
        told.pids.insert(later.pids.begin(), later.pids.end());
        told.applications.insert(later.applications.begin(), later.applications.end());
        CHECK(told.pids.contains(static_cast<u64>(dead)));
        CHECK(told.applications == std::set<std::string>{"camera"});
        require_whole(*provider);
    }
}

// A process with several holds is told once while the first notice waits.
static void test_a_process_with_several_holds() {
    const Provider provider = offer("several");
    const Line ready;
    const pid_t child = start([&] {
        const Proxy one = join("several"), two = join("several"),
                    three = join("several", "t", true);
        ready.tell();
        for (;;) ::pause();
    });
    ready.wait();
    kill_and_reap(child);
    CHECK(provider->reap_all() == 3);
    CHECK(hear(*provider).pids == std::multiset<u64>{static_cast<u64>(child)});
}

// A notice waits for the next provider, and is kept until its handler has returned.
static void test_notices_without_a_provider() {
    Provider provider = offer("waits");
    const Proxy keeper = join("waits");
    const pid_t child = start_proxy("waits", "camera");
    provider->stop();
    kill_and_reap(child);
    CHECK(keeper->reap_all() == 1);
    for (const Point point : {Point(OfferPoint::offer_open), Point(NoticePoint::notice_taken)}) {
        const bool taken = point == Point(NoticePoint::notice_taken);
        dies_at(point, [&] {
            const Provider dying = offer("waits");
            Notice notice;
            while (dying->next_notice(0, notice) && notice.pid != static_cast<u64>(child))
                dying->notice_taken(notice);
            dying->notice_taken(notice);
        });
        provider = offer("waits");
        Notice notice;
        bool found = false;
        for (u32 from = 0; provider->next_notice(from, notice); from = notice.place + 1)
            found |= notice.pid == static_cast<u64>(child);
        CHECK(found == !taken);
        provider->stop();
    }
}

// More deaths than there is room for: those that fit are told, and nothing is damaged.
static void test_too_many_notices() {
    const Provider provider = offer("many");
    const Proxy keeper = join("many");
    for (u32 i = 0; i < kNotices + 3; ++i) {
        dies_at(OfferPoint::proxy_attached, [] { join("many"); });
        CHECK(keeper->reap_all() == 1);
    }
    CHECK(hear(*provider).pids.size() == kNotices);
    const pid_t last = start_proxy("many", "camera");
    kill_and_reap(last);
    CHECK(provider->reap_all() == 1 && hear(*provider).pids.contains(static_cast<u64>(last)));
}

static void test_slots() {
    const Provider provider = offer("slots");
    std::vector<Proxy> all;
    for (u32 slot = 0; slot < kServiceProxies; ++slot) {
        all.push_back(join("slots"));
        CHECK(all.back()->slot() == slot);
    }
    CHECK_ERROR(Code::too_many_participants, join("slots"), "62 participants");
    CHECK(join("slots", "tracer", true)->slot() == 62 && provider->slot() == 63);
    all[40]->leave();
    CHECK(join("slots")->slot() == 40);
    for (const Proxy& each : all) each->leave();
    const std::string longest(400, 'x');
    const Proxy named = join("slots", longest);
    CHECK(provider->application_of(named->slot()) == std::string(127, 'x'));
}

// A child of a provider or proxy has neither, and keeps neither alive.
static void test_forks() {
    Provider provider = offer("forks");
    Proxy proxy = join("forks");
    CHECK(proxy->subscribe(kSpeed, 2) == Subscribing::ok);
    send(*provider);
    const std::vector<TakenSample> held = take(*proxy, 1);
    const Line ready, end;
    const pid_t child = start([&] {
        CHECK(!provider->usable() && provider->forked() && !proxy->usable() && proxy->forked());
        proxy->release(kSpeed, held[0].sample);
        proxy->unsubscribe(kSpeed);
        provider->stop();  // without effect on the parent's
        CHECK_ERROR(Code::exists, offer("forks"), "forks");
        ready.tell();
        end.wait();
    });
    ready.wait();
    CHECK(provider->usable() && proxy->offered() && proxy->has_name());
    CHECK(sample_word(*provider, held[0].sample) == ServiceSlots::bit(proxy->slot()));
    release(*proxy, held);
    proxy->unsubscribe(kSpeed);
    proxy->leave();
    provider->stop();
    provider = offer("forks");  // the child lives
    CHECK(!provider->reused());
    end.tell();
    CHECK(finish(child) == 0);
    require_whole(*provider);
}

// Every 1,024th operation asks about another participant, although nothing waits for its samples.
static void test_deaths_are_noticed_in_passing() {
    const Provider provider = offer("passing");
    kill_and_reap(start_proxy("passing", "camera"));
    for (int i = 0; i < 1100; ++i) send(*provider);
    CHECK(hear(*provider).applications.contains("camera"));
}

int main() {
    test_notices();
    test_a_newcomer_dies_in_the_slot_of_a_dead_process();
    test_a_process_with_several_holds();
    test_notices_without_a_provider();
    test_too_many_notices();
    test_slots();
    test_forks();
    test_deaths_are_noticed_in_passing();
}
