// One process's hold on a queue: the attachment, the operations, counters and error texts.
//
// Threads: one thread at a time calls anything here but `looks_*` and `listen_*` (in Python, the one with the GIL).
// A call lets other threads in only in its copy step, see `Copy` below.
#pragma once

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/queue/check.hpp"
#include "holdfast/queue/dead_letters.hpp"
#include "holdfast/queue/queue.hpp"
#include "holdfast/shm/attachment.hpp"

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

// A message that we hold, its header verified.
struct Delivered {
    Taken taken;
    const std::byte* data;
    u64 time;
    u32 size;
};

// The copy step of `put` and `get`: the bindings have one that releases the GIL around a large copy. The step changes the
// blocks of its own claim; all else that it needs is in the call, because other threads use the attachment meanwhile.
template <class Copy>
concept CopyStep = requires(Copy& copy, u64 bytes, void (*step)()) { copy(bytes, step); };

struct CopyAtOnce {
    template <class Step>
    void operator()(u64, Step&& step) const {
        step();
    }
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

    using Message = Delivered;

    QueueAttachment(const std::string& directory, const std::string& name, bool adopt)
        : QueueAttachment(directory, name,
                          Segment::open(directory, kQueueKind, name, kQueueVersion,
                                        queue_fingerprint(), adopt)) {}

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
                                           ": its parameters are not possible; remove it with "
                                           "`holdfast queue rm` and create it anew");
        return params;
    }

    // See Attachment. Consumers that open a reachable queue by its name get the messages that are put here.
    bool usable() const { return attachment_.usable(); }
    bool lost() const { return attachment_.lost(); }
    bool still_usable() { return attachment_.still_usable(); }
    bool forked() const { return attachment_.forked(); }
    bool reachable() { return attachment_.reachable(); }

    // `copy(bytes, step)` runs the step that copies; `bytes` is the size of the largest payload.
    template <CopyStep Copy = CopyAtOnce>
    Verdict put(std::span<const Payload> payloads, bool probe, Copy&& copy = {}) {
        const u64 time = realtime_ns();  // first: after the claim it would wait for the exchange
        Queue<NativeMemory>::Claim claim;
        Verdict verdict = queue_.claim(payloads, probe, claim);
        if (probe) count_recovery();
        if (verdict != Verdict::ok) return verdict;
        copy(claim.largest,
             [&] { queue_.write(claim, payloads, time, params_.full_checksum != 0); });
        verdict = queue_.publish(claim, payloads);
        if (verdict == Verdict::ok) {
            count(Count::put, payloads.size());
            count(Count::put_bytes, claim.bytes);
            tick();
        } else if (verdict == Verdict::fenced) {
            count(Count::fenced);
        }
        return verdict;
    }

    u64 put_end() const { return queue_.put_end; }

    // Appends up to `wanted` messages to `out`. corrupt: see `fault()`; a damaged message is set aside, once, and the next
    // call goes on behind it. `copy(bytes, step)` runs the step that copies a dead letter.
    template <CopyStep Copy = CopyAtOnce>
    Verdict get(std::vector<Delivered>& out, u32 wanted, bool probe, Copy&& copy = {}) {
        message_damaged_ = false;
        if (pending_damage_.what != nullptr) [[unlikely]]
            return report_damage();
        // The copy of a dead letter lets other threads in, which get as well: what this call has taken is its own.
        std::vector<Taken> taken;
        taken.swap(scratch_);
        if (taken.size() < wanted) taken.resize(wanted);
        Verdict verdict;
        for (;;) {
            u32 taken_count = 0;
            verdict = queue_.take(taken.data(), wanted, taken_count, probe,
                                  dead_letters_.left_aside(*this));
            if (probe) count_recovery();
            if (verdict != Verdict::ok) break;
            tick();
            taken_count = dead_letters_.bury_some(*this, taken, taken_count, copy);
            if (taken_count == 0) continue;
            verdict = accept(out, {taken.data(), taken_count});
            break;
        }
        if (taken.size() > scratch_.size()) taken.swap(scratch_);
        return verdict;
    }

    bool settle(const Taken& taken) {
        count(Count::settled);
        return queue_.settle(taken);
    }
    void announce_space() { queue_.announce_space(); }

    bool give_back(const Taken& taken) {
        count(Count::given_back);
        return queue_.give_back(taken);
    }

    // As if it had never been got.
    bool put_aside(const Taken& taken) {
        count(Count::delivered, ~u64{0});
        if (taken.redelivered != 0) count(Count::redelivered, ~u64{0});
        return queue_.give_back(taken, false);
    }

    Verdict close() { return queue_.close(); }

    // Recovers everything that dead participants left, now. Returns the sum.
    Recovered recover_all() {
        Recovered before = queue_.recovered;
        for (u32 slot = 0; slot < params_.participants; ++slot) queue_.recover_if_dead(slot);
        Recovered sum = queue_.recovered;
        count_recovery();
        return {sum.skipped - before.skipped, sum.handed_on - before.handed_on,
                sum.released - before.released, true};
    }

    // Gives back the messages that we hold, and leaves. The caller has made sure that no view of them lives.
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
        queue_.ring(queue_.words.data_bell);  // threads of this process that wait notice
        queue_.ring(queue_.words.space_bell);
        attachment_.leave();
        dead_letters_.detach();
    }

    // For spinning without the GIL: cheap, they read shared words and change nothing. True is only a reason to try.
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
        ParticipantInfo who = participant().describe(at.owner);
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
        return blocked_by_somebody() ? participant().describe(queue_.blocker.owner).pid : 0;
    }

    // Of the last corrupt verdict.
    std::string fault_words() {
        const Fault& fault = queue_.fault;
        if (!std::exchange(message_damaged_, false))
            return holdfast::fault_words("queue", name_, fault);
        return "queue " + name_ + ": the message at position " + std::to_string(fault.position) +
               " is damaged (" + fault.what +
               " of its header does not fit). It was set aside; the next get continues behind it";
    }
    const Fault& fault() const { return queue_.fault; }
    bool message_damaged() const { return message_damaged_; }

    const std::string& name() const { return name_; }
    const std::string& directory() const { return directory_; }
    const QueueParams& params() const { return params_; }
    const Geometry& geometry() const { return queue_.geometry; }
    const std::shared_ptr<Segment>& segment() const { return attachment_.segment(); }
    Participant& participant() { return attachment_.participant(); }
    Queue<NativeMemory>& queue() { return queue_; }
    bool dead_letter_blocked() const { return dead_letters_.blocked(); }

    // For DeadLetters.
    u64 now_ms() const { return memory_.now_ms(); }
    bool sound(const Taken& taken, Delivered& message) const {
        return examine(taken, message) == BlockFault::none;
    }
    void discard(const Taken& taken) {
        count(Count::corrupt);
        settle(taken);
        announce_space();
    }
    void buried(const Taken& taken) {
        settle(taken);
        announce_space();
        count(Count::dead_lettered);
    }
    void not_buried(const Taken& taken) { queue_.give_back(taken, false); }

 private:
    QueueAttachment(const std::string& directory, const std::string& name,
                    std::shared_ptr<Segment> segment)
        : name_(name),
          params_(checked_params(*segment)),
          attachment_(std::move(segment), Geometry::participants_offset(), params_.participants),
          memory_(&attachment_.participant()),
          queue_(memory_, Geometry(params_.granules, params_.participants),
                 attachment_.segment()->base(), 0, params_.delivery, params_.stall_limit_ms),
          directory_(directory),
          dead_letters_(directory, params_.dead_letter, params_.max_deliveries) {
        attachment_.attach([this](unsigned slot) {
            const Recovered sum = recover_holding(queue_, slot, 0, 0);
            queue_.recovered += sum;
            return sum.complete;
        });
        queue_.me = participant().slot();
        count_recovery();
    }

    void count(Count which, u64 by = 1) {
        participant().count(static_cast<std::size_t>(which), by);
    }

    // Checks what was taken before it is believed. A message that fails is set aside, so that damage costs one message.
    Verdict accept(std::vector<Delivered>& out, std::span<const Taken> batch) {
        Fault damage{};
        u64 redelivered = 0;
        for (const Taken& taken : batch) {
            Delivered message;
            BlockFault fault = examine(taken, message);
            if (fault != BlockFault::none) [[unlikely]] {
                damage = {fault_name(fault).data(), taken.position, taken.word};
                count(Count::corrupt);
                queue_.settle(taken);
                continue;
            }
            redelivered += taken.redelivered != 0;
            out.push_back(message);
        }
        count(Count::delivered, batch.size());
        if (redelivered != 0) count(Count::redelivered, redelivered);
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

    // Asks now and then whether another participant died, so that a dead consumer's message does not wait for a lap.
    void tick() {
        attachment_.tick([this](u32 slot) {
            queue_.recover_if_dead(slot);
            count_recovery();
        });
    }

    void count_recovery() {
        Recovered& sum = queue_.recovered;
        if (sum.skipped == counted_.skipped && sum.handed_on == counted_.handed_on &&
            sum.released == counted_.released)
            return;
        count(Count::skipped, sum.skipped - counted_.skipped);
        count(Count::handed_on, sum.handed_on - counted_.handed_on);
        count(Count::released, sum.released - counted_.released);
        counted_ = sum;
    }

    std::string name_;
    QueueParams params_;
    Attachment attachment_;
    NativeMemory memory_;
    Queue<NativeMemory> queue_;
    std::string directory_;
    std::vector<Taken> scratch_;  // memory that a get borrows
    DeadLetters<QueueAttachment> dead_letters_;
    bool message_damaged_ = false;  // the fault is one message's, not the queue's
    Fault pending_damage_{};
    Recovered counted_{};
};

}  // namespace holdfast
