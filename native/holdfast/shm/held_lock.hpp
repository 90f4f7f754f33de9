// A lock on bytes of a file and the open file description that holds it, in one value that can be moved.
//
// The original has a mutex on a file, and a lock that refers to the mutex; neither can be moved without the other. Here the
// description is the mutex and the lock. It is never mapped, duplicated or passed on. A forked child closes it: a child that
// kept it would make a dead parent look alive.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "holdfast/base/files.hpp"
#include "holdfast/base/forks.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

enum class LockKind : short { shared = F_RDLCK, exclusive = F_WRLCK };

class HeldLock {
 public:
    HeldLock() = default;

    // Locks `count` bytes from `first` on, without waiting. `open()` returns a new description (an OwnedFd). An empty
    // value: `error` has the errno, EAGAIN if another description has a lock in the way.
    template <class Open>
    static HeldLock take(Open&& open, LockKind kind, off_t first, off_t count, int& error) {
        HeldLock held;
        held.held_ = std::make_unique<Held>();
        const ForkPause pause;  // a child that inherited this lock unseen would keep it
        OwnedFd fd = open();
        error = fd.get() < 0 ? errno : 0;
        if (error != 0) return {};
        struct flock lock{};
        lock.l_type = static_cast<short>(kind);
        lock.l_whence = SEEK_SET;
        lock.l_start = first;
        lock.l_len = count;
        int result;
        do {
            result = ::fcntl(fd.get(), F_OFD_SETLK, &lock);
        } while (result != 0 && errno == EINTR);
        if (result != 0) {
            error = errno == EACCES ? EAGAIN : errno;
            return {};
        }
        held.held_->adopt(std::move(fd));
        return held;
    }

    // False also in a forked child.
    explicit operator bool() const { return held_ != nullptr && held_->fd.get() >= 0; }
    int fd() const { return held_ == nullptr ? -1 : held_->fd.get(); }

    // Is the locked file still the one that `path` names? It may have been removed, or removed and created anew.
    bool is_named(const char* path) const {
        struct stat mine{}, named{};
        return *this && ::fstat(fd(), &mine) == 0 && ::lstat(path, &named) == 0 &&
               mine.st_dev == named.st_dev && mine.st_ino == named.st_ino;
    }

    void release() { held_.reset(); }

 private:
    struct Held final : ForkAware {
        Held() { remember(); }
        ~Held() override {
            const ForkPause pause;
            forget(pause);
            drop();
        }
        // Close, never unlock: the lock is the parent's.
        void in_child() noexcept override { drop(); }

        void adopt(OwnedFd locked) {
            fd = std::move(locked);
            signature = Segment::sign(fd.get());
            known = ::fstat(fd.get(), &file) == 0;
        }
        void drop() noexcept {
            if (!is_ours()) fd.release();  // closed by others; the number may be a stranger's
            fd = OwnedFd();
        }
        bool is_ours() const {
            struct stat now{};
            return known && ::fstat(fd.get(), &now) == 0 && now.st_dev == file.st_dev &&
                   now.st_ino == file.st_ino && ::lseek(fd.get(), 0, SEEK_CUR) == signature;
        }

        OwnedFd fd;
        struct stat file{};
        off_t signature = 0;
        bool known = false;
    };

    std::unique_ptr<Held> held_;
};

}  // namespace holdfast
