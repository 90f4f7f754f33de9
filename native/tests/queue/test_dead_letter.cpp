// Dead letters when their queue is removed or created again: no message goes where consumers cannot
// find it.
#include <string>
#include <vector>

#include "tests/queue/small_queue.hpp"

using namespace holdfast;
using namespace holdfast::test;

static u64 waiting(const std::string& name) {
    SmallQueue queue(name);
    std::vector<Delivered> out;
    queue.get(out, 16, true);
    for (const Delivered& each : out) CHECK(queue.put_aside(each.taken));
    queue.detach();
    return out.size();
}

// A message that has had its only delivery; the next get moves it to the dead letters.
static void poison(QueueAttachment& work) {
    CHECK(put_texts(work, {"poison"}) == Verdict::ok);
    std::vector<Delivered> out;
    CHECK(work.get(out, 1, true) == Verdict::ok && work.give_back(out[0].taken));
    out.clear();
    CHECK(work.get(out, 1, true) == Verdict::empty);
}

int main() {
    create_queue("dead");
    create_queue("work", "dead");
    SmallQueue work("work");
    poison(work);
    CHECK(waiting("dead") == 1 && !work.dead_letter_blocked());
    unlink_queues({"dead"});
    poison(work);
    CHECK(work.dead_letter_blocked());  // the message stays
    unlink_queues({"work"});
    create_queue("dead");
    create_queue("work", "dead");
    SmallQueue again("work");
    poison(again);
    CHECK(waiting("dead") == 1);
    unlink_queues({"dead"});
    create_queue("dead");
    poison(again);
    CHECK(waiting("dead") == 1 && !again.dead_letter_blocked());
}
