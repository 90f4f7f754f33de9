// MurmurHash3 of 32 bits, seed 0: the hash of keys that Pulsar's clients and brokers agree on.
#pragma once

#include <cstring>
#include <string_view>

#include "holdfast/base/types.hpp"

namespace holdfast {

inline u32 murmur3(std::string_view bytes) {
    const auto rotate = [](u32 value, u32 by) { return value << by | value >> (32 - by); };
    const auto mixed = [&](u32 block) { return rotate(block * 0xcc9e2d51u, 15) * 0x1b873593u; };
    u32 hash = 0;
    std::size_t at = 0;
    for (; at + 4 <= bytes.size(); at += 4) {
        u32 block;
        std::memcpy(&block, bytes.data() + at, 4);
        hash = rotate(hash ^ mixed(block), 13) * 5 + 0xe6546b64u;
    }
    u32 rest = 0;
    for (std::size_t i = bytes.size(); i > at; --i)
        rest = rest << 8 | static_cast<u8>(bytes[i - 1]);
    hash ^= mixed(rest) ^ static_cast<u32>(bytes.size());
    hash = (hash ^ hash >> 16) * 0x85ebca6bu;
    hash = (hash ^ hash >> 13) * 0xc2b2ae35u;
    return hash ^ hash >> 16;
}

}  // namespace holdfast
