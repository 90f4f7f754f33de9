// The log: applies frames. It gives every durable event its D and every entry its position. It
// fills the coming round with the bytes of both, ready to be written.
//
//   begin(frame) ; while (event = step()) { … append() … accept() } ; finish()
//
// The log applies publishes. step() returns every other event to the caller, which applies it and
// calls accept() if it is durable. step() also returns publishes to a routed topic (an exchange).
// The caller asks judge() for the new entries, calls take(), and appends them to other topics.
// An event that was not accepted leaves no byte. The journal's
// copy of the frame holds only the accepted events, with the log time in its header. So a redo of
// the journal gives the same Ds, positions and bytes.
//
// Only one thread calls it. Rounds leave through a RoundQueue, which is safe between threads.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "holdfast/log/frame.hpp"
#include "holdfast/log/round_queue.hpp"
#include "holdfast/log/topics.hpp"

namespace holdfast {

enum class PublishCode : u8 { ok, no_topic, closed, fenced, full };

// The outcome of one publish event.
struct Published {
    u32 event;  // its index in the frame
    PublishCode code;
    u32 count;                   // entries appended
    u32 duplicates;              // number of duplicates, which are the next in Applied::duplicates
    u64 ledger, entry, ordinal;  // of the first appended entry
};

struct Opened {
    u64 topic, ledger, first_ordinal;
};

// The state of a ledger that this frame appended to.
struct Tail {
    u64 topic, end_ordinal, ledger, first_ordinal, entries, size, time;
};

struct Applied {
    u64 first_d = 0;  // 0: no event was durable
    u64 last_d = 0;   // the last D given so far, in this frame or before it
    std::vector<Published> published;
    std::vector<u32> duplicates;
    std::vector<Opened> opened;
    std::vector<Tail> tails;

    void clear() {
        first_d = last_d = 0;
        published.clear();
        duplicates.clear();
        opened.clear();
        tails.clear();
    }
};

// The position of appended entries.
struct Place {
    u64 ledger, entry, ordinal;
};

struct Adopted {
    u64 ledger, first_ordinal, entries, size;
};

// The verdict on a publish to a routed topic.
struct Judged {
    u64 topic = 0;
    PublishCode code = PublishCode::ok;
    std::vector<Bytes> fresh;     // the new entries, valid until the next step()
    std::vector<u32> duplicates;  // indexes of the others
};

class Log {
 public:
    explicit Log(u64 next_d = 1, u64 next_ledger = 1, u64 time = 0)
        : next_ledger(next_ledger),
          queue_(std::make_shared<RoundQueue>()),
          portion_(queue_->spare()),
          next_d_(next_d),
          time_(time) {
        if (next_d == 0 || next_ledger == 0)
            throw Error(Code::misuse, "D and ledger ids begin at 1, not at 0");
    }

    u64 next_ledger;  // the id of the next ledger

    u64 next_d() const { return next_d_; }
    u64 time() const { return time_; }
    u64 pending_bytes() const { return queue_->bytes(); }
    const std::shared_ptr<RoundQueue>& queue() const { return queue_; }
    TopicTable& topics() { return topics_; }

    // -- ledgers ------------------------------------------------------------------------------------

    // An open ledger continues at its end.
    void open_ledger(u64 topic_id, u64 ledger, u64 first_ordinal, u64 entries, u64 size) {
        Topic& topic = topics_.get(topic_id);
        if (topic.ledger != 0)
            throw Error(Code::misuse, topic_words(topic) + " has ledger " +
                                          std::to_string(topic.ledger) +
                                          " open; call seal_ledger() first");
        if (ledger == 0 || size < kFileHeaderSize || size % kBlockPadding != 0 ||
            topic.next_ordinal != first_ordinal + entries)
            throw Error(Code::misuse, topic_words(topic) + ": ledger " + std::to_string(ledger) +
                                          " of " + std::to_string(entries) + " entries from " +
                                          std::to_string(first_ordinal) + " in " +
                                          std::to_string(size) +
                                          " bytes cannot continue at ordinal " +
                                          std::to_string(topic.next_ordinal));
        topic.ledger = ledger;
        topic.first_ordinal = first_ordinal;
        topic.entries = entries;
        topic.size = size;
        topic.touched = 0;
    }

