// Frames and directories for the tests of the log: built byte by byte, without the tested code.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "holdfast/base/file_header.hpp"
#include "holdfast/log/frame.hpp"
#include "tests/check.hpp"

namespace holdfast::test {

template <class T>
void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct Entry {
    std::int64_t sequence;
    u32 span;
    std::string bytes;
};

inline std::string event(u8 kind, u8 version, const std::string& body) {
    std::string out;
    put(out, static_cast<u32>(body.size()));
    put(out, kind);
    put(out, version);
    put(out, u16{0});
    return out + body;
}

inline std::string publish(u64 topic, u64 session, u64 epoch, const std::string& producer,
                           const std::vector<Entry>& entries) {
    std::string out;
    put(out, topic);
    put(out, session);
    put(out, epoch);
    put(out, static_cast<u32>(entries.size()));
    put(out, static_cast<u16>(producer.size()));
    put(out, u16{0});
    out += producer;
    for (const Entry& each : entries) {
        put(out, each.sequence);
        put(out, each.span);
        put(out, static_cast<u32>(each.bytes.size()));
    }
    for (const Entry& each : entries) out += each.bytes;
    return event(1, 1, out);
}

inline std::string frame(const std::vector<std::string>& events, u64 time = 7) {
    std::string out;
    put(out, u16{0x5246});
    put(out, u8{1});
    put(out, u8{0});
    put(out, static_cast<u32>(events.size()));
    put(out, time);
    for (const std::string& each : events) out += each;
    return out;
}

inline Bytes bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

template <class T>
T get(const std::string& bytes, std::size_t offset) {
    CHECK(offset + sizeof(T) <= bytes.size());
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

// Returns the payload of the sound block at `offset`, and moves `offset` to the next one.
inline std::string block_at(const std::string& file, std::size_t& offset, u8 kind, u64 tag,
                            u64* time = nullptr) {
    const auto header = get<BlockHeader>(file, offset);
    CHECK(header.kind == kind && header.flags == kFullChecksum);
    CHECK(verify(header, tag, static_cast<u32>(file.size())) == BlockFault::none);
    const std::string payload = file.substr(offset + sizeof header, header.size);
    CHECK(payload.size() == header.size);
    CHECK(verify_payload(header, payload.data()) == BlockFault::none);
    if (time != nullptr) *time = header.time;
    const std::size_t end = offset + sizeof header + header.size;
    offset = (end + 7) / 8 * 8;
    for (std::size_t i = end; i < offset; ++i) CHECK(file[i] == 0);
    return payload;
}

// Returns the entries of a ledger's data file or of a part of one, each with its number and its
// offset in the index.
inline std::vector<std::string> entries_of(const std::string& data, const std::string& index,
                                           u64 base = kFileHeaderSize, u64 first = 0) {
    std::vector<std::string> out;
    std::size_t at = 0;
    while (at < data.size()) {
        CHECK(get<u64>(index, out.size() * 8) == base + at);
        out.push_back(block_at(data, at, kEntryBlock, first + out.size()));
    }
    CHECK(index.size() == out.size() * 8);
    return out;
}

inline std::string read_file(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    std::string out;
    char part[65536];
    for (;;) {
        const ssize_t size = ::read(fd, part, sizeof part);
        CHECK(size >= 0);
        if (size == 0) break;
        out.append(part, static_cast<std::size_t>(size));
    }
    ::close(fd);
    return out;
}

// A directory of its own, removed at the end.
class Directory {
 public:
    Directory() {
        const char* base = std::getenv("HOLDFAST_RUNTIME_DIR");
        path_ = std::string(base != nullptr ? base : "/dev/shm") + "/log.XXXXXX";
        CHECK(::mkdtemp(path_.data()) != nullptr);
        CHECK(::mkdir((path_ + "/ledgers").c_str(), 0700) == 0);
    }
    ~Directory() {
        for (const char* folder : {"/ledgers", ""}) {
            const std::string here = path_ + folder;
            DIR* dir = ::opendir(here.c_str());
            CHECK(dir != nullptr);
            while (const dirent* each = ::readdir(dir))
                ::unlink((here + "/" + each->d_name).c_str());
            ::closedir(dir);
            ::rmdir(here.c_str());
        }
    }
    const std::string& path() const { return path_; }

    int make(const std::string& name) const {
        const int fd =
            ::open((path_ + "/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        return fd;
    }

    std::string ledger(u64 number, const char* ending) const {
        char name[64];
        std::snprintf(name, sizeof name, "/ledgers/%016llx%s",
                      static_cast<unsigned long long>(number), ending);
        return read_file(path_ + name);
    }

    // Returns all entries of a ledger, after a check of its headers.
    std::vector<std::string> entries(u64 number) const {
        const std::string data = ledger(number, ".data"), index = ledger(number, ".index");
        CHECK(check_file_header(data, FileKind::ledger_data, number, {1, 2}) == FileFault::none);
        CHECK(check_file_header(index, FileKind::ledger_index, number, {1, 2}) == FileFault::none);
        return entries_of(data.substr(kFileHeaderSize), index.substr(kFileHeaderSize));
    }

 private:
    std::string path_;
};

}  // namespace holdfast::test
