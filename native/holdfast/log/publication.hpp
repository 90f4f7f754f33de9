// The state of one topic for processes that read its files: a small file, mapped by both sides.
//
//   0     file header (base/file_header.hpp), kind topic_view, id = the topic's
//   128   copy 0
//   256   copy 1
//   4096  end
//
//   copy  | u64 begin | u64 u64 incarnation | u64 first | u64 visible | u64 table | u64 state | u64 u64 boot |
//         | u64 0 × 5 | u64 crc32c of begin to 0 and the topic's id | u64 end |                          128 bytes
//
// One process writes, any number read. The writer always fills the older copy: begin = its number,
// then the rest, then end = the same number. So one copy is whole at any time, even if the writer
// is killed meanwhile. A reader that finds begin = end before and after has read one state, not a
// mixture (I74). The sum is for a disk that lost power, where no order holds. The newer of the
// whole copies counts.
//
// Positions are ordinals; `visible` is exclusive. Nothing at or above it may be read, because a
// crash could undo it. The file is not synced. After the machine failed (another boot, not closed
// in order) it is not valid until the broker has recovered and written it again.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/file_header.hpp"
#include "holdfast/base/files.hpp"
#include "holdfast/base/forks.hpp"
#include "holdfast/shm/segment_header.hpp"

namespace holdfast {

enum class ViewState : u64 {
    live = 0,
    closed = 1,  // the broker has stopped in order: all below visible is synced
    gone = 2,    // the topic was deleted
};

// One state of a topic, as its readers see it.
struct ViewedTopic {
    Incarnation incarnation;  // of the topic: a random number created with it
    u64 first = 0;            // the first entry that is kept
    u64 visible = 0;          // the end of what may be read
    u64 table = 0;            // version of the table that says which file holds which ledger
    ViewState state = ViewState::live;
    bool operator==(const ViewedTopic&) const = default;
};

inline constexpr std::size_t kViewSize = 4096;
inline constexpr std::size_t kViewCopies = 128;  // offset of the first one
inline constexpr std::size_t kViewWords = 16;

// The words of a copy.
enum ViewWord : std::size_t {
    kViewBegin = 0,
    kViewIncarnation = 1,
    kViewFirst = 3,
    kViewVisible = 4,
    kViewTable = 5,
    kViewState = 6,
    kViewBoot = 7,
    kViewSum = 14,
    kViewEnd = 15,
};

using ViewCopy = std::array<u64, kViewWords>;
static_assert(sizeof(ViewCopy) == 128 && kViewCopies + 2 * sizeof(ViewCopy) <= kViewSize);

inline u32 view_sum(const ViewCopy& copy, u64 topic) {
    return crc32c(crc32c(0, copy.data(), kViewSum * 8), &topic, 8);
}

inline ViewCopy make_view(u64 number, u64 topic, const ViewedTopic& state) {
    const auto boot = this_boot();
    ViewCopy copy{number,        state.incarnation.low, state.incarnation.high,        state.first,
                  state.visible, state.table,           static_cast<u64>(state.state), boot[0],
                  boot[1]};
    copy[kViewSum] = view_sum(copy, topic);
    copy[kViewEnd] = number;
    return copy;
}

inline bool whole(const ViewCopy& copy, u64 topic) {
    return copy[kViewBegin] != 0 && copy[kViewBegin] == copy[kViewEnd] &&
           copy[kViewSum] == view_sum(copy, topic) && copy[kViewFirst] <= copy[kViewVisible] &&
           copy[kViewState] <= static_cast<u64>(ViewState::gone);
}

// Is this number the newer one? Numbers wrap.
constexpr bool follows(u64 number, u64 other) {
    return static_cast<std::int64_t>(number - other) > 0;
}

// The mapping of such a file, and its copies.
class ViewMapping final : private ForkAware {
 public:
    // The descriptor is not kept: a broker has a mapping per topic, and a process has few
    // descriptors.
    ViewMapping(OwnedFd fd, std::string path, bool writable)
        : path_(std::move(path)), writable_(writable) {
        const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        void* at = ::mmap(nullptr, kViewSize, protection, MAP_SHARED, fd.get(), 0);
        if (at == MAP_FAILED)
            throw Error(Code::io, "cannot map " + path_ + ": " + errno_text(errno), errno);
        base_ = static_cast<u8*>(at);
        ::fstat(fd.get(), &status_);
        remember();
    }
    ~ViewMapping() override {
        const ForkPause pause;
        forget(pause);
        ::munmap(base_, kViewSize);
    }

    using ForkAware::forked;
    const std::string& path() const { return path_; }
    const struct stat& status() const { return status_; }

