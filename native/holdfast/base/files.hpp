// Checks of a file and its file system, before a segment is created there or trusted.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast {

class OwnedFd {
 public:
    explicit OwnedFd(int fd = -1) : fd_(above_standard(fd)) {}
    OwnedFd(OwnedFd&& other) noexcept : fd_(other.release()) {}
    OwnedFd& operator=(OwnedFd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~OwnedFd() {
        if (fd_ >= 0) ::close(fd_);
    }
    int get() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }

 private:
    // A process that closed its standard input or output would get a segment under that descriptor,
    // and later output would go into the segment. Called right after open(), when nothing depends
    // on the descriptor yet.
    static int above_standard(int fd) {
        if (fd < 0 || fd > 2) return fd;
        const int higher = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
        const int error = errno;
        ::close(fd);
        errno = error;
        return higher;
    }

    int fd_;
};

// Returns the name of a file system whose locks and shared mappings hold per client, or not at all.
// There, a participant on another machine would look dead. Null for all others; participants test
// the lock itself, too.
inline const char* unfit_file_system(u64 type) {
    static constexpr struct {
        u64 type;
        const char* name;
    } kUnfit[] = {
        {NFS_SUPER_MAGIC, "NFS"},
        {SMB_SUPER_MAGIC, "SMB"},
        {CIFS_SUPER_MAGIC, "CIFS"},
        {SMB2_SUPER_MAGIC, "SMB"},
        {FUSE_SUPER_MAGIC, "FUSE"},
        {V9FS_MAGIC, "9p"},
        {CEPH_SUPER_MAGIC, "Ceph"},
        {CODA_SUPER_MAGIC, "Coda"},
        {AFS_SUPER_MAGIC, "AFS"},
        {AFS_FS_MAGIC, "AFS"},
        {NCP_SUPER_MAGIC, "NCP"},
        {OCFS2_SUPER_MAGIC, "OCFS2"},
        {0x01161970, "GFS2"},
        {0x0bd00bd0, "Lustre"},
        {0x47504653, "GPFS"},
        {0xaad7aaea, "PanFS"},
        {0x19830326, "BeeGFS"},
        {0x20030528, "OrangeFS"},
        {0x786f4256, "a VirtualBox shared folder"},
        {0xbacbacbc, "a VMware shared folder"},
    };
    for (const auto& each : kUnfit) {
        if (each.type == type) return each.name;
    }
    return nullptr;
}

// Refuses an unfit file system; returns its free bytes. (A tmpfs without a limit reports 0 of 0.)
inline u64 require_fit_file_system(int fd, const std::string& what) {
    struct statfs fs{};
    if (::fstatfs(fd, &fs) != 0) {
        throw Error(Code::io,
                    "cannot examine the file system of " + what + ": " + errno_text(errno), errno);
    }
    const u64 type = static_cast<u32>(fs.f_type);  // the kernel defines 32 bits; the field is wider
    if (const char* name = unfit_file_system(type)) {
        throw Error(Code::unsupported,
                    what + " is on " + name +
                        ", where locks and shared memory do not work across machines; set "
                        "HOLDFAST_RUNTIME_DIR to a local directory, or use /dev/shm");
    }
    if (fs.f_blocks == 0) return ~u64{0};
    return static_cast<u64>(fs.f_bavail) * static_cast<u64>(fs.f_bsize);
}

inline struct stat regular_file_status(int fd, const std::string& path) {
    struct stat status{};
    if (::fstat(fd, &status) != 0) {
        throw Error(Code::io, "cannot examine " + path + ": " + errno_text(errno), errno);
    }
    if (!S_ISREG(status.st_mode)) {
        throw Error(Code::denied, path + " is not a regular file; remove it");
    }
    return status;
}

namespace detail {
inline bool in_group(gid_t gid) {
    if (gid == ::getegid()) return true;
    std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
    const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
    groups.resize(static_cast<std::size_t>(std::max(0, count)));
    return std::find(groups.begin(), groups.end(), gid) != groups.end();
}
}  // namespace detail

// In a directory where every user may create files, another user may have planted this one.
inline void require_trusted_owner(const struct stat& status, const std::string& path) {
    const uid_t me = ::geteuid();
    if (status.st_uid == me || status.st_uid == 0) return;
    const bool group_shares = (status.st_mode & 0060) == 0060;
    if (group_shares && (me == 0 || detail::in_group(status.st_gid))) return;
    throw Error(Code::denied,
                path + " belongs to uid " + std::to_string(status.st_uid) +
                    ", which is neither this user nor root, and no group of this user shares it. "
                    "Its creator can share it with mode=0o660 and group=");
}

}  // namespace holdfast
