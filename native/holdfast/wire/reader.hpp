// The input of one connection: splits frames as they arrive, and writes what producers send
// straight into the frame of the loop's turn.
//
// Of one feed(), all SENDs of a producer become one publish event. All plain ACKs of a consumer
// become one list of ids, all FLOWs of a consumer one sum. So commands of different producers or
// consumers may change order; any other command is a fence that nothing passes. A refused SEND ends
// all runs, so that answers keep their order. Unless only its checksum was wrong, later SENDs of
// its producer are refused until set_producer(), because their order would be lost.
//
// SENDs of a passing producer are not written: their entries are handed over in the item.
//
// Memory: at most one incomplete frame is kept, or the bytes that one feed() had no room for.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/entry/entry.hpp"
#include "holdfast/log/frame_writer.hpp"
#include "holdfast/wire/acks.hpp"
#include "holdfast/wire/command.hpp"

namespace holdfast {

inline constexpr u64 kWireFrameMax = (u64{5} << 20) + (u64{64} << 10);
inline constexpr u64 kWireCommandMax = u64{1} << 20;  // of a command that is not one of our own

enum class WireKind : u8 {
    command = 0,
    sends = 1,
    refused = 2,
    acks = 3,
    flow = 4,
    broken = 5,
    passed = 6
};

// Why a SEND was refused.
enum class SendFault : u8 {
    none = 0,
    checksum = 1,
    producer = 2,   // unknown, or closed
    malformed = 3,  // its metadata, or its sequence numbers
    transaction = 4,
    delay = 5,  // longer than its topic allows
    size = 6,   // larger than its topic allows
};

// An accepted SEND, as its receipt must name it.
struct SentEntry {
    u64 sequence;
    u64 highest;  // 0: not given
};
static_assert(sizeof(SentEntry) == 16);

// An entry of a passing producer.
struct PassedEntry {
    u64 messages;
    std::string bytes;
};

struct WireItem {
    WireKind kind = WireKind::broken;
    SendFault fault = SendFault::none;
    bool cumulative = false;
    bool has_request = false;
    bool transaction = false;
    u64 id = 0;         // of the producer or consumer; the type of a command
    u64 number = 0;     // sequence | request | permits
    u64 messages = 0;   // of a run of SENDs
    u64 size = 0;       // of its entries
    std::string bytes;  // a command | the reason of `broken`
    std::vector<SentEntry> sent;
    std::vector<PassedEntry> passed;
    AckIds ids;
};

class WireReader {
 public:
    static constexpr u64 kAll = ~u64{0};

    explicit WireReader(u64 frame_max = kWireFrameMax) { set_frame_max(frame_max); }

    u64 frame_max() const { return frame_max_; }
    void set_frame_max(u64 size) {
        if (size < kWireSizes || size > kEntrySizeMax)
            throw Error(Code::misuse, "a limit of " + std::to_string(size) +
                                          " bytes for frames; it can be 8 bytes to 1 GiB");
        frame_max_ = size;
    }
    std::size_t pending() const { return held_.size(); }  // bytes that wait for the rest of a frame
    // There was no room in the frame, or for another command or item: call feed() again when there
    // is.
    bool stalled() const { return stalled_; }
    bool broken() const { return broken_; }

    // From now on its SENDs are accepted, with a delay of at most `delay_max_ms` and entries of at
    // most `entry_bytes_max` bytes; 0: any.
    void set_producer(u64 id, u64 topic, u64 session, u64 epoch, std::string_view name,
                      u64 delay_max_ms = 0, u64 entry_bytes_max = 0) {
        if (name.size() > std::numeric_limits<u16>::max())
            throw Error(Code::too_large, "a producer's name has at most 65535 bytes, not " +
                                             std::to_string(name.size()));
        Producer& producer = producers_[id];
        producer = Producer{topic, session, epoch,        std::string(name), {}, kNone, 0,
                            0,     false,   delay_max_ms, entry_bytes_max};
        last_ = nullptr;
    }
    // From now on its SENDs are handed over, and no event is written.
    void set_passing_producer(u64 id) {
        producers_[id] = Producer{0, 0, 0, {}, {}, kNone, 0, 0, true, 0, 0};
        last_ = nullptr;
    }
    void drop_producer(u64 id) {
        producers_.erase(id);
        last_ = nullptr;
    }

    // Reads everything that is complete, with two limits: at most `commands_max` commands that are
    // neither SEND, ACK nor FLOW, and at most `items_max` items. At least one of each is possible,
    // so that reading makes progress. `broken` is always the last item; after it nothing is read.
    // If it throws, there was no memory: events may have been added all the same, and the
    // connection is broken.
    std::vector<WireItem> feed(std::string_view data, FrameWriter& frame, u64 commands_max = kAll,
                               u64 items_max = kAll) {
        if (broken_) return {};
        commands_left_ = commands_max;
        items_max_ = items_max;
        try {
            read(data, frame);
        } catch (...) {
            broken_ = true;
            throw;
        }
        return std::exchange(items_, {});
    }

