// The end of a producer's puts in local ingest: all of its own messages, and none of others.
#include <string>
#include <vector>

#include "holdfast/queue/attachment.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

static const std::string directory = default_directory();

static std::unique_ptr<QueueAttachment> made(const std::string& name, u64 granules = 64) {
    SegmentSpec spec;
    spec.directory = directory;
    spec.name = name;
    QueueParams params{};
    params.granules = granules;
    params.participants = 4;
    params.delivery = Delivery::at_least_once;
    params.stall_limit_ms = kNoStallLimit;
    QueueAttachment::create(spec, params);
    return std::make_unique<QueueAttachment>(directory, name, false);
}

static Verdict put(QueueAttachment& queue, const std::vector<std::string>& messages) {
    std::vector<Payload> payloads;
    for (const std::string& each : messages)
        payloads.push_back({reinterpret_cast<const std::byte*>(each.data()), each.size()});
    return queue.put(payloads, true);
}

// Takes and settles the messages that are there; returns the position behind the last, or 0.
static u64 drain(QueueAttachment& queue) {
    u64 end = 0;
    std::vector<Delivered> out;
    while (queue.get(out, 16, true) == Verdict::ok) {
        for (const Delivered& each : out) {
            end = std::max(end, each.taken.position + Geometry::blocks_granules(each.size));
            CHECK(queue.settle(each.taken));
        }
        out.clear();
    }
    return end;
}

static void test_it_is_behind_the_last() {
    const auto queue = made("end-last");
    CHECK(queue->put_end() == 0);
    u64 before = 0;
    for (int i = 0; i < 200; ++i) {  // several laps
        CHECK(put(*queue, {std::string(static_cast<std::size_t>(i) % 90, 'x')}) == Verdict::ok);
        CHECK(queue->put_end() > before);
        before = queue->put_end();
        CHECK(drain(*queue) == before);
    }
    // All messages of one call become visible together.
    CHECK(put(*queue, {"a", std::string(100, 'b'), "", "c"}) == Verdict::ok);
    CHECK(queue->put_end() > before && drain(*queue) == queue->put_end());
}

static void test_what_was_not_put_does_not_count() {
    const auto queue = made("end-full", 16);
    u64 before = 0;
    while (put(*queue, {std::string(40, 'x')}) == Verdict::ok) before = queue->put_end();
    CHECK(before > 0 && queue->put_end() == before);  // full: nothing was put
    CHECK(drain(*queue) == before);
    CHECK(queue->put_end() == before);  // a consumer has put nothing
}

// Each attachment knows its own end: a wait for its messages does not include those of others.
static void test_others_do_not_count() {
    const auto mine = made("end-others");
    QueueAttachment other(directory, "end-others", false);
    CHECK(put(*mine, {"mine"}) == Verdict::ok);
    const u64 own = mine->put_end();
    CHECK(other.put_end() == 0);
    CHECK(put(other, {"other"}) == Verdict::ok && put(other, {"other"}) == Verdict::ok);
    CHECK(mine->put_end() == own && other.put_end() > own);
    CHECK(drain(*mine) == other.put_end());
    CHECK(put(*mine, {"mine"}) == Verdict::ok && mine->put_end() > other.put_end());
}

int main() {
    test_it_is_behind_the_last();
    test_what_was_not_put_does_not_count();
    test_others_do_not_count();
    for (const char* name : {"end-last", "end-full", "end-others"})
        Segment::unlink(directory, kQueueKind, name);
}
