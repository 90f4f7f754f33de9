// One process's hold on a queue: the mapping, the slot, the operations, and what a user of them needs besides.
//
// Threads: everything here but `looks_*` and `listen_*` is called by one thread at a time (in Python, under the GIL).
// Only the copying of a large payload and waiting let another thread in between; both touch nothing but the block that
// the descriptor says is ours.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/queue/check.hpp"
#include "holdfast/queue/queue.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

// Per-slot counters; sums over all slots are the queue's.
enum class Count : std::size_t {
    put,
    put_bytes,
    delivered,
    redelivered,
    settled,
    given_back,
    skipped,
    handed_on,
    released,
    fenced,
    dead_lettered,
    corrupt,
};
inline constexpr const char* kCountNames[] = {
    "put",     "put_bytes", "delivered", "redelivered", "settled",       "given_back",
    "skipped", "handed_on", "released",  "fenced",      "dead_lettered", "corrupt"};

// How long ago the block at `position` was claimed, if that is written down.
inline std::optional<u64> age_of(QueueState<NativeMemory>& q, u64 position) {
    if (!q.load_mark(position).current) return std::nullopt;
    const u64 claimed_ms = q.memory.load(&q.side(position)->claimed_ms, std::memory_order_relaxed);
    const u64 now_ms = q.memory.now_ms();
    return now_ms >= claimed_ms ? now_ms - claimed_ms : 0;
}

// A message in our hands, its header verified.
struct Delivered {
    Taken taken;
    const std::byte* data;
    u64 time;
    u32 size;
};

class QueueAttachment {
 public:
    // `first`: where its positions begin, for tests of a queue's old age.
    static void create(const SegmentSpec& wanted, const QueueParams& params, u64 first = 0) {
        Geometry geometry(params.granules, params.participants);
        SegmentSpec spec = wanted;
        spec.kind = kQueueKind;
        spec.version = kQueueVersion;
        spec.fingerprint = queue_fingerprint();
        spec.size = geometry.size();
        std::memcpy(spec.params.data(), &params, sizeof params);
        Segment::create(spec, [&](std::byte* base) { initialise_queue(base, geometry, first); });
    }

    QueueAttachment(const std::string& directory, const std::string& name, bool adopt)
        : name_(name),
          segment_(Segment::open(directory, kQueueKind, name, kQueueVersion, queue_fingerprint(),
                                 adopt)),
          params_(checked_params(*segment_)),
          participant_(segment_, Geometry::participants_offset(), params_.participants),
          memory_(&participant_),
          queue_(memory_, Geometry(params_.granules, params_.participants), segment_->base(), 0,
                 params_.delivery, params_.stall_limit_ms),
          directory_(directory) {
        join();
        queue_.me = participant_.slot();
        // What the last holder of our slot left, if it died.
        queue_.recovered += recover_holding(queue_, queue_.me, 0, 0);
        at(Point::attach_recovered);
        participant_.activate();
        count_recovery();
    }

    static QueueParams checked_params(const Segment& segment) {
        QueueParams params;
        std::memcpy(&params, segment.header().params.data(), sizeof params);
        bool sane = Geometry::valid(params.granules, params.participants) &&
                    Geometry(params.granules, params.participants).size() <= segment.size() &&
                    params.delivery <= Delivery::at_most_once && params.full_checksum <= 1 &&
                    params.dead_letter[sizeof params.dead_letter - 1] == '\0' &&
                    (params.dead_letter[0] == '\0' || valid_name(params.dead_letter));
        if (!sane)
            throw Error(Code::corrupt, segment.path() +
                                           ": its parameters make no sense; remove it with "
                                           "`holdfast queue rm` and create it anew");
        return params;
    }

    // False after detach(), in a forked child, and when the lock's descriptor was closed by others.
    bool usable() const { return participant_.joined(); }
    bool lost() const { return participant_.lost(); }
    // Asks the kernel whether we are still what we believe. For the slow paths.
    bool still_usable() {
        if (usable()) participant_.proven();
        return usable();
    }
    bool forked() const { return participant_.forked(); }
    // What is put here can be got by consumers that open the queue by its name.
    bool reachable() { return still_usable() && segment_->has_name(); }

    Verdict put(std::span<const Payload> payloads, bool probe) {
        Verdict verdict = queue_.put(payloads, realtime_ns(), params_.full_checksum != 0, probe);
        if (verdict == Verdict::ok) {
            u64 bytes = 0;
            for (const Payload& payload : payloads) bytes += payload.size;
            participant_.count(index(Count::put), payloads.size());
            participant_.count(index(Count::put_bytes), bytes);
            tick();
        } else if (verdict == Verdict::fenced) {
            participant_.count(index(Count::fenced));
        }
        if (probe) count_recovery();
        return verdict;
    }