 private:
    static constexpr std::size_t kNone = ~std::size_t{0};
    static constexpr std::size_t kKeep = std::size_t{16} << 10;  // memory kept for what comes next
    static constexpr std::size_t kJoinMax = 32;  // consumers whose ACKs and FLOWs are joined

    struct Row {
        u64 sequence;
        u64 highest;
        u64 span;  // 0: a chunk that is not its message's last
        std::string_view entry;
        u64 messages = 1;
    };
    struct Producer {
        u64 topic, session, epoch;
        std::string name;
        std::vector<Row> rows;  // of the run that is open
        std::size_t item;       // its place among the items; kNone: no run is open
        u64 messages, size;
        bool passing;
        u64 delay_max_ms;
        u64 entry_bytes_max;
    };
    // An item that can still grow.
    struct Open {
        u64 consumer;
        std::size_t item;
    };

    // -- the input ---------------------------------------------------------------------------------

    void read(std::string_view data, FrameWriter& frame) {
        frame_ = &frame;
        stalled_ = false;
        const std::size_t used = held_.size() > 0 ? top_up(data) : 0;
        const std::size_t before = take(held_.view());
        const std::string_view rest = data.substr(used);
        std::size_t taken = 0;
        if (before == held_.size() && !stalled_ && !broken_) taken = take(rest);
        fence();  // entries point into both buffers until here
        bare_.clear();
        drop_front(before);
        held_.append(rest.substr(taken));
        if (broken_) held_.clear(0);
    }

    // Moves the bytes that the held frame still needs; returns how many.
    std::size_t top_up(std::string_view data) {
        std::size_t used = 0;
        while (used < data.size()) {
            std::size_t wanted = 4;
            if (held_.size() >= 4) {
                const u64 total = load_big32(held_.data());
                if (total > frame_max_) return used;  // take() says so
                wanted = 4 + static_cast<std::size_t>(total);
                if (held_.size() >= wanted) {  // it had stalled; there may be more than one
                    held_.append(data.substr(used));
                    return data.size();
                }
            }
            const std::size_t more = std::min(wanted - held_.size(), data.size() - used);
            const std::size_t size = held_.size() + more;
            held_.reserve(std::min(wanted, 2 * size));
            held_.append(data.substr(used, more));
            used += more;
            if (held_.size() == wanted && wanted > 4) break;
        }
        return used;
    }

    void drop_front(std::size_t count) {
        if (count == 0) return;
        const std::size_t left = held_.size() - count;
        if (left > 0) std::memmove(held_.data(), held_.data() + count, left);
        held_.cut(left);
        if (left == 0) held_.clear(kKeep);
    }

    // Takes whole frames from the front; returns their bytes.
    std::size_t take(std::string_view bytes) {
        std::size_t at = 0;
        while (bytes.size() - at >= 4) {
            const u64 total = load_big32(bytes.data() + at);
            if (total < 4 || total > frame_max_) {
                break_off("a frame of " + std::to_string(total) + " bytes; it can have 4 to " +
                          std::to_string(frame_max_));
                return at;
            }
            if (total > bytes.size() - at - 4) return at;
            if (!take_frame(bytes.substr(at + 4, total))) return at;
            at += 4 + total;
        }
        return at;
    }

    // Returns false if the frame is full or the connection broken.
    bool take_frame(std::string_view frame) {
        const u64 size = load_big32(frame.data());
        if (size > frame.size() - 4)
            return break_off("a command of " + std::to_string(size) + " bytes in a frame of " +
                             std::to_string(frame.size()));
        const std::string_view bytes = frame.substr(4, size);
        const std::string_view entry = frame.substr(4 + size);
        WireCommand command;
        if (!read_command(bytes, command))
            return break_off("a command of " + std::to_string(size) +
                             " bytes that is not a protocol buffer, or has no type");
        if (size > kWireCommandMax && command.type < wire_type::first_own)
            return break_off("a command of type " + std::to_string(command.type) + " of " +
                             std::to_string(size) + " bytes; it can have " +
                             std::to_string(kWireCommandMax));
        if (command.type == wire_type::send) return take_send(command.body, entry);
        if (!entry.empty())
            return break_off("a command of type " + std::to_string(command.type) + " with " +
                             std::to_string(entry.size()) + " bytes behind it; only SEND has any");
        if (command.type == wire_type::ack) return take_ack(command.body);
        if (command.type == wire_type::flow) return take_flow(command.body);
        if (commands_left_ == 0 || full()) return stall();
        --commands_left_;
        fence();
        WireItem& item = add(WireKind::command, command.type);
        item.bytes = bytes;
        return true;
    }

