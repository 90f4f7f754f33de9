// One process's hold on a role of a channel: the attachment, the operations, counters and error texts.
//
// Each role has a mapping and a slot of its own, also where one process has both. The consumer's mapping of the data is
// read-only. A program may close a role while it still looks at buffers. The role then keeps its slot, which owns these
// buffers until the last view is gone (C1).
//
// Threads: one thread at a time calls anything here but `looks_*` and `listen` (in Python, the one with the GIL).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/channel/params.hpp"
#include "holdfast/channel/ring.hpp"
#include "holdfast/channel/roles.hpp"
#include "holdfast/channel/shelf.hpp"
#include "holdfast/shm/attachment.hpp"
#include "holdfast/shm/memory.hpp"

namespace holdfast {

// Per-slot counters; sums over all slots are the channel's.
enum class ChannelCount : std::size_t {
    pushed,
    pushed_bytes,
    displaced,
    cancelled,
    popped,
    lost,
    released,
    starved,
    recovered,
    corrupt,
};
inline constexpr const char* kChannelCountNames[] = {
    "pushed", "pushed_bytes", "displaced", "cancelled", "popped",
    "lost",   "released",     "starved",   "recovered", "corrupt"};

inline const char* role_name(Role role) {
    return role == Role::producer ? "producer" : "consumer";
}

// Buffers are numbered through the lanes of a hold: those of the first lane, of the second, and so on.
class ChannelHold {
 public:
    using Lanes = ChannelLanes<NativeMemory>;
    using Ring = Lanes::Ring;
    static constexpr u32 kAnyProducer = ~0u;

    // See Attachment.
    bool usable() const { return attachment_.usable() && !resigned_; }
    bool attached() const { return attachment_.usable(); }
    bool still_usable() { return attachment_.still_usable() && !resigned_; }
    bool lost() const { return attachment_.lost(); }
    bool forked() const { return attachment_.forked(); }
    bool resigned() const { return resigned_; }

    const std::string& name() const { return name_; }
    const ChannelParams& params() const { return params_; }
    const ChannelPlan& plan() const { return lanes_.plan(); }
    Role role() const { return role_; }
    u32 producer() const { return producer_; }  // the number of a producer
    u32 slot() { return me_; }
    const std::shared_ptr<Segment>& segment() const { return attachment_.segment(); }
    // Tells one channel from another, and from a later one of the same name.
    u64 identity() const {
        const Segment& segment = *attachment_.segment();
        return segment.header().created_ns * 0x9E3779B97F4A7C15u ^ segment.inode();
    }
    std::byte* room(u32 buffer) const { return ring_of(buffer).words().buffer(index_of(buffer)); }
    // How many buffers this hold can meet.
    u32 buffers() const { return held_lanes() * plan().lane.pool(); }
    std::string fault_words() const {
        std::string channel = "channel";
        if (plan().lanes() > 1) channel = plan().words_of(fault_lane_) + " of channel";
        return holdfast::fault_words(channel.c_str(), name_, fault_);
    }

    // The pid of a process that has the other role; 0: no living one.
    u32 peer_pid() {
        if (role_ == Role::producer) return pid_of(lanes_.consumer_word());
        u32 pid = 0;
        for (u32 producer = 0; producer < plan().producers && pid == 0; ++producer)
            pid = pid_of(lanes_.producer_word(producer));
        return pid;
    }

    u32 listen() { return listen_to(memory_, bell()); }
    u32* bell() const {
        return role_ == Role::producer ? lanes_.space_bell(producer_) : lanes_.data_bell();
    }

    // Gives the role up. The slot stays until leave(), for buffers that the program still looks at.
    void resign() {
        if (!still_usable()) return;  // role and slot may be another's by now
        resigned_ = true;
        resign_role(memory_, word(), me_);
        memory_.wake(bell());  // threads of this process that wait notice
    }
    void leave() {
        if (attachment_.still_usable()) attachment_.leave();
    }

