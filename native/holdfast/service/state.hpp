// The words in which the participants of a service decide: holders of samples, subscriptions, the states of calls.
//
// Every participant has a slot: proxies 0 to 61, then the tracer, then the provider. A slot is a lock byte (lock_bytes.hpp)
// and a bit. The bit of a participant in a sample's word says that it holds the sample; the provider's bit says that it
// writes it. The bit is intent and effect in one atomic step: there is no moment in which a crash leaves a doubt. A dead
// participant's bits are cleared by any process that shares its lock byte, again and again if need be. Its slot, and so its
// bit, gets a new holder only when no process shares the byte.
//
//   sample   0                      free: the provider may take it
//            provider               WRITING: the provider fills it; holders that look at it let go again
//            holders                published, and in use by them
//
//   log      0                      not subscribed
//            ASKING  | samples      intends to subscribe; counted by all that ask later
//            ACTIVE  | samples      may hold that many samples, and one more for a moment
//
//   call     IDLE                   free
//            CLAIMED                a proxy writes its request
//            CALL                   the request is complete
//            RUNNING                the provider runs it: from here on it is never run again
//            DONE                   the response is complete
//            FAILED                 the provider died while it ran
//            ABANDONED              its caller is gone or gave up; the provider frees it
#pragma once

#include "holdfast/base/types.hpp"

namespace holdfast {

inline constexpr u32 kServiceProxies = 62;

// Which slot is whose. The explorer has fewer proxies, and fewer tries.
struct ServiceSlots {
    u32 proxies = kServiceProxies;
    u32 subscribe_tries = 64;

    constexpr u32 tracer() const { return proxies; }
    constexpr u32 provider() const { return proxies + 1; }
    constexpr u32 count() const { return proxies + 2; }
    constexpr u64 writing() const { return bit(provider()); }
    static constexpr u64 bit(u32 slot) { return u64{1} << slot; }
    // All bits that a participant can have set.
    constexpr u64 all() const { return (writing() << 1) - 1; }
};
static_assert(ServiceSlots{}.count() == 64);

// ---- logs

inline constexpr u32 kLogAsking = 1;
inline constexpr u32 kLogActive = 2;

constexpr u32 log_word(u32 state, u32 samples) {
    return samples << 2 | state;
}
constexpr u32 log_state(u32 word) {
    return word & 3;
}
constexpr u32 log_samples(u32 word) {
    return word >> 2;
}

// ---- calls

enum class CallState : u8 { idle, claimed, call, running, done, failed, abandoned };

//   0  state   3 bits
//   3  owner   6 bits   the slot of the caller
//   9  number  55 bits  of the call in this place; it moves with every claim, so that no word comes twice
constexpr u64 call_word(CallState state, u32 owner, u64 number) {
    return number << 9 | u64{owner & 63} << 3 | static_cast<u64>(state);
}
constexpr CallState call_state(u64 word) {
    return static_cast<CallState>(word & 7);
}
constexpr u32 call_owner(u64 word) {
    return static_cast<u32>(word >> 3 & 63);
}
constexpr u64 call_number(u64 word) {
    return word >> 9;
}
// The same call in another state.
constexpr u64 call_moved(u64 word, CallState state) {
    return (word & ~u64{7}) | static_cast<u64>(state);
}

}  // namespace holdfast
