// Named points: places where a test makes this process die, stop or exit, or one of its threads
// stand still.
//
// This file has the mechanism alone. Each structure declares its own points:
//
//   HOLDFAST_POINTS(ThingPoint, begun, half_done, …);     then: at(ThingPoint::half_done);
//
// Production pays one relaxed load and a branch that is never taken. A process has one armed point, because a process
// that dies there needs no second one.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <string_view>

#include "holdfast/base/types.hpp"

namespace holdfast {

namespace detail {
// Splits "a, b, c".
template <std::size_t Count>
constexpr std::array<std::string_view, Count> split_names(std::string_view list) {
    std::array<std::string_view, Count> out;
    for (std::string_view& name : out) {
        const std::size_t comma = list.find(',');
        name = list.substr(0, comma);
        list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 2);
    }
    return out;
}
}  // namespace detail

// An enum of points, from 1 on (0 is not a point), and the table of their names.
#define HOLDFAST_POINTS(Points, ...)                                               \
    enum class Points : int { none, __VA_ARGS__, count_ };                         \
    inline constexpr auto k##Points##Names =                                       \
        ::holdfast::detail::split_names<static_cast<std::size_t>(Points::count_)>( \
            "none, " #__VA_ARGS__);                                                \
    constexpr const auto& names_of(Points) {                                       \
        return k##Points##Names;                                                   \
    }                                                                              \
    static_assert(static_cast<int>(Points::count_) > 1, "a structure without points")

// One point of any structure. The address of its name identifies it.
class Point {
 public:
    constexpr Point() = default;  // none
    template <class Points>
        requires requires(Points point) { names_of(point); }
    constexpr Point(Points point)
        : name_(point == Points::none ? nullptr
                                      : &names_of(point)[static_cast<std::size_t>(point)]) {}
    constexpr explicit Point(const std::string_view* name) : name_(name) {}

    constexpr std::string_view name() const { return name_ == nullptr ? "none" : *name_; }
    constexpr const std::string_view* key() const { return name_; }
    friend constexpr bool operator==(Point a, Point b) { return a.name_ == b.name_; }

 private:
    const std::string_view* name_ = nullptr;
};

// Calls `visit` with each point of these structures, in the order of their declaration.
template <class... Points, class Visit>
constexpr void each_point(Visit&& visit) {
    const auto of_one = [&]<class One>(One) {
        for (int i = 1; i < static_cast<int>(One::count_); ++i) visit(Point(static_cast<One>(i)));
    };
    (of_one(Points::none), ...);
}

// Returns the point of that name among those of these structures.
template <class... Points>
constexpr std::optional<Point> point_by_name(std::string_view name) {
    std::optional<Point> found;
    each_point<Points...>([&](Point point) {
        if (point.name() == name) found = point;
    });
    return found;
}

enum class PointAction : int {
    kill,   // SIGKILL: nothing runs any more, not even a destructor
    stop,   // SIGSTOP: alive but silent, until SIGCONT
    exit,   // _exit(kPointExitStatus): gone without destructors, with a status to recognise
    fork,   // fork(): two processes go on in the middle of it
    stand,  // this thread stands here until go_on(point); the other threads of its process run on
};

inline constexpr int kPointExitStatus = 86;

namespace detail {
inline std::atomic<const std::string_view*> armed_point{nullptr};
inline std::atomic<PointAction> armed_action{PointAction::kill};
inline std::atomic<u64> armed_countdown{0};

// The threads that stand still. A point gets its slot with its first use, and keeps it.
enum Standing : u32 { nobody, stands, goes_on };
struct StandingPlace {
    std::atomic<const std::string_view*> point{nullptr};
    std::atomic<u32> word{nobody};
};
inline std::array<StandingPlace, 256> standing{};

inline std::atomic<u32>& standing_word(Point point) {
    for (StandingPlace& place : standing) {
        const std::string_view* found = nullptr;
        if (place.point.compare_exchange_strong(found, point.key(), std::memory_order_relaxed) ||
            found == point.key())
            return place.word;
    }
    return standing.back().word;  // there are fewer points than slots
}

inline void stand_still(Point point) {
    std::atomic<u32>& word = standing_word(point);
    word.store(stands, std::memory_order_release);  // pairs with: is_standing
    word.wait(stands, std::memory_order_acquire);   // pairs with: go_on
    word.store(nobody, std::memory_order_relaxed);
}
// The bindings release the GIL around it.
inline void (*stand_at)(Point) = &stand_still;

[[gnu::noinline, gnu::cold]] inline void fire(Point point) {
    if (armed_countdown.fetch_sub(1, std::memory_order_relaxed) != 1) return;
    armed_point.store(nullptr, std::memory_order_relaxed);  // a stopped process goes on unharmed
    switch (armed_action.load(std::memory_order_relaxed)) {
        case PointAction::kill:
            ::kill(::getpid(), SIGKILL);
            break;
        case PointAction::stop:
            ::raise(SIGSTOP);  // this very thread, so that it stops here
            break;
        case PointAction::exit:
            ::_exit(kPointExitStatus);
        case PointAction::fork:
            if (::fork() < 0) ::_exit(kPointExitStatus);
            break;
        case PointAction::stand:
            stand_at(point);
            break;
    }
}
}  // namespace detail

// Acts the `countdown`-th time that this process passes `point` (1 = the next time).
inline void arm(Point point, PointAction action = PointAction::kill, u64 countdown = 1) {
    detail::armed_point.store(nullptr, std::memory_order_relaxed);
    detail::armed_action.store(action, std::memory_order_relaxed);
    detail::armed_countdown.store(countdown == 0 ? 1 : countdown, std::memory_order_relaxed);
    detail::armed_point.store(point.key(), std::memory_order_relaxed);
}

inline void disarm() {
    detail::armed_point.store(nullptr, std::memory_order_relaxed);
}

inline bool any_armed() {
    return detail::armed_point.load(std::memory_order_relaxed) != nullptr;
}

// Armed beforehand, for a step that a test must cut in two.
inline bool is_armed(Point point) {
    return detail::armed_point.load(std::memory_order_relaxed) == point.key();
}

inline void at(Point point) {
    if (detail::armed_point.load(std::memory_order_relaxed) == point.key()) [[unlikely]]
        detail::fire(point);
}

// True while a thread stands at `point`.
inline bool is_standing(Point point) {
    return detail::standing_word(point).load(std::memory_order_acquire) ==
           detail::stands;  // pairs with: stand_still
}

inline void go_on(Point point) {
    std::atomic<u32>& word = detail::standing_word(point);
    u32 expected = detail::stands;
    if (word.compare_exchange_strong(expected, detail::goes_on,
                                     std::memory_order_release))  // pairs with: stand_still
        word.notify_all();
}

}  // namespace holdfast
