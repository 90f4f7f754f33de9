// Notices: which processes died while they used the instance, for the provider to hear of. Each is kept until a provider
// has taken it, also over restarts of the provider. The same one may be told twice; that it was told means that it is so.
//
//   0 -> BUSY|slot   a recoverer writes it          (cas)
//   BUSY -> POSTED   it is complete                 (store)
//   POSTED -> 0      the provider's handler returned (cas)
//
// A recoverer that dies in between leaves BUSY with its slot, which its own recovery frees.
#pragma once

#include <cstring>
#include <string>

#include "holdfast/base/points.hpp"
#include "holdfast/service/layout.hpp"

namespace holdfast {

HOLDFAST_POINTS(NoticePoint, notice_busy, notice_posted, notice_taken);

struct Notice {
    u32 place = 0;
    u64 pid = 0;
    u64 since = 0;  // start of that process, in clock ticks after boot
    std::string application;
};

template <class Memory>
class Notices {
 public:
    static constexpr u64 kPosted = 1;

    Notices(Memory& memory, NoticeEntry* entries) : memory_(memory), entries_(entries) {}

    // The caller, in slot `me`, shares the lock byte of the dead process. False: no room; `kNotices` are waiting.
    bool post(u32 me, u64 pid, u64 since, const char* application) {
        for (u32 i = 0; i < kNotices; ++i) {
            // pairs with: post (of others)
            if (memory_.load(&entries_[i].state, std::memory_order_acquire) == kPosted &&
                memory_.load(&entries_[i].pid, std::memory_order_relaxed) == pid &&
                memory_.load(&entries_[i].since, std::memory_order_relaxed) == since)
                return true;
        }
        for (u32 i = 0; i < kNotices; ++i) {
            u64 free = 0;
            // pairs with: taken
            if (!memory_.cas(&entries_[i].state, free, busy(me), std::memory_order_acq_rel))
                continue;
            memory_.at(NoticePoint::notice_busy);
            memory_.store(&entries_[i].pid, pid, std::memory_order_relaxed);
            memory_.store(&entries_[i].since, since, std::memory_order_relaxed);
            std::memcpy(entries_[i].application, application, sizeof entries_[i].application);
            memory_.store(&entries_[i].state, kPosted,
                          std::memory_order_release);  // pairs with: next
            memory_.at(NoticePoint::notice_posted);
            return true;
        }
        return false;
    }

    // The provider: the first notice at or behind `from`. False: there is not one.
    bool next(u32 from, Notice& out) const {
        for (u32 i = from; i < kNotices; ++i) {
            // pairs with: post
            if (memory_.load(&entries_[i].state, std::memory_order_acquire) != kPosted) continue;
            const NoticeEntry& entry = entries_[i];
            out = {i, memory_.load(&entry.pid, std::memory_order_relaxed),
                   memory_.load(&entry.since, std::memory_order_relaxed),
                   std::string(entry.application,
                               ::strnlen(entry.application, sizeof entry.application))};
            return true;
        }
        return false;
    }
    void taken(const Notice& notice) {
        u64 posted = kPosted;
        // pairs with: post
        memory_.cas(&entries_[notice.place].state, posted, 0, std::memory_order_acq_rel);
        memory_.at(NoticePoint::notice_taken);
    }

    // Frees the notices that a dead recoverer began. The caller shares its lock byte.
    void clear(u32 slot) {
        for (u32 i = 0; i < kNotices; ++i) {
            u64 found = busy(slot);
            if (memory_.load(&entries_[i].state, std::memory_order_relaxed) == found)
                memory_.cas(&entries_[i].state, found, 0,
                            std::memory_order_acq_rel);  // pairs with: post
        }
    }

 private:
    static u64 busy(u32 slot) { return u64{slot} + 2; }

    Memory& memory_;
    NoticeEntry* entries_;
};

}  // namespace holdfast
