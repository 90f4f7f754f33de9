// The queue between the loop and the writer: portions go one way, their memory comes back the
// other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/log/round.hpp"

namespace holdfast {

class RoundQueue {
 public:
    using Clock = std::chrono::steady_clock;

    // Portions that are not urgent wait at most this long for others.
    static constexpr std::chrono::milliseconds kPatience{10};

    std::unique_ptr<Portion> spare() {
        {
            const std::lock_guard lock(mutex_);
            if (!spares_.empty()) {
                auto portion = std::move(spares_.back());
                spares_.pop_back();
                return portion;
            }
        }
        return std::make_unique<Portion>(pool_);
    }

    // `portion` is empty afterwards.
    void push(std::unique_ptr<Portion>& portion) {
        bool wake;
        const u64 bytes = portion->bytes();
        {
            const std::lock_guard lock(mutex_);
            if (waiting_.empty()) since_ = Clock::now();
            const bool was_urgent = urgent_, was_empty = waiting_.empty();
            urgent_ |= portion->urgent;
            wake = (urgent_ && !was_urgent) || was_empty;
            bytes_.fetch_add(bytes, std::memory_order_relaxed);
            if (!waiting_.empty() && bytes <= kSmall && waiting_.back()->bytes() <= kShared) {
                waiting_.back()->absorb(*portion);
            } else {
                waiting_.push_back(std::move(portion));
            }
        }
        if (wake) changed_.notify_all();
        if (portion == nullptr)
            portion = spare();
        else
            portion->clear();
    }

    // Takes all portions that wait.
    Round take() {
        std::vector<std::unique_ptr<Portion>> taken;
        {
            const std::lock_guard lock(mutex_);
            taken.swap(waiting_);
            urgent_ = false;
        }
        return Round(std::move(taken));
    }

    // A round does not count as pending any more. Called before the report: a producer that waits
    // for room checks when it is notified.
    void discount(const Round& round) {
        bytes_.fetch_sub(round.bytes(), std::memory_order_relaxed);
    }

    // Takes its memory back, after that.
    void give_back(Round& round) {
        auto portions = round.release();
        for (auto& each : portions) each->clear();
        const std::lock_guard lock(mutex_);
        for (auto& each : portions) {
            if (spares_.size() < kSparesMax) spares_.push_back(std::move(each));
        }
        round = Round();
    }

    // In a child of fork() the writer's thread is absent, and it may have held the lock.
    void leave_to_parent() { left_.store(true, std::memory_order_relaxed); }
    void require_here() const {
        if (left_.load(std::memory_order_relaxed))
            throw Error(Code::misuse,
                        "this log got its writer before fork(), and the child does not have its "
                        "thread; open the broker in the child");
    }

    u64 bytes() const { return bytes_.load(std::memory_order_relaxed); }

    // For the writer, which waits under this lock.
    std::mutex& mutex() { return mutex_; }
    std::condition_variable& changed() { return changed_; }
    bool waits() const { return !waiting_.empty(); }  // under the lock
    bool urgent() const { return urgent_; }           // under the lock
    Clock::time_point due() const {
        return since_ + kPatience;
    }  // under the lock, if something waits
    u64 begin_d() const { return waiting_.front()->begin_d; }  // the same

 private:
    static constexpr u64 kSmall = 64 << 10;
    static constexpr u64 kShared = 192 << 10;
    static constexpr std::size_t kSparesMax = 8;

    ChunkPool pool_;  // declared before the portions, which return their chunks to it
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::unique_ptr<Portion>> waiting_, spares_;
    bool urgent_ = false;
    Clock::time_point since_;
    std::atomic<u64> bytes_{0};
    std::atomic<bool> left_{false};
};

}  // namespace holdfast
