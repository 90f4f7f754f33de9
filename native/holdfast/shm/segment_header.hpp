// The first page of every segment: its bytes, and the judgement whether they can be believed.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.hpp"
#include "holdfast/base/crc32c.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/base/files.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast {

// Written once by the creator; only the boot id may change later (Segment::open with adopt_stale).
//
//      0  magic "HOLDFAST"                     8
//      8  layout version                       u32
//     12  kind: 1 queue, 2 channel, 3 service  u32
//     16  fingerprint of the layout            u64
//     24  file size in bytes                   u64
//     32  created, ns since the epoch          u64
//     40  pid of the creator, for people       u32
//     44  size of this header, 4096            u32
//     48  boot id                              16    not in the sum
//     64  name, padded with zeros              128
//    192  parameters of the structure          512
//    704  zeros                                3388
//   4092  crc32c of [0, 48) and [64, 4092)     u32
//
// The boot id needs no checksum: only this boot's counts. So it can be renewed without touching anything else. After a
// crash half way through its 16 bytes the segment is still from an earlier boot.
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
inline constexpr u32 kQueueKind = 1;
inline constexpr u32 kChannelKind = 2;
inline constexpr u32 kServiceKind = 3;
inline constexpr std::array<u32, 3> kSegmentKinds = {kQueueKind, kChannelKind, kServiceKind};
inline constexpr u64 kSegmentSizeMax = u64{1} << 40;
inline constexpr std::size_t kNameMax = 100;
inline constexpr gid_t kSameGroup = static_cast<gid_t>(-1);

// Empty for an unknown number.
constexpr std::string_view kind_name(u32 kind) {
    constexpr std::array<std::string_view, 4> kNames = {"", "queue", "channel", "service"};
    return kind < kNames.size() ? kNames[kind] : "";
}