 protected:
    // `producer`: its number, or the first that no living process has.
    ChannelHold(const Segment& channel, Role role, u32 producer)
        : name_(channel.header().name.data()),
          params_(channel_params(channel)),
          role_(role),
          attachment_(channel.map_again(), ChannelGeometry::participants_offset(),
                      kChannelParticipants),
          memory_(&attachment_.participant()),
          lanes_(memory_, plan_of(params_), attachment_.segment()->base()) {
        if (producer != kAnyProducer && producer >= plan().producers)
            throw Error(Code::misuse, "channel " + name_ + " has no producer " +
                                          std::to_string(producer) + ": it has " +
                                          std::to_string(plan().producers) + ", counted from 0");
        if (role == Role::consumer) protect_data();
        u32 recovered = 0;
        attachment_.attach([&](unsigned slot) {
            recovered += clear_participant(memory_, lanes_, slot);
            return true;
        });
        me_ = attachment_.participant().slot();
        count(ChannelCount::recovered, recovered);
        std::string pids;
        const bool any = role == Role::producer && producer == kAnyProducer;
        producer_ = any || role == Role::consumer ? 0 : producer;
        const u32 end = any ? plan().producers : producer_ + 1;
        for (; producer_ < end; ++producer_) {
            u32 holder = 0;
            if (claim_role(memory_, lanes_, word(), me_, holder) == Claim::taken) return;
            if (holder >= kChannelParticipants) {
                damaged(plan().lane_of(producer_, 0),
                        {"word of a role", producer_, u64{holder} + 1});
                attachment_.leave();
                throw Error(Code::corrupt, fault_words());
            }
            const u32 pid = attachment_.participant().describe(holder).pid;
            pids += (pids.empty() ? "pid " : ", pid ") + std::to_string(pid) +
                    (pid == static_cast<u32>(::getpid()) ? " (this process)" : "");
        }
        attachment_.leave();
        throw Error(Code::misuse, taken_words(any, producer, pids));
    }

    u32* word() const {
        return role_ == Role::producer ? lanes_.producer_word(producer_) : lanes_.consumer_word();
    }
    u32 held_lanes() const { return role_ == Role::producer ? plan().priorities : plan().lanes(); }
    u32 lane_of(u32 buffer) const {
        return (role_ == Role::producer ? plan().lane_of(producer_, 0) : 0) +
               buffer / plan().lane.pool();
    }
    u32 index_of(u32 buffer) const { return buffer % plan().lane.pool(); }
    Ring& ring_of(u32 buffer) { return lanes_.lane(lane_of(buffer)); }
    const Ring& ring_of(u32 buffer) const { return lanes_.lane(lane_of(buffer)); }

    void count(ChannelCount which, u64 by = 1) {
        if (by != 0) attachment_.participant().count(static_cast<std::size_t>(which), by);
    }

    Handover damaged(u32 lane, const Fault& fault) {
        fault_lane_ = lane;
        fault_ = fault;
        count(ChannelCount::corrupt);
        return Handover::corrupt;
    }

    // Asks now and then whether another participant died, so that its buffers come back although nothing waits for them.
    void tick() {
        attachment_.tick([this](u32 slot) {
            u32 cleared = 0;
            recover_if_dead(memory_, me_, slot, [&] {
                cleared = clear_participant(memory_, lanes_, slot);
                return true;
            });
            count(ChannelCount::recovered, cleared);
        });
    }

    std::string name_;
    ChannelParams params_;
    Role role_;
    Attachment attachment_;
    NativeMemory memory_;
    Lanes lanes_;
    u32 producer_ = 0;
    u32 me_ = 0;
    bool resigned_ = false;

 private:
    u32 pid_of(u32* word) {
        const u32 holder = memory_.load(word, std::memory_order_relaxed);
        if (holder == 0) return 0;
        const ParticipantInfo info = attachment_.participant().describe(holder - 1);
        return info.locked ? info.pid : 0;
    }

    // The consumer only reads entries, lengths and buffers. The ring on the way back is its own to write.
    void protect_data() {
        for (u32 lane = 0; lane < plan().lanes(); ++lane) {
            const u64 begin = plan().offset(lane, kStateStride);
            attachment_.segment()->protect(begin + plan().lane.entries_offset(kStateStride),
                                           begin + plan().lane.size(kStateStride));
        }
    }

