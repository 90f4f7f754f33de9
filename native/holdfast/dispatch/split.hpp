// Which consumer of a Key_Shared subscription gets which hashes of keys.
//
// Auto-split: each consumer has `kSplitPoints` points on the circle of hashes, made of its name. A
// hash belongs to the next point. So a consumer that joins takes hashes from all others, one that
// leaves gives its own to all others, and no other hash moves. It is a function of the names alone:
// members agree on it, and a consumer that returns has the same hashes as before.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "holdfast/dispatch/pending.hpp"
#include "holdfast/entry/key.hpp"

namespace holdfast {

inline constexpr u32 kSplitPoints = 100;

struct KeyRange {
    u32 first;
    u32 last;  // within the range
    u32 seat;  // the index of the consumer

    bool operator==(const KeyRange&) const = default;
};

// The ranges of an auto-split, in order, for consumers in the order of joining. Several with one
// name differ by their number among these.
inline std::vector<KeyRange> split_keys(const std::vector<std::string>& names) {
    struct Point {
        u32 hash;
        const std::string* name;
        u32 number;
        u32 seat;
    };
    std::vector<Point> points;
    std::map<std::string, u32> known;
    for (u32 seat = 0; seat < names.size(); ++seat) {
        const u32 number = known[names[seat]]++;
        const std::string prefix = names[seat] + '\0' + std::to_string(number) + '\0';
        for (u32 i = 0; i < kSplitPoints; ++i)
            points.push_back({key_hash(prefix + std::to_string(i)), &names[seat], number, seat});
    }
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
        if (a.hash != b.hash) return a.hash < b.hash;
        return *a.name != *b.name ? *a.name < *b.name : a.number < b.number;
    });
    std::vector<KeyRange> ranges;
    const auto add = [&](u32 first, u32 last, u32 seat) {
        if (first > last) return;
        if (!ranges.empty() && ranges.back().seat == seat)
            ranges.back().last = last;
        else
            ranges.push_back({first, last, seat});
    };
    u32 next = 0;
    for (const Point& point : points) {
        if (point.hash < next) continue;  // two points of one hash: the first one has it
        add(next, point.hash, point.seat);
        next = point.hash + 1;
    }
    if (!points.empty() && next < kKeyHashes) add(next, kKeyHashes - 1, points.front().seat);
    return ranges;
}

// Ranges for look-up: at most a few steps for each hash.
class KeySplit {
 public:
    KeySplit() { index_.fill(0); }

    // Ranges in order, apart, and below kKeyHashes.
    explicit KeySplit(std::vector<KeyRange> ranges) : ranges_(std::move(ranges)) {
        u32 at = 0;
        for (u32 page = 0; page < index_.size(); ++page) {
            while (at < ranges_.size() && ranges_[at].last < page * kPage) ++at;
            index_[page] = at;
        }
    }

    // kNoNode: no consumer has this hash.
    u32 seat_of(u32 hash) const {
        for (u32 at = index_[hash / kPage]; at < ranges_.size(); ++at) {
            if (ranges_[at].last < hash) continue;
            return ranges_[at].first <= hash ? ranges_[at].seat : kNoNode;
        }
        return kNoNode;
    }

    const std::vector<KeyRange>& ranges() const { return ranges_; }

    static bool sound(const std::vector<KeyRange>& ranges, std::size_t seats) {
        u32 next = 0;
        for (const KeyRange& each : ranges) {
            if (each.first < next || each.last < each.first || each.last >= kKeyHashes ||
                each.seat >= seats)
                return false;
            next = each.last + 1;
        }
        return true;
    }

 private:
    static constexpr u32 kPage = 64;

    std::vector<KeyRange> ranges_;
    std::array<u32, kKeyHashes / kPage> index_;  // the first range that reaches into a page
};

}  // namespace holdfast
