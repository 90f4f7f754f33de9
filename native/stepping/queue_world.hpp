// A queue, the messages that it may hold after a kill, and the account of the survivor.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/queue/attachment.hpp"
#include "stepping/situation.hpp"
#include "tests/check.hpp"

namespace holdfast::stepping {

inline constexpr u64 kRing = 16;  // granules

// A message is a number and a size; its bytes follow from them.
struct Message {
    u64 number;
    u64 size;

    std::string bytes() const {
        std::string text = std::to_string(number) + ":";
        while (text.size() < size) text += static_cast<char>('a' + (number + text.size()) % 26);
        text.resize(size);
        return text;
    }
};
inline constexpr Message kSmall{1, 20}, kMedium{2, 80}, kLarge{3, 150};

struct Found {
    u64 number;
    u32 redelivered;
    friend auto operator<=>(const Found&, const Found&) = default;
};

// A result that the survivor may find, in full: the messages, and what it had to repair.
struct Allowed {
    Outcome outcome;
    std::vector<Found> found;  // by number
    u32 skipped = 0;
    u32 handed_on = 0;
    u32 released = 0;
    bool closed = false;
    std::optional<u32> marked = std::nullopt;  // slots of the dead that are marked as in use
};

class QueueWorld {
 public:
    QueueWorld() : directory(default_directory()) {}

    void create(const std::string& name, const QueueParams& params, u64 first = 0) const {
        SegmentSpec spec;
        spec.directory = directory;
        spec.name = name;
        QueueAttachment::create(spec, params, first);
    }
    static QueueParams params() {
        QueueParams made{};
        made.granules = kRing;
        made.participants = 4;
        made.stall_limit_ms = kNoStallLimit;
        return made;
    }

    std::unique_ptr<QueueAttachment> open(const std::string& name) const {
        return std::make_unique<QueueAttachment>(directory, name, false);
    }
    std::string path(const std::string& name) const {
        return Segment::path_of(directory, kQueueKind, name);
    }