    u64 put_end() const { return queue_.put_end; }

    // Up to `wanted` messages, appended to `out`. corrupt: see `fault()`; a damaged message is set aside, once, and the
    // next call goes on behind it.
    Verdict get(std::vector<Delivered>& out, u32 wanted, bool probe) {
        message_damaged_ = false;
        if (pending_damage_.what != nullptr) [[unlikely]]
            return report_damage();
        // A burial lets other threads in, which get as well: what this call has taken is its own.
        std::vector<Taken> taken;
        taken.swap(scratch_);
        if (taken.size() < wanted) taken.resize(wanted);
        Verdict verdict;
        for (;;) {
            u32 count = 0;
            u32 leave = burials_pause() ? params_.max_deliveries : 0;
            verdict = queue_.take(taken.data(), wanted, count, probe, leave);
            if (probe) count_recovery();
            if (verdict != Verdict::ok) break;
            tick();
            if (params_.max_deliveries != 0) count = bury_some(taken, count);
            if (count == 0) continue;
            verdict = accept(out, {taken.data(), count});
            break;
        }
        if (taken.size() > scratch_.size()) taken.swap(scratch_);
        return verdict;
    }

    bool settle(const Taken& taken) {
        participant_.count(index(Count::settled));
        return queue_.settle(taken);
    }
    void announce_space() { queue_.announce_space(); }

    bool give_back(const Taken& taken) {
        participant_.count(index(Count::given_back));
        return queue_.give_back(taken);
    }

    // As if it had never been got.
    bool put_aside(const Taken& taken) {
        participant_.count(index(Count::delivered), ~u64{0});
        if (taken.redelivered != 0) participant_.count(index(Count::redelivered), ~u64{0});
        return queue_.give_back(taken, false);
    }

    Verdict close() { return queue_.close(); }

    // Everything that dead participants left, now. Returns the sum.
    Recovered recover_all() {
        Recovered before = queue_.recovered;
        for (u32 slot = 0; slot < params_.participants; ++slot) queue_.recover_if_dead(slot);
        Recovered sum = queue_.recovered;
        count_recovery();
        return {sum.skipped - before.skipped, sum.handed_on - before.handed_on,
                sum.released - before.released, true};
    }

    // Gives back what is still in our hands and leaves. The caller has made sure that no view of it lives.
    void detach() {
        if (!usable()) return;
        std::vector<Taken> held;
        survey(
            queue_, [&] { held.clear(); },
            [&](u64 position, u64 word) {
                if (Geometry::state(word) == State::taken && Geometry::owner(word) == queue_.me)
                    held.push_back({position, word, queue_.deliveries_with_this(position) - 1});
            });
        for (const Taken& taken : held) give_back(taken);
        queue_.ring(queue_.words.data_bell);  // threads of ours that wait shall notice
        queue_.ring(queue_.words.space_bell);
        participant_.leave();
        if (dead_letter_) dead_letter_->detach();
    }

    // Cheap, for spinning without the lock that guards the rest: they read shared words and change nothing, and what
    // they say is only a reason to look properly.
    bool looks_gettable() const {
        u64 read = unsealed(memory_.load(queue_.words.read, std::memory_order_relaxed));
        u64 word = memory_.load(queue_.descriptor(read), std::memory_order_relaxed);
        return (queue_.geometry.tag(word, read) == Tag::current &&
                Geometry::state(word) != State::reserved) ||
               memory_.load(queue_.words.made, std::memory_order_relaxed) !=
                   memory_.load(queue_.words.scanned, std::memory_order_relaxed);
    }
    u64 tail_word() const { return memory_.load(queue_.words.tail, std::memory_order_relaxed); }
    bool looks_puttable(u64 tail_before) const {
        u64 tail = tail_word();
        State state = Geometry::state(
            memory_.load(queue_.descriptor(unsealed(tail)), std::memory_order_relaxed));
        return state == State::done || state == State::skip || tail != tail_before;
    }
    u32 listen_data() { return queue_.listen(queue_.words.data_bell); }
    u32 listen_space() { return queue_.listen(queue_.words.space_bell); }
    const u32* data_bell() const { return queue_.words.data_bell; }
    const u32* space_bell() const { return queue_.words.space_bell; }

    const Blocker& blocker() const { return queue_.blocker; }
    bool blocked_by_somebody() const { return queue_.blocker.owner != Blocker::nobody; }

