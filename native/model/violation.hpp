// The exception that a violated check throws.
#pragma once

#include <stdexcept>
#include <string>

namespace model {

// Something that must never happen did. `check` is its short name: mutants are listed with it.
struct Violation : std::runtime_error {
    std::string check;
    Violation(std::string check_, const std::string& text)
        : std::runtime_error(check_ + ": " + text), check(std::move(check_)) {}
};

}  // namespace model
