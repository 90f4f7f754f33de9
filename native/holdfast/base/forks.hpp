// What fork() must not hand to the child: lock descriptions and shared mappings.
//
// A child that kept its parent's lock description would make a dead parent look alive; a child that kept the shared
// mapping could write into it under its parent's name. So each owner of such a thing is in one list, and a handler in
// the child lets every one of them give its thing up. Use in the child needs a new attachment.
#pragma once

#include <pthread.h>

#include <atomic>
#include <new>

namespace holdfast {

// While one lives, fork() in other threads waits. For the moments in which a lock is held and its owner is not, or not
// any more, in the list.
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

    // True in a child of the process that made this object.
    bool forked() const { return forked_.load(std::memory_order_relaxed); }

 protected:
    ForkAware() = default;
    virtual ~ForkAware() = default;

    // Last in the constructor of the final class: no handler meets it half made.
    void remember() {
        static const int failure = pthread_atfork(&before, &in_parent, &in_every_child);
        if (failure != 0) throw std::bad_alloc();
        const ForkPause pause;
        next_ = first;
        if (next_ != nullptr) next_->previous_ = this;
        first = this;
    }

    // First in its destructor. The pause must last until the thing that fork() would hand on is given up.
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
