// The bytes of a frame: the events that one turn of the loop submits to the group, and the log
// applies.
//
//   frame   | u16 0x5246 | u8 version | u8 0 | u32 event count | u64 time ns | event … |          no padding anywhere
//   event   | u32 body size | u8 kind | u8 version | u16 0 | body |
//   publish | u64 topic | u64 session | u64 epoch | u32 count | u16 name size | u16 0 | producer name |  then
//           | count × (i64 sequence | u32 span | u32 size) | the entries' bytes |
//
// Little-endian. `span` is the number of sequence numbers that an entry covers; 0 for a chunk that
// is not its message's last. The bodies of all other kinds belong to the broker and are not read
// here.
#pragma once

#include <cstddef>
#include <limits>

#include "holdfast/base/types.hpp"

namespace holdfast {

inline constexpr u16 kFrameMagic = 0x5246;  // "FR"
inline constexpr u8 kFrameVersion = 1;
inline constexpr u8 kPublishKind = 1;
inline constexpr u8 kPublishVersion = 1;
inline constexpr u64 kEntrySizeMax = u64{1} << 30;  // no entry is larger, in a frame or on disk
inline constexpr std::size_t kFrameSizeMax = std::size_t{8}
                                             << 20;  // unless a single event is larger

struct FrameHeader {
    u16 magic;
    u8 version;
    u8 zero;
    u32 count;
    u64 time;  // nanoseconds since the epoch
};
static_assert(sizeof(FrameHeader) == 16);

struct EventHeader {
    u32 size;  // of the body
    u8 kind;
    u8 version;
    u16 zero;
};
static_assert(sizeof(EventHeader) == 8);

struct PublishHeader {
    u64 topic;
    u64 session;
    u64 epoch;
    u32 count;
    u16 name_size;
    u16 zero;
};
static_assert(sizeof(PublishHeader) == 32 && offsetof(PublishHeader, name_size) == 28);

struct PublishRow {
    std::int64_t sequence;  // of the entry's first message
    u32 span;
    u32 size;  // of the entry
};
static_assert(sizeof(PublishRow) == 16);

// The number behind the last that an entry covers is a sequence, too: the producer goes on with it.
// Writers and readers of frames both call this function. A frame that its writer accepts and its
// reader refuses would stop every member of a group.
constexpr bool possible_sequence(std::int64_t sequence, u64 span) {
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    return sequence >= 0 && span <= std::numeric_limits<u32>::max() &&
           static_cast<std::int64_t>(span) <= most - sequence;
}

}  // namespace holdfast
