// CRC32C (Castagnoli), the checksum of blocks and headers.
//
// Four ways to the same number:
// - carry-less multiplication of 64 bytes at once (x86-64 with AVX-512, from 256 bytes on);
// - the processor's instruction, fed by three interleaved streams to hide its latency (x86-64);
// - the same instruction in one stream (aarch64);
// - tables that take eight bytes a step.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>

#include "holdfast/base/types.hpp"

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace holdfast {

namespace crc_detail {

inline constexpr u32 kPolynomial = 0x82f63b78u;  // bit-reversed

using Tables = std::array<std::array<u32, 256>, 8>;

constexpr Tables make_tables() {
    Tables t{};
    for (u32 i = 0; i < 256; ++i) {
        u32 c = i;
        for (int k = 0; k < 8; ++k) c = (c & 1) ? (c >> 1) ^ kPolynomial : c >> 1;
        t[0][i] = c;
    }
    for (std::size_t k = 1; k < 8; ++k) {
        for (u32 i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
    }
    return t;
}

inline constexpr Tables kTables = make_tables();

inline u64 load64(const unsigned char* p) {
    u64 v;
    std::memcpy(&v, p, 8);
    return v;
}

// The raw register goes in and out, without the inversions at both ends.
inline u32 table_update(u32 crc, const unsigned char* p, std::size_t n) {
    const Tables& t = kTables;
    for (; n >= 8; p += 8, n -= 8) {
        const u64 v = load64(p) ^ crc;
        crc = t[7][v & 0xff] ^ t[6][(v >> 8) & 0xff] ^ t[5][(v >> 16) & 0xff] ^
              t[4][(v >> 24) & 0xff] ^ t[3][(v >> 32) & 0xff] ^ t[2][(v >> 40) & 0xff] ^
              t[1][(v >> 48) & 0xff] ^ t[0][v >> 56];
    }
    for (; n > 0; ++p, --n) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xff];
    return crc;
}

inline u32 table_update32(u32 crc, u64 w0, u64 w1, u64 w2, u64 w3) {
    const u64 words[4] = {w0, w1, w2, w3};
    return table_update(crc, reinterpret_cast<const unsigned char*>(words), sizeof words);
}

#if defined(__x86_64__)

// a * b modulo the polynomial, both bit-reversed.
constexpr u32 multiply(u32 a, u32 b) {
    u32 product = 0;
    for (u32 bit = 1u << 31; bit != 0; bit >>= 1) {
        if (a & bit) product ^= b;
        b = (b & 1) ? (b >> 1) ^ kPolynomial : b >> 1;
    }
    return product;
}

// x^bits modulo the polynomial.
constexpr u32 power_of_x(std::size_t bits) {
    u32 power = 1u << 31;   // x^0
    u32 square = 1u << 30;  // x^1
    for (; bits != 0; bits >>= 1) {
        if (bits & 1) power = multiply(power, square);
        square = multiply(square, square);
    }
    return power;
}

// Tables that advance a register over `bytes` zero bytes. They join the partial sums of
// neighbouring streams.
using Shift = std::array<std::array<u32, 256>, 4>;

constexpr Shift make_shift(std::size_t bytes) {
    const u32 power = power_of_x(8 * bytes);
    Shift s{};
    for (std::size_t k = 0; k < 4; ++k) {
        for (u32 i = 0; i < 256; ++i) s[k][i] = multiply(power, i << (8 * k));
    }
    return s;
}

inline constexpr std::size_t kLong = 4096;
inline constexpr std::size_t kShort = 256;
inline constexpr Shift kShiftLong = make_shift(kLong);
inline constexpr Shift kShiftShort = make_shift(kShort);

inline u32 shift(const Shift& s, u32 crc) {
    return s[0][crc & 0xff] ^ s[1][(crc >> 8) & 0xff] ^ s[2][(crc >> 16) & 0xff] ^ s[3][crc >> 24];
}

template <std::size_t kStream>
__attribute__((target("sse4.2,crc32"))) inline u64 three_streams(u64 a, const unsigned char* p,
                                                                 const Shift& s) {
    u64 b = 0;
    u64 c = 0;
    for (const unsigned char* end = p + kStream; p < end; p += 8) {
        a = _mm_crc32_u64(a, load64(p));
        b = _mm_crc32_u64(b, load64(p + kStream));
        c = _mm_crc32_u64(c, load64(p + 2 * kStream));
    }
    a = shift(s, static_cast<u32>(a)) ^ b;
    return shift(s, static_cast<u32>(a)) ^ c;
}

__attribute__((target("sse4.2,crc32"))) inline u32 hardware_update(u32 crc, const unsigned char* p,
                                                                   std::size_t n) {
    u64 a = crc;
    for (; n >= 3 * kLong; p += 3 * kLong, n -= 3 * kLong)
        a = three_streams<kLong>(a, p, kShiftLong);
    for (; n >= 3 * kShort; p += 3 * kShort, n -= 3 * kShort)
        a = three_streams<kShort>(a, p, kShiftShort);
    for (; n >= 8; p += 8, n -= 8) a = _mm_crc32_u64(a, load64(p));
    u32 tail = static_cast<u32>(a);
    for (; n > 0; ++p, --n) tail = _mm_crc32_u8(tail, *p);
    return tail;
}

__attribute__((target("sse4.2,crc32"))) inline u32 hardware_update32(u32 crc, u64 w0, u64 w1,
                                                                     u64 w2, u64 w3) {
    u64 a = crc;
    a = _mm_crc32_u64(a, w0);
    a = _mm_crc32_u64(a, w1);
    a = _mm_crc32_u64(a, w2);
    return static_cast<u32>(_mm_crc32_u64(a, w3));
}

inline bool find_hardware() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}

// Folding. A number of 128 bits in front of others may be replaced by its value `distance` bits
// further on. That is its first half times x^(distance + 64), and its second half times x^distance.
// The factors are reduced to 32 bits. A factor in the lower half of a 64-bit operand is worth x^32
// more, and a product of reversed operands x^1 more: hence the 33.
struct Fold {
    u64 first, second;
};
constexpr Fold make_fold(std::size_t distance) {
    return {power_of_x(distance + 64 - 33), power_of_x(distance - 33)};
}

inline constexpr std::size_t kFoldMin = 256;  // below it the three streams are as fast
inline constexpr Fold kFoldFar[4] = {make_fold(2048), make_fold(2048), make_fold(2048),
                                     make_fold(2048)};
inline constexpr Fold kFoldNear[4] = {make_fold(512), make_fold(512), make_fold(512),
                                      make_fold(512)};
inline constexpr Fold kFoldLanes[4] = {make_fold(384), make_fold(256), make_fold(128), {0, 0}};

// Uses the compilers' vectors and builtins: the header with names for them takes a second to
// compile.
using Wide = long long __attribute__((vector_size(64)));
#if defined(__clang__)
#define HOLDFAST_MULTIPLY __builtin_ia32_pclmulqdq512
#else
#define HOLDFAST_MULTIPLY __builtin_ia32_vpclmulqdq_v8di
#endif
#define HOLDFAST_FOLDS __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2,crc32")))

HOLDFAST_FOLDS inline Wide load_wide(const void* p) {
    Wide out;
    std::memcpy(&out, p, sizeof out);
    return out;
}

HOLDFAST_FOLDS inline Wide fold(Wide value, Wide factors) {
    return HOLDFAST_MULTIPLY(value, factors, 0x00) ^ HOLDFAST_MULTIPLY(value, factors, 0x11);
}

// Needs at least kFoldMin bytes.
HOLDFAST_FOLDS inline u32 folding_update(u32 crc, const unsigned char* p, std::size_t n) {
    const Wide far = load_wide(kFoldFar);
    const Wide near = load_wide(kFoldNear);
    Wide a = load_wide(p) ^ Wide { crc };
    Wide b = load_wide(p + 64);
    Wide c = load_wide(p + 128);
    Wide d = load_wide(p + 192);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = fold(a, far) ^ load_wide(p);
        b = fold(b, far) ^ load_wide(p + 64);
        c = fold(c, far) ^ load_wide(p + 128);
        d = fold(d, far) ^ load_wide(p + 192);
    }
    b ^= fold(a, near);
    c ^= fold(b, near);
    d ^= fold(c, near);
    for (; n >= 64; p += 64, n -= 64) d = fold(d, near) ^ load_wide(p);
    const Wide lanes = fold(d, load_wide(kFoldLanes));
    u64 tail = _mm_crc32_u64(0, static_cast<u64>(lanes[0] ^ lanes[2] ^ lanes[4] ^ d[6]));
    tail = _mm_crc32_u64(tail, static_cast<u64>(lanes[1] ^ lanes[3] ^ lanes[5] ^ d[7]));
    for (; n >= 8; p += 8, n -= 8) tail = _mm_crc32_u64(tail, load64(p));
    u32 last = static_cast<u32>(tail);
    for (; n > 0; ++p, --n) last = _mm_crc32_u8(last, *p);
    return last;
}

