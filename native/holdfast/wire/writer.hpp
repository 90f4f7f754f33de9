// Frames that a connection sends for every message: SEND_RECEIPT to producers, MESSAGE to consumers.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/base/protobuf.hpp"
#include "holdfast/entry/handover.hpp"
#include "holdfast/entry/writer.hpp"
#include "holdfast/wire/command.hpp"
#include "holdfast/wire/reader.hpp"

namespace holdfast {

namespace wire_detail {

inline u8* put(u8* at, u32 field, u64 value) {
    *at++ = static_cast<u8>(proto_tag(field, Wire::varint));
    return write_varint(at, value);
}
constexpr std::size_t put_size(u64 value) {
    return 1 + varint_size(value);
}
inline u8* open(u8* at, u32 field, std::size_t size) {
    *at++ = static_cast<u8>(proto_tag(field, Wire::bytes));
    return write_varint(at, size);
}

// `partition`: the index of the topic, if it is a partition.
inline u8* put_id(u8* at, u32 field, u64 ledger, u64 entry, std::optional<u32> partition = {}) {
    const std::size_t index = partition ? put_size(*partition) : 0;
    at = open(at, field, put_size(ledger) + put_size(entry) + index);
    at = put(put(at, id_field::ledger, ledger), id_field::entry, entry);
    return partition ? put(at, id_field::partition, *partition) : at;
}
constexpr std::size_t id_size(u64 ledger, u64 entry, std::optional<u32> partition = {}) {
    const std::size_t index = partition ? put_size(*partition) : 0;
    return 2 + put_size(ledger) + put_size(entry) + index;  // its own size takes one byte
}

// Writes a BaseCommand of this type around a body of `size` bytes, with its sizes. `behind`: bytes
// of the frame after it.
inline u8* open_frame(u8* at, u32 type, std::size_t size, std::size_t behind) {
    const std::size_t command = 2 + 1 + varint_size(size) + size;
    store_big32(at, static_cast<u32>(4 + command + behind));
    store_big32(at + 4, static_cast<u32>(command));
    at = put(at + kWireSizes, 1, type);
    return open(at, type, size);
}
constexpr std::size_t frame_size(std::size_t size, std::size_t behind) {
    return kWireSizes + 2 + 1 + varint_size(size) + size + behind;
}

}  // namespace wire_detail

// Appends the frame of a command that is serialised already.
inline void frame_command(ByteBuffer& out, std::string_view command) {
    if (command.size() > kEntrySizeMax)
        throw Error(Code::too_large, "a command of " + std::to_string(command.size()) +
                                         " bytes; at most " + std::to_string(kEntrySizeMax) +
                                         " are possible");
    u8* at = out.extend(kWireSizes + command.size());
    store_big32(at, static_cast<u32>(4 + command.size()));
    store_big32(at + 4, static_cast<u32>(command.size()));
    if (!command.empty()) std::memcpy(at + kWireSizes, command.data(), command.size());
}

// Appends the receipts of a run whose entries are neighbours from `first_entry` on. Duplicates
// (their indexes, in order) were not stored: their receipts have the id -1:-1.
inline void encode_receipts(ByteBuffer& out, u64 producer, std::span<const SentEntry> sent,
                            u64 ledger, u64 first_entry, std::span<const u64> duplicates) {
    using namespace wire_detail;
    namespace f = receipt_field;
    constexpr u64 none = ~u64{0};
    constexpr std::size_t bound = frame_size(4 + 6 * kVarintMax, 0);
    u64 entry = first_entry;
    auto duplicate = duplicates.begin();
    for (std::size_t i = 0; i < sent.size(); ++i) {
        const SentEntry& each = sent[i];
        const bool stored = duplicate == duplicates.end() || *duplicate != i;
        const u64 in_ledger = stored ? ledger : none;
        const u64 number = stored ? entry++ : none;
        if (!stored) ++duplicate;
        const std::size_t size = put_size(producer) + put_size(each.sequence) +
                                 id_size(in_ledger, number) +
                                 (each.highest != 0 ? put_size(each.highest) : 0);
        u8* const start = out.extend(bound);
        u8* at = open_frame(start, wire_type::send_receipt, size, 0);
        at = put(at, f::producer_id, producer);
        at = put(at, f::sequence_id, each.sequence);
        at = put_id(at, f::message_id, in_ledger, number);
        if (each.highest != 0) at = put(at, f::highest_sequence_id, each.highest);
        out.cut(out.size() - bound + static_cast<std::size_t>(at - start));
    }
    if (duplicate != duplicates.end())
        throw Error(Code::misuse, "duplicates are indexes of the run, in order and each once");
}

// The MESSAGE frames of a delivery to one consumer. The entries are sent as they were stored. An
// entry that is not sound would make a client drop its connection again and again. So it travels as
// the payload of an entry made for it.
class Deliveries {
 public:
    // `epoch`: the consumer's, if it counts them. `partition`: the index of its topic, if that is one.
    // The handover must outlive this.
    Deliveries(const Handover& handover, u64 consumer, std::optional<u64> epoch,
               std::optional<u32> partition)
        : handover_(handover), consumer_(consumer), epoch_(epoch), partition_(partition) {
        rows_.reserve(handover.items().size());
        for (const HandoverItem& item : handover.items()) measure(item);
    }