    // "pid 12 (READY …" in words, for Full, Empty and Timeout.
    std::string blocker_words() {
        const Blocker& at = queue_.blocker;
        if (!blocked_by_somebody()) return "";
        ParticipantInfo who = participant_.describe(at.owner);
        char text[200];
        char age[40] = "";
        if (std::optional<u64> age_ms = age_of(queue_, at.position))
            std::snprintf(age, sizeof age, " for %.3f s", static_cast<double>(*age_ms) / 1000.0);
        const char* does = Geometry::state(at.word) == State::taken ? "has not settled"
                                                                    : "has not finished writing";
        std::snprintf(text, sizeof text, "pid %u%s %s the block at position %llu%s", who.pid,
                      at.owner == queue_.me ? " (this process)" : "", does,
                      static_cast<unsigned long long>(at.position), age);
        return text;
    }
    u32 blocker_pid() {
        return blocked_by_somebody() ? participant_.describe(queue_.blocker.owner).pid : 0;
    }

    // Of the last corrupt verdict.
    std::string fault_words() {
        const Fault& fault = queue_.fault;
        char text[400];
        if (std::exchange(message_damaged_, false))
            std::snprintf(text, sizeof text,
                          "queue %s: the message at position %llu is damaged (%s of its header "
                          "does not fit); it was set "
                          "aside, the next get goes on behind it",
                          name_.c_str(), static_cast<unsigned long long>(fault.position),
                          fault.what);
        else
            std::snprintf(
                text, sizeof text,
                "queue %s is damaged: %s at position %llu holds 0x%016llx, which no participant "
                "can have "
                "written; run `holdfast doctor %s`, then remove the queue and create it anew",
                name_.c_str(), fault.what ? fault.what : "a word",
                static_cast<unsigned long long>(fault.position),
                static_cast<unsigned long long>(fault.value), name_.c_str());
        return text;
    }
    const Fault& fault() const { return queue_.fault; }
    bool message_damaged() const { return message_damaged_; }

    const std::string& name() const { return name_; }
    const std::string& directory() const { return directory_; }
    const QueueParams& params() const { return params_; }
    const Geometry& geometry() const { return queue_.geometry; }
    const std::shared_ptr<Segment>& segment() const { return segment_; }
    Participant& participant() { return participant_; }
    Queue<NativeMemory>& queue() { return queue_; }
    // Messages wait for room in the dead-letter queue, as far as this attachment has seen.
    bool dead_letter_blocked() const { return dead_letter_blocked_; }

 private:
    static constexpr std::size_t index(Count count) { return static_cast<std::size_t>(count); }
    static constexpr int kJoinTries = 20;
    static constexpr u32 kTickEvery = 1024;
    static constexpr u32 kDeadLetterPauseMs = 20;

    // A slot that looks taken may be in the hands of a recoverer for a moment: a dead one's is soon free.
    void join() {
        for (int tries = 0;; ++tries) {
            try {
                return participant_.join([this](unsigned slot) {
                    Recovered sum = recover_holding(queue_, slot, 0, 0);
                    queue_.recovered += sum;
                    return sum.complete;
                });
            } catch (const Error& error) {
                if (error.code != Code::too_many_participants || tries == kJoinTries) throw;
                ::usleep(1000);
            }
        }
    }

    // Nothing in the ring is believed before it is checked; what fails is set aside, so that it costs one message.
    Verdict accept(std::vector<Delivered>& out, std::span<const Taken> batch) {
        Fault damage{};
        u64 redelivered = 0;
        for (const Taken& taken : batch) {
            Delivered message;
            BlockFault fault = examine(taken, message);
            if (fault != BlockFault::none) [[unlikely]] {
                damage = {fault_name(fault).data(), taken.position, taken.word};
                participant_.count(index(Count::corrupt));
                queue_.settle(taken);
                continue;
            }
            redelivered += taken.redelivered != 0;
            out.push_back(message);
        }
        participant_.count(index(Count::delivered), batch.size());
        if (redelivered != 0) participant_.count(index(Count::redelivered), redelivered);
        if (damage.what == nullptr) [[likely]]
            return Verdict::ok;
        announce_space();
        pending_damage_ = damage;
        return out.empty() ? report_damage()
                           : Verdict::ok;  // the good ones first, the bad news with the next call
    }

    Verdict report_damage() {
        queue_.fault = pending_damage_;
        pending_damage_ = {};
        message_damaged_ = true;
        return Verdict::corrupt;
    }