#undef HOLDFAST_MULTIPLY
#undef HOLDFAST_FOLDS

inline bool find_folding() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") &&
           __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.2");
}

inline const bool kFolding = find_folding();

#elif defined(__aarch64__)

inline constexpr std::size_t kFoldMin = 0;
inline constexpr bool kFolding = false;
inline u32 folding_update(u32 crc, const unsigned char*, std::size_t) {
    return crc;  // never called
}

__attribute__((target("+crc"))) inline u32 hardware_update(u32 crc, const unsigned char* p,
                                                           std::size_t n) {
    for (; n >= 8; p += 8, n -= 8) crc = __crc32cd(crc, load64(p));
    for (; n > 0; ++p, --n) crc = __crc32cb(crc, *p);
    return crc;
}

__attribute__((target("+crc"))) inline u32 hardware_update32(u32 crc, u64 w0, u64 w1, u64 w2,
                                                             u64 w3) {
    return __crc32cd(__crc32cd(__crc32cd(__crc32cd(crc, w0), w1), w2), w3);
}

inline bool find_hardware() {
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

#else

inline constexpr std::size_t kFoldMin = 0;
inline constexpr bool kFolding = false;
inline u32 folding_update(u32 crc, const unsigned char*, std::size_t) {
    return crc;  // never called
}

inline u32 hardware_update(u32 crc, const unsigned char* p, std::size_t n) {
    return table_update(crc, p, n);
}
inline u32 hardware_update32(u32 crc, u64 w0, u64 w1, u64 w2, u64 w3) {
    return table_update32(crc, w0, w1, w2, w3);
}
inline bool find_hardware() {
    return false;
}

#endif

inline const bool kHardware = find_hardware();

}  // namespace crc_detail

// Extends `crc` (0 at the start) over `size` bytes: crc32c(crc32c(0, a), b) is the sum of a and b
// together.
inline u32 crc32c(u32 crc, const void* data, std::size_t size) {
    const auto* p = static_cast<const unsigned char*>(data);
    if (size >= crc_detail::kFoldMin && crc_detail::kFolding)
        return ~crc_detail::folding_update(~crc, p, size);
    return ~(crc_detail::kHardware ? crc_detail::hardware_update(~crc, p, size)
                                   : crc_detail::table_update(~crc, p, size));
}

// The sum of exactly 32 bytes, the header of a block, as four words in registers without a loop.
inline u32 crc32c_words(u64 w0, u64 w1, u64 w2, u64 w3) {
    return ~(crc_detail::kHardware ? crc_detail::hardware_update32(~0u, w0, w1, w2, w3)
                                   : crc_detail::table_update32(~0u, w0, w1, w2, w3));
}

}  // namespace holdfast
