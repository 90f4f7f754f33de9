// Named crash points: places where a test lets this very process die, stop or exit, or one of its threads stand still.
//
// Production pays one relaxed load and a branch that is never taken. There is one armed point per process, because
// whoever dies there needs no second one.
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

// clang-format off
enum class Point : int {
    none,
    // put: claim, write, commit (the seed's cases a to e)
    put_begin, put_claimed, put_magic, put_size, put_payload, put_checksum, put_committed, put_moved,
    many_inner, pad_claimed,
    // take, settle, give back, reclaim
    take_claimed, take_moved, settle_begin, settled, back_begin, back_returned, back_announced, reclaimed,
    // recovery, fencing, end of stream
    recover_begin, recover_blocking, recover_decided, recover_block, recover_scanned, recover_announced, recover_end,
    fence_done, close_marked,
    // attachment
    attach_locked, attach_recovered, attach_active, detach_begin, detach_inactive,
    // segment creation
    create_file, create_allocated, create_initialised, create_linked,
    // the log's writer
    journal_write, journal_half, journal_written, ledger_open, ledger_write, ledger_half, ledger_written, journal_synced,
    round_done,
    // the store, in Python
    format_made, journal_made, journal_used, journal_dropped, snapshot_begin, snapshot_synced, snapshot_written,
    snapshot_renamed, snapshot_done, snapshot_dropped, trim_unlink, ledger_rewritten, recover_locked, recover_loaded,
    recover_cut, recover_truncated, recover_redo, recover_done, backup_copied, restore_copied,
    journal_recycled, ledger_switched, reserve_released, reserve_restored, recover_ledger,
    count_
};

inline constexpr std::array<std::string_view, static_cast<std::size_t>(Point::count_)> kPointNames = {
    "none",
    "put_begin", "put_claimed", "put_magic", "put_size", "put_payload", "put_checksum", "put_committed", "put_moved",
    "many_inner", "pad_claimed",
    "take_claimed", "take_moved", "settle_begin", "settled", "back_begin", "back_returned", "back_announced",
    "reclaimed",
    "recover_begin", "recover_blocking", "recover_decided", "recover_block", "recover_scanned", "recover_announced",
    "recover_end",
    "fence_done", "close_marked",
    "attach_locked", "attach_recovered", "attach_active", "detach_begin", "detach_inactive",
    "create_file", "create_allocated", "create_initialised", "create_linked",
    "journal_write", "journal_half", "journal_written", "ledger_open", "ledger_write", "ledger_half", "ledger_written",
    "journal_synced", "round_done",
    "format_made", "journal_made", "journal_used", "journal_dropped", "snapshot_begin", "snapshot_synced",
    "snapshot_written", "snapshot_renamed", "snapshot_done", "snapshot_dropped", "trim_unlink", "ledger_rewritten",
    "recover_locked", "recover_loaded", "recover_cut", "recover_truncated", "recover_redo", "recover_done",
    "backup_copied", "restore_copied",
    "journal_recycled", "ledger_switched", "reserve_released", "reserve_restored", "recover_ledger",
};
// clang-format on
inline constexpr Point kFirstLogPoint = Point::journal_write;  // before it stand the queue's
static_assert(!kPointNames.back().empty(), "every point needs its name, in the order of the enum");

constexpr std::string_view point_name(Point point) {
    const auto index = static_cast<std::size_t>(point);
    return index < kPointNames.size() ? kPointNames[index] : std::string_view("unknown");
}

constexpr std::optional<Point> point_by_name(std::string_view name) {
    for (std::size_t i = 0; i < kPointNames.size(); ++i) {
        if (kPointNames[i] == name) return static_cast<Point>(i);
    }
    return std::nullopt;
}

enum class PointAction : int {
    kill,   // SIGKILL: nothing runs any more, not even a destructor
    stop,   // SIGSTOP: alive but silent, until SIGCONT
    exit,   // _exit(kPointExitStatus): gone without destructors, with a status to recognise
    fork,   // fork(): two processes go on in the middle of it
    stand,  // this thread stands here until go_on(point); the other threads of its process go on
};

inline constexpr int kPointExitStatus = 86;

namespace detail {
inline std::atomic<Point> armed_point{Point::none};
inline std::atomic<PointAction> armed_action{PointAction::kill};
inline std::atomic<u64> armed_countdown{0};

enum Standing : u32 { nobody, stands, goes_on };
inline std::array<std::atomic<u32>, static_cast<std::size_t>(Point::count_)> standing{};

inline void stand_still(Point point) {
    std::atomic<u32>& word = standing[static_cast<std::size_t>(point)];
    word.store(stands, std::memory_order_release);  // pairs with: is_standing
    word.wait(stands, std::memory_order_acquire);   // pairs with: go_on
    word.store(nobody, std::memory_order_relaxed);
}
// The bindings release the GIL around it.
inline void (*stand_at)(Point) = &stand_still;

[[gnu::noinline, gnu::cold]] inline void fire(Point point) {
    if (armed_countdown.fetch_sub(1, std::memory_order_relaxed) != 1) return;
    armed_point.store(Point::none,
                      std::memory_order_relaxed);  // a stopped process goes on unharmed
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
    detail::armed_point.store(Point::none, std::memory_order_relaxed);
    detail::armed_action.store(action, std::memory_order_relaxed);
    detail::armed_countdown.store(countdown == 0 ? 1 : countdown, std::memory_order_relaxed);
    detail::armed_point.store(point, std::memory_order_relaxed);
}

inline void disarm() {
    detail::armed_point.store(Point::none, std::memory_order_relaxed);
}

inline bool any_armed() {
    return detail::armed_point.load(std::memory_order_relaxed) != Point::none;
}

// For a place that can be cut in two only if it is known beforehand.
inline bool is_armed(Point point) {
    return detail::armed_point.load(std::memory_order_relaxed) == point;
}

inline void at(Point point) {
    if (detail::armed_point.load(std::memory_order_relaxed) == point) [[unlikely]]
        detail::fire(point);
}

// True while a thread stands at `point`.
inline bool is_standing(Point point) {
    return detail::standing[static_cast<std::size_t>(point)].load(std::memory_order_acquire) ==
           detail::stands;  // pairs with: stand_still
}

inline void go_on(Point point) {
    std::atomic<u32>& word = detail::standing[static_cast<std::size_t>(point)];
    u32 expected = detail::stands;
    if (word.compare_exchange_strong(expected, detail::goes_on,
                                     std::memory_order_release))  // pairs with: stand_still
        word.notify_all();
}

}  // namespace holdfast