    const std::string directory;
};

inline Payload payload(const std::string& bytes) {
    return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

inline Verdict put(QueueAttachment& queue, const Message& message, bool probe = true) {
    const std::string bytes = message.bytes();
    const Payload one = payload(bytes);
    return queue.put({&one, 1}, probe);
}

// Claims space for a message and does not go on.
inline void claim(QueueAttachment& queue, const Message& message) {
    const std::string bytes = message.bytes();
    const Payload one = payload(bytes);
    Queue<NativeMemory>::Claim claim;
    CHECK(queue.queue().claim({&one, 1}, true, claim) == Verdict::ok);
}

inline Taken take(QueueAttachment& queue) {
    std::vector<Delivered> out;
    CHECK(queue.get(out, 1, true) == Verdict::ok);
    return out[0].taken;
}

inline void give_back(QueueAttachment& queue) {
    CHECK(queue.give_back(take(queue)));
}

// Puts messages through until the ring begins at its granule `at`.
inline void turn_to(QueueAttachment& queue, u64 at) {
    while (unsealed(*queue.queue().words.head) % kRing != at) {
        CHECK(put(queue, kSmall) == Verdict::ok && queue.settle(take(queue)));
    }
}

// The survivor's work on one queue. Everything goes through the public operations; `check` is the queue's own.
class Audit {
 public:
    // `ordered`: no message has come back without a mark, so that unmarked ones keep their order.
    explicit Audit(QueueAttachment& queue, bool ordered = true)
        : queue_(queue), ordered_(ordered) {}

    // Takes and settles all there is.
    void drain() {
        std::vector<Delivered> out;
        for (;;) {
            out.clear();
            const Verdict verdict = queue_.get(out, 4, true);
            if (verdict == Verdict::closed) closed = true;
            if (verdict == Verdict::corrupt) throw Wrong(queue_.fault_words());
            if (verdict == Verdict::empty && queue_.blocked_by_somebody())
                throw Wrong("the survivor waits for a dead participant");
            if (verdict != Verdict::ok) break;
            for (const Delivered& each : out) accept(each);
            queue_.announce_space();
        }
    }

    // All of the ring can be used again: one granule is kept for the end of the stream.
    void fill_and_drain() {
        u64 count = 0;
        Verdict verdict;
        while ((verdict = put(queue_, {kFiller + count, 32})) == Verdict::ok) ++count;
        if (closed) {
            if (verdict != Verdict::closed || count != 0) throw Wrong("the end was not kept");
            return;
        }
        if (verdict == Verdict::corrupt) throw Wrong(queue_.fault_words());
        if (count != kRing - 1)
            throw Wrong("space leaked: " + std::to_string(count) + " of " +
                        std::to_string(kRing - 1) + " messages fit");
        found.clear();
        drain();
        for (u64 i = 0; i < found.size(); ++i)
            if (found[i] != Found{kFiller + i, 0}) throw Wrong("a later message was lost or moved");
        if (found.size() != count) throw Wrong("later messages were lost");
    }

    // `over`: the queue was drained, so that no block is in use.
    void check(const char* when, bool over) { check(queue_.queue(), when, over); }

    static void check(QueueState<NativeMemory>& queue, const char* when, bool over) {
        const Survey result = survey(queue, [] {}, [](u64, u64) {});
        if (!result.sound() || result.overtaken)
            throw Wrong(std::string("check() ") + when + ": " +
                        (result.overtaken ? "overtaken" : result.fault.what));
        for (const State state :
             {State::reserved, State::ready, State::taken, State::retry, State::fenced})
            if (over && result.blocks[static_cast<u32>(state)] != 0)
                throw Wrong(std::string("a block stays ") + state_name(state));
    }

    u32 marked() {
        u32 count = 0;
        for (u32 slot = 0; slot < queue_.params().participants; ++slot)
            count += queue_.participant().marked_active(slot);
        return count;
    }

    std::vector<Found> found;
    bool closed = false;

 private:
    static constexpr u64 kFiller = 1000;

    void accept(const Delivered& each) {
        const std::string bytes(reinterpret_cast<const char*>(each.data), each.size);
        const Message message{std::stoull(bytes), each.size};
        if (message.bytes() != bytes) throw Wrong("a message is not whole: " + bytes);
        for (const Found& before : found) {
            if (before.number == message.number)
                throw Wrong("message " + std::to_string(message.number) + " was delivered twice");
            if (ordered_ && before.redelivered == 0 && each.taken.redelivered == 0 &&
                before.number > message.number)
                throw Wrong("messages changed places");
        }
        found.push_back({message.number, each.taken.redelivered});
        if (!queue_.settle(each.taken)) throw Wrong("the survivor cannot settle its own message");
    }

    QueueAttachment& queue_;
    bool ordered_;
};

inline std::string words(const std::vector<Found>& found) {
    std::string text = "[";
    for (const Found& each : found) {
        if (text.size() > 1) text += ' ';
        text += std::to_string(each.number);
        text += " redelivered ";
        text += std::to_string(each.redelivered);
    }
    return text + "]";
}

// One kind of operation of a queue, as a table of functions. An empty function does nothing.
struct QueueKind {
    std::string name;
    QueueParams params = QueueWorld::params();
    std::function<void(QueueAttachment&)> before =
        {};  // what the queue holds, by a process that then leaves
    std::function<void(QueueAttachment&)> third = {};
    Third third_dies = Third::none;
    std::function<void(QueueAttachment&)> ready = {};    // by the traced process, before the mark
    std::function<bool(QueueAttachment&)> operate = {};  // empty: the operation is to attach
    std::vector<Allowed> allowed = {};
    Outcome returned = Outcome::done;  // after the operation has returned
    bool ordered = true;               // see Audit
};

class QueueSituation : public Situation {
 public:
    QueueSituation(const QueueWorld& world, const std::string& queue, QueueKind kind)
        : world_(world), queue_(queue), kind_(std::move(kind)) {}

    std::string name() const override { return kind_.name; }
    Third third() const override { return kind_.third_dies; }
    std::vector<std::string> files() const override { return {world_.path(queue_)}; }

    void prepare() override {
        ::unlink(world_.path(queue_).c_str());
        world_.create(queue_, kind_.params);
        const auto queue = world_.open(queue_);
        if (kind_.before) kind_.before(*queue);
        queue->detach();
    }

    void clean() override { ::unlink(world_.path(queue_).c_str()); }

    void be_third() override {
        attach();
        kind_.third(*attached_);
    }

    void ready() override {
        if (!kind_.operate) return;
        attach();
        if (kind_.ready) kind_.ready(*attached_);
    }
    bool operate() override {
        if (kind_.operate) return kind_.operate(*attached_);
        attach();
        return attached_->usable();
    }

    void attach() override { attached_ = world_.open(queue_); }

    Outcome account(bool returned) override {
        const u32 marked = inspect();
        if (!attached_) attach();
        const auto queue = std::move(attached_);
        Audit audit(*queue, kind_.ordered);
        audit.check("after the attachment", false);
        audit.drain();
        std::vector<Found> found = audit.found;
        std::sort(found.begin(), found.end());
        audit.fill_and_drain();
        queue->recover_all();
        audit.check("at the end", true);
        if (audit.marked() != 1) throw Wrong("the slot of a dead participant is not free");
        const Recovered repaired = queue->queue().recovered;
        queue->detach();
        if (audit.marked() != 0) throw Wrong("the survivor's slot is not free");
        const Outcome outcome = compare(found, audit.closed, repaired, marked);
        if (returned && outcome != kind_.returned)
            throw Wrong(std::string("the operation had returned, but it is ") +
                        kOutcomeNames[static_cast<std::size_t>(outcome)]);
        return outcome;
    }

 private:
    // Checks the queue as the killed process left it. Returns how many slots are marked as in use without being so.
    u32 inspect() const {
        const Inspection found = Segment::inspect(world_.directory, kQueueKind, queue_);
        const u32 slots = kind_.params.participants;
        NativeMemory memory;
        QueueState<NativeMemory> queue(memory, Geometry(kRing, slots), found.segment->base(), 0,
                                       kind_.params.delivery, kind_.params.stall_limit_ms);
        Audit::check(queue, "after the kill", false);
        ParticipantEntry* entries =
            participant_table(*found.segment, Geometry::participants_offset(), slots);
        u32 count = 0;
        for (u32 slot = 0; slot < slots; ++slot) {
            const ParticipantInfo info = describe_slot(*found.segment, entries[slot], slot);
            count += info.active && !info.locked;
        }
        return count;
    }

    Outcome compare(const std::vector<Found>& found, bool closed, const Recovered& repaired,
                    u32 marked) const {
        for (const Allowed& each : kind_.allowed)
            if (each.found == found && each.closed == closed && each.skipped == repaired.skipped &&
                each.handed_on == repaired.handed_on && each.released == repaired.released &&
                each.marked.value_or(marked) == marked)
                return each.outcome;
        throw Wrong("the survivor found " + words(found) + (closed ? ", closed" : "") +
                    ", skipped " + std::to_string(repaired.skipped) + ", handed on " +
                    std::to_string(repaired.handed_on) + ", released " +
                    std::to_string(repaired.released) + ", slots marked " + std::to_string(marked));
    }

 protected:
    const QueueWorld& world_;
    std::string queue_;
    QueueKind kind_;
    std::unique_ptr<QueueAttachment> attached_;
};

}  // namespace holdfast::stepping