    std::string taken_words(bool any, u32 producer, const std::string& pids) const {
        if (role_ == Role::consumer || plan().producers == 1)
            return "channel " + name_ + " has a " + role_name(role_) + " already: " + pids +
                   ". There is one at a time; close it, or end that process";
        if (any)
            return "channel " + name_ + " has its " + std::to_string(plan().producers) +
                   " producers already: " + pids +
                   ". Close one, or create the channel with more `producers`";
        return "channel " + name_ + " has producer " + std::to_string(producer) +
               " already: " + pids + ". Close it, or end that process; or take another number";
    }

    Fault fault_{};
    u32 fault_lane_ = 0;
};

// A datum that a push displaced. Its buffer is the program's until it is given back.
struct DisplacedDatum {
    u32 buffer;  // Shelf::kNone: nothing was displaced
    u64 position;
};

enum class Lending {
    ok,
    limit,    // the program has as many as `loans` allows
    none,     // other participants have all buffers
    corrupt,  // what came back in a loop cannot be
};

class ProducerHold final : public ChannelHold {
 public:
    explicit ProducerHold(const Segment& channel, u32 producer = kAnyProducer)
        : ChannelHold(channel, Role::producer, producer), lanes_held_(plan().priorities) {
        for (u32 priority = 0; priority < plan().priorities; ++priority) {
            HeldLane& each = lanes_held_[priority];
            Ring& ring = lanes_.lane(producer_, priority);
            each.shelf = Shelf(plan().lane);
            each.back.ring = lanes_.back();
            if (ring.recover_producer(each.tail) == Handover::ok &&
                each.shelf.start(ring, each.back))
                continue;
            if (ring.fault.what == nullptr) ring.fault = stray_fault(each);
            damaged(plan().lane_of(producer_, priority), ring.fault);
            resign();
            leave();
            throw Error(Code::corrupt, fault_words());
        }
    }

    Lending lend(u32 priority, u32& buffer) {
        HeldLane& held = lanes_held_[priority];
        Ring& ring = lanes_.lane(producer_, priority);
        if (held.loans >= params_.loans) return Lending::limit;
        u32 index = held.shelf.lend(ring, held.back);
        if (index == Shelf::kNone && !held.shelf.damaged()) {
            count(ChannelCount::recovered, clear_dead_owners(memory_, lanes_, me_));
            index = held.shelf.lend(ring, held.back);
        }
        if (held.shelf.damaged()) {
            damaged(plan().lane_of(producer_, priority), stray_fault(held));
            if (held.back) held.back.ring->fault = {};  // the next one is told anew
            return Lending::corrupt;
        }
        if (index == Shelf::kNone) return Lending::none;
        ++held.loans;
        buffer = priority * plan().lane.pool() + index;
        return Lending::ok;
    }

    // Before its push: the length of the datum in a buffer.
    void set_length(u32 buffer, u32 bytes) {
        u32* word = ring_of(buffer).words().length(index_of(buffer));
        // Data often have one size. A store of the same would take the cache line from the consumer.
        if (memory_.load(word, std::memory_order_relaxed) != bytes)
            memory_.store(word, bytes, std::memory_order_relaxed);
    }
    u32 length(u32 buffer) const {
        const u32 found = memory_.load(ring_of(buffer).words().length(index_of(buffer)),
                                       std::memory_order_relaxed);
        return std::min<u64>(found, params_.slot_size);
    }
    u32 priority_of(u32 buffer) const { return buffer / plan().lane.pool(); }

