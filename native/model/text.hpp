// Texts from pieces: words and numbers, one after the other.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace model {

inline void append_piece(std::string& out, std::string_view piece) {
    out.append(piece);
}
inline void append_piece(std::string& out, std::integral auto number) {
    out.append(std::to_string(number));
}

template <class... Pieces>
std::string text_of(const Pieces&... pieces) {
    std::string out;
    (append_piece(out, pieces), ...);
    return out;
}

}  // namespace model