    // -- SEND --------------------------------------------------------------------------------------

    bool take_send(std::string_view body, std::string_view bytes) {
        SendCommand send;
        if (!read_send(body, send)) return break_off("a SEND without a producer or a sequence");
        Producer* producer = find(send.producer);
        if ((producer == nullptr || producer->item == kNone) && full()) return stall();
        if (producer == nullptr) return refuse(send, SendFault::producer);
        Entry entry;
        Row row{send.sequence, send.highest, 1, bytes};
        const std::size_t bare = bare_.size();
        if (bytes.size() >= 4 && load_big16(bytes.data()) != kEntryMagic) row.entry = summed(bytes);
        const EntryFault fault = check_entry(row.entry, entry);
        SendFault refused = SendFault::none;
        if (fault == EntryFault::crc)
            refused = SendFault::checksum;
        else if (fault != EntryFault::none || !spans(entry.metadata, row))
            refused = SendFault::malformed;
        else if (send.transaction || entry.metadata.has_transaction)
            refused = SendFault::transaction;
        else if (producer->delay_max_ms != 0 && delay_ms(entry.metadata) > producer->delay_max_ms)
            refused = SendFault::delay;
        else if (producer->entry_bytes_max != 0 && row.entry.size() > producer->entry_bytes_max)
            refused = SendFault::size;
        if (refused == SendFault::none ? !has_room(*producer, row.entry.size()) : full()) {
            bare_.resize(bare);
            return stall();
        }
        if (refused != SendFault::none) {
            refuse(send, refused);
            if (refused != SendFault::checksum) drop_producer(send.producer);
            return true;
        }
        if (producer->item == kNone) open_run(*producer, send.producer);
        row.messages = entry.metadata.messages;
        producer->rows.push_back(row);
        producer->messages += entry.metadata.messages;
        producer->size += row.entry.size();
        open_bytes_ += sizeof(PublishRow) + row.entry.size();
        return true;
    }

    static u64 delay_ms(const EntryMetadata& metadata) {
        const u64 at = static_cast<u64>(std::max<i64>(metadata.deliver_at_ms, 0));
        return at > metadata.publish_time_ms ? at - metadata.publish_time_ms : 0;
    }

    // Old clients send metadata and payload without magic number and sum, which are added here.
    std::string_view summed(std::string_view bytes) {
        std::string& out = bare_.emplace_back(kEntrySummed, '\0');
        out += bytes;
        out[0] = static_cast<char>(kEntryMagic >> 8);
        out[1] = static_cast<char>(kEntryMagic & 0xff);
        store_big32(out.data() + 2, crc32c(0, bytes.data(), bytes.size()));
        return out;
    }

    // Finds the sequence numbers that the entry covers; false: they are not possible.
    static bool spans(const EntryMetadata& metadata, Row& row) {
        constexpr u64 most = static_cast<u64>(std::numeric_limits<i64>::max());
        if (row.sequence >= most || row.highest >= most) return false;
        if (row.highest > row.sequence) row.span = row.highest - row.sequence + 1;
        // Some clients do not send the highest: the messages of a batch have one number each, and
        // numbers rise.
        row.span = std::max<u64>(row.span, metadata.messages);
        if (metadata.chunk >= 0 && metadata.chunk < metadata.chunks - 1) row.span = 0;
        return possible_sequence(static_cast<i64>(row.sequence), std::max<u64>(row.span, 1));
    }

    // A frame holds one event of any size, or several up to a limit.
    bool has_room(const Producer& producer, std::size_t size) const {
        if (frame_->count() == 0 && open_.empty()) return true;
        const std::size_t event = producer.item == kNone ? event_size(producer) : 0;
        return frame_->size() + open_bytes_ + event + sizeof(PublishRow) + size <= kFrameSizeMax;
    }
    static std::size_t event_size(const Producer& producer) {
        return sizeof(EventHeader) + sizeof(PublishHeader) + producer.name.size();
    }

    Producer* find(u64 id) {
        if (last_ != nullptr && last_id_ == id) return last_;
        const auto found = producers_.find(id);
        if (found == producers_.end()) return nullptr;
        last_ = &found->second;
        last_id_ = id;
        return last_;
    }

    void open_run(Producer& producer, u64 id) {
        producer.item = items_.size();
        add(producer.passing ? WireKind::passed : WireKind::sends, id);
        open_.push_back(&producer);
        open_bytes_ += event_size(producer);
    }

    // Writes the publish event of a run.
    void close_run(Producer& producer) {
        WireItem& item = items_[producer.item];
        if (producer.passing)
            hand_over(producer, item);
        else
            write_event(producer, item);
        item.messages = producer.messages;
        item.size = producer.size;
        open_bytes_ -=
            event_size(producer) + producer.rows.size() * sizeof(PublishRow) + producer.size;
        producer.rows.clear();
        if (producer.rows.capacity() > kKeep / sizeof(Row)) producer.rows.shrink_to_fit();
        producer.item = kNone;
        producer.messages = producer.size = 0;
    }

