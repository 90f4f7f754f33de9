// A segment: one file, mapped by every process that attaches to it.
//
// S1 complete or not there: the file gets its name only after it is allocated and initialised.
// S2 allocated up front: a full file system is an error of create(), never a SIGBUS later.
// S3 nothing in it is trusted: open() works on a private copy of the header and says which field is wrong.
// Out of scope: a process of the same user that truncates the file; it could as well kill its peers.
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clock.hpp"
#include "crc32c.hpp"
#include "errors.hpp"
#include "forks.hpp"
#include "points.hpp"
#include "types.hpp"

namespace holdfast {

// The first page of every segment. Written once by the creator; only the boot id may change later (see adopt).
//
//      0  magic "HOLDFAST"                     8
//      8  layout version                       u32
//     12  kind: 1 queue, 2 channel, 3 service  u32
//     16  fingerprint of the layout            u64
//     24  file size in bytes                   u64
//     32  created, ns since the epoch          u64
//     40  pid of the creator (for people)      u32
//     44  size of this header, 4096            u32
//     48  boot id                              16    not in the sum: it proves itself by being this boot's
//     64  name, padded with zeros              128
//    192  parameters of the structure          512
//    704  zeros                                3388
//   4092  crc32c of [0, 48) and [64, 4092)     u32
//
// The boot id stays outside the sum so that adopting an old segment changes nothing else: a crash half way through
// those 16 bytes leaves a segment that is old still.
struct SegmentHeader {
    std::array<char, 8> magic;
    u32 version;
    u32 kind;
    u64 fingerprint;
    u64 file_size;
    u64 created_ns;
    u32 creator_pid;
    u32 header_size;
    std::array<u64, 2> boot_id;
    std::array<char, 128> name;
    std::array<std::byte, 512> params;
    std::array<std::byte, 3388> zeros;
    u32 crc;
};
static_assert(sizeof(SegmentHeader) == 4096);
static_assert(offsetof(SegmentHeader, boot_id) == 48 && offsetof(SegmentHeader, params) == 192 &&
              offsetof(SegmentHeader, crc) == 4092);

inline constexpr std::array<char, 8> kSegmentMagic = {'H', 'O', 'L', 'D', 'F', 'A', 'S', 'T'};
inline constexpr std::size_t kSegmentHeaderSize = sizeof(SegmentHeader);
inline constexpr u32 kQueueKind = 1;
inline constexpr u32 kChannelKind = 2;
inline constexpr u32 kServiceKind = 3;
inline constexpr std::size_t kNameMax = 100;
inline constexpr gid_t kSameGroup = static_cast<gid_t>(-1);

constexpr std::string_view kind_name(u32 kind) {
    switch (kind) {
        case kQueueKind: return "queue";
        case kChannelKind: return "channel";
        case kServiceKind: return "service";
        default: return "";
    }
}

struct SegmentSpec {
    std::string directory;
    std::string name;
    u32 kind = kQueueKind;
    u64 size = 0;  // of the whole file, header included
    u64 fingerprint = 0;
    u32 version = 0;
    mode_t mode = 0600;
    gid_t gid = kSameGroup;
    std::array<std::byte, 512> params{};
};

struct SegmentInfo {  // what a directory listing shows; nothing of it is verified
    u32 kind;
    std::string name;
    std::string path;
    u64 size;
};

class Segment;

struct Inspection {
    std::shared_ptr<Segment> segment;  // read-only; null when there is not even a header to map
    std::vector<std::string> faults;   // in words; empty for a sound header
};

namespace detail {

class OwnedFd {
public:
    explicit OwnedFd(int fd = -1) : fd_(fd) {}
    OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
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
    int fd_;
};

inline std::string hex(u64 value) {
    std::string text = "0x";
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
    return text;
}

// All zeros when the kernel does not tell; then no segment is ever called old.
inline std::array<u64, 2> this_boot() {
    static const std::array<u64, 2> id = [] {
        std::array<u64, 2> result{};
        OwnedFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
        char text[64];
        const ssize_t got = fd.get() < 0 ? -1 : ::read(fd.get(), text, sizeof text);
        unsigned digits = 0;
        for (ssize_t i = 0; i < got && digits < 32; ++i) {
            const char c = text[i];
            const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
            if (digit < 0) continue;  // the dashes
            result[digits / 16] = result[digits / 16] << 4 | static_cast<u64>(digit);
            ++digits;
        }
        return result;
    }();
    return id;
}

inline u32 segment_crc(const SegmentHeader& header) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&header);
    constexpr std::size_t kBootId = offsetof(SegmentHeader, boot_id);
    constexpr std::size_t kAfter = offsetof(SegmentHeader, name);
    constexpr std::size_t kEnd = offsetof(SegmentHeader, crc);
    return crc32c(crc32c(0, bytes, kBootId), bytes + kAfter, kEnd - kAfter);
}

