// The copy step of put and get, in which other threads may use the attachment: here the step itself plays such a thread.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/queue/small_queue.hpp"

using namespace holdfast;
using namespace holdfast::test;

static void put(QueueAttachment& queue, const std::string& data) {
    CHECK(put_texts(queue, {data}, false) == Verdict::ok);
}

static std::vector<std::string> drained(QueueAttachment& queue) {
    std::vector<std::string> texts;
    drain(queue, [&](const Delivered& each) { texts.push_back(text(each)); });
    return texts;
}

// One step copies all payloads of a call, and is told the size of the largest. A put and a get of another thread run in
// the middle of the first.
static void test_put() {
    create_queue("copied");
    SmallQueue queue("copied");
    const std::string data[] = {"outer", std::string(300, 'x'), ""};
    const Payload payloads[] = {payload(data[0]), payload(data[1]), payload(data[2])};
    std::vector<u64> steps;
    const auto copy = [&](u64 bytes, auto&& step) {
        steps.push_back(bytes);
        put(queue, "inner");
        std::vector<Delivered> out;
        CHECK(queue.get(out, 1, true) == Verdict::empty && queue.blocked_by_somebody());
        step();
        put(queue, "last");
        CHECK(queue.get(out, 1, true) == Verdict::empty);
    };
    CHECK(queue.put(payloads, false, copy) == Verdict::ok);
    CHECK(steps == std::vector<u64>{300});
    CHECK((drained(queue) == std::vector<std::string>{data[0], data[1], data[2], "inner", "last"}));
    // Without room nothing is copied.
    const std::string half(1900, 'h');
    put(queue, half);
    const Payload second = payload(half);
    CHECK(queue.put({&second, 1}, true, [](u64, auto&&) { CHECK(false); }) == Verdict::full);
    unlink_queues({"copied"});
}

// While the first dead letter is copied, another thread moves the second, and gets a message of its own.
static void test_dead_letters() {
    create_queue("dead");
    create_queue("work", "dead");
    SmallQueue work("work");
    for (const char* each : {"poison 1", "poison 2"}) put(work, each);
    std::vector<Delivered> out;
    CHECK(work.get(out, 2, true) == Verdict::ok && out.size() == 2);
    for (const Delivered& each : out) CHECK(work.give_back(each.taken));
    out.clear();
    put(work, "fresh");
    std::vector<u64> steps;
    std::vector<Delivered> other;
    const auto copy = [&](u64 bytes, auto&& step) {
        steps.push_back(bytes);
        CHECK(work.get(other, 1, true) == Verdict::ok);
        step();
    };
    CHECK(work.get(out, 1, true, copy) == Verdict::empty && out.empty());
    CHECK(steps == std::vector<u64>{8});
    CHECK(other.size() == 1 && text(other[0]) == "fresh" && work.settle(other[0].taken));
    CHECK(!work.dead_letter_blocked() && drained(work).empty());
    SmallQueue dead("dead");
    std::vector<std::string> buried = drained(dead);
    std::sort(buried.begin(), buried.end());
    CHECK((buried == std::vector<std::string>{"poison 1", "poison 2"}));
    unlink_queues({"dead", "work"});
}

int main() {
    test_put();
    test_dead_letters();
}
