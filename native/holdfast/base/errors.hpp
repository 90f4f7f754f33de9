// The one error type of the core. The bindings map each code to an exception of src/holdfast/errors.py.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

namespace holdfast {

enum class Code {
    exists,                 // a segment of that name is there already
    not_found,              // no such segment, or no such directory
    no_space,               // the file system cannot hold the segment
    denied,                 // permissions, ownership, or a link where a file should be
    layout_mismatch,        // written by another version of the library, or of another kind
    corrupt,                // bytes that no version of the library would have written
    stale,                  // from before the last boot
    misuse,                 // the caller's mistake
    unsupported,            // this file system or kernel cannot give what is needed
    io,                     // the system refused for another reason
    too_many_participants,  // every slot of the table is held by a living process
    full,
    empty,
    timeout,
    closed,
    too_large,  // a message above the size limit
    peer_died,
    exhausted,  // positions used up
};

// `what()` says what happened, to which object, and what to do.
struct Error : std::runtime_error {
    Error(Code code_, const std::string& message, int errno_ = 0)
        : std::runtime_error(message), code(code_), system_errno(errno_) {}

    Code code;
    int system_errno;  // 0 if no system call failed
};

// Returns "No space left on device (errno 28)". Unlike strerror it is safe between threads.
inline std::string errno_text(int number) {
    return std::generic_category().message(number) + " (errno " + std::to_string(number) + ")";
}

}  // namespace holdfast