// Locks and shared mappings of these work per client, or not at all: a participant elsewhere would look dead.
inline const char* unfit_file_system(u64 type) {
    switch (type) {
        case NFS_SUPER_MAGIC: return "NFS";
        case SMB_SUPER_MAGIC:
        case CIFS_SUPER_MAGIC:
        case SMB2_SUPER_MAGIC: return "SMB/CIFS";
        case FUSE_SUPER_MAGIC: return "FUSE";
        case V9FS_MAGIC: return "9p";
        case CEPH_SUPER_MAGIC: return "Ceph";
        case CODA_SUPER_MAGIC: return "Coda";
        case AFS_SUPER_MAGIC:
        case AFS_FS_MAGIC: return "AFS";
        case NCP_SUPER_MAGIC: return "NCP";
        case OCFS2_SUPER_MAGIC: return "OCFS2";
        case 0x01161970: return "GFS2";
        case 0x0bd00bd0: return "Lustre";
        case 0x47504653: return "GPFS";
        case 0xaad7aaea: return "PanFS";
        case 0x19830326: return "BeeGFS";
        case 0x20030528: return "OrangeFS";
        case 0x786f4256: return "a VirtualBox shared folder";
        case 0xbacbacbc: return "a VMware shared folder";
        default: return nullptr;
    }
}

inline u64 require_fit_file_system(int fd, const std::string& what) {
    struct statfs fs {};
    if (::fstatfs(fd, &fs) != 0) throw Error(Code::io, "cannot examine the file system of " + what + ": " + errno_text(errno), errno);
    const u64 type = static_cast<u32>(fs.f_type);  // 32 bits are what the kernel defines
    if (const char* name = unfit_file_system(type)) {
        throw Error(Code::unsupported, what + " is on " + name +
                                           ", where locks and shared memory do not hold between all machines that see "
                                           "it; set HOLDFAST_RUNTIME_DIR to a local directory, or use /dev/shm");
    }
    return static_cast<u64>(fs.f_bavail) * static_cast<u64>(fs.f_bsize);
}

inline bool in_group(gid_t gid) {
    if (gid == ::getegid()) return true;
    std::vector<gid_t> groups(static_cast<std::size_t>(std::max(0, ::getgroups(0, nullptr))));
    const int count = groups.empty() ? 0 : ::getgroups(static_cast<int>(groups.size()), groups.data());
    return std::find(groups.begin(), groups.begin() + std::max(0, count), gid) != groups.begin() + std::max(0, count);
}

}  // namespace detail

// $HOLDFAST_RUNTIME_DIR, else /dev/shm.
inline std::string default_directory() {
    const char* set = std::getenv("HOLDFAST_RUNTIME_DIR");
    return set != nullptr && *set != '\0' ? set : "/dev/shm";
}

constexpr bool valid_name(std::string_view name) {
    if (name.empty() || name.size() > kNameMax || name.front() == '.') return false;
    for (const char c : name) {
        const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
                          c == '_' || c == '-';
        if (!good) return false;
    }
    return true;
}

