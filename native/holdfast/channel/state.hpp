// The state of a slot: one byte, in which producer and consumer decide on the owner of a buffer.
//
//   EMPTY                  nothing here: the consumer took the datum, or none was ever pushed
//   PENDING                frozen by a push under way; the datum that was here belongs to the producer again
//   END       [O] [I]      the producer's position: the next datum goes here
//   DATA          [I]      a datum for the consumer
//   HOLE      [O]          the producer withdrew the datum: by cancel(), or by the recovery of a push that died
//
//   I  INSPECTED           the consumer has seen this END or DATA; every store of the producer removes it
//   O  OVERFLOW            the datum that was here before was displaced, unseen by the consumer
//
// The producer writes any state. The consumer makes three moves, each by compare-and-swap:
//
//   DATA -> DATA|INSPECTED        it looks at the datum
//   DATA|INSPECTED -> EMPTY       it owns the datum's buffer: the hand-over
//   END -> END|INSPECTED          it looks at the producer's position (OVERFLOW stays)
//
// So one slot changes at most twice under a producer that stands still, and a byte is all that must be atomic.
#pragma once

#include <array>

#include "holdfast/base/types.hpp"

namespace holdfast {

inline constexpr u8 kEnd = 0x01;
inline constexpr u8 kEmpty = 0x02;
inline constexpr u8 kPending = 0x04;
inline constexpr u8 kData = 0x08;
inline constexpr u8 kHole = 0x10;
inline constexpr u8 kInspected = 0x20;
inline constexpr u8 kOverflow = 0x40;

// True for a state that a participant can have written.
constexpr bool plausible_state(u8 state) {
    switch (state) {
        case kEmpty:
        case kPending:
        case kData:
        case kData | kInspected:
        case kEnd:
        case kEnd | kInspected:
        case kEnd | kOverflow:
        case kEnd | kOverflow | kInspected:
        case kHole:
        case kHole | kOverflow:
            return true;
        default:
            return false;
    }
}

// "DATA|INSPECTED", for people.
inline const char* state_words(u8 state) {
    switch (state) {
        case kEmpty:
            return "EMPTY";
        case kPending:
            return "PENDING";
        case kData:
            return "DATA";
        case kData | kInspected:
            return "DATA|INSPECTED";
        case kEnd:
            return "END";
        case kEnd | kInspected:
            return "END|INSPECTED";
        case kEnd | kOverflow:
            return "END|OVERFLOW";
        case kEnd | kOverflow | kInspected:
            return "END|OVERFLOW|INSPECTED";
        case kHole:
            return "HOLE";
        case kHole | kOverflow:
            return "HOLE|OVERFLOW";
        default:
            return "damaged";
    }
}

}  // namespace holdfast
