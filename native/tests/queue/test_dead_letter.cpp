// Dead letters when their queue is removed or created again: no message goes where consumers cannot
// find it.
#include <memory>
#include <string>
#include <vector>

#include "holdfast/queue/attachment.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

static const std::string directory = default_directory();

static void create(const std::string& name, const std::string& dead_letter) {
    SegmentSpec spec;
    spec.directory = directory;
    spec.name = name;
    QueueParams params{};
    params.granules = 64;
    params.participants = 4;
    params.stall_limit_ms = kNoStallLimit;
    params.max_deliveries = dead_letter.empty() ? 0 : 1;
    dead_letter.copy(params.dead_letter, sizeof params.dead_letter - 1);
    QueueAttachment::create(spec, params);
}

static u64 waiting(const std::string& name) {
    QueueAttachment queue(directory, name, false);
    std::vector<Delivered> out;
    queue.get(out, 16, true);
    for (const Delivered& each : out) CHECK(queue.put_aside(each.taken));
    queue.detach();
    return out.size();
}

// A message that has had its only delivery; the next get moves it to the dead letters.
static void poison(QueueAttachment& work) {
    const std::string data = "poison";
    const Payload payload{reinterpret_cast<const std::byte*>(data.data()), data.size()};
    CHECK(work.put({&payload, 1}, true) == Verdict::ok);
    std::vector<Delivered> out;
    CHECK(work.get(out, 1, true) == Verdict::ok && work.give_back(out[0].taken));
    out.clear();
    CHECK(work.get(out, 1, true) == Verdict::empty);
}

int main() {
    create("dead", "");
    create("work", "dead");
    QueueAttachment work(directory, "work", false);
    poison(work);
    CHECK(waiting("dead") == 1 && !work.dead_letter_blocked());
    Segment::unlink(directory, kQueueKind, "dead");
    poison(work);
    CHECK(work.dead_letter_blocked());  // the message stays
    Segment::unlink(directory, kQueueKind, "work");
    create("dead", "");
    create("work", "dead");
    QueueAttachment again(directory, "work", false);
    poison(again);
    CHECK(waiting("dead") == 1);
    Segment::unlink(directory, kQueueKind, "dead");
    create("dead", "");
    poison(again);
    CHECK(waiting("dead") == 1 && !again.dead_letter_blocked());
}