class Segment : public ForkAware {
public:
    // Makes the file, allocates all of it, lets `init(base)` fill what follows the header, then gives it its name.
    // Killed at any moment before that, it leaves nothing behind; killed after it, it leaves a good segment.
    static std::shared_ptr<Segment> create(const SegmentSpec& spec, const std::function<void(std::byte*)>& init) {
        check_spec(spec);
        const std::string path = path_of(spec.directory, spec.kind, spec.name);
        detail::OwnedFd directory = open_directory(spec.directory);
        const u64 free = detail::require_fit_file_system(directory.get(), spec.directory);
        // linkat() decides; this look before it spares a full file system the attempt.
        struct stat there {};
        const std::string file = file_name(spec.kind, spec.name);
        if (::fstatat(directory.get(), file.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) throw exists(spec, path);

        detail::OwnedFd fd(::openat(directory.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
        if (fd.get() < 0) throw create_failed(spec, path, errno);
        at(Point::create_file);
        allocate(fd.get(), spec, path, free);
        at(Point::create_allocated);
        std::shared_ptr<Segment> segment(new Segment(path, fd.release(), spec.size, PROT_READ | PROT_WRITE));
        segment->header_ = make_header(spec);
        std::memcpy(segment->base_, &segment->header_, sizeof(SegmentHeader));
        if (init) init(segment->base_);
        // The group first: the mode's rights are for that group only.
        if (spec.gid != kSameGroup && ::fchown(segment->fd_, static_cast<uid_t>(-1), spec.gid) != 0) {
            throw Error(errno == EPERM ? Code::denied : Code::io,
                        "cannot give " + path + " to group " + std::to_string(spec.gid) + ": " + errno_text(errno) +
                            "; choose a group of which this user is a member",
                        errno);
        }
        if (::fchmod(segment->fd_, spec.mode) != 0) {
            throw Error(Code::io, "cannot set the mode of " + path + ": " + errno_text(errno), errno);
        }
        at(Point::create_initialised);
        link(segment->fd_, directory.get(), file, spec, path);
        at(Point::create_linked);
        return segment;
    }

    // Maps an existing segment after checking everything that its header claims. `adopt_stale` accepts a segment from
    // before the last boot, whose processes are all gone, and marks it as of this boot.
    static std::shared_ptr<Segment> open(const std::string& directory, u32 kind, const std::string& name, u32 version,
                                         u64 fingerprint, bool adopt_stale = false) {
        check_name(kind, name);
        const std::string path = path_of(directory, kind, name);
        detail::OwnedFd fd = open_file(path, kind, name, O_RDWR);
        struct stat status = file_status(fd.get(), path);
        check_owner(status, path);
        detail::require_fit_file_system(fd.get(), path);
        SegmentHeader header{};
        const bool whole = read_header(fd.get(), path, header);
        std::vector<Finding> findings = examine(header, whole, static_cast<u64>(status.st_size), kind, name);
        compare_layout(header, whole, version, fingerprint, findings);
        if (!findings.empty()) {
            const Finding& worst = *std::min_element(findings.begin(), findings.end(),
                                                     [](const Finding& a, const Finding& b) { return a.rank < b.rank; });
            throw Error(worst.code, path + ": " + worst.words);
        }
        const bool stale = is_stale(header);
        if (stale && !adopt_stale) throw Error(Code::stale, path + ": " + stale_words(header));
        std::shared_ptr<Segment> segment(
            new Segment(path, fd.release(), header.file_size, PROT_READ | PROT_WRITE));
        segment->header_ = header;
        if (stale) segment->adopt();
        return segment;
    }

    // For looking only: maps read-only, takes no lock, changes nothing, and tells what is wrong instead of refusing.
    // Throws only when there is no readable regular file.
    static Inspection inspect(const std::string& directory, u32 kind, const std::string& name) {
        check_name(kind, name);
        const std::string path = path_of(directory, kind, name);
        detail::OwnedFd fd = open_file(path, kind, name, O_RDONLY);
        const struct stat status = file_status(fd.get(), path);
        SegmentHeader header{};
        const bool whole = read_header(fd.get(), path, header);
        Inspection result;
        for (const Finding& finding : examine(header, whole, static_cast<u64>(status.st_size), kind, name)) {
            result.faults.push_back(finding.words);
        }
        if (!whole) return result;
        if (is_stale(header)) result.faults.push_back(stale_words(header));
        // The real size, whatever the header claims: beyond it lies SIGBUS.
        result.segment.reset(new Segment(path, fd.release(), static_cast<u64>(status.st_size), PROT_READ));
        result.segment->header_ = header;
        return result;
    }

    // Takes the name away; processes that are attached keep the segment until they leave.
    static void unlink(const std::string& directory, u32 kind, const std::string& name) {
        check_name(kind, name);
        const std::string path = path_of(directory, kind, name);
        if (::unlink(path.c_str()) == 0) return;
        const int error = errno;
        if (error == ENOENT) throw not_found(path, kind, name);
        throw Error(error == EACCES || error == EPERM ? Code::denied : Code::io,
                    "cannot remove " + path + ": " + errno_text(error) + "; only its owner or root may", error);
    }

    // The segments of a directory by name. A directory that is not there has none.
    static std::vector<SegmentInfo> list(const std::string& directory) {
        std::vector<SegmentInfo> result;
        DIR* stream = ::opendir(directory.c_str());
        if (stream == nullptr) {
            if (errno == ENOENT) return result;
            throw Error(errno == EACCES ? Code::denied : Code::io,
                        "cannot read the directory " + directory + ": " + errno_text(errno), errno);
        }
        while (const dirent* entry = ::readdir(stream)) {
            const std::string_view file = entry->d_name;
            for (const u32 kind : {kQueueKind, kChannelKind, kServiceKind}) {
                const std::string prefix = file_name(kind, "");
                if (!file.starts_with(prefix) || !valid_name(file.substr(prefix.size()))) continue;
                struct stat status {};
                if (::fstatat(::dirfd(stream), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
                if (!S_ISREG(status.st_mode)) continue;
                result.push_back({kind, std::string(file.substr(prefix.size())), directory + "/" + entry->d_name,
                                  static_cast<u64>(status.st_size)});
            }
        }
        ::closedir(stream);
        std::sort(result.begin(), result.end(), [](const SegmentInfo& a, const SegmentInfo& b) {
            return std::pair(a.kind, std::string_view(a.name)) < std::pair(b.kind, std::string_view(b.name));
        });
        return result;
    }

    static std::string file_name(u32 kind, const std::string& name) {
        return "holdfast." + std::string(kind_name(kind)) + "." + name;
    }

    static std::string path_of(const std::string& directory, u32 kind, const std::string& name) {
        return directory + "/" + file_name(kind, name);
    }

    ~Segment() override {
        forget();
        if (base_ != nullptr) ::munmap(base_, size_);
        if (fd_ >= 0) ::close(fd_);
    }

    std::byte* base() const { return base_; }
    u64 size() const { return size_; }
    const SegmentHeader& header() const { return header_; }  // the private copy, as checked
    const std::string& path() const { return path_; }
    u64 device() const { return device_; }
    u64 inode() const { return inode_; }
    bool read_only() const { return protection_ == PROT_READ; }

    // A new open file description of the same file, also after its name is gone. Never a dup: locks belong to
    // descriptions. The caller closes it.
    int reopen(int flags) const {
        const std::string link = "/proc/self/fd/" + std::to_string(fd_);
        detail::OwnedFd fd(::open(link.c_str(), flags | O_CLOEXEC));
        if (fd.get() < 0) {  // no /proc: by name then, and the check below decides
            fd = detail::OwnedFd(::open(path_.c_str(), flags | O_CLOEXEC | O_NOFOLLOW));
        }
        if (fd.get() < 0) {
            const int error = errno;
            throw Error(error == EACCES ? Code::denied : error == ENOENT ? Code::not_found : Code::io,
                        "cannot open " + path_ + " a second time: " + errno_text(error) +
                            (error == EMFILE ? "; raise the limit of open files" : ""),
                        error);
        }
        const struct stat status = file_status(fd.get(), path_);
        if (static_cast<u64>(status.st_dev) != device_ || static_cast<u64>(status.st_ino) != inode_) {
            throw Error(Code::not_found, path_ + " was removed and created anew; open it again");
        }
        return fd.release();
    }

private:
    struct Finding {
        int rank;  // what to tell first when several things are wrong
        Code code;
        std::string words;
    };

    // Takes the descriptor. It stays open to be reopened, and for the fork handler to map from.
    Segment(std::string path, int fd, u64 size, int protection)
        : path_(std::move(path)), fd_(fd), size_(size), protection_(protection) {
        struct stat status {};
        void* at = MAP_FAILED;
        if (::fstat(fd, &status) == 0) at = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED) {
            const int error = errno;
            forget();
            ::close(fd_);
            throw Error(Code::io, "cannot map " + std::to_string(size) + " bytes of " + path_ + ": " +
                                      errno_text(error) + "; look at the limits of this process (ulimit -v)",
                        error);
        }
        device_ = static_cast<u64>(status.st_dev);
        inode_ = static_cast<u64>(status.st_ino);
        // A long core dump would keep the locks of a dead process for seconds.
        ::madvise(at, size, MADV_DONTDUMP);
        ::madvise(at, size, MADV_HUGEPAGE);  // only where the file system allows it; else refused, which is fine
        base_ = static_cast<std::byte*>(at);  // last: the fork handler looks at it
    }

    void in_child() noexcept override {
        if (base_ == nullptr) return;
        // Views into the mapping stay valid, and what is written through them stays in this process.
        if (::mmap(base_, size_, protection_, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, fd_, 0) == MAP_FAILED) {
            ::mprotect(base_, size_, PROT_READ);  // strict overcommit: better a fault than a stray write
        }
    }

    void adopt() {
        auto* shared = reinterpret_cast<SegmentHeader*>(base_);
        header_.boot_id = detail::this_boot();
        for (std::size_t i = 0; i < 2; ++i) {
            std::atomic_ref<u64>(shared->boot_id[i]).store(header_.boot_id[i], std::memory_order_relaxed);
        }
    }

    static void check_name(u32 kind, const std::string& name) {
        if (kind_name(kind).empty()) {
            throw Error(Code::misuse, "there is no segment kind " + std::to_string(kind));
        }
        if (!valid_name(name)) {
            throw Error(Code::misuse, "\"" + name + "\" is no name: use 1 to " + std::to_string(kNameMax) +
                                          " of A-Z a-z 0-9 . _ - and do not begin with a dot");
        }
    }

    static void check_spec(const SegmentSpec& spec) {
        check_name(spec.kind, spec.name);
        if (spec.size < kSegmentHeaderSize || spec.size > (u64{1} << 40)) {
            throw Error(Code::misuse, "a segment of " + std::to_string(spec.size) +
                                          " bytes cannot be made: choose 4096 bytes to 1 TiB");
        }
        if ((spec.mode & ~static_cast<mode_t>(0666)) != 0 || (spec.mode & 0600) != 0600) {
            throw Error(Code::misuse,
                        "a segment's mode is made of read and write bits and includes 0600, for example 0660");
        }
    }

    static detail::OwnedFd open_directory(const std::string& directory) {
        detail::OwnedFd fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (fd.get() >= 0) return fd;
        const int error = errno;
        const Code code = error == ENOENT || error == ENOTDIR ? Code::not_found
                          : error == EACCES                   ? Code::denied
                                                              : Code::io;
        throw Error(code, "the directory " + directory + " cannot be used: " + errno_text(error) +
                              "; create it, or set HOLDFAST_RUNTIME_DIR to another",
                    error);
    }

    static Error exists(const SegmentSpec& spec, const std::string& path) {
        return Error(Code::exists, "a " + std::string(kind_name(spec.kind)) + " named \"" + spec.name +
                                       "\" exists already (" + path + "); open it, or remove it first",
                     EEXIST);
    }

    static Error not_found(const std::string& path, u32 kind, const std::string& name) {
        return Error(Code::not_found, "there is no " + std::string(kind_name(kind)) + " named \"" + name + "\" (" +
                                          path + "); create it first, or check HOLDFAST_RUNTIME_DIR",
                     ENOENT);
    }

    static Error create_failed(const SegmentSpec& spec, const std::string& path, int error) {
        const std::string what = "cannot create " + path + ": ";
        switch (error) {
            case EACCES:
            case EPERM:
            case EROFS:
                return Error(Code::denied, what + "this process may not write to " + spec.directory + ": " +
                                               errno_text(error), error);
            case EOPNOTSUPP:
            case EISDIR:
            case EINVAL:
                return Error(Code::unsupported, what + "the file system of " + spec.directory +
                                                    " has no O_TMPFILE or no fallocate; use a tmpfs, ext4, xfs or "
                                                    "btrfs directory",
                             error);
            case EMFILE:
            case ENFILE: return Error(Code::io, what + errno_text(error) + "; raise the limit of open files", error);
            case EFBIG:
                return Error(Code::no_space, what + std::to_string(spec.size) +
                                                 " bytes are above the file size limit; raise it (ulimit -f), or ask "
                                                 "for less",
                             error);
            default: return Error(Code::io, what + errno_text(error), error);
        }
    }

    static Error no_space(const SegmentSpec& spec, const std::string& path, u64 free, int error) {
        return Error(Code::no_space, "cannot create " + path + ": it needs " + std::to_string(spec.size) +
                                         " bytes and " + spec.directory + " has " + std::to_string(free) +
                                         " bytes free; ask for a smaller capacity, remove other segments, or enlarge "
                                         "the file system",
                     error);
    }

    static void allocate(int fd, const SegmentSpec& spec, const std::string& path, u64 free) {
        // Asking first keeps a hopeless request from filling the file system, for a moment, for everybody else.
        if (spec.size > free) throw no_space(spec, path, free, ENOSPC);
        // In pieces, since a signal makes fallocate start over.
        constexpr u64 kPiece = 64u << 20;
        for (u64 done = 0; done < spec.size;) {
            const u64 piece = std::min(kPiece, spec.size - done);
            if (::fallocate(fd, 0, static_cast<off_t>(done), static_cast<off_t>(piece)) == 0) {
                done += piece;
                continue;
            }
            const int error = errno;
            if (error == EINTR) continue;
            if (error == ENOSPC || error == EDQUOT) throw no_space(spec, path, free, error);
            throw create_failed(spec, path, error);
        }
    }

    static void link(int fd, int directory, const std::string& file, const SegmentSpec& spec, const std::string& path) {
        const std::string source = "/proc/self/fd/" + std::to_string(fd);
        if (::linkat(AT_FDCWD, source.c_str(), directory, file.c_str(), AT_SYMLINK_FOLLOW) == 0) return;
        if (errno == ENOENT && ::linkat(fd, "", directory, file.c_str(), AT_EMPTY_PATH) == 0) return;  // no /proc
        if (errno == EEXIST) throw exists(spec, path);
        if (errno == ENOSPC || errno == EDQUOT) throw no_space(spec, path, 0, errno);
        throw create_failed(spec, path, errno);
    }

    static SegmentHeader make_header(const SegmentSpec& spec) {
        SegmentHeader header{};
        header.magic = kSegmentMagic;
        header.version = spec.version;
        header.kind = spec.kind;
        header.fingerprint = spec.fingerprint;
        header.file_size = spec.size;
        header.created_ns = realtime_ns();
        header.creator_pid = static_cast<u32>(::getpid());
        header.header_size = kSegmentHeaderSize;
        header.boot_id = detail::this_boot();
        std::copy(spec.name.begin(), spec.name.end(), header.name.begin());
        header.params = spec.params;
        header.crc = detail::segment_crc(header);
        return header;
    }

    static detail::OwnedFd open_file(const std::string& path, u32 kind, const std::string& name, int flags) {
        // O_NONBLOCK: something that is no regular file must not hang us before we see that.
        detail::OwnedFd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        if (fd.get() >= 0) return fd;
        const int error = errno;
        switch (error) {
            case ENOENT: throw not_found(path, kind, name);
            case ELOOP: throw Error(Code::denied, path + " is a symbolic link, which is not followed; remove it", error);
            case EACCES:
            case EPERM:
                throw Error(Code::denied, "no permission for " + path + ": " + errno_text(error) +
                                              "; its creator can share it with mode= and group=",
                            error);
            case EISDIR:
            case ENXIO: throw Error(Code::denied, path + " is no regular file; remove it", error);
            default: throw Error(Code::io, "cannot open " + path + ": " + errno_text(error), error);
        }
    }

    static struct stat file_status(int fd, const std::string& path) {
        struct stat status {};
        if (::fstat(fd, &status) != 0) throw Error(Code::io, "cannot examine " + path + ": " + errno_text(errno), errno);
        if (!S_ISREG(status.st_mode)) throw Error(Code::denied, path + " is no regular file; remove it");
        return status;
    }

    // In a directory where everybody may create files, a stranger may have planted this one.
    static void check_owner(const struct stat& status, const std::string& path) {
        const uid_t me = ::geteuid();
        if (status.st_uid == me || status.st_uid == 0) return;
        const bool group_shares = (status.st_mode & 0060) == 0060;
        if (group_shares && (me == 0 || detail::in_group(status.st_gid))) return;
        throw Error(Code::denied, path + " belongs to uid " + std::to_string(status.st_uid) +
                                      ", which is neither this user nor root, and is not shared with a group of this "
                                      "user; its creator can share it with mode=0o660 and group=");
    }

    // False when the file is too short to have one. By read(), not through a mapping: a short file is no SIGBUS then.
    static bool read_header(int fd, const std::string& path, SegmentHeader& header) {
        std::size_t done = 0;
        while (done < sizeof header) {
            const ssize_t got = ::pread(fd, reinterpret_cast<char*>(&header) + done, sizeof header - done,
                                        static_cast<off_t>(done));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) throw Error(Code::io, "cannot read " + path + ": " + errno_text(errno), errno);
            if (got == 0) return false;
            done += static_cast<std::size_t>(got);
        }
        return true;
    }

    // What the header itself shows to be wrong, whichever version wrote it.
    static std::vector<Finding> examine(const SegmentHeader& header, bool whole, u64 real_size, u32 kind,
                                        const std::string& name) {
        constexpr const char* kDamaged = "; the file is damaged: look at it with `holdfast doctor`, then remove it";
        std::vector<Finding> found;
        if (!whole) {
            found.push_back({0, Code::corrupt, "size: " + std::to_string(real_size) + " bytes found, at least " +
                                                   std::to_string(sizeof header) +
                                                   " expected; this is no segment of holdfast: remove it"});
            return found;
        }
        if (header.magic != kSegmentMagic) {
            found.push_back({1, Code::corrupt, "magic: not \"HOLDFAST\"; this is no segment of holdfast: remove it"});
            return found;  // the rest would be noise
        }
        const u32 crc = detail::segment_crc(header);
        if (header.crc != crc || header.header_size != sizeof header) {
            found.push_back({5, Code::corrupt, "header checksum: " + detail::hex(header.crc) + " found, " +
                                                   detail::hex(crc) + " expected" + kDamaged});
        }
        if (header.kind != kind) {
            const std::string_view was = kind_name(header.kind);
            found.push_back({6, Code::corrupt, "kind: " + (was.empty() ? std::to_string(header.kind) : std::string(was)) +
                                                   " found, " + std::string(kind_name(kind)) + " expected" + kDamaged});
        }
        const std::string recorded(header.name.data(), ::strnlen(header.name.data(), header.name.size()));
        if (recorded != name) {
            found.push_back({8, Code::corrupt,
                             "name: \"" + printable(recorded) + "\" found, \"" + name +
                                 "\" expected; the file was renamed or copied: give it its old name, or remove it"});
        }
        if (header.file_size != real_size) {
            found.push_back({7, Code::corrupt, "size: " + std::to_string(real_size) + " bytes found, " +
                                                   std::to_string(header.file_size) +
                                                   " expected; the file was truncated or extended: remove it"});
        }
        return found;
    }

    static void compare_layout(const SegmentHeader& header, bool whole, u32 version, u64 fingerprint,
                               std::vector<Finding>& found) {
        if (!whole || header.magic != kSegmentMagic) return;
        constexpr const char* kTwoVersions =
            "; it was made by another version of holdfast: use that version, or drain and remove the segment and "
            "create it anew";
        if (header.version != version) {  // before the checksum: another version may sum up differently
            found.push_back({2, Code::layout_mismatch, "layout version: " + std::to_string(header.version) +
                                                           " found, " + std::to_string(version) + " expected" +
                                                           kTwoVersions});
        } else if (header.fingerprint != fingerprint && header.crc == detail::segment_crc(header)) {
            found.push_back({3, Code::layout_mismatch, "layout fingerprint: " + detail::hex(header.fingerprint) +
                                                           " found, " + detail::hex(fingerprint) + " expected" +
                                                           kTwoVersions});
        }
    }

    static bool is_stale(const SegmentHeader& header) {
        const std::array<u64, 2> now = detail::this_boot();
        return now != std::array<u64, 2>{} && header.boot_id != now;
    }

    static std::string stale_words(const SegmentHeader& header) {
        const std::array<u64, 2> now = detail::this_boot();
        return "boot id: " + detail::hex(header.boot_id[0]) + " found, " + detail::hex(now[0]) +
               " expected; the segment is from before the last boot and its processes are gone: open it with "
               "adopt=True to take over what it holds, or remove it";
    }

    static std::string printable(std::string text) {
        for (char& c : text) {
            if (c < ' ' || c > '~') c = '?';
        }
        return text;
    }

    std::string path_;
    int fd_ = -1;
    std::byte* base_ = nullptr;
    u64 size_ = 0;
    int protection_;
    u64 device_ = 0;
    u64 inode_ = 0;
    SegmentHeader header_{};
};

}  // namespace holdfast
