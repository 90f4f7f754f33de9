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

class ForkAware {
public:
    ForkAware(const ForkAware&) = delete;
    ForkAware& operator=(const ForkAware&) = delete;

    // True in a child of the process that made this object.
    bool forked() const { return forked_.load(std::memory_order_relaxed); }

protected:
    ForkAware() {
        List& list = the_list();
        pthread_mutex_lock(&list.mutex);
        next_ = list.first;
        if (next_ != nullptr) next_->previous_ = this;
        list.first = this;
        pthread_mutex_unlock(&list.mutex);
    }

    virtual ~ForkAware() { forget(); }

    // A derived class calls this first in its destructor: afterwards no handler can see it half destroyed.
    void forget() {
        List& list = the_list();
        pthread_mutex_lock(&list.mutex);
        if (previous_ != nullptr) previous_->next_ = next_;
        if (next_ != nullptr) next_->previous_ = previous_;
        if (list.first == this) list.first = next_;
        next_ = previous_ = nullptr;
        pthread_mutex_unlock(&list.mutex);
    }

    // Runs in the child, between fork() and its return: system calls only, no allocation, no locks, no exceptions.
    virtual void in_child() noexcept = 0;

private:
    struct List {
        pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
        ForkAware* first = nullptr;
    };

    // Never destroyed: objects may outlive static destructors, and fork() may come after them.
    static List& the_list() {
        static List* const list = [] {
            pthread_atfork([] { pthread_mutex_lock(&the_list().mutex); },
                           [] { pthread_mutex_unlock(&the_list().mutex); }, &child_handler);
            return new List;
        }();
        return *list;
    }

    static void child_handler() {
        List& list = the_list();
        for (ForkAware* each = list.first; each != nullptr; each = each->next_) {
            each->forked_.store(true, std::memory_order_relaxed);
            each->in_child();
        }
        pthread_mutex_unlock(&list.mutex);
    }

    ForkAware* next_ = nullptr;
    ForkAware* previous_ = nullptr;
    std::atomic<bool> forked_{false};
};

}  // namespace holdfast
