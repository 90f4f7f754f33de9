// Dead letters: a message that came back too often is moved to another queue.
//
// At least once: the process may die between the put there and the settlement here. While the other queue has no room,
// the message stays, and the others are taken before it for a while.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "holdfast/queue/queue.hpp"

namespace holdfast {

// `Attachment`: QueueAttachment, which has one of these.
template <class Attachment>
class DeadLetters {
 public:
    DeadLetters(std::string directory, std::string name, u32 deliveries_max)
        : directory_(std::move(directory)),
          name_(std::move(name)),
          deliveries_max_(deliveries_max) {}

    // A take now leaves messages aside that came back that often; 0: it leaves nothing aside.
    u32 left_aside(const Attachment& from) const {
        return blocked_ && from.now_ms() - tried_ms_ < kPauseMs ? deliveries_max_ : 0;
    }

    // Moves those of the first `count` that came back too often. Returns how many are left. `copy`: as in QueueAttachment.
    template <class Copy>
    u32 bury_some(Attachment& from, std::vector<Taken>& batch, u32 count, Copy& copy) {
        if (deliveries_max_ == 0) return count;
        u32 left = 0;
        for (u32 i = 0; i < count; ++i) {
            if (batch[i].redelivered >= deliveries_max_)
                bury(from, batch[i], copy);
            else
                batch[left++] = batch[i];
        }
        return left;
    }

    // Messages wait for room in the other queue, as far as this attachment has seen.
    bool blocked() const { return blocked_; }

    void detach() {
        if (queue_) queue_->detach();
    }

 private:
    static constexpr u32 kPauseMs = 20;

    // The queue that stands under its name now. One that was removed is left without detaching, because another thread
    // may be putting into it.
    std::shared_ptr<Attachment> present() {
        if (queue_ && !queue_->reachable()) queue_.reset();
        if (!queue_) queue_ = std::make_shared<Attachment>(directory_, name_, false);
        return queue_;
    }

    template <class Copy>
    void bury(Attachment& from, const Taken& taken, Copy& copy) {
        typename Attachment::Message message;
        if (!from.sound(taken, message)) return from.discard(taken);
        if (put({message.data, message.size}, copy)) {
            from.buried(taken);
            blocked_ = false;
        } else {
            blocked_ = true;
            tried_ms_ = from.now_ms();
            from.not_buried(taken);
        }
    }

    template <class Copy>
    bool put(const Payload& payload, Copy& copy) {
        try {
            // Another thread may replace `queue_` while the payload is copied.
            const std::shared_ptr<Attachment> queue = present();
            return payload.size <= queue->geometry().size_max() &&
                   queue->put({&payload, 1}, true, copy) == Verdict::ok &&
                   queue->reachable();  // else it was removed meanwhile
        } catch (const Error&) {        // gone, or no slot free: as if it were full
            return false;
        }
    }

    std::string directory_, name_;
    u32 deliveries_max_;
    std::shared_ptr<Attachment> queue_;
    bool blocked_ = false;
    u64 tried_ms_ = 0;
};

}  // namespace holdfast
