// The one block format: in the queue's ring, in ledgers, in the journal.
//
//   byte  0        2      3       4        8         16        24         28      32
//         +--------+------+-------+--------+---------+---------+----------+-------+----------
//         | magic  | kind | flags | size   | tag     | time    | crc32c   | 0     | payload
//         | u16    | u8   | u8    | u32    | u64     | u64     | u32      | u32   | size bytes
//         +--------+------+-------+--------+---------+---------+----------+-------+----------
//
// Little-endian. `tag` says where the block belongs (in a queue: its position). So a block of an
// earlier lap is never taken for a new one. `crc32c` covers the header with crc = 0, and the
// payload, too, if kFullChecksum is set. Verify a private copy: a hostile writer may change the
// original meanwhile.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

#include "holdfast/base/crc32c.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast {

struct alignas(8) BlockHeader {
    u16 magic;
    u8 kind;
    u8 flags;
    u32 size;  // of the payload, in bytes
    u64 tag;
    u64 time;  // nanoseconds since the epoch
    u32 crc;
    u32 zero;
};
static_assert(sizeof(BlockHeader) == 32 && alignof(BlockHeader) == 8);
static_assert(offsetof(BlockHeader, size) == 4 && offsetof(BlockHeader, tag) == 8 &&
              offsetof(BlockHeader, time) == 16 && offsetof(BlockHeader, crc) == 24);

inline constexpr u16 kBlockMagic = 0x4648;  // "HF"
inline constexpr u8 kMessageBlock =
    1;  // the kinds; 0 is never valid, so that zeroed memory is not a block
inline constexpr u8 kBlockKindMax = 15;
inline constexpr u8 kFullChecksum = 1;  // the flags
inline constexpr u8 kBlockFlags = kFullChecksum;

enum class BlockFault { none, magic, kind, size, tag, crc, reserved };

constexpr std::string_view fault_name(BlockFault fault) {
    switch (fault) {
        case BlockFault::none:
            return "none";
        case BlockFault::magic:
            return "magic";
        case BlockFault::kind:
            return "kind";
        case BlockFault::size:
            return "size";
        case BlockFault::tag:
            return "tag";
        case BlockFault::crc:
            return "crc";
        case BlockFault::reserved:
            return "reserved";
    }
    return "unknown";
}

// The sum of the header alone, with its crc field as 0. It is computed from the fields, not from
// their bytes. Reading small fields as large words just after they were written would stall the
// processor.
inline u32 header_crc(const BlockHeader& header) {
    const u64 first = u64{header.magic} | u64{header.kind} << 16 | u64{header.flags} << 24 |
                      u64{header.size} << 32;
    return crc32c_words(first, header.tag, header.time, u64{header.zero} << 32);
}

// Sets the sum. `payload` is read only if kFullChecksum is set; else it may be null.
inline void seal(BlockHeader& header, const void* payload = nullptr) {
    u32 crc = header_crc(header);
    if (header.flags & kFullChecksum) crc = crc32c(crc, payload, header.size);
    header.crc = crc;
}

inline BlockHeader make_block(u8 kind, u8 flags, u32 size, u64 tag, u64 time,
                              const void* payload = nullptr) {
    BlockHeader header{kBlockMagic, kind, flags, size, tag, time, 0, 0};
    seal(header, payload);
    return header;
}

// Checks that the payload is the one that was sealed. Without kFullChecksum it cannot tell, and
// returns none. Call it after verify(), which has shown that `size` bytes are there.
inline BlockFault verify_payload(const BlockHeader& header, const void* payload) {
    if (!(header.flags & kFullChecksum)) return BlockFault::none;
    return crc32c(header_crc(header), payload, header.size) == header.crc ? BlockFault::none
                                                                          : BlockFault::crc;
}

namespace detail {
// Names the first wrong field. It compares all of them again, since speed does not matter here.
[[gnu::noinline, gnu::cold]] inline BlockFault name_fault(const BlockHeader& header, u64 tag,
                                                          u32 size_max) {
    if (header.magic != kBlockMagic) return BlockFault::magic;
    if (header.kind == 0 || header.kind > kBlockKindMax) return BlockFault::kind;
    if ((header.flags & ~kBlockFlags) != 0 || header.zero != 0) return BlockFault::reserved;
    if (header.size > size_max) return BlockFault::size;
    if (header.tag != tag) return BlockFault::tag;
    return BlockFault::crc;
}
}  // namespace detail

// Checks all that the header alone can show. With kFullChecksum the sum needs the payload, so
// verify_payload() follows.
inline BlockFault verify(const BlockHeader& header, u64 tag, u32 size_max) {
    const bool fields = header.magic == kBlockMagic &&
                        static_cast<u8>(header.kind - 1) < kBlockKindMax &&
                        (header.flags & ~kBlockFlags) == 0 && header.zero == 0 &&
                        header.size <= size_max && header.tag == tag;
    if (fields && ((header.flags & kFullChecksum) || header_crc(header) == header.crc)) [[likely]] {
        return BlockFault::none;
    }
    return detail::name_fault(header, tag, size_max);
}

}  // namespace holdfast