    std::size_t size() const { return size_; }

    // Fills size() bytes.
    void write(u8* at) const {
        using namespace wire_detail;
        namespace f = message_field;
        for (const Row& row : rows_) {
            at = open_frame(at, wire_type::message, row.body, row.entry.size());
            at = put(at, f::consumer_id, consumer_);
            at = put_id(at, f::message_id, handover_.run().ledger(), row.number, partition_);
            if (row.redeliveries != 0) at = put(at, f::redelivery_count, row.redeliveries);
            for (u32 i = 0; i < row.words; ++i) at = put(at, f::ack_set, words_[row.words_at + i]);
            if (epoch_) at = put(at, f::consumer_epoch, *epoch_);
            std::memcpy(at, row.entry.data(), row.entry.size());
            at += row.entry.size();
        }
    }

 private:
    struct Row {
        std::string_view entry;
        u64 number;
        std::size_t body;  // of the command
        u32 redeliveries;
        u32 words_at, words;
    };

    void measure(const HandoverItem& item) {
        using namespace wire_detail;
        const EntryRun& run = handover_.run();
        Row row{run.bytes(item.index), run.first_entry() + item.index,  0,
                item.redeliveries,     static_cast<u32>(words_.size()), 0};
        if (!run.slot(item.index).sound) row.entry = wrapped(row, run.time(item.index));
        row.body = put_size(consumer_) + id_size(run.ledger(), row.number, partition_);
        if (item.redeliveries != 0) row.body += put_size(item.redeliveries);
        if (item.mask_words != 0) row.words = add_mask(item);
        for (u32 i = 0; i < row.words; ++i) row.body += put_size(words_[row.words_at + i]);
        if (epoch_) row.body += put_size(*epoch_);
        size_ += frame_size(row.body, row.entry.size());
        rows_.push_back(row);
    }

    // A bit for each message that is still open; words of zeros at the end are left out.
    u32 add_mask(const HandoverItem& item) {
        const std::size_t start = words_.size();
        const u32 messages = handover_.run().slot(item.index).messages;
        for (u32 message = 0; message < messages; ++message) {
            if (message % 64 == 0) words_.push_back(0);
            if (handover_.is_open(item, message)) words_.back() |= u64{1} << (message % 64);
        }
        while (words_.size() > start && words_.back() == 0) words_.pop_back();
        return static_cast<u32>(words_.size() - start);
    }

    std::string_view wrapped(const Row& row, u64 time_ns) {
        MessageShape shape;
        shape.producer = "holdfast";
        shape.publish_time_ms = time_ns / 1'000'000;
        ByteBuffer& out = made_.emplace_back();
        EntryWriter(shape).add(out, static_cast<i64>(row.number), row.entry);
        return out.view();
    }

    const Handover& handover_;
    u64 consumer_;
    std::optional<u64> epoch_;
    std::optional<u32> partition_;
    std::vector<Row> rows_;
    std::vector<u64> words_;
    std::deque<ByteBuffer> made_;
    std::size_t size_ = 0;
};

}  // namespace holdfast