    BlockFault examine(const Taken& taken, Delivered& message) const {
        const std::byte* block = queue_.block(taken.position);
        BlockHeader header = memory_.read_header(block);
        u64 length = queue_.geometry.length(taken.word);
        BlockFault fault =
            verify(header, taken.position, static_cast<u32>(length * kGranule - sizeof header));
        if (fault != BlockFault::none) return fault;
        if (Geometry::blocks_granules(header.size) != length) return BlockFault::size;
        // The queue's parameter decides whether there is a sum: the flag in the ring could have been cleared.
        bool full = (header.flags & kFullChecksum) != 0;
        if (full != (params_.full_checksum != 0)) return BlockFault::crc;
        message = {taken, block + sizeof header, header.time, header.size};
        return verify_payload(header, message.data);
    }

    // Of the first `count`, those that came back too often go to the dead-letter queue. Returns how many are left.
    u32 bury_some(std::vector<Taken>& batch, u32 count) {
        u32 left = 0;
        for (u32 i = 0; i < count; ++i) {
            if (batch[i].redelivered >= params_.max_deliveries)
                bury(batch[i]);
            else
                batch[left++] = batch[i];
        }
        return left;
    }

    // After a burial that found no room, the others get their messages first for a while.
    bool burials_pause() const {
        return dead_letter_blocked_ &&
               memory_.now_ms() - dead_letter_tried_ms_ < kDeadLetterPauseMs;
    }

    // The dead-letter queue that stands under its name now. One that was removed is left without detaching, because
    // another thread may be putting into it.
    std::shared_ptr<QueueAttachment> present_dead_letter() {
        if (dead_letter_ && !dead_letter_->reachable()) dead_letter_.reset();
        if (!dead_letter_)
            dead_letter_ =
                std::make_shared<QueueAttachment>(directory_, params_.dead_letter, false);
        return dead_letter_;
    }

    // At least once: we may die between the put there and the settlement here. If there is no room, the message stays.
    void bury(const Taken& taken) {
        Delivered message;
        Verdict verdict = Verdict::full;
        if (examine(taken, message) != BlockFault::none) {
            participant_.count(index(Count::corrupt));
            settle(taken);
            announce_space();
            return;
        }
        try {
            // Another thread may replace it while a large payload is copied.
            const std::shared_ptr<QueueAttachment> dead_letter = present_dead_letter();
            Payload payload{message.data, message.size};
            if (payload.size <= dead_letter->geometry().size_max())
                verdict = dead_letter->put({&payload, 1}, true);
            if (!dead_letter->reachable()) verdict = Verdict::full;  // removed meanwhile
        } catch (const Error&) {  // gone, or no slot free: as if it were full
        }
        if (verdict == Verdict::ok) {
            settle(taken);
            announce_space();
            participant_.count(index(Count::dead_lettered));
            dead_letter_blocked_ = false;
        } else {
            dead_letter_blocked_ = true;
            dead_letter_tried_ms_ = memory_.now_ms();
            queue_.give_back(taken, false);
        }
    }

    // Now and then we look whether one of the others died, so that a dead reader's message does not wait for a lap.
    void tick() {
        if (++operations_ % kTickEvery != 0) [[likely]]
            return;
        if (!still_usable()) return;
        for (u32 tries = 0; tries < params_.participants; ++tries) {
            next_probe_ = (next_probe_ + 1) % params_.participants;
            if (next_probe_ == queue_.me || !participant_.marked_active(next_probe_)) continue;
            queue_.recover_if_dead(next_probe_);
            count_recovery();
            return;
        }
    }

    void count_recovery() {
        Recovered& sum = queue_.recovered;
        if (sum.skipped == counted_.skipped && sum.handed_on == counted_.handed_on &&
            sum.released == counted_.released)
            return;
        participant_.count(index(Count::skipped), sum.skipped - counted_.skipped);
        participant_.count(index(Count::handed_on), sum.handed_on - counted_.handed_on);
        participant_.count(index(Count::released), sum.released - counted_.released);
        counted_ = sum;
    }

    std::string name_;
    std::shared_ptr<Segment> segment_;
    QueueParams params_;
    Participant participant_;
    NativeMemory memory_;
    Queue<NativeMemory> queue_;
    std::string directory_;
    std::vector<Taken> scratch_;  // memory that a get borrows
    std::shared_ptr<QueueAttachment> dead_letter_;
    bool dead_letter_blocked_ = false;
    u64 dead_letter_tried_ms_ = 0;
    u32 operations_ = 0;
    u32 next_probe_ = 0;
    bool message_damaged_ = false;  // the fault is one message's, not the queue's
    Fault pending_damage_{};
    Recovered counted_{};
};

}  // namespace holdfast
