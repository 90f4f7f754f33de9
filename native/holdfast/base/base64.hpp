// Base64 (RFC 4648, with padding), the form of a key of bytes in an entry's metadata.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "holdfast/base/types.hpp"

namespace holdfast {

inline constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

inline std::string base64(std::string_view bytes) {
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t left = bytes.size() - i;
        u32 group = u32{static_cast<u8>(bytes[i])} << 16;
        if (left > 1) group |= u32{static_cast<u8>(bytes[i + 1])} << 8;
        if (left > 2) group |= static_cast<u8>(bytes[i + 2]);
        out += kBase64Digits[group >> 18];
        out += kBase64Digits[group >> 12 & 63];
        out += left > 1 ? kBase64Digits[group >> 6 & 63] : '=';
        out += left > 2 ? kBase64Digits[group & 63] : '=';
    }
    return out;
}

// Returns false if the text is not base64.
inline bool from_base64(std::string_view text, std::string& out) {
    static constexpr auto kValues = [] {
        std::array<u8, 256> values{};
        values.fill(64);
        for (std::size_t i = 0; i < 64; ++i)
            values[static_cast<u8>(kBase64Digits[i])] = static_cast<u8>(i);
        return values;
    }();
    if (text.size() % 4 != 0) return false;
    std::size_t digits = text.size();
    while (digits > 0 && text.size() - digits < 2 && text[digits - 1] == '=') --digits;
    out.clear();
    u32 group = 0;
    for (std::size_t i = 0; i < digits; ++i) {
        const u8 value = kValues[static_cast<u8>(text[i])];
        if (value == 64) return false;
        group = group << 6 | value;
        if (i % 4 > 0) out += static_cast<char>(group >> (6 - i % 4 * 2));
    }
    return true;
}

}  // namespace holdfast
