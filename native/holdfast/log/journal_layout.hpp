// The bytes of the journal: rounds, each at a multiple of 4096, made of frame blocks.
//
//   | round block: kind 3, tag = first D | u64 previous D | u64 first D | u64 last D | u64 stable view | u64 stable index |
//   |                                    | u64 bytes of the frame blocks | u64 synced D | u64 salt |
//   | frame block: kind 4, tag = D of its first event, time = log time |  u64 view | u64 index | frame | 0 … 7 zeros | …
//   | zeros up to the next multiple of 4096
//
// A round header is a witness: everything up to its `synced D` was durable when it was written. In
// the modes `group` and `always` that is everything before it. In the mode `os` it is everything
// that the last successful sync has covered. The salt is the low half of the directory's
// incarnation, so that published bytes are never taken for a round.
#pragma once

#include "holdfast/base/block.hpp"
#include "holdfast/base/file_header.hpp"
#include "holdfast/base/frame_layout.hpp"

namespace holdfast {

inline constexpr u64 kRoundAlign = 4096;

struct RoundFields {
    u64 previous_d;
    u64 first_d;
    u64 last_d;
    u64 stable_view;
    u64 stable_index;
    u64 bytes;
    u64 synced_d;
    u64 salt;
};
static_assert(sizeof(RoundFields) == 64);

struct RoundHeader {
    BlockHeader block;
    RoundFields fields;
};
static_assert(sizeof(RoundHeader) == 96 && sizeof(RoundHeader) % kBlockPadding == 0);

// The bytes before the events in a frame block.
struct FramePosition {
    u64 view;
    u64 index;
};

struct FrameBlockHead {
    BlockHeader block;
    FramePosition position;
    FrameHeader frame;
};
static_assert(sizeof(FrameBlockHead) == 64);

inline RoundHeader make_round_header(const RoundFields& fields, u64 time) {
    RoundHeader header{{}, fields};
    header.block =
        make_block(kRoundBlock, kFullChecksum, sizeof fields, fields.first_d, time, &header.fields);
    return header;
}

constexpr u64 round_space(u64 frame_bytes) {
    return (sizeof(RoundHeader) + frame_bytes + kRoundAlign - 1) & ~(kRoundAlign - 1);
}

}  // namespace holdfast
