// Short names for the sizes of fields in shared memory and on disk.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace holdfast {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

// The words that the memory policies access atomically.
template <class Word>
concept AtomicWord = std::is_same_v<Word, u8> || std::is_same_v<Word, u16> ||
                     std::is_same_v<Word, u32> || std::is_same_v<Word, u64>;

// Every shared layout is little-endian and is read in place.
static_assert(std::endian::native == std::endian::little, "holdfast needs a little-endian machine");

}  // namespace holdfast