    void seal_ledger(u64 topic_id) { seal(topics_.get(topic_id)); }

    // Moves log time back, after a wrong clock had pushed it ahead. Part of an accepted event.
    void set_time(u64 time) {
        require_event("set_time");
        if (time > time_)
            throw Error(Code::misuse, "log time is repaired backward only: it is " +
                                          std::to_string(time_) + ", not before " +
                                          std::to_string(time));
        time_ = time;
        changed_ = true;
        topics_.limit_times(time);
    }

    // The source's only ledger becomes the topic's next ledger; then neither has an open one.
    Adopted adopt(u64 topic_id, u64 source_id) {
        require_event("adopt");
        Topic& source = topics_.get(source_id);
        Topic& topic = topics_.get(topic_id);
        if (topic_id == source_id || source.ledger == 0 || source.entries == 0 ||
            source.first_ordinal != 0 || source.next_ordinal != source.entries)
            throw Error(Code::misuse, topic_words(topic) + " can adopt from " +
                                          topic_words(source) +
                                          " only a single, open ledger with entries");
        seal(topic);
        const Adopted out{source.ledger, topic.next_ordinal, source.entries, source.size};
        seal(source);
        topic.next_ordinal += out.entries;
        topic.traffic.add(source.traffic);
        changed_ = true;
        return out;
    }

    // -- applying a frame -----------------------------------------------------------------------------

    // Checks the whole frame; on Corrupt nothing has changed. `frame` must live until finish().
    void begin(Bytes frame, u64 view, u64 index, bool redo) {
        if (open_)
            throw Error(Code::misuse, "a frame is being applied; call finish() before begin()");
        queue_->require_here();
        FrameReader reader(frame);
        require_numbers();
        reader_ = reader;
        open_ = true;
        redo_ = redo;
        position_ = {view, index};
        time_before_ = time_;
        time_ = frame_time_ = std::max(time_, reader_.time());
        ++frame_number_;
        applied_.clear();
        accepted_.clear();
        accepted_count_ = 0;
        touched_.clear();
        waiting_for_verdict_ = false;
        changed_ = false;
        first_d_ = next_d_;
        if (portion_->begin_d == 0) portion_->begin_d = next_d_;
    }

    // Applies publishes up to the next event of another kind, and returns that event.
    std::optional<EventView> step() {
        require_open("step");
        end_event();
        while (!reader_.at_end()) {
            const EventView event = reader_.next();
            const bool routed = event.kind == kPublishKind && is_routed(PublishView(event.body));
            if (event.kind != kPublishKind || routed) {
                event_ = event.whole;
                routed_body_ = routed ? event.body : Bytes{};
                waiting_for_verdict_ = in_event_ = true;
                return event;
            }
            publish(event);
        }
        return std::nullopt;
    }

    // Of the routed publish that step() returned: whether it may be applied, and its new entries.
    // Changes nothing.
    Judged judge() {
        require_routed("judge");
        const PublishView view(routed_body_);
        const Topic& topic = topics_.get(view.topic());
        Judged out;
        out.topic = topic.id;
        out.code = verdict(topic, view);
        if (out.code != PublishCode::ok) return out;
        const bool by_sequence = topic.deduplicate || always_deduplicated(view.producer());
        const auto known = topic.producers.find(view.producer());
        std::int64_t last = known == topic.producers.end() ? -1 : known->second.last;
        std::size_t offset = 0;
        for (u32 i = 0; i < view.count(); ++i) {
            const PublishRow row = view.row(i);
            if (by_sequence && row.sequence <= last) {
                out.duplicates.push_back(i);
            } else {
                out.fresh.push_back(view.entries().subspan(offset, row.size));
                if (row.span > 0) last = row.sequence + (row.span - 1);
            }
            offset += row.size;
        }
        return out;
    }

