// Markers: one provider at a time, and a segment that is removed only while it is unused.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/service/small_service.hpp"

using namespace holdfast;
using namespace holdfast::test;

static const std::string directory = default_directory();

static bool there(const std::string& path) {
    struct stat status{};
    return ::lstat(path.c_str(), &status) == 0;
}
static std::string segment_path(const std::string& name) {
    return Segment::path_of(directory, kServiceKind, name);
}

static void test_offer_and_stop() {
    const Provider provider = offer("stops");
    CHECK(there(existence_path(directory, "stops")) && there(segment_path("stops")));
    CHECK(!provider->reused() && provider->epoch() == 1 && provider->offered());
    CHECK(provider->provider_pid() == static_cast<u32>(::getpid()));
    CHECK_ERROR(Code::exists, offer("stops"), "stops", "by pid " + std::to_string(::getpid()));
    in_child([] { CHECK_ERROR(Code::exists, offer("stops"), "offered already"); });
    provider->stop();
    provider->stop();
    CHECK(!there(existence_path(directory, "stops")) && !there(segment_path("stops")));
    CHECK_ERROR(Code::not_found, join("stops"), "stops");
    const Provider again = offer("stops");
    CHECK(!again->reused() && again->epoch() == 1);
    send(*again);
}

static void test_a_segment_in_use_stays() {
    Provider provider = offer("stays");
    const Proxy proxy = join("stays");
    CHECK(proxy->subscribe(kSpeed, 2) == Subscribing::ok);
    for (int i = 0; i < 3; ++i) send(*provider);
    const std::vector<TakenSample> held = take(*proxy, 1);
    provider->stop();
    CHECK(!there(existence_path(directory, "stays")) && there(segment_path("stays")));
    CHECK(!proxy->offered() && proxy->has_name());
    CHECK(filled_with(*proxy, kSpeed, held[0].sample, 3));
    provider = offer("stays");
    CHECK(provider->reused() && proxy->epoch() == 2 && proxy->offered());
    for (int i = 0; i < 20; ++i) CHECK(send(*provider) == 4 + static_cast<u64>(i));
    CHECK(filled_with(*proxy, kSpeed, held[0].sample, 3));
    release(*proxy, held);
    CHECK(numbers(take(*proxy, 1)) == std::vector<u64>{23});
    // Unused, it is made anew; the numbers begin anew with it.
    proxy->leave();
    provider->stop();
    provider = offer("stays");
    CHECK(!provider->reused() && send(*provider) == 1);
}

static void test_another_layout() {
    Provider provider = offer("layout");
    const Line ready, end;
    const pid_t child = start([&] {
        const Proxy proxy = join("layout");
        ready.tell();
        end.wait();
        proxy->leave();
    });
    ready.wait();
    provider->stop();
    CHECK_ERROR(Code::layout_mismatch, offer("layout", {event("speed", 9), method("stop")}),
                "layout", "pid " + std::to_string(child));
    CHECK_ERROR(Code::layout_mismatch, offer("layout", {event("speed")}), "other elements");
    provider = offer("layout");  // the same one is welcome, also after a refusal
    CHECK(provider->reused());
    provider->stop();
    end.tell();
    CHECK(finish(child) == 0);
    CHECK(!offer("layout", {event("speed", 9), method("stop")})->reused());
}

// Files of processes that died, or of another boot, are in no one's way.
static void test_stale_files() {
    const std::string marker = existence_path(directory, "stale");
    ::close(::open(marker.c_str(), O_RDWR | O_CREAT, 0600));
    Provider provider = offer("stale");
    CHECK(send(*provider) == 1);
    provider.reset();
    dies_at(SamplePoint::sample_announced, [] { send(*offer("stale")); });
    CHECK(there(marker) && there(segment_path("stale")));
    provider = offer("stale");
    CHECK(!provider->reused());
    provider.reset();
    // Of another boot.
    dies_at(SamplePoint::sample_announced, [] { send(*offer("stale")); });
    const OwnedFd fd(::open(segment_path("stale").c_str(), O_RDWR));
    const u64 boot = 1;
    CHECK(::pwrite(fd.get(), &boot, sizeof boot, offsetof(SegmentHeader, boot_id)) == sizeof boot);
    CHECK_ERROR(Code::stale, join("stale"), "boot");
    provider = offer("stale");
    CHECK(!provider->reused() && join("stale")->offered());
    provider.reset();
    // Damaged, and unused.
    dies_at(SamplePoint::sample_announced, [] { send(*offer("stale")); });
    CHECK(::truncate(segment_path("stale").c_str(), 100) == 0);
    CHECK_ERROR(Code::corrupt, join("stale"), "100 bytes");
    CHECK(!offer("stale")->reused());
}

