// Encodes entries (entry/entry.hpp) of messages that share producer, time, key and properties. The
// shared part is encoded once.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/entry/entry.hpp"

namespace holdfast {

struct MessageShape {
    std::string_view producer;
    u64 publish_time_ms = 0;
    u64 event_time_ms = 0;
    i64 deliver_at_ms = 0;  // delivery time of whole entries; 0: none
    std::string_view key;   // already in base64 if key_base64
    bool has_key = false;
    bool key_base64 = false;
    std::string_view ordering_key;
    bool has_ordering_key = false;
    std::span<const std::pair<std::string_view, std::string_view>> properties;
};

class EntryWriter {
 public:
    explicit EntryWriter(const MessageShape& shape) {
        namespace f = metadata_field;
        namespace s = single_field;
        append_field(before_, f::producer_name, shape.producer);
        append_varint(before_, proto_tag(f::sequence_id, Wire::varint));
        append_field(batch_, f::publish_time, shape.publish_time_ms);
        append_keys(batch_, shape, f::partition_key, f::partition_key_b64_encoded, f::ordering_key);
        if (shape.deliver_at_ms != 0)
            append_field(batch_, f::deliver_at_time, static_cast<u64>(shape.deliver_at_ms));
        alone_.append(batch_.view());
        append_properties(alone_, shape, f::properties);
        if (shape.event_time_ms != 0) append_field(alone_, f::event_time, shape.event_time_ms);
        append_properties(single_, shape, s::properties);
        append_keys(single_, shape, s::partition_key, s::partition_key_b64_encoded,
                    s::ordering_key);
        if (shape.event_time_ms != 0) append_field(single_, s::event_time, shape.event_time_ms);
    }

    // Appends one entry of one message; returns its size.
    std::size_t add(ByteBuffer& out, i64 sequence, std::string_view payload) const {
        const u64 number = static_cast<u64>(sequence);
        const std::size_t metadata = before_.size() + varint_size(number) + alone_.size();
        const std::size_t size = kEntryHeader + metadata + payload.size();
        u8* start = out.extend(size);
        u8* at = begin(start, metadata, number);
        at = copy(at, alone_.view());
        copy(at, payload);
        finish(start, size);
        return size;
    }

    // Appends one entry that holds all of `payloads` as a batch, sequences rising by one.
    std::size_t add_batch(ByteBuffer& out, i64 sequence,
                          std::span<const std::string_view> payloads) const {
        namespace f = metadata_field;
        const u64 number = static_cast<u64>(sequence);
        u8 tail[3 * kVarintMax + 8];
        u8* end = write_varint(tail, proto_tag(f::num_messages_in_batch, Wire::varint));
        end = write_varint(end, payloads.size());
        end = write_varint(end, proto_tag(f::highest_sequence_id, Wire::varint));
        end = write_varint(end, number + payloads.size() - 1);
        const std::string_view last(reinterpret_cast<char*>(tail),
                                    static_cast<std::size_t>(end - tail));
        const std::size_t metadata =
            before_.size() + varint_size(number) + batch_.size() + last.size();
        std::size_t size = kEntryHeader + metadata;
        for (std::size_t i = 0; i < payloads.size(); ++i)
            size += 4 + single_size(payloads[i], number + i) + payloads[i].size();
        u8* start = out.extend(size);
        u8* at = begin(start, metadata, number);
        at = copy(copy(at, batch_.view()), last);
        for (std::size_t i = 0; i < payloads.size(); ++i) at = single(at, payloads[i], number + i);
        finish(start, size);
        return size;
    }

    // An upper bound of an entry's size for these messages.
    std::size_t size_bound(std::size_t messages, std::size_t payload_bytes) const {
        return kEntryHeader + before_.size() + alone_.size() + batch_.size() + 4 * kVarintMax + 8 +
               messages * (single_.size() + 4 + 2 * kVarintMax + 2) + payload_bytes;
    }

 private:
    static void append_keys(ByteBuffer& out, const MessageShape& shape, u32 key, u32 base64,
                            u32 ordering) {
        if (shape.has_key) append_field(out, key, shape.key);
        if (shape.has_key && shape.key_base64) append_field(out, base64, u64{1});
        if (shape.has_ordering_key) append_field(out, ordering, shape.ordering_key);
    }

    static void append_properties(ByteBuffer& out, const MessageShape& shape, u32 field) {
        for (const auto& [key, value] : shape.properties) {
            ByteBuffer pair;
            append_field(pair, pair_field::key, key);
            append_field(pair, pair_field::value, value);
            append_field(out, field, pair.view());
        }
    }

    static u8* copy(u8* at, std::string_view bytes) {
        if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
        return at + bytes.size();
    }

    u8* begin(u8* start, std::size_t metadata, u64 sequence) const {
        start[0] = kEntryMagic >> 8;
        start[1] = kEntryMagic & 0xff;
        store_big32(start + kEntrySummed, static_cast<u32>(metadata));
        return write_varint(copy(start + kEntryHeader, before_.view()), sequence);
    }

    static void finish(u8* start, std::size_t size) {
        store_big32(start + 2, crc32c(0, start + kEntrySummed, size - kEntrySummed));
    }

    std::size_t single_size(std::string_view payload, u64 sequence) const {
        return single_.size() + 1 + varint_size(payload.size()) + 1 + varint_size(sequence);
    }

    u8* single(u8* at, std::string_view payload, u64 sequence) const {
        store_big32(at, static_cast<u32>(single_size(payload, sequence)));
        at = copy(at + 4, single_.view());
        *at++ = proto_tag(single_field::payload_size, Wire::varint);
        at = write_varint(at, payload.size());
        *at++ = proto_tag(single_field::sequence_id, Wire::varint);
        at = write_varint(at, sequence);
        return copy(at, payload);
    }

    ByteBuffer before_;  // the producer's name and the sequence's tag
    ByteBuffer alone_;   // what follows the sequence in an entry of one message
    ByteBuffer batch_;   // what follows it in the metadata of a batch
    ByteBuffer single_;  // the start of each message of a batch
};

}  // namespace holdfast
