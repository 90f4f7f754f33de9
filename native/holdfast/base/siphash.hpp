// SipHash-2-4 with 128 bits: a keyed hash. Only with the key can inputs be found that collide.
#pragma once

#include <bit>
#include <cstring>
#include <string_view>

#include "holdfast/base/types.hpp"

namespace holdfast {

struct SipKey {
    u64 first = 0, second = 0;
};

struct Hash128 {
    u64 low = 0, high = 0;

    friend bool operator==(const Hash128&, const Hash128&) = default;
};

inline Hash128 siphash(std::string_view bytes, const SipKey& key) {
    u64 a = 0x736f6d6570736575u ^ key.first, b = 0x646f72616e646f6du ^ key.second ^ 0xee;
    u64 c = 0x6c7967656e657261u ^ key.first, d = 0x7465646279746573u ^ key.second;
    const auto rounds = [&](u32 count) {
        for (; count != 0; --count) {
            a += b;
            c += d;
            b = std::rotl(b, 13) ^ a;
            d = std::rotl(d, 16) ^ c;
            a = std::rotl(a, 32) + d;
            c += b;
            d = std::rotl(d, 21) ^ a;
            b = std::rotl(b, 17) ^ c;
            c = std::rotl(c, 32);
        }
    };
    const auto mix = [&](u64 word) {
        d ^= word;
        rounds(2);
        a ^= word;
    };
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        u64 word;
        std::memcpy(&word, bytes.data() + at, 8);
        mix(word);
    }
    u64 last = static_cast<u64>(bytes.size()) << 56;
    for (u32 shift = 0; at < bytes.size(); ++at, shift += 8)
        last |= static_cast<u64>(static_cast<u8>(bytes[at])) << shift;
    mix(last);
    c ^= 0xee;
    rounds(4);
    Hash128 out;
    out.low = a ^ b ^ c ^ d;
    b ^= 0xdd;
    rounds(4);
    out.high = a ^ b ^ c ^ d;
    return out;
}

}  // namespace holdfast
