// The memory of a process of the service model between two steps, and the account of a provider in it.
#pragma once

#include <array>
#include <type_traits>

#include "holdfast/service/elements.hpp"
#include "model/model.hpp"

namespace model {

inline constexpr u32 kSamplesOfModel = 8;
inline constexpr u32 kNumbersOfModel =
    24;  // sequence numbers that come up, counted from the origin
inline constexpr u32 kHeldMax = 4;
inline constexpr u32 kCallIdsMax = 8;
inline constexpr u8 kNothing = 0xff;

struct ServiceGhost {
    u8 pc = 0;
    u8 phase = 0;
    // as the provider
    u8 newest = kNothing;
    u8 next = 1;  // sequence numbers count from the origin
    u8 order_count = 0;
    u8 lent_count = 0;
    u8 last_place = 0;
    u8 runs = 0;  // 1: a call was taken, 2: its request was read
    u8 run_place = 0;
    u8 run_owner = 0;
    u8 run_number = 0;
    u8 run_id = 0;
    std::array<u8, kSamplesOfModel> order{};
    std::array<u8, 2> lent{};
    std::array<u8, 2> lent_id{};
    // as a proxy or the tracer
    u8 granted = 0;
    u8 held_count = 0;
    u8 last = 0;
    u8 refused = 0;  // the result of the last subscription
    std::array<u8, kHeldMax> held{};
    std::array<u8, kHeldMax> held_number{};
    std::array<u8, kHeldMax> held_id{};  // 0: not read yet
    u8 ticket = 0;                       // 1: claimed, 2: submitted
    u8 ticket_place = 0;
    u8 ticket_number = 0;
    u8 ticket_id = 0;
    // calls, as bits
    u8 ran = 0;         // a handler had the request
    u8 unexecuted = 0;  // the caller was told so
    u8 answered = 0;    // the caller has the response
    u8 failed = 0;
    u8 caller = 0;  // its slot
    std::array<u8, 3> spare{};
    u32 bell = 0;
    std::array<u8, kNumbersOfModel> content{};  // what this process knows of each sequence number
};
static_assert(sizeof(ServiceGhost) <= Local::kSize &&
              std::has_unique_object_representations_v<ServiceGhost>);

inline SampleOrder order_of(const ServiceGhost& ghost, u64 origin) {
    SampleOrder order;
    for (u32 i = 0; i < ghost.order_count; ++i) order.oldest_first.push_back(ghost.order[i]);
    order.newest = ghost.newest == kNothing ? SampleOrder::kNone : ghost.newest;
    order.next = origin + ghost.next;
    return order;
}

inline void keep_order(ServiceGhost& ghost, const SampleOrder& order, u64 origin) {
    ghost.order = {};
    ghost.order_count = static_cast<u8>(order.oldest_first.size());
    for (std::size_t i = 0; i < order.oldest_first.size(); ++i)
        ghost.order[i] = static_cast<u8>(order.oldest_first[i]);
    ghost.newest = order.newest == SampleOrder::kNone ? kNothing : static_cast<u8>(order.newest);
    ghost.next = static_cast<u8>(order.next - origin);
}

}  // namespace model
