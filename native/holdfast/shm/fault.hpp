// Damage: a word of a shared structure that no participant can have written, and loops that end in spite of it.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "holdfast/base/types.hpp"

namespace holdfast {

// A word that cannot be as it was found.
struct Fault {
    const char* what = nullptr;
    u64 position = 0;
    u64 value = 0;
};

// "channel ", for "producer 1 of channel": the command that knows this kind.
inline const char* doctor_of(std::string_view kind) {
    return kind.ends_with("queue") ? "" : kind.ends_with("service") ? "service " : "channel ";
}

// The fault of a structure, in words: "queue q is damaged: …". `kind`: "queue".
inline std::string fault_words(const char* kind, const std::string& name, const Fault& fault) {
    char text[400];
    std::snprintf(text, sizeof text,
                  "%s %s is damaged: %s at position %llu holds 0x%016llx, which no participant can "
                  "have written. Run `holdfast %sdoctor %s`, then remove the %s and create it anew",
                  kind, name.c_str(), fault.what ? fault.what : "a word",
                  static_cast<unsigned long long>(fault.position),
                  static_cast<unsigned long long>(fault.value), doctor_of(kind), name.c_str(),
                  kind);
    return text;
}

// The turns of a loop over shared words, beyond four walks over the structure. Tests make it small.
inline u64 patience_turns = u64{1} << 22;

// A loop over shared words ends, also if they are damaged. In the middle of it the structure's trace is read. If it has
// changed by the end of the loop, the other participants get on; if not, nothing but damage explains it.
class Patience {
 public:
    // `walk`: the turns of one walk over the structure.
    explicit Patience(u64 walk)
        : turns_left_(patience_turns + 4 * walk), middle_(turns_left_ / 2) {}

    template <class Structure>
    bool over(Structure& structure) {
        if (turns_left_ == middle_) [[unlikely]]
            trace_ = structure.trace();
        if (turns_left_ == 0) return true;
        --turns_left_;
        return false;
    }
    template <class Structure>
    bool others_get_on(Structure& structure) const {
        return structure.trace() != trace_;
    }

 private:
    u64 turns_left_;  // more than any walk takes, even if it is overtaken now and then
    u64 middle_;
    u64 trace_ = 0;
};

}  // namespace holdfast
