// One ledger's two files, open for reading: bytes at an offset, with or without waiting.
//
//   {ledger:016x}[.{generation}].data    file header (64), then the entries' blocks, each padded to 8
//   {ledger:016x}[.{generation}].index   file header (64), then u64 offsets into the data, one per entry
//
// The index is derived from the data and is only a hint: a wrong one costs time, but never gives a
// wrong result.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/base/file_header.hpp"
#include "holdfast/base/files.hpp"

namespace holdfast {

enum class ReadFrom { disk, memory };  // memory: only bytes that need no wait for the disk

// Reads up to `size` bytes, fewer at the end of the file. None: it would have to wait for the disk.
// Under ReadFrom::memory, fewer bytes may also mean that the rest is not in memory.
class ReadFile {
 public:
    ReadFile(OwnedFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {
        struct statfs fs{};
        memory_ = ::fstatfs(fd_.get(), &fs) == 0 && static_cast<u32>(fs.f_type) == TMPFS_MAGIC;
    }

    const std::string& path() const { return path_; }

    std::optional<std::size_t> read(void* to, std::size_t size, u64 offset, ReadFrom from) const {
        std::size_t done = 0;
        while (done < size) {
            if (offset + done > static_cast<u64>(std::numeric_limits<off_t>::max())) break;
            const iovec part{static_cast<char*>(to) + done, size - done};
            const ssize_t got = read_once(part, static_cast<off_t>(offset + done), from);
            if (got > 0) {
                done += static_cast<std::size_t>(got);
                continue;
            }
            if (got == 0) break;
            if (errno == EINTR) continue;
            if (errno == EAGAIN && from == ReadFrom::memory) {
                if (done > 0) break;
                return std::nullopt;
            }
            throw Error(Code::io,
                        "cannot read " + path_ + " at offset " + std::to_string(offset + done) +
                            ": " + errno_text(errno),
                        errno);
        }
        return done;
    }

    u64 size() const {
        struct stat status{};
        if (::fstat(fd_.get(), &status) != 0)
            throw Error(Code::io, "cannot examine " + path_ + ": " + errno_text(errno), errno);
        return static_cast<u64>(status.st_size);
    }

 private:
    ssize_t read_once(const iovec& part, off_t offset, ReadFrom from) const {
        if (from == ReadFrom::disk || memory_) return ::preadv(fd_.get(), &part, 1, offset);
        const ssize_t got = ::preadv2(fd_.get(), &part, 1, offset, RWF_NOWAIT);
        if (got < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
            errno = EAGAIN;  // this file system cannot tell: use a thread
        return got;
    }

    OwnedFd fd_;
    std::string path_;
    bool memory_;
};

struct LedgerName {
    u64 ledger;
    u32 generation;
    bool operator==(const LedgerName&) const = default;
    bool operator<(const LedgerName& other) const {
        return ledger != other.ledger ? ledger < other.ledger : generation < other.generation;
    }

    std::string file(const char* suffix) const {
        char name[64];
        if (generation == 0)
            std::snprintf(name, sizeof name, "%016llx.%s", static_cast<unsigned long long>(ledger),
                          suffix);
        else
            std::snprintf(name, sizeof name, "%016llx.%u.%s",
                          static_cast<unsigned long long>(ledger), generation, suffix);
        return name;
    }
};

class LedgerFile {
 public:
    // Opens both files and checks the header of the data. A bad or missing index is not an error.
    LedgerFile(const std::string& folder, const LedgerName& name, const Incarnation& incarnation)
        : data_(open(folder + "/" + name.file("data"))) {
        char header[kFileHeaderSize];
        const std::size_t got = *data_.read(header, sizeof header, 0, ReadFrom::disk);
        require_file_header({header, got}, FileKind::ledger_data, name.ledger, incarnation,
                            data_.path());
        try {
            index_.emplace(open(folder + "/" + name.file("index")));
            const std::size_t indexed = *index_->read(header, sizeof header, 0, ReadFrom::disk);
            require_file_header({header, indexed}, FileKind::ledger_index, name.ledger, incarnation,
                                index_->path());
        } catch (const Error& error) {
            index_fault_ = error.what();
            index_.reset();
        }
    }

    const ReadFile& data() const { return data_; }
    const std::string& index_fault() const { return index_fault_; }  // empty: none

    // Returns the offsets of `count` entries from `entry` on, fewer where the index ends. They may
    // all be wrong. None: they are not in memory.
    std::optional<std::vector<u64>> offsets(u64 entry, std::size_t count, ReadFrom from) const {
        std::vector<u64> out(count);
        constexpr u64 kEntryMax = (u64{1} << 60);
        if (!index_ || entry > kEntryMax) return std::vector<u64>();
        const auto got = index_->read(out.data(), count * 8, kFileHeaderSize + 8 * entry, from);
        if (!got) return std::nullopt;
        out.resize(*got / 8);
        return out;
    }

 private:
    static ReadFile open(const std::string& path) {
        OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (fd.get() < 0) {
            const int error = errno;
            throw Error(error == ENOENT ? Code::not_found : Code::io,
                        "cannot open " + path + ": " + errno_text(error), error);
        }
        regular_file_status(fd.get(), path);
        return {std::move(fd), path};
    }

    ReadFile data_;
    std::optional<ReadFile> index_;
    std::string index_fault_;
};

}  // namespace holdfast