    // Notes the sequences of the routed publish, so that a repetition of it is a duplicate.
    void take() {
        require_routed("take");
        const PublishView view(routed_body_);
        Topic& topic = topics_.get(view.topic());
        const bool by_sequence = topic.deduplicate || always_deduplicated(view.producer());
        Producer* producer = by_sequence ? &topic.producer(view.producer()) : nullptr;
        for (u32 i = 0; i < view.count(); ++i) {
            const PublishRow row = view.row(i);
            if (producer != nullptr) {
                if (row.sequence <= producer->last) continue;
                producer->time = time_;
                if (row.span > 0) producer->last = row.sequence + (row.span - 1);
            }
            if (!redo_) topic.traffic.add(row.size);
        }
        changed_ = true;
    }

    // The event that step() returned is durable.
    u64 accept() {
        require_event("accept");
        if (!waiting_for_verdict_)
            throw Error(Code::misuse, "this event was accepted already; call step()");
        waiting_for_verdict_ = false;
        return accept(event_);
    }

    Place append(u64 topic_id, std::span<const Bytes> entries) {
        require_event("append");
        Topic& topic = topics_.get(topic_id);
        for (const Bytes& each : entries) require_entry_size(each.size());
        if (!topic.has_room(entries.size()))
            throw Error(Code::exhausted, topic_words(topic) + kNoPositions);
        changed_ |= !entries.empty();
        if (entries.empty()) return {topic.ledger, topic.entries, topic.next_ordinal};
        touch(topic);
        const Place place{topic.ledger, topic.entries, topic.next_ordinal};
        for (const Bytes& each : entries) {
            append_entry(topic, each.data(), static_cast<u32>(each.size()));
            if (!redo_) topic.traffic.add(static_cast<u32>(each.size()));
        }
        return place;
    }

    // Valid until the next begin().
    const Applied& finish(bool urgent) {
        require_open("finish");
        queue_->require_here();
        end_event();
        if (!reader_.at_end())
            throw Error(Code::misuse,
                        "the frame has events left; call step() until it returns None");
        for (u64 id : touched_) {
            Topic* topic = topics_.find(id);
            if (topic == nullptr || topic->touched != frame_number_) continue;
            add_tail(*topic);
            topic->touched = 0;  // it may be in the list twice, if a ledger was sealed between
        }
        if (next_d_ > first_d_)
            applied_.first_d = first_d_;
        else
            time_ = time_before_;  // not in the journal, so a restart does not see it
        applied_.last_d = next_d_ - 1;
        open_ = false;
        if (applied_.first_d != 0 && !redo_) add_frame_block();
        portion_->settled_d = next_d_ - 1;
        portion_->time = time_;
        portion_->urgent = urgent;
        if (portion_->empty() && applied_.first_d == 0)
            portion_->clear();
        else
            queue_->push(portion_);  // a redo may know only the last position
        return applied_;
    }

 private:
    static std::string topic_words(const Topic& topic) {
        return "topic " + std::to_string(topic.id);
    }

    void require_open(const char* call) const {
        if (!open_)
            throw Error(Code::misuse,
                        std::string(call) + "() belongs between begin() and finish()");
    }

    void require_event(const char* call) const {
        require_open(call);
        if (!in_event_)
            throw Error(Code::misuse,
                        std::string(call) + "() belongs to an event that step() has returned");
    }

    // At most the size that a reader of the ledger takes.
    static void require_entry_size(std::size_t size) {
        if (size > kEntrySizeMax)
            throw Error(Code::too_large,
                        "an entry of " + std::to_string(size) + " bytes is too large for a block");
    }

    // Checked before anything of a frame is applied: its events and their ledgers are fewer than
    // 2^32.
    void require_numbers() const {
        const char* ended = next_d_ > kNumberMax - kNumbersLeft       ? "event numbers"
                            : next_ledger > kNumberMax - kNumbersLeft ? "ledger ids"
                                                                      : nullptr;
        if (ended != nullptr)
            throw Error(Code::exhausted, "this broker has used up its 63 bits of " +
                                             std::string(ended) +
                                             "; nothing of the frame was applied. Its files can "
                                             "still be read; start a broker in a new data "
                                             "directory");
    }