    void hand_over(const Producer& producer, WireItem& item) {
        item.sent.reserve(producer.rows.size());
        item.passed.reserve(producer.rows.size());
        for (const Row& row : producer.rows) {
            item.sent.push_back({row.sequence, row.highest});
            item.passed.push_back({row.messages, std::string(row.entry)});
        }
    }

    void write_event(const Producer& producer, WireItem& item) {
        FrameWriter::Publish publish(*frame_, producer.topic, producer.session, producer.epoch,
                                     producer.name, producer.rows.size(), producer.size);
        item.sent.reserve(producer.rows.size());
        for (const Row& row : producer.rows) {
            const i64 sequence = static_cast<i64>(row.sequence);
            if (row.span == 0)
                publish.chunk(sequence, row.entry);
            else
                publish.entry(sequence, row.span, row.entry);
            item.sent.push_back({row.sequence, row.highest});
        }
        publish.keep();
    }

    // Ends all runs, so that events follow each other as their items do.
    void close_runs() {
        for (Producer* each : open_) close_run(*each);
        open_.clear();
    }

    bool refuse(const SendCommand& send, SendFault fault) {
        close_runs();
        WireItem& item = add(WireKind::refused, send.producer);
        item.number = send.sequence;
        item.fault = fault;
        return true;
    }

    // -- ACK and FLOW ------------------------------------------------------------------------------

    bool take_ack(std::string_view body) {
        AckCommand ack;
        if (!read_ack(body, ack)) return break_off("an ACK that is not valid");
        const bool plain = !ack.has_request && !ack.transaction && !ack.cumulative;
        if (plain && ack.ids.count() == 0) return true;
        WireItem* item = plain ? find(open_acks_, ack.consumer) : nullptr;
        if (item != nullptr) {
            item->ids.add(std::move(ack.ids));
            return true;
        }
        if (full()) return stall();
        if (plain) note(open_acks_, ack.consumer);
        item = &add(WireKind::acks, ack.consumer);
        item->cumulative = ack.cumulative;
        item->has_request = ack.has_request;
        item->number = ack.request;
        item->transaction = ack.transaction;
        item->ids = std::move(ack.ids);
        return true;
    }

    bool take_flow(std::string_view body) {
        FlowCommand flow;
        if (!read_flow(body, flow)) return break_off("a FLOW without a consumer or permits");
        WireItem* item = find(open_flows_, flow.consumer);
        if (item == nullptr) {
            if (full()) return stall();
            note(open_flows_, flow.consumer);
            item = &add(WireKind::flow, flow.consumer);
        }
        item->number += flow.permits;
        return true;
    }

    WireItem* find(const std::vector<Open>& open, u64 consumer) {
        for (const Open& each : open)
            if (each.consumer == consumer) return &items_[each.item];
        return nullptr;
    }

    // Called before the item itself is added.
    void note(std::vector<Open>& open, u64 consumer) {
        if (open.size() == kJoinMax) open.clear();
        open.push_back({consumer, items_.size()});
    }

    // -- the output --------------------------------------------------------------------------------

    WireItem& add(WireKind kind, u64 id) {
        WireItem& item = items_.emplace_back();
        item.kind = kind;
        item.id = id;
        return item;
    }

    bool full() const { return items_.size() >= items_max_; }
    bool stall() {
        stalled_ = true;
        return false;
    }

    // Later commands come after all earlier ones.
    void fence() {
        close_runs();
        open_acks_.clear();
        open_flows_.clear();
    }

    bool break_off(std::string reason) {
        fence();
        add(WireKind::broken, 0).bytes = std::move(reason);
        broken_ = true;
        return false;
    }

    static u16 load_big16(const char* bytes) {
        return static_cast<u16>(static_cast<u8>(bytes[0]) << 8 | static_cast<u8>(bytes[1]));
    }

    u64 frame_max_ = kWireFrameMax;
    std::unordered_map<u64, Producer> producers_;
    Producer* last_ = nullptr;  // the one found last
    u64 last_id_ = 0;

    ByteBuffer held_;  // the start of a frame; after a stall, frames
    bool stalled_ = false;
    bool broken_ = false;

    // Of the current feed().
    FrameWriter* frame_ = nullptr;
    u64 commands_left_ = kAll;
    u64 items_max_ = kAll;
    std::vector<WireItem> items_;
    std::vector<Producer*> open_;  // those whose runs are open
    std::size_t open_bytes_ = 0;   // what their events will take
    std::vector<Open> open_acks_, open_flows_;
    std::deque<std::string> bare_;  // entries that got their sum here
};

}  // namespace holdfast