    // Pushes loans of one priority, all at once. `displaced` gets, for each of them, what it displaced. Nothing has
    // happened, and the loans stay loans, if the result is full, exhausted, or damage before the first step.
    Handover push(u32 priority, std::span<const u32> buffers,
                  std::vector<DisplacedDatum>& displaced) {
        HeldLane& held = lanes_held_[priority];
        Ring& ring = lanes_.lane(producer_, priority);
        const u32 first = priority * plan().lane.pool();
        displaced.clear();
        displaced.reserve(buffers.size());
        indices_.clear();
        for (u32 buffer : buffers) indices_.push_back(index_of(buffer));
        const u64 began = held.tail;
        u32 taken = 0;
        bool unknown = false;
        Handover result =
            ring.push(held.tail, indices_, params_.overflow != 0, [&](u32 slot, bool had_data) {
                const u64 position = began + displaced.size() + 1 - plan().lane.positions();
                const u32 index = held.shelf.frozen(slot, had_data);
                unknown |= had_data && index == Shelf::kNone;
                taken += index != Shelf::kNone;
                displaced.push_back({index == Shelf::kNone ? index : first + index, position});
            });
        held.loans += taken;
        const u32 lane = plan().lane_of(producer_, priority);
        if (held.tail == began) {
            return result == Handover::corrupt ? damaged(lane, ring.fault) : result;
        }
        held.loans -= static_cast<u32>(buffers.size());
        u64 bytes = 0;
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            held.shelf.pushed(ring.slot(began + i), indices_[i]);
            bytes += length(buffers[i]);
        }
        lanes_.announce_datum();
        count(ChannelCount::pushed, buffers.size());
        count(ChannelCount::pushed_bytes, bytes);
        count(ChannelCount::displaced, taken);
        if (result == Handover::corrupt)
            damaged(lane, ring.fault);
        else if (unknown)
            result = damaged(lane, {"a datum that no push has written,", began, 0});
        tick();
        return result;
    }
    u64 tail(u32 priority) const { return lanes_held_[priority].tail; }

    // True: the datum at `position` was withdrawn before the consumer took it.
    bool cancel(u32 priority, u64 position) {
        HeldLane& held = lanes_held_[priority];
        Ring& ring = lanes_.lane(producer_, priority);
        const u32 slot = ring.slot(position);
        // The producer's own account says whether the slot still has this datum.
        if (position >= held.tail || held.tail - position >= plan().lane.positions() ||
            held.shelf.in_slot(slot) == Shelf::kNone || !ring.cancel(position))
            return false;
        held.shelf.give_back(held.shelf.withdrawn(slot));
        count(ChannelCount::cancelled);
        return true;
    }

    // Ends a loan, or the look at a displaced datum.
    void give_back(u32 buffer) {
        if (!attached()) return;
        if (resigned()) return ring_of(buffer).release(index_of(buffer));
        HeldLane& held = lanes_held_[priority_of(buffer)];
        held.shelf.give_back(index_of(buffer));
        --held.loans;
    }
    // Before resign(): the program still looks at this buffer.
    void keep(u32 buffer) { ring_of(buffer).keep(index_of(buffer), static_cast<u8>(me_ + 1)); }

    // The next push would wait, or displace a datum.
    bool full(u32 priority) {
        Ring& ring = lanes_.lane(producer_, priority);
        return ring.has_data(ring.slot(lanes_held_[priority].tail + 1));
    }
    // For spinning without the GIL.
    bool looks_pushable(u32 priority, u64 tail) const {
        const Ring& ring = lanes_.lane(plan().lane_of(producer_, priority));
        u8* state = ring.words().state(ring.slot(tail + 1));
        return (memory_.load(state, std::memory_order_relaxed) & kData) == 0;
    }
    u32 loans(u32 priority) const { return lanes_held_[priority].loans; }
    u32 loans() const {
        u32 sum = 0;
        for (const HeldLane& each : lanes_held_) sum += each.loans;
        return sum;
    }

 private:
    struct HeldLane {
        Shelf shelf{};
        WayBack<Ring> back{};
        u64 tail = 0;
        u32 loans = 0;  // buffers that the program has: loans and displaced datums
    };

    static Fault stray_fault(const HeldLane& held) {
        if (held.back && held.back.ring->fault.what != nullptr) return held.back.ring->fault;
        return {held.back ? "a buffer that came back, and that the consumer did not have,"
                          : "a buffer that is twice in the ring",
                held.tail, 0};
    }

    std::vector<HeldLane> lanes_held_;  // by priority
    std::vector<u32> indices_;          // of the push under way
};

// A datum that the program has.
struct PoppedDatum {
    u64 position = 0;
    u64 lost = 0;
    u32 buffer = 0;
    u32 size = 0;
    u32 lane = 0;
};

class ConsumerHold final : public ChannelHold {
 public:
    explicit ConsumerHold(const Segment& channel) : ChannelHold(channel, Role::consumer, 0) {
        if (lanes_.start_consumer(cursors_) == Handover::ok) return;
        damaged(0, lanes_.back()->fault);
        resign();
        leave();
        throw Error(Code::corrupt, fault_words());
    }