    void end_event() {
        if (waiting_for_verdict_ && changed_) {
            throw Error(Code::misuse,
                        "the event appended entries or adopted a ledger, and was not accepted: "
                        "after a restart they would be missing");
        }
        waiting_for_verdict_ = in_event_ = changed_ = false;
    }

    u64 accept(Bytes event) {
        if (!accepted_.empty() && accepted_.back().data() + accepted_.back().size() == event.data())
            accepted_.back() = {accepted_.back().data(), accepted_.back().size() + event.size()};
        else
            accepted_.push_back(event);
        ++accepted_count_;
        return next_d_++;
    }

    // -- publishes --------------------------------------------------------------------------------

    bool is_routed(const PublishView& view) {
        const Topic* topic = topics_.find(view.topic());
        return topic != nullptr && topic->routed;
    }

    void require_routed(const char* call) const {
        require_event(call);
        if (routed_body_.empty())
            throw Error(Code::misuse, std::string(call) + "() belongs to a publish to an exchange");
    }

    // Events of the journal were accepted before.
    PublishCode verdict(const Topic& topic, const PublishView& view) const {
        if (redo_) return PublishCode::ok;
        if (topic.closed) return PublishCode::closed;
        if (!topics_.accepts(topic, view.session(), view.epoch(), view.producer()))
            return PublishCode::fenced;
        return topic.has_room(view.count()) ? PublishCode::ok : PublishCode::full;
    }

    void publish(const EventView& event) {
        const PublishView view(event.body);
        Published out{event.number, PublishCode::ok, 0, 0, 0, 0, 0};
        Topic* topic = topics_.find(view.topic());
        if (redo_ && topic == nullptr)
            throw Error(Code::corrupt, "the journal has a publish to topic " +
                                           std::to_string(view.topic()) +
                                           ", which does not exist: it does not belong to this "
                                           "snapshot; run holdfast doctor");
        out.code = topic == nullptr ? PublishCode::no_topic : verdict(*topic, view);
        if (out.code == PublishCode::ok) {
            if (topic->deduplicate || always_deduplicated(view.producer()))
                publish_new(*topic, view, out);
            else
                publish_all(*topic, view, out);
        }
        if (out.count > 0) accept(event.whole);
        applied_.published.push_back(out);
    }

    void publish_all(Topic& topic, const PublishView& view, Published& out) {
        place(topic, out);
        const std::byte* entry = view.entries().data();
        for (u32 i = 0; i < view.count(); ++i) {
            const u32 size = view.row(i).size;
            append_entry(topic, entry, size);
            if (!redo_) topic.traffic.add(size);
            entry += size;
        }
        out.count = view.count();
    }

    // An entry whose first sequence is not above the last known one is a duplicate. A span of 0 is
    // a chunk that is not its message's last; it raises nothing.
    void publish_new(Topic& topic, const PublishView& view, Published& out) {
        Producer& producer = topic.producer(view.producer());
        const std::byte* entry = view.entries().data();
        for (u32 i = 0; i < view.count(); ++i) {
            const PublishRow row = view.row(i);
            if (row.sequence <= producer.last) {
                applied_.duplicates.push_back(i);
                ++out.duplicates;
            } else {
                if (out.count == 0) place(topic, out);
                append_entry(topic, entry, row.size);
                if (!redo_) topic.traffic.add(row.size);
                ++out.count;
                producer.time = time_;
                if (row.span > 0) producer.last = row.sequence + (row.span - 1);
            }
            entry += row.size;
        }
    }

    void place(Topic& topic, Published& out) {
        touch(topic);
        out.ledger = topic.ledger;
        out.entry = topic.entries;
        out.ordinal = topic.next_ordinal;
    }

    // -- ledgers ------------------------------------------------------------------------------------

