// A segment: one file, mapped by every process that attaches to it.
//
// - Complete or not there: the file gets its name only after it is allocated and initialised.
// - Allocated up front: a full file system is an error of create(), never a SIGBUS later.
// - Nothing in it is trusted: open() judges a private copy of the header and says which field is wrong.
// Out of scope: a process of the same user that truncates the file; it could as well kill its peers.
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/files.hpp"
#include "holdfast/base/forks.hpp"
#include "holdfast/base/points.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/shm/segment_header.hpp"

namespace holdfast {

HOLDFAST_POINTS(SegmentPoint, create_file, create_allocated, create_initialised, create_linked);

class Segment;

struct SegmentInfo {  // what a directory listing shows; nothing of it is verified
    u32 kind;
    std::string name;
    std::string path;
    u64 size;
};

struct Inspection {
    std::shared_ptr<Segment> segment;  // read-only; null when there is not even a header to map
    std::vector<std::string> faults;   // in words; empty for a sound header
};

// $HOLDFAST_RUNTIME_DIR, else /dev/shm.
inline std::string default_directory() {
    const char* set = std::getenv("HOLDFAST_RUNTIME_DIR");
    return set != nullptr && *set != '\0' ? set : "/dev/shm";
}

class Segment : public ForkAware {
 public:
    // Makes the file, allocates all of it, lets `init(base)` fill what follows the header, then names it.
    // Killed at any moment before that, it leaves nothing behind; killed after it, a good segment.
    static std::shared_ptr<Segment> create(const SegmentSpec& spec,
                                           const std::function<void(std::byte*)>& init) {
        check_spec(spec);
        const std::string path = path_of(spec.directory, spec.kind, spec.name);
        const OwnedFd directory = open_directory(spec.directory);
        const u64 free = require_fit_file_system(directory.get(), spec.directory);
        // linkat() decides; this look before it spares a full file system the attempt.
        struct stat there{};
        const std::string file = file_name(spec.kind, spec.name);
        if (::fstatat(directory.get(), file.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) {
            throw exists(spec, path);
        }
        OwnedFd fd(::openat(directory.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
        if (fd.get() < 0) throw create_failed(spec.directory, path, errno);
        at(SegmentPoint::create_file);
        // Without this question, a hopeless request would fill the file system for a moment.
        if (spec.size > free) throw no_space(spec.size, spec.directory, path, free, ENOSPC);
        allocate(fd.get(), spec.size, spec.directory, path);
        at(SegmentPoint::create_allocated);
        const SegmentHeader header = make_header(spec);
        std::shared_ptr<Segment> segment(
            new Segment(path, std::move(fd), spec.size, PROT_READ | PROT_WRITE, header));
        std::memcpy(segment->base_, &header, sizeof header);
        if (init) init(segment->base_);
        share(segment->fd_.get(), spec, path);
        at(SegmentPoint::create_initialised);
        link(segment->fd_.get(), directory.get(), spec, path);
        at(SegmentPoint::create_linked);
        return segment;
    }

    // Maps an existing segment after checking all that its header claims. `adopt_stale` accepts one from before the
    // last boot, whose processes are all gone, and marks it as of this boot.
    static std::shared_ptr<Segment> open(const std::string& directory, u32 kind,
                                         const std::string& name, u32 version, u64 fingerprint,
                                         bool adopt_stale = false) {
        check_name(kind, name);
        const std::string path = path_of(directory, kind, name);
        OwnedFd fd = open_file(path, kind, name, O_RDWR);
        const struct stat status = regular_file_status(fd.get(), path);
        require_trusted_owner(status, path);
        require_fit_file_system(fd.get(), path);
        SegmentHeader header{};
        const bool whole = read_segment_header(fd.get(), path, header);
        std::vector<HeaderFault> faults =
            examine_header(header, whole, static_cast<u64>(status.st_size), kind, name);
        if (whole) compare_layout(header, version, fingerprint, faults);
        if (!faults.empty()) {
            const auto first = std::min_element(
                faults.begin(), faults.end(),
                [](const HeaderFault& a, const HeaderFault& b) { return a.rank < b.rank; });
            throw Error(first->code, path + ": " + first->words);
        }
        const bool stale = from_another_boot(header);
        if (stale && !adopt_stale) throw Error(Code::stale, path + ": " + stale_words(header));
        // A copy made by other tools has holes, where a full file system would be a SIGBUS after all.
        if (static_cast<u64>(status.st_blocks) * 512 < header.file_size) {
            allocate(fd.get(), header.file_size, directory, path);
        }
        std::shared_ptr<Segment> segment(
            new Segment(path, std::move(fd), header.file_size, PROT_READ | PROT_WRITE, header));
        if (stale) segment->adopt();
        return segment;
    }

    // Another mapping of the same file, with a descriptor of its own, also after the name is gone or in a forked child.
    std::shared_ptr<Segment> map_again() const {
        return std::shared_ptr<Segment>(
            new Segment(path_, OwnedFd(reopen(O_RDWR)), size_, PROT_READ | PROT_WRITE, header_));
    }

    // Makes a part of the mapping read-only, from `offset` (of a page) to `end`: a stray write there is a SIGSEGV.
    void protect(u64 offset, u64 end) {
        if (::mprotect(base_ + offset, end - offset, PROT_READ) != 0) {
            throw Error(Code::io,
                        "cannot protect the mapping of " + path_ + ": " + errno_text(errno), errno);
        }
        const ForkPause pause;
        read_only_.emplace_back(offset, end);
    }

    // For looking only: maps read-only, takes no lock, changes nothing, and tells what is wrong instead of refusing.
    // Throws only when there is no readable regular file.
    static Inspection inspect(const std::string& directory, u32 kind, const std::string& name) {
        check_name(kind, name);
        const std::string path = path_of(directory, kind, name);
        OwnedFd fd = open_file(path, kind, name, O_RDONLY);
        const u64 real_size = static_cast<u64>(regular_file_status(fd.get(), path).st_size);
        SegmentHeader header{};
        const bool whole = read_segment_header(fd.get(), path, header);
        Inspection result;
        for (HeaderFault& fault : examine_header(header, whole, real_size, kind, name)) {
            result.faults.push_back(std::move(fault.words));
        }
        if (!whole) return result;
        if (from_another_boot(header)) result.faults.push_back(stale_words(header));
        // The real size, not the one in the header: an access beyond it raises SIGBUS.
        result.segment.reset(new Segment(path, std::move(fd), real_size, PROT_READ, header));
        return result;
    }

    // Takes the name away; processes that are attached keep the segment until they leave.
    static void unlink(const std::string& directory, u32 kind, const std::string& name) {
        check_name(kind, name);
        const std::string path = path_of(directory, kind, name);
        if (::unlink(path.c_str()) == 0) return;
        const int error = errno;
        if (error == ENOENT) throw not_found(path, kind, name);
        throw Error(
            error == EACCES || error == EPERM ? Code::denied : Code::io,
            "cannot remove " + path + ": " + errno_text(error) + "; only its owner or root may",
            error);
    }

    // The segments of a directory, sorted. A directory that is not there has none.
    static std::vector<SegmentInfo> list(const std::string& directory) {
        std::vector<SegmentInfo> result;
        const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(directory.c_str()), &::closedir);
        if (!stream) {
            if (errno == ENOENT) return result;
            throw Error(errno == EACCES ? Code::denied : Code::io,
                        "cannot read the directory " + directory + ": " + errno_text(errno), errno);
        }
        while (const dirent* entry = ::readdir(stream.get())) {
            const std::string_view file = entry->d_name;
            for (const u32 kind : kSegmentKinds) {
                const std::string prefix = file_name(kind, "");
                if (!file.starts_with(prefix)) continue;
                const std::string_view name = file.substr(prefix.size());
                struct stat status{};
                if (!valid_name(name) || ::fstatat(::dirfd(stream.get()), entry->d_name, &status,
                                                   AT_SYMLINK_NOFOLLOW) != 0) {
                    continue;
                }
                if (!S_ISREG(status.st_mode)) continue;
                result.push_back({kind, std::string(name), directory + "/" + entry->d_name,
                                  static_cast<u64>(status.st_size)});
            }
        }
        std::sort(result.begin(), result.end(), [](const SegmentInfo& a, const SegmentInfo& b) {
            return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
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
        const ForkPause pause;
        forget(pause);
        ::munmap(base_, size_);
        if (!has_descriptor()) fd_.release();  // closed by others; the number may be a stranger's
    }

    std::byte* base() const { return base_; }
    u64 size() const { return size_; }
    const SegmentHeader& header() const { return header_; }  // the private copy, as checked
    const std::string& path() const { return path_; }
    u64 device() const { return device_; }
    u64 inode() const { return inode_; }
    int fd() const { return fd_.get(); }  // never locked through: it sees every lock of the file
    bool read_only() const { return protection_ == PROT_READ; }
    // Is this number still the description that sign() has signed? It may have been closed, and used again, by code that
    // does not know it. System calls only.
    bool is_signed(int fd, off_t signature) const {
        struct stat status{};
        return fd >= 0 && ::fstat(fd, &status) == 0 && static_cast<u64>(status.st_dev) == device_ &&
               static_cast<u64>(status.st_ino) == inode_ && ::lseek(fd, 0, SEEK_CUR) == signature;
    }
    bool has_descriptor() const { return is_signed(fd_.get(), signature_); }
    // Does its name still lead here? Not after it was removed, or created anew.
    bool has_name() const {
        struct stat status{};
        return ::lstat(path_.c_str(), &status) == 0 && static_cast<u64>(status.st_dev) == device_ &&
               static_cast<u64>(status.st_ino) == inode_;
    }

    // Nothing is read or written at a descriptor's own offset, so it can tell one description from another.
    static off_t sign(int fd) {
        static std::atomic<off_t> last{off_t{1} << 41};
        return ::lseek(fd, last.fetch_add(1, std::memory_order_relaxed), SEEK_SET);
    }

    // A new open file description of the same file, also after its name is gone. Never a dup: locks belong to
    // descriptions. The caller closes it.
    int reopen(int flags) const {
        const std::string link = "/proc/self/fd/" + std::to_string(fd_.get());
        OwnedFd fd(has_descriptor() ? ::open(link.c_str(), flags | O_CLOEXEC) : -1);
        if (fd.get() <
            0) {  // no /proc, or closed by others: by name then, and the check below decides
            fd = OwnedFd(::open(path_.c_str(), flags | O_CLOEXEC | O_NOFOLLOW));
        }
        if (fd.get() < 0) {
            const int error = errno;
            throw Error(error == EACCES   ? Code::denied
                        : error == ENOENT ? Code::not_found
                                          : Code::io,
                        "cannot open " + path_ + " a second time: " + errno_text(error) +
                            (error == EMFILE ? "; raise the limit of open files" : ""),
                        error);
        }
        const struct stat status = regular_file_status(fd.get(), path_);
        if (static_cast<u64>(status.st_dev) != device_ ||
            static_cast<u64>(status.st_ino) != inode_) {
            throw Error(Code::not_found, path_ + " was removed and created anew; open it again");
        }
        return fd.release();
    }

 private:
    // The descriptor stays open to be reopened, and for the fork handler to map from.
    Segment(std::string path, OwnedFd fd, u64 size, int protection, const SegmentHeader& header)
        : path_(std::move(path)),
          fd_(std::move(fd)),
          size_(size),
          protection_(protection),
          header_(header) {
        const struct stat status = regular_file_status(fd_.get(), path_);
        device_ = static_cast<u64>(status.st_dev);
        inode_ = static_cast<u64>(status.st_ino);
        void* at = ::mmap(nullptr, size, protection, MAP_SHARED, fd_.get(), 0);
        if (at == MAP_FAILED) {
            throw Error(Code::io,
                        "cannot map " + std::to_string(size) + " bytes of " + path_ + ": " +
                            errno_text(errno) + "; look at the limits of this process (ulimit -v)",
                        errno);
        }
        // A long core dump would keep the locks of a dead process for seconds.
        ::madvise(at, size, MADV_DONTDUMP);
        base_ = static_cast<std::byte*>(at);
        signature_ = sign(fd_.get());
        remember();
    }

    void in_child() noexcept override {
        // Views into the mapping stay valid, and what is written through them stays in this process.
        const int flags = MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE;
        if (!has_descriptor() ||
            ::mmap(base_, size_, protection_, flags, fd_.get(), 0) == MAP_FAILED) {
            // Strict overcommit, or a descriptor that others closed: better a fault than a stray write.
            ::mprotect(base_, size_, PROT_READ);
        } else {
            for (const auto& [offset, end] : read_only_)
                ::mprotect(base_ + offset, end - offset, PROT_READ);
        }
    }

    void adopt() {
        auto* shared = reinterpret_cast<SegmentHeader*>(base_);
        header_.boot_id = this_boot();
        for (std::size_t i = 0; i < header_.boot_id.size(); ++i) {
            std::atomic_ref<u64>(shared->boot_id[i])
                .store(header_.boot_id[i], std::memory_order_relaxed);
        }
    }

    static void check_name(u32 kind, const std::string& name) {
        if (kind_name(kind).empty()) {
            throw Error(Code::misuse, "there is no segment kind " + std::to_string(kind));
        }
        if (!valid_name(name)) {
            throw Error(Code::misuse, detail::quoted(name) + " is not a valid name; use 1 to " +
                                          std::to_string(kNameMax) +
                                          " of A-Z a-z 0-9 . _ - and do not begin with a dot");
        }
    }

    static void check_spec(const SegmentSpec& spec) {
        check_name(spec.kind, spec.name);
        if (spec.size < sizeof(SegmentHeader) || spec.size > kSegmentSizeMax) {
            throw Error(Code::misuse, "a segment of " + std::to_string(spec.size) +
                                          " bytes cannot be created: choose 4096 bytes to 1 TiB");
        }
        if ((spec.mode & ~static_cast<mode_t>(0666)) != 0 || (spec.mode & 0600) != 0600) {
            throw Error(Code::misuse,
                        "a segment's mode consists of read and write bits and includes 0o600, for "
                        "example 0o660");
        }
    }

    static OwnedFd open_directory(const std::string& directory) {
        OwnedFd fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (fd.get() >= 0) return fd;
        const int error = errno;
        throw Error(error == ENOENT || error == ENOTDIR ? Code::not_found
                    : error == EACCES                   ? Code::denied
                                                        : Code::io,
                    "the directory " + directory + " cannot be used: " + errno_text(error) +
                        "; create it, or set HOLDFAST_RUNTIME_DIR to another",
                    error);
    }

    static OwnedFd open_file(const std::string& path, u32 kind, const std::string& name,
                             int flags) {
        // O_NONBLOCK: a path that is not a regular file must not block before that is seen.
        OwnedFd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
        if (fd.get() >= 0) return fd;
        const int error = errno;
        switch (error) {
            case ENOENT:
                throw not_found(path, kind, name);
            case ELOOP:
                throw Error(Code::denied,
                            path + " is a symbolic link, which is not followed; remove it", error);
            case EACCES:
            case EPERM:
                throw Error(Code::denied,
                            "no permission for " + path + ": " + errno_text(error) +
                                "; its creator can share it with mode= and group=",
                            error);
            case EISDIR:
            case ENXIO:
                throw Error(Code::denied, path + " is not a regular file; remove it", error);
            default:
                throw Error(Code::io, "cannot open " + path + ": " + errno_text(error), error);
        }
    }

    static void allocate(int fd, u64 size, const std::string& directory, const std::string& path) {
        // In pieces, since a signal makes fallocate start over.
        constexpr u64 kPiece = 64u << 20;
        for (u64 done = 0; done < size;) {
            const u64 piece = std::min(kPiece, size - done);
            if (::fallocate(fd, 0, static_cast<off_t>(done), static_cast<off_t>(piece)) == 0) {
                done += piece;
                continue;
            }
            const int error = errno;
            if (error == EINTR) continue;
            if (error == ENOSPC || error == EDQUOT) {
                const u64 free = require_fit_file_system(fd, path);
                throw no_space(size - done, directory, path, free, error);
            }
            throw create_failed(directory, path, error);
        }
    }

    // The group first: the rights that the mode gives are meant for that group only.
    static void share(int fd, const SegmentSpec& spec, const std::string& path) {
        if (spec.gid != kSameGroup && ::fchown(fd, static_cast<uid_t>(-1), spec.gid) != 0) {
            throw Error(errno == EPERM ? Code::denied : Code::io,
                        "cannot give " + path + " to group " + std::to_string(spec.gid) + ": " +
                            errno_text(errno) + "; choose a group of which this user is a member",
                        errno);
        }
        if (::fchmod(fd, spec.mode) != 0) {
            throw Error(Code::io, "cannot set the mode of " + path + ": " + errno_text(errno),
                        errno);
        }
    }

    static void link(int fd, int directory, const SegmentSpec& spec, const std::string& path) {
        const std::string source = "/proc/self/fd/" + std::to_string(fd);
        const std::string file = file_name(spec.kind, spec.name);
        if (::linkat(AT_FDCWD, source.c_str(), directory, file.c_str(), AT_SYMLINK_FOLLOW) == 0) {
            return;
        }
        if (errno == ENOENT &&  // no /proc
            ::linkat(fd, "", directory, file.c_str(), AT_EMPTY_PATH) == 0) {
            return;
        }
        if (errno == EEXIST) throw exists(spec, path);
        throw create_failed(spec.directory, path, errno);
    }

    static Error exists(const SegmentSpec& spec, const std::string& path) {
        return Error(Code::exists,
                     "a " + std::string(kind_name(spec.kind)) + " named \"" + spec.name +
                         "\" exists already (" + path + "); open it, or remove it first",
                     EEXIST);
    }

    static Error not_found(const std::string& path, u32 kind, const std::string& name) {
        return Error(Code::not_found,
                     "there is no " + std::string(kind_name(kind)) + " named \"" + name + "\" (" +
                         path + "); create it first, or check HOLDFAST_RUNTIME_DIR",
                     ENOENT);
    }

    static Error no_space(u64 size, const std::string& directory, const std::string& path, u64 free,
                          int error) {
        return Error(Code::no_space,
                     path + " needs " + std::to_string(size) + " more bytes and " + directory +
                         " has " + std::to_string(free) +
                         " bytes free; ask for less, remove other segments, or enlarge the file "
                         "system",
                     error);
    }

    static Error create_failed(const std::string& directory, const std::string& path, int error) {
        const std::string what = "cannot create " + path + ": " + errno_text(error);
        switch (error) {
            case EACCES:
            case EPERM:
            case EROFS:
                return Error(Code::denied,
                             what + "; this user needs write permission for " + directory, error);
            case EOPNOTSUPP:
            case EISDIR:
            case EINVAL:
                return Error(Code::unsupported,
                             what +
                                 "; its file system lacks O_TMPFILE or fallocate: use a "
                                 "directory on tmpfs, ext4, xfs or btrfs",
                             error);
            case EMFILE:
            case ENFILE:
                return Error(Code::io, what + "; raise the limit of open files", error);
            case EFBIG:
                return Error(
                    Code::no_space,
                    what +
                        "; the size is above the limit of this process (ulimit -f): ask for less",
                    error);
            case ENOSPC:
            case EDQUOT:
                return Error(Code::no_space, what + "; make room in " + directory, error);
            default:
                return Error(Code::io, what, error);
        }
    }

    std::string path_;
    OwnedFd fd_;
    std::byte* base_ = nullptr;
    u64 size_;
    std::vector<std::pair<u64, u64>> read_only_;
    off_t signature_ = 0;
    int protection_;
    u64 device_ = 0;
    u64 inode_ = 0;
    SegmentHeader header_;
};

}  // namespace holdfast