    bool at_limit() const { return held_ >= params_.holds; }
    u32 held() const { return held_; }

    Handover pop(PoppedDatum& out) {
        Popped popped;
        const Handover result =
            lanes_.pop(cursors_, static_cast<u8>(me_ + 1), params_.laps, popped);
        if (result == Handover::ok) return accept(popped, out);
        if (result == Handover::corrupt)
            return damaged(popped.lane, lanes_.lane(popped.lane).fault);
        if (result == Handover::starved) count(ChannelCount::starved);
        return result;
    }

    void release(u32 buffer) {
        if (!attached()) return;
        // Without the role, the way back is another consumer's.
        if (resigned() || !lanes_.send_back(cursors_, index_of(buffer)))
            ring_of(buffer).release(index_of(buffer));
        --held_;
        count(ChannelCount::released);
        announce_space(lane_of(buffer));
    }

    const std::vector<u64>& heads() const { return cursors_.heads; }
    bool looks_empty(std::span<const u64> heads) const {
        for (u32 lane = 0; lane < plan().lanes(); ++lane)
            if (!looks_empty(lanes_.lane(lane), heads[lane])) return false;
        return true;
    }
    // How far the producers are ahead, from one look that they may overtake: the weak detection of an overflow. pop() has
    // the exact one.
    u64 behind() const {
        u64 sum = 0;
        for (u32 lane = 0; lane < plan().lanes(); ++lane) {
            u64 end = 0;
            for (u32 looks = 0; looks < kLooks && end == 0; ++looks)
                end = end_of(lanes_.lane(lane));
            if (end > cursors_.heads[lane]) sum += end - cursors_.heads[lane];
        }
        return sum;
    }

 private:
    static constexpr u32 kLooks = 16;

    // 0: a push has moved it meanwhile, to a slot that was looked at before.
    u64 end_of(const Ring& ring) const {
        u64 end = 0;
        for (u32 slot = 0; slot < ring.geometry().positions(); ++slot) {
            // pairs with: push
            const u8 seen = memory_.load(ring.words().state(slot), std::memory_order_acquire);
            if ((seen & kEnd) == 0) continue;
            const u64 at = memory_.load(ring.words().position(slot), std::memory_order_relaxed);
            end = end == 0 ? at : std::min(end, at);
        }
        return end;
    }

    // A pop at `head` would find nothing. It reads shared words alone: for spinning without the GIL, too.
    bool looks_empty(const Ring& ring, u64 head) const {
        const ChannelGeometry& geometry = ring.geometry();
        for (u32 turns = 0; turns < 2 * geometry.positions(); ++turns, ++head) {
            const u32 slot = ring.slot(head);
            // pairs with: push
            const u8 seen = memory_.load(ring.words().state(slot), std::memory_order_acquire);
            if ((seen & kData) != 0) return false;
            if ((seen & kEnd) == 0) continue;
            const u64 end = memory_.load(ring.words().position(slot), std::memory_order_relaxed);
            if (end <= head) return true;
            head = end - geometry.positions();
        }
        return true;
    }

    Handover accept(const Popped& popped, PoppedDatum& out) {
        Ring& ring = lanes_.lane(popped.lane);
        const u32 size = memory_.load(ring.words().length(popped.index), std::memory_order_relaxed);
        const u32 buffer = popped.lane * plan().lane.pool() + popped.index;
        ++held_;
        if (size > params_.slot_size) {
            release(buffer);
            return damaged(popped.lane, {"length of a datum", popped.position, size});
        }
        out = {popped.position, popped.lost, buffer, size, popped.lane};
        count(ChannelCount::popped);
        count(ChannelCount::lost, out.lost);
        announce_space(popped.lane);  // the slot is free; its buffer comes later
        tick();
        return Handover::ok;
    }

    // A plain channel that overflows has no producer that waits.
    void announce_space(u32 lane) {
        if (params_.overflow == 0 || lanes_.back() != nullptr)
            lanes_.announce_space(plan().producer_of(lane));
    }

    LaneCursors cursors_;
    u32 held_ = 0;
};

}  // namespace holdfast
