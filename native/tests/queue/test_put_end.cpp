// The end of a producer's puts in local ingest: all of its own messages, and none of others.
#include <memory>
#include <string>
#include <vector>

#include "tests/queue/small_queue.hpp"

using namespace holdfast;
using namespace holdfast::test;

static std::unique_ptr<SmallQueue> made(const std::string& name, u64 granules = 64) {
    create_queue(name, "", granules);
    return std::make_unique<SmallQueue>(name);
}

// Drains the queue; returns the position behind the last message, or 0.
static u64 drained_to(QueueAttachment& queue) {
    u64 end = 0;
    drain(queue, [&](const Delivered& each) {
        end = std::max(end, each.taken.position + Geometry::blocks_granules(each.size));
    });
    return end;
}

static void test_it_is_behind_the_last() {
    const auto queue = made("end-last");
    CHECK(queue->put_end() == 0);
    u64 before = 0;
    for (int i = 0; i < 200; ++i) {  // several laps
        CHECK(put_texts(*queue, {std::string(static_cast<std::size_t>(i) % 90, 'x')}) ==
              Verdict::ok);
        CHECK(queue->put_end() > before);
        before = queue->put_end();
        CHECK(drained_to(*queue) == before);
    }
    // All messages of one call become visible together.
    CHECK(put_texts(*queue, {"a", std::string(100, 'b'), "", "c"}) == Verdict::ok);
    CHECK(queue->put_end() > before && drained_to(*queue) == queue->put_end());
}

static void test_what_was_not_put_does_not_count() {
    const auto queue = made("end-full", 16);
    u64 before = 0;
    while (put_texts(*queue, {std::string(40, 'x')}) == Verdict::ok) before = queue->put_end();
    CHECK(before > 0 && queue->put_end() == before);  // full: nothing was put
    CHECK(drained_to(*queue) == before);
    CHECK(queue->put_end() == before);  // a consumer has put nothing
}

// Each attachment knows its own end: a wait for its messages does not include those of others.
static void test_others_do_not_count() {
    const auto mine = made("end-others");
    SmallQueue other("end-others");
    CHECK(put_texts(*mine, {"mine"}) == Verdict::ok);
    const u64 own = mine->put_end();
    CHECK(other.put_end() == 0);
    CHECK(put_texts(other, {"other"}) == Verdict::ok && put_texts(other, {"other"}) == Verdict::ok);
    CHECK(mine->put_end() == own && other.put_end() > own);
    CHECK(drained_to(*mine) == other.put_end());
    CHECK(put_texts(*mine, {"mine"}) == Verdict::ok && mine->put_end() > other.put_end());
}

int main() {
    test_it_is_behind_the_last();
    test_what_was_not_put_does_not_count();
    test_others_do_not_count();
    unlink_queues({"end-last", "end-full", "end-others"});
}
