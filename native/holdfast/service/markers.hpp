// The markers of an instance: one says that it is offered, the other that it is in use.
//
// The existence marker is a file of its own, since the first provider needs it before there is a segment. Its provider has
// it locked alone for life.
//
// The usage marker is the range of lock bytes of proxies and tracer in the segment's own inode. Each of them
// has its own byte alone; a process that can lock the whole range alone has the proof that the segment is unused. A file
// beside the segment could be removed and created anew, and would then prove what is not so.
//
// A file that was locked may have been removed meanwhile. So each lock is followed by a look at the name: does it still lead
// to the locked file?
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "holdfast/base/errors.hpp"
#include "holdfast/service/state.hpp"
#include "holdfast/shm/held_lock.hpp"
#include "holdfast/shm/lock_bytes.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

HOLDFAST_POINTS(MarkerPoint, marker_held, marker_removed, usage_held, usage_removed);

inline std::string existence_path(const std::string& directory, const std::string& name) {
    return directory + "/holdfast.offer." + name;
}

// Locks the existence marker, creating it if need be. Empty: another process has it.
inline HeldLock hold_existence(const std::string& directory, const std::string& name, mode_t mode,
                               gid_t gid) {
    if (!valid_name(name))
        throw Error(Code::misuse, detail::quoted(name) + " is not a valid name; use 1 to " +
                                      std::to_string(kNameMax) +
                                      " of A-Z a-z 0-9 . _ - and do not begin with a dot");
    if ((mode & ~mode_t{0666}) != 0 || (mode & 0600) != 0600)
        throw Error(Code::misuse, "service " + name +
                                      ": its mode consists of read and write bits and includes "
                                      "0o600, for example 0o660");
    const std::string path = existence_path(directory, name);
    constexpr int kTries = 100;  // each but the last is lost to a marker that was removed meanwhile
    for (int tries = 0; tries < kTries; ++tries) {
        int error = 0;
        HeldLock held = HeldLock::take(
            [&] {
                return OwnedFd(::open(
                    path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                    0600));
            },
            LockKind::exclusive, 0, 1, error);
        if (!held) {
            if (error == EAGAIN) return {};
            throw Error(error == ENOENT                     ? Code::not_found
                        : error == EACCES || error == ELOOP ? Code::denied
                                                            : Code::io,
                        "the marker " + path + " cannot be opened or locked: " + errno_text(error) +
                            "; check the directory (HOLDFAST_RUNTIME_DIR) and its permissions",
                        error);
        }
        require_trusted_owner(regular_file_status(held.fd(), path), path);
        if (!held.is_named(path.c_str())) continue;
        if (mode != 0600) ::fchmod(held.fd(), mode);
        if (gid != kSameGroup) (void)!::fchown(held.fd(), static_cast<uid_t>(-1), gid);
        at(MarkerPoint::marker_held);
        return held;
    }
    throw Error(Code::io, "the marker " + path + " is removed again and again by another process");
}

// Removes the marker that `held` locks.
inline void remove_existence(HeldLock& held, const std::string& directory,
                             const std::string& name) {
    const std::string path = existence_path(directory, name);
    if (held.is_named(path.c_str())) ::unlink(path.c_str());
    at(MarkerPoint::marker_removed);
    held.release();
}

// Locks the usage marker alone. Empty: `error` is EAGAIN if the segment is in use, ENOENT if there is not one.
inline HeldLock hold_usage(const std::string& directory, const std::string& name, int& error) {
    const std::string path = Segment::path_of(directory, kServiceKind, name);
    HeldLock held = HeldLock::take(
        [&] {
            return OwnedFd(
                ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        },
        LockKind::exclusive, kLockBase, ServiceSlots{}.tracer() + 1, error);
    if (held) at(MarkerPoint::usage_held);
    return held;
}

// Removes the segment if no proxy and no tracer uses it. The caller has the existence marker. False: it is in use, or a
// provider lives whose marker was removed: then its byte is still locked.
inline bool remove_unused(const std::string& directory, const std::string& name) {
    const std::string path = Segment::path_of(directory, kServiceKind, name);
    int error = 0;
    const HeldLock usage = hold_usage(directory, name, error);
    if (!usage) return error == ENOENT;
    if (slot_locked(usage.fd(), ServiceSlots{}.provider())) return false;
    if (usage.is_named(path.c_str())) {
        ::unlink(path.c_str());
        at(MarkerPoint::usage_removed);
    }
    return true;
}

}  // namespace holdfast