    void sync() {
        if (::msync(base_, kViewSize, MS_SYNC) != 0)
            throw Error(Code::io, "cannot sync " + path_ + ": " + errno_text(errno), errno);
    }

    // Reads copy `which`, if it was not written meanwhile.
    std::optional<ViewCopy> read(unsigned which) const {
        ViewCopy out;
        out[kViewEnd] = word(which, kViewEnd).load(std::memory_order_acquire);  // pairs with: write
        for (std::size_t i = kViewIncarnation; i < kViewEnd; ++i)
            out[i] = word(which, i).load(std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_acquire);  // pairs with: write
        // Acquire: a reader that sees that a copy has begun then finds the other one whole.
        out[kViewBegin] =
            word(which, kViewBegin).load(std::memory_order_acquire);  // pairs with: write
        if (out[kViewBegin] != out[kViewEnd]) return std::nullopt;
        return out;
    }

    void write(unsigned which, const ViewCopy& copy) {
        word(which, kViewBegin)
            .store(copy[kViewBegin], std::memory_order_release);  // pairs with: read
        std::atomic_thread_fence(std::memory_order_release);      // pairs with: read
        for (std::size_t i = kViewIncarnation; i < kViewEnd; ++i)
            word(which, i).store(copy[i], std::memory_order_relaxed);
        word(which, kViewEnd).store(copy[kViewEnd], std::memory_order_release);  // pairs with: read
    }

    // Returns the newer whole copy and its content. None: both were written meanwhile, or are
    // damaged.
    //
    // If only one is whole, it is read again after the other was found incomplete. The first read
    // may be old: an earlier call may have returned the other copy, before its next write. A reader
    // never goes back.
    std::optional<std::pair<unsigned, ViewCopy>> newest(u64 topic) const {
        const auto first = read_whole(0, topic);
        const auto second = read_whole(1, topic);
        if (first && second) {
            const unsigned which = follows((*second)[kViewBegin], (*first)[kViewBegin]) ? 1 : 0;
            return std::pair(which, which == 1 ? *second : *first);
        }
        for (const unsigned which : {0u, 1u}) {
            if (!(which == 0 ? first : second)) continue;
            if (const auto again = read_whole(which, topic)) return std::pair(which, *again);
        }
        return std::nullopt;
    }

 private:
    std::optional<ViewCopy> read_whole(unsigned which, u64 topic) const {
        auto copy = read(which);
        if (copy && !whole(*copy, topic)) copy.reset();
        return copy;
    }

    std::atomic_ref<u64> word(unsigned which, std::size_t i) const {
        return std::atomic_ref<u64>(
            reinterpret_cast<u64*>(base_ + kViewCopies)[which * kViewWords + i]);
    }

    // A child writes only to its own copy of the memory. A reader's child may go on reading.
    void in_child() noexcept override {
        if (!writable_) return;
        u8 content[kViewSize];
        std::memcpy(content, base_, kViewSize);
        ::mmap(base_, kViewSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
               -1, 0);
        std::memcpy(base_, content, kViewSize);
    }

    struct stat status_{};
    std::string path_;
    bool writable_;
    u8* base_ = nullptr;
};

// The broker's side. One thread calls it.
class TopicView {
 public:
    // Continues the file that is there, so that its readers see later states; a damaged file is
    // replaced.
    TopicView(const std::string& path, u64 topic, const Incarnation& directory)
        : topic_(topic), mapping_(reopen(path, topic, directory), path, true) {
        if (const auto newest = mapping_.newest(topic)) {
            number_ = newest->second[kViewBegin];
            next_ = 1 - newest->first;
        }
    }

    void publish(const ViewedTopic& state) {
        if (mapping_.forked())
            throw Error(Code::misuse, mapping_.path() +
                                          " belongs to the process that opened it; a child of that "
                                          "process cannot write it");
        if (state.first > state.visible)
            throw Error(Code::misuse,
                        mapping_.path() + ": the first position " + std::to_string(state.first) +
                            " is above the visible end " + std::to_string(state.visible));
        number_ = std::max<u64>(1, number_ + 1);  // 0 is a copy that was never written
        mapping_.write(next_, make_view(number_, topic_, state));
        next_ = 1 - next_;
    }

    // Syncs to the disk, for a broker that stops in order.
    void sync() { mapping_.sync(); }