constexpr bool valid_name(std::string_view name) {
    constexpr std::string_view kGood =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return !name.empty() && name.size() <= kNameMax && name.front() != '.' &&
           name.find_first_not_of(kGood) == std::string_view::npos;
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

// One thing that is wrong with a header: which field, what was found, what was expected, what to do.
struct HeaderFault {
    int rank;  // the lowest is told when only one can be
    Code code;
    std::string words;
};

// The id of this boot; all zeros when the kernel does not tell, and then no segment is ever called old.
inline std::array<u64, 2> this_boot() {
    static const std::array<u64, 2> id = [] {
        std::array<u64, 2> result{};
        const OwnedFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
        char text[64];
        const ssize_t got = fd.get() < 0 ? -1 : ::read(fd.get(), text, sizeof text);
        constexpr std::string_view kDigits = "0123456789abcdef";
        std::size_t digits = 0;
        for (ssize_t i = 0; i < got && digits < 32; ++i) {
            const std::size_t digit = kDigits.find(text[i]);
            if (digit == std::string_view::npos) continue;  // the dashes
            result[digits / 16] = result[digits / 16] << 4 | digit;
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

inline SegmentHeader make_header(const SegmentSpec& spec) {
    SegmentHeader header{};
    header.magic = kSegmentMagic;
    header.version = spec.version;
    header.kind = spec.kind;
    header.fingerprint = spec.fingerprint;
    header.file_size = spec.size;
    header.created_ns = realtime_ns();
    header.creator_pid = static_cast<u32>(::getpid());
    header.header_size = sizeof header;
    header.boot_id = this_boot();
    std::copy(spec.name.begin(), spec.name.end(), header.name.begin());
    header.params = spec.params;
    header.crc = segment_crc(header);
    return header;
}

// False when the file is too short to have one. By pread(), not through a mapping, where a short file is a SIGBUS.
inline bool read_segment_header(int fd, const std::string& path, SegmentHeader& header) {
    std::size_t done = 0;
    while (done < sizeof header) {
        const ssize_t got = ::pread(fd, reinterpret_cast<char*>(&header) + done,
                                    sizeof header - done, static_cast<off_t>(done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw Error(Code::io, "cannot read " + path + ": " + errno_text(errno), errno);
        if (got == 0) return false;
        done += static_cast<std::size_t>(got);
    }
    return true;
}

namespace detail {
inline std::string hex(u64 value) {
    std::string text = "0x";
    for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
    return text;
}

inline std::string found_expected(const char* field, const std::string& found,
                                  const std::string& expected, const char* advice) {
    return std::string(field) + ": " + found + " found, " + expected + " expected; " + advice;
}

// Names of a damaged header come into messages: nothing but visible characters.
inline std::string quoted(std::string text) {
    std::replace_if(text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return "\"" + text + "\"";
}
}  // namespace detail

// Returns the faults that the header itself shows, of any version of the library. `whole`: the file has all of it.
inline std::vector<HeaderFault> examine_header(const SegmentHeader& header, bool whole,
                                               u64 real_size, u32 kind, const std::string& name) {
    constexpr const char* kForeign = "this is not a segment of holdfast: remove it";
    constexpr const char* kDamaged =
        "the file is damaged: look at it with `holdfast doctor`, then remove it";
    using detail::found_expected;
    using std::to_string;
    std::vector<HeaderFault> faults;
    const auto add = [&](int rank, const char* field, const std::string& found,
                         const std::string& expected, const char* advice) {
        faults.push_back({rank, Code::corrupt, found_expected(field, found, expected, advice)});
    };
    if (!whole) {
        add(0, "size", to_string(real_size) + " bytes", "at least 4096", kForeign);
        return faults;
    }
    if (header.magic != kSegmentMagic) {
        add(1, "magic", detail::quoted({header.magic.begin(), header.magic.end()}), "\"HOLDFAST\"",
            kForeign);
        return faults;  // the rest would be noise
    }
    const u32 crc = segment_crc(header);
    if (header.crc != crc) {
        add(5, "header checksum", detail::hex(header.crc), detail::hex(crc), kDamaged);
    }
    if (header.header_size != sizeof header) {
        add(6, "header size", to_string(header.header_size), "4096", kDamaged);
    }
    if (header.kind != kind) {
        add(7, "kind", to_string(header.kind) + " " + std::string(kind_name(header.kind)),
            to_string(kind) + " " + std::string(kind_name(kind)), kDamaged);
    }
    if (header.file_size != real_size) {
        add(8, "size", to_string(real_size) + " bytes", to_string(header.file_size),
            "the file was truncated or extended: remove it");
    }
    const std::string recorded(header.name.data(),
                               ::strnlen(header.name.data(), header.name.size()));
    if (recorded != name) {
        add(9, "name", detail::quoted(recorded), detail::quoted(name),
            "the file was renamed or copied: give it its old name, or remove it");
    }
    return faults;
}

// Was it made by a library that lays out the bytes as this one does?
inline void compare_layout(const SegmentHeader& header, u32 version, u64 fingerprint,
                           std::vector<HeaderFault>& faults) {
    if (header.magic != kSegmentMagic) return;
    constexpr const char* kTwoVersions =
        "it was made by another version of holdfast: use that version, or drain and remove the "
        "segment and create it anew";
    using detail::found_expected;
    if (header.version !=
        version) {  // told before the checksum: another version may sum up differently
        faults.push_back({2, Code::layout_mismatch,
                          found_expected("layout version", std::to_string(header.version),
                                         std::to_string(version), kTwoVersions)});
    } else if (header.fingerprint != fingerprint && header.crc == segment_crc(header)) {
        faults.push_back({3, Code::layout_mismatch,
                          found_expected("layout fingerprint", detail::hex(header.fingerprint),
                                         detail::hex(fingerprint), kTwoVersions)});
    }
}

inline bool from_another_boot(const SegmentHeader& header) {
    return this_boot() != std::array<u64, 2>{} && header.boot_id != this_boot();
}

inline std::string stale_words(const SegmentHeader& header) {
    return detail::found_expected(
        "boot id", detail::hex(header.boot_id[0]), detail::hex(this_boot()[0]),
        "the segment is from before the last boot, and its processes are gone. Open it with "
        "adopt=True to take over its messages, or remove it");
}

}  // namespace holdfast