static void test_a_marker_that_is_not_a_file() {
    const std::string marker = existence_path(directory, "odd");
    CHECK(::symlink("/dev/null", marker.c_str()) == 0);
    CHECK_ERROR(Code::denied, offer("odd"), marker);
    CHECK(::unlink(marker.c_str()) == 0 && ::mkfifo(marker.c_str(), 0600) == 0);
    CHECK_ERROR(Code::denied, offer("odd"), "not a regular file");
    CHECK(::unlink(marker.c_str()) == 0);
    OfferSpec spec = offer_spec("odd");
    spec.directory = "/nowhere/at/all";
    CHECK_ERROR(Code::not_found, ProviderHold::offer(spec), "HOLDFAST_RUNTIME_DIR");
}

// The provider dies at each step of its offer and of its end; the next offer succeeds.
static void test_a_provider_dies() {
    for (const bool in_use : {false, true}) {
        Proxy user;
        std::vector<Point> points = {
            MarkerPoint::marker_held,   OfferPoint::offer_cleaned,  OfferPoint::offer_counted,
            OfferPoint::offer_open,     AttachPoint::attach_locked, AttachPoint::attach_recovered,
            AttachPoint::attach_active, AttachPoint::detach_begin,  AttachPoint::detach_inactive,
            OfferPoint::stop_left,      OfferPoint::stop_removed,   MarkerPoint::marker_removed};
        if (!in_use)
            for (const Point each :
                 {Point(OfferPoint::offer_unused), Point(OfferPoint::offer_created),
                  Point(MarkerPoint::usage_held), Point(MarkerPoint::usage_removed),
                  Point(SegmentPoint::create_linked), Point(SegmentPoint::create_initialised)})
                points.push_back(each);
        for (const Point point : points) {
            Provider provider = offer("dies");
            if (in_use && !user) user = join("dies");
            provider->stop();
            dies_at(point, [] { offer("dies")->stop(); });
            provider = offer("dies");
            CHECK(provider->reused() == in_use);
            if (in_use) CHECK(user->offered() && user->has_name());
            require_whole(*provider);
        }
    }
}

// Each round one of many processes gets the offer, and the others are told that it is taken.
static void test_a_race_of_offers() {
    constexpr int kRacers = 4;
    const int turns = rounds(25, 500);
    const Line go, told, over;
    std::vector<pid_t> racers;
    for (int i = 0; i < kRacers; ++i) {
        racers.push_back(start([&] {
            for (int turn = 0; turn < turns; ++turn) {
                go.wait();
                Provider won;
                try {
                    won = offer("race");
                    CHECK(send(*won) >= 1);
                } catch (const Error& error) {
                    CHECK(error.code == Code::exists);
                }
                told.tell(won ? 'w' : 'l');
                over.wait();
                if (won && turn % 2 == 0)
                    won->stop();
                else if (won)
                    won.reset();
                told.tell('e');
            }
        }));
    }
    for (int turn = 0; turn < turns; ++turn) {
        int winners = 0;
        for (int i = 0; i < kRacers; ++i) go.tell();
        for (int i = 0; i < kRacers; ++i) winners += told.wait() == 'w';
        CHECK(winners == 1);
        for (int i = 0; i < kRacers; ++i) over.tell();
        for (int i = 0; i < kRacers; ++i) CHECK(told.wait() == 'e');
    }
    for (const pid_t each : racers) CHECK(finish(each) == 0);
}

// Proxies come and go while the provider is stopped and offered again. A proxy that is connected has the segment that the
// name leads to, and no provider removes it.
static void test_proxies_join_while_segments_are_removed() {
    const int turns = rounds(150, 3000);
    std::vector<pid_t> children;
    for (int i = 0; i < 2; ++i) {
        children.push_back(start([&] {
            int joined = 0;
            for (int tries = 0; joined < turns && tries < 200 * turns; ++tries) {
                try {
                    const Proxy proxy = join("moves");
                    CHECK(proxy->has_name());
                    CHECK(proxy->subscribe(kSpeed, 1) == Subscribing::ok);
                    CHECK(proxy->has_name());
                    proxy->unsubscribe(kSpeed);
                    proxy->leave();
                    ++joined;
                } catch (const Error& error) {
                    CHECK(error.code == Code::not_found);
                }
            }
            CHECK(joined == turns);
        }));
    }
    int fresh = 0, reused = 0;
    for (std::size_t left = children.size(); left != 0;) {
        const Provider provider = offer("moves");
        ++(provider->reused() ? reused : fresh);
        send(*provider);
        provider->stop();
        int status = 0;
        for (pid_t& each : children) {
            if (each == 0 || ::waitpid(each, &status, WNOHANG) != each) continue;
            CHECK(status == 0);
            each = 0;
            --left;
        }
    }
    CHECK(fresh != 0 && reused != 0);
}

int main() {
    test_offer_and_stop();
    test_a_segment_in_use_stays();
    test_another_layout();
    test_stale_files();
    test_a_marker_that_is_not_a_file();
    test_a_provider_dies();
    test_a_race_of_offers();
    test_proxies_join_while_segments_are_removed();
}