 private:
    static OwnedFd reopen(const std::string& path, u64 topic, const Incarnation& directory) {
        OwnedFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
        if (fd.get() >= 0) {
            char header[kFileHeaderSize];
            struct stat status{};
            if (::fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                status.st_size == static_cast<off_t>(kViewSize) &&
                ::pread(fd.get(), header, sizeof header, 0) ==
                    static_cast<ssize_t>(sizeof header) &&
                check_file_header({header, sizeof header}, FileKind::topic_view, topic,
                                  directory) == FileFault::none)
                return fd;
        } else if (errno != ENOENT && errno != ELOOP) {
            throw Error(Code::io, "cannot open " + path + ": " + errno_text(errno), errno);
        }
        return create(path, topic, directory);
    }

    // Created under another name and then renamed, so that no process ever maps half of it. The
    // directory has one broker, so a file left under the other name has no user.
    static OwnedFd create(const std::string& path, u64 topic, const Incarnation& directory) {
        const std::string made = path + ".new";
        ::unlink(made.c_str());
        OwnedFd fd(::open(made.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
        const auto fail = [&](const char* what, int error) {
            if (fd.get() >= 0) ::unlink(made.c_str());
            return Error(error == ENOSPC || error == EDQUOT ? Code::no_space : Code::io,
                         "cannot " + std::string(what) + " " + path + ": " + errno_text(error),
                         error);
        };
        if (fd.get() < 0) throw fail("create", errno);
        // Allocates its blocks: a mapping that the disk has no room for ends the process.
        if (const int error = ::posix_fallocate(fd.get(), 0, kViewSize))
            throw fail("allocate", error);
        const FileHeader header = make_file_header(FileKind::topic_view, topic, directory);
        if (::pwrite(fd.get(), &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header))
            throw fail("write", errno);
        if (::rename(made.c_str(), path.c_str()) != 0) throw fail("name", errno);
        return fd;
    }

    u64 topic_;
    ViewMapping mapping_;
    u64 number_ = 0;
    unsigned next_ = 0;  // the copy to be filled
};

// A reader's side. Any thread may call it.
class TopicViewReader {
 public:
    TopicViewReader(const std::string& path, u64 topic, const Incarnation& directory)
        : topic_(topic), mapping_(open(path, topic, directory), path, false) {
        device_ = mapping_.status().st_dev;
        inode_ = mapping_.status().st_ino;
    }

    ViewedTopic read() const {
        for (int turn = 0; turn < kTurnsMax; ++turn) {
            if (const auto newest = mapping_.newest(topic_)) return believe(newest->second);
            // Both copies were written during the read, which takes a writer on another core.
            ::sched_yield();
        }
        throw Error(Code::corrupt,
                    mapping_.path() +
                        ": neither copy of the topic's state, at offsets 128 and 256, "
                        "is whole; start the broker, which writes it again");
    }

    // True if the name now means another file, or none: open it again.
    bool moved() const {
        struct stat status{};
        return ::stat(mapping_.path().c_str(), &status) != 0 || status.st_dev != device_ ||
               status.st_ino != inode_;
    }

 private:
    static constexpr int kTurnsMax = 1000;

    ViewedTopic believe(const ViewCopy& copy) const {
        const ViewedTopic state{{copy[kViewIncarnation], copy[kViewIncarnation + 1]},
                                copy[kViewFirst],
                                copy[kViewVisible],
                                copy[kViewTable],
                                static_cast<ViewState>(copy[kViewState])};
        const auto boot = this_boot();
        const bool other_boot = boot != std::array<u64, 2>{} &&
                                (copy[kViewBoot] != boot[0] || copy[kViewBoot + 1] != boot[1]);
        if (other_boot && state.state == ViewState::live)
            throw Error(Code::stale, mapping_.path() +
                                         " is from before the last boot, and its broker was not "
                                         "closed in order; start the broker, which recovers");
        return state;
    }

    static OwnedFd open(const std::string& path, u64 topic, const Incarnation& directory) {
        OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (fd.get() < 0) {
            const int error = errno;
            throw Error(error == ENOENT                     ? Code::not_found
                        : error == EACCES || error == ELOOP ? Code::denied
                                                            : Code::io,
                        "cannot open " + path + ": " + errno_text(error), error);
        }
        const struct stat status = regular_file_status(fd.get(), path);
        char header[kFileHeaderSize];
        const ssize_t got = ::pread(fd.get(), header, sizeof header, 0);
        require_file_header({header, got < 0 ? 0 : static_cast<std::size_t>(got)},
                            FileKind::topic_view, topic, directory, path);
        // A mapping beyond the end of its file ends the process.
        if (status.st_size < static_cast<off_t>(kViewSize))
            throw Error(Code::corrupt,
                        path + " has " + std::to_string(status.st_size) +
                            " bytes, not 4096; start the broker, which creates it again");
        return fd;
    }

    u64 topic_;
    ViewMapping mapping_;
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

}  // namespace holdfast