    // Before this frame's first entry for the topic: opens a ledger if none is open, and notes it
    // for finish().
    void touch(Topic& topic) {
        if (topic.ledger == 0) {
            topic.ledger = next_ledger++;
            topic.first_ordinal = topic.next_ordinal;
            topic.entries = 0;
            topic.size = kFileHeaderSize;
            topic.touched = 0;
            applied_.opened.push_back({topic.id, topic.ledger, topic.first_ordinal});
        }
        if (topic.touched == frame_number_) return;
        topic.touched = frame_number_;
        touched_.push_back(topic.id);
    }

    void seal(Topic& topic) {
        if (topic.ledger == 0) return;
        if (open_ && topic.touched == frame_number_) add_tail(topic);
        topic.touched = 0;
        topic.ledger = topic.first_ordinal = topic.entries = topic.size = 0;
    }

    void add_tail(const Topic& topic) {
        applied_.tails.push_back({topic.id, topic.first_ordinal + topic.entries, topic.ledger,
                                  topic.first_ordinal, topic.entries, topic.size, time_});
    }

    void append_entry(Topic& topic, const std::byte* bytes, u32 size) {
        portion_->add_block(
            topic.ledger, topic.size, topic.entries,
            make_block(kEntryBlock, kFullChecksum, size, topic.entries, time_, bytes), bytes);
        ++topic.entries;
        ++topic.next_ordinal;
        topic.size += block_space(size);
    }

    // -- the journal --------------------------------------------------------------------------------

    // Writes the accepted events as one block. The frame has the time at which its events were
    // applied, for the redo. The block has the log time behind them, which a repair may have set
    // back. Its bytes are summed and copied piece by piece, while they are in the cache.
    void add_frame_block() {
        u64 size = sizeof(FramePosition) + sizeof(FrameHeader);
        for (const Bytes& each : accepted_) size += each.size();
        Arena& journal = portion_->journal();
        std::byte* place = journal.reserve(sizeof(FrameBlockHead));
        FrameBlockHead head{{kBlockMagic, kFrameBlock, kFullChecksum, static_cast<u32>(size),
                             first_d_, time_, 0, 0},
                            position_,
                            {kFrameMagic, kFrameVersion, 0, accepted_count_, frame_time_}};
        u32 crc = crc32c(header_crc(head.block), &head.position,
                         sizeof head.position + sizeof head.frame);
        for (const Bytes& each : accepted_) {
            for (std::size_t done = 0; done < each.size(); done += kPiece) {
                const std::size_t part = std::min(kPiece, each.size() - done);
                crc = crc32c(crc, each.data() + done, part);
                journal.append(each.data() + done, part);
            }
        }
        head.block.crc = crc;
        std::memcpy(place, &head, sizeof head);
        static constexpr std::byte kZeros[kBlockPadding] = {};
        journal.append(kZeros, block_space(size) - sizeof(BlockHeader) - size);
        portion_->first_d = first_d_;
        portion_->last_d = next_d_ - 1;
    }

    static constexpr std::size_t kPiece = 16 << 10;
    static constexpr u64 kNumbersLeft = u64{1} << 32;
    static constexpr const char* kNoPositions =
        " has used up its 63 bits of positions; publish to another one";

    TopicTable topics_;
    std::shared_ptr<RoundQueue> queue_;
    std::unique_ptr<Portion> portion_;  // of the frame being applied
    u64 next_d_;
    u64 time_;
    u64 time_before_ = 0;  // the frame that is being applied
    u64 frame_time_ = 0;   // at its beginning

    FrameReader reader_;
    FramePosition position_{};
    Applied applied_;
    std::vector<Bytes> accepted_;  // the accepted events, with neighbours joined
    std::vector<u64> touched_;     // topics whose ledgers grew
    Bytes event_;                  // that step() answered last
    Bytes routed_body_;            // of that event, if it is a publish to a routed topic
    u64 frame_number_ = 0;
    u64 first_d_ = 0;
    u32 accepted_count_ = 0;
    bool open_ = false;
    bool redo_ = false;
    bool in_event_ = false;
    bool waiting_for_verdict_ = false;
    bool changed_ = false;  // by the event that step() returned
};

}  // namespace holdfast
