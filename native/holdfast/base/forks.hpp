// Keeps lock descriptions and shared mappings from the child of a fork().
//
// A child that kept its parent's lock description would make a dead parent look alive. A child that
// kept the shared mapping could write into it under its parent's name. So each owner of such a
// thing is in one list. A handler in the child makes every owner release it. To go on, the child
// must attach anew.
#pragma once

#include <pthread.h>

#include <atomic>
#include <new>

namespace holdfast {

// While an object of this class lives, fork() in other threads waits. It covers the moments in
// which a lock is held and its owner is not in the list.
class ForkPause {
 public:
    ForkPause() { pthread_mutex_lock(&mutex); }
    ~ForkPause() { pthread_mutex_unlock(&mutex); }
    ForkPause(const ForkPause&) = delete;
    ForkPause& operator=(const ForkPause&) = delete;

 private:
    friend class ForkAware;
    inline static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
};

class ForkAware {
 public:
    ForkAware(const ForkAware&) = delete;
    ForkAware& operator=(const ForkAware&) = delete;

    // True in a child of the process that created this object.
    bool forked() const { return forked_.load(std::memory_order_relaxed); }

 protected:
    ForkAware() = default;
    virtual ~ForkAware() = default;

    // Called last in the constructor of the final class, so that a handler never meets it half
    // constructed.
    void remember() {
        static const int failure = pthread_atfork(&before, &in_parent, &in_every_child);
        if (failure != 0) throw std::bad_alloc();
        const ForkPause pause;
        next_ = first;
        if (next_ != nullptr) next_->previous_ = this;
        first = this;
    }

    // Called first in its destructor. The pause must last until the lock or mapping is released.
    void forget(const ForkPause&) {
        if (previous_ != nullptr) previous_->next_ = next_;
        if (next_ != nullptr) next_->previous_ = previous_;
        if (first == this) first = next_;
        next_ = previous_ = nullptr;
    }

    // Runs in the child before fork() returns: system calls only; no allocation, no locks, no exceptions.
    virtual void in_child() noexcept = 0;

 private:
    static void before() { pthread_mutex_lock(&ForkPause::mutex); }
    static void in_parent() { pthread_mutex_unlock(&ForkPause::mutex); }
    static void in_every_child() {
        for (ForkAware* each = first; each != nullptr; each = each->next_) {
            each->forked_.store(true, std::memory_order_relaxed);
            each->in_child();
        }
        pthread_mutex_unlock(&ForkPause::mutex);
    }

    inline static ForkAware* first = nullptr;
    ForkAware* next_ = nullptr;
    ForkAware* previous_ = nullptr;
    std::atomic<bool> forked_{false};
};

}  // namespace holdfast
