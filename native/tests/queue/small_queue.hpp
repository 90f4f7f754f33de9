// Small queues for tests: create and unlink them, put texts, take and settle what is there.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "holdfast/queue/attachment.hpp"
#include "tests/check.hpp"

namespace holdfast::test {

// Messages of a queue with dead letters have one delivery each.
inline void create_queue(const std::string& name, const std::string& dead_letter = "",
                         u64 granules = 64) {
    SegmentSpec spec;
    spec.directory = default_directory();
    spec.name = name;
    QueueParams params{};
    params.granules = granules;
    params.participants = 4;
    params.delivery = Delivery::at_least_once;
    params.stall_limit_ms = kNoStallLimit;
    params.max_deliveries = dead_letter.empty() ? 0 : 1;
    dead_letter.copy(params.dead_letter, sizeof params.dead_letter - 1);
    QueueAttachment::create(spec, params);
}

inline void unlink_queues(std::initializer_list<const char*> names) {
    for (const char* name : names) Segment::unlink(default_directory(), kQueueKind, name);
}

class SmallQueue : public QueueAttachment {
 public:
    explicit SmallQueue(const std::string& name)
        : QueueAttachment(default_directory(), name, false) {}
};

inline Payload payload(const std::string& data) {
    return {reinterpret_cast<const std::byte*>(data.data()), data.size()};
}

inline std::string text(const Delivered& message) {
    return {reinterpret_cast<const char*>(message.data), message.size};
}

// Puts the messages in one call. `probe`: look for dead participants on the way.
inline Verdict put_texts(QueueAttachment& queue, const std::vector<std::string>& messages,
                         bool probe = true) {
    std::vector<Payload> payloads;
    for (const std::string& each : messages) payloads.push_back(payload(each));
    return queue.put(payloads, probe);
}

// Takes and settles the messages that are there, each after `visit`.
template <class Visit>
void drain(QueueAttachment& queue, Visit&& visit) {
    std::vector<Delivered> out;
    while (queue.get(out, 16, true) == Verdict::ok) {
        for (const Delivered& each : out) {
            visit(each);
            CHECK(queue.settle(each.taken));
        }
        out.clear();
    }
}

}  // namespace holdfast::test
