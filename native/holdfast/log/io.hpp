// The writer's system calls, and the faults that a test injects into them.
//
// Production pays one relaxed load for each call. Results are 0 or an errno. Nothing is thrown,
// because the writer keeps the bytes that it could not write and goes on later.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string_view>
#include <vector>

#include "holdfast/base/types.hpp"

namespace holdfast {

enum class IoOp : u32 {
    journal_write,
    journal_sync,
    ledger_open,
    ledger_truncate,
    ledger_write,
    index_write,
    ledger_sync,
    count_
};

inline constexpr std::array<std::string_view, static_cast<std::size_t>(IoOp::count_)> kIoNames = {
    "journal_write", "journal_sync", "ledger_open", "ledger_truncate",
    "ledger_write",  "index_write",  "ledger_sync"};

constexpr std::string_view io_name(IoOp op) {
    return kIoNames[static_cast<std::size_t>(op)];
}

constexpr u32 io_bit(IoOp op) {
    return 1u << static_cast<u32>(op);
}

// The calls of a name: one of kIoNames, or a family of them.
constexpr std::optional<u32> io_mask(std::string_view name) {
    if (name == "write")
        return io_bit(IoOp::journal_write) | io_bit(IoOp::ledger_write) | io_bit(IoOp::index_write);
    if (name == "sync") return io_bit(IoOp::journal_sync) | io_bit(IoOp::ledger_sync);
    if (name == "open") return io_bit(IoOp::ledger_open);
    if (name == "truncate") return io_bit(IoOp::ledger_truncate);
    for (std::size_t i = 0; i < kIoNames.size(); ++i) {
        if (kIoNames[i] == name) return 1u << i;
    }
    return std::nullopt;
}

namespace detail {
inline std::atomic<u32> fault_mask{0};
inline std::atomic<u64> fault_countdown{0};
inline std::atomic<u64> fault_times{0};
inline std::atomic<int> fault_error{0};
inline std::atomic<u64> faults_fired{0};

[[gnu::noinline, gnu::cold]] inline int inject() {
    if (fault_countdown.load(std::memory_order_relaxed) > 1) {
        fault_countdown.fetch_sub(1, std::memory_order_relaxed);
        return 0;
    }
    faults_fired.fetch_add(1, std::memory_order_relaxed);
    const u64 times = fault_times.load(std::memory_order_relaxed);
    if (times == 1)
        fault_mask.store(0, std::memory_order_relaxed);
    else if (times > 1)
        fault_times.store(times - 1, std::memory_order_relaxed);
    return fault_error.load(std::memory_order_relaxed);
}
}  // namespace detail

// From the `countdown`-th call on, `times` calls fail with `error` (times 0: all). A negative error
// is a short write of that many bytes, which is not a failure.
inline void arm_fault(u32 mask, u64 countdown, int error, u64 times) {
    detail::fault_mask.store(0, std::memory_order_relaxed);
    detail::fault_countdown.store(countdown, std::memory_order_relaxed);
    detail::fault_times.store(times, std::memory_order_relaxed);
    detail::fault_error.store(error, std::memory_order_relaxed);
    detail::faults_fired.store(0, std::memory_order_relaxed);
    detail::fault_mask.store(mask, std::memory_order_relaxed);
}

inline void disarm_fault() {
    detail::fault_mask.store(0, std::memory_order_relaxed);
}

// How often the armed fault has struck.
inline u64 faults_fired() {
    return detail::faults_fired.load(std::memory_order_relaxed);
}

// Returns 0, or the fault that the test wants of this call.
inline int fault(IoOp op) {
    if (detail::fault_mask.load(std::memory_order_relaxed) & io_bit(op)) [[unlikely]]
        return detail::inject();
    return 0;
}

// The file that a descriptor was opened for. Other code may close the descriptor and open it for
// another file, or remove the file.
class FileIdentity {
 public:
    FileIdentity() = default;
    explicit FileIdentity(int fd) {
        struct stat status{};
        if (::fstat(fd, &status) != 0) return;
        device_ = status.st_dev;
        inode_ = status.st_ino;
    }

    // Returns 0; EBADF if the descriptor is now of another file; ENOENT if the file has no name any
    // more.
    int lost(int fd) const {
        struct stat status{};
        if (::fstat(fd, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_)
            return EBADF;
        return status.st_nlink == 0 ? ENOENT : 0;
    }

 private:
    dev_t device_ = 0;
    ino_t inode_ = 0;
};

// Writes all bytes, with as many calls as that takes. `pieces` are used up.
inline int write_all(int fd, std::vector<iovec>& pieces, u64 offset, IoOp op) {
    std::size_t first = 0;
    while (first < pieces.size()) {
        if (pieces[first].iov_len == 0) {
            ++first;
            continue;
        }
        const int count = static_cast<int>(std::min<std::size_t>(pieces.size() - first, IOV_MAX));
        const int fails = fault(op);
        if (fails > 0) return fails;
        ssize_t written;
        if (fails < 0)
            written = ::pwrite(
                fd, pieces[first].iov_base,
                std::min<std::size_t>(pieces[first].iov_len, static_cast<std::size_t>(-fails)),
                static_cast<off_t>(offset));
        else
            written = ::pwritev(fd, &pieces[first], count, static_cast<off_t>(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written < 0 ? errno : EIO;
        offset += static_cast<u64>(written);
        for (auto left = static_cast<std::size_t>(written); left > 0;) {
            iovec& piece = pieces[first];
            const std::size_t part = std::min(left, piece.iov_len);
            piece.iov_base = static_cast<char*>(piece.iov_base) + part;
            piece.iov_len -= part;
            left -= part;
            if (piece.iov_len == 0) ++first;
        }
    }
    return 0;
}

// Never called again on the same file after a failure: the kernel has dropped by then the bytes
// that it could not write.
inline int sync_data(int fd, IoOp op) {
    if (const int fails = fault(op); fails > 0) return fails;
    return ::fdatasync(fd) == 0 ? 0 : errno;
}

// Returns a descriptor, or a negative errno.
inline int open_file(const char* path, int flags) {
    if (const int fails = fault(IoOp::ledger_open); fails > 0) return -fails;
    const int fd = ::open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd >= 0 ? fd : -errno;
}

inline int truncate_file(int fd, u64 size) {
    if (const int fails = fault(IoOp::ledger_truncate); fails > 0) return fails;
    return ::ftruncate(fd, static_cast<off_t>(size)) == 0 ? 0 : errno;
}

}  // namespace holdfast
