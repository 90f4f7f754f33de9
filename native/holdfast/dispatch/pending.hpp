// Entries that a consumer holds, or that it returned and that wait for their time. Each has one
// node. The nodes of one consumer form a list in the order of delivery, so that the one held
// longest is at its head.
#pragma once

#include <queue>
#include <vector>

#include "holdfast/dispatch/map.hpp"

namespace holdfast {

// The list of a consumer: its slot in the consumer table, or the list of entries that wait for
// their time.
using Holder = u32;
inline constexpr Holder kDelayed = ~u32{0};
inline constexpr u32 kNoNode = ~u32{0};

struct PendingList {
    u32 head = kNoNode;
    u32 tail = kNoNode;
    u64 entries = 0;
    u64 messages = 0;
};

struct PendingNode {
    u64 ordinal;
    u64 time_ns;  // time of delivery; of a delayed entry: due time
    Holder holder;
    u32 messages;
    u32 before;
    u32 after;
};

// I51: an ordinal has at most one node, and a node is in exactly one list.
class PendingTable {
 public:
    u64 size() const { return index_.size(); }
    bool contains(u64 ordinal) const { return index_.find(ordinal) != OrdinalMap::kNothing; }
    const PendingList& delayed() const { return delayed_; }
    PendingList& delayed() { return delayed_; }

    const PendingNode* find(u64 ordinal) const {
        const u32 at = index_.find(ordinal);
        return at == OrdinalMap::kNothing ? nullptr : &nodes_[at];
    }
    const PendingNode* head(const PendingList& list) const {
        return list.head == kNoNode ? nullptr : &nodes_[list.head];
    }
    const PendingNode* next(const PendingNode& node) const {
        return node.after == kNoNode ? nullptr : &nodes_[node.after];
    }

    void add(PendingList& list, Holder holder, u64 ordinal, u32 messages, u64 time_ns) {
        u32 at = free_;
        if (at == kNoNode) {
            at = static_cast<u32>(nodes_.size());
            nodes_.emplace_back();
        } else {
            free_ = nodes_[at].after;
        }
        index_.at(ordinal, at) = at;
        nodes_[at] = {ordinal, time_ns, holder, messages, list.tail, kNoNode};
        (list.tail == kNoNode ? list.head : nodes_[list.tail].after) = at;
        list.tail = at;
        ++list.entries;
        list.messages += messages;
        messages_ += messages;
    }

    // The caller knows the list of the node: that of node.holder.
    void remove(PendingList& list, u64 ordinal) {
        const u32 at = index_.find(ordinal);
        PendingNode& node = nodes_[at];
        (node.before == kNoNode ? list.head : nodes_[node.before].after) = node.after;
        (node.after == kNoNode ? list.tail : nodes_[node.after].before) = node.before;
        --list.entries;
        list.messages -= node.messages;
        messages_ -= node.messages;
        index_.erase(ordinal);
        node = {OrdinalMap::kEmpty, 0, kDelayed, 0, kNoNode, free_};
        free_ = at;
    }

    void shrink(PendingList& list, u64 ordinal, u32 messages) {
        PendingNode& node = nodes_[index_.find(ordinal)];
        if (messages >= node.messages) return;
        list.messages -= node.messages - messages;
        messages_ -= node.messages - messages;
        node.messages = messages;
    }

    void delay(u64 ordinal, u32 messages, u64 due_ns) {
        add(delayed_, kDelayed, ordinal, messages, due_ns);
        due_.push({due_ns, ordinal});
    }

    // Of all consumers together.
    u64 held_messages() const { return messages_ - delayed_.messages; }

    // The time at which the next delayed entry is due; 0: no entry is delayed.
    u64 next_due() {
        while (!due_.empty() && stale(due_.top())) due_.pop();
        if (due_.empty()) return 0;
        return due_.top().due_ns;
    }

    // Calls `visit(ordinal)` for each entry that is due, and removes it.
    template <class Visit>
    void take_due(u64 now_ns, Visit visit) {
        for (u64 due = next_due(); due != 0 && due <= now_ns; due = next_due()) {
            const u64 ordinal = due_.top().ordinal;
            due_.pop();
            remove(delayed_, ordinal);
            visit(ordinal);
        }
    }

    template <class Visit>
    void each(Visit visit) const {
        index_.each([&](u64, u32 at) { visit(nodes_[at]); });
    }

    template <class Visit>
    void each_ordinal(Visit visit) const {
        index_.each_ordinal(visit);
    }

    void clear() {
        index_.clear();
        nodes_ = {};
        free_ = kNoNode;
        delayed_ = {};
        messages_ = 0;
        due_ = {};
    }

    bool sound(const PendingList& list, Holder holder) const {
        u64 entries = 0;
        u64 messages = 0;
        u32 before = kNoNode;
        for (u32 at = list.head; at != kNoNode; before = at, at = nodes_[at].after) {
            const PendingNode& node = nodes_[at];
            if (node.before != before || node.holder != holder || index_.find(node.ordinal) != at ||
                ++entries > size())
                return false;
            messages += node.messages;
        }
        return before == list.tail && entries == list.entries && messages == list.messages;
    }
    bool sound() const { return index_.sound() && sound(delayed_, kDelayed); }

 private:
    struct Due {
        u64 due_ns;
        u64 ordinal;
        // The earliest on top; of equal times the lowest ordinal, so that runs are repeatable.
        bool operator<(const Due& other) const {
            return due_ns != other.due_ns ? due_ns > other.due_ns : ordinal > other.ordinal;
        }
    };

    // True if it was acknowledged, or delayed again, since.
    bool stale(const Due& due) const {
        const PendingNode* node = find(due.ordinal);
        return node == nullptr || node->holder != kDelayed || node->time_ns != due.due_ns;
    }

    OrdinalMap index_;
    std::vector<PendingNode> nodes_;
    u32 free_ = kNoNode;
    PendingList delayed_;
    u64 messages_ = 0;  // of all nodes
    std::priority_queue<Due> due_;
};

}  // namespace holdfast
