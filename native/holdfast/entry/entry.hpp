// An entry: the bytes that a producer publishes as one, in Pulsar's format, stored unchanged.
//
//   | 0x0e01 u16 | crc32c u32, of all that follows | metadata size u32 | MessageMetadata | payload |   numbers big-endian
//
// If the metadata has num_messages_in_batch, even as 1, the payload is a batch: that many times
//
//   | metadata size u32 | SingleMessageMetadata | its payload_size bytes |
//
// A compressed or encrypted payload is not split: clients do that, and the entry is delivered unchanged.
//
// Every size is checked against the bytes that are there. A view points into the entry's bytes.
#pragma once

#include <cstring>
#include <string_view>

#include "holdfast/base/crc32c.hpp"
#include "holdfast/base/frame_layout.hpp"
#include "holdfast/base/protobuf.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast {

using i32 = std::int32_t;

inline constexpr u16 kEntryMagic = 0x0e01;
inline constexpr std::size_t kEntryHeader = 10;         // magic, sum and metadata size
inline constexpr std::size_t kEntrySummed = 6;          // where the summed part begins
inline constexpr u64 kEntryMessagesMax = u64{1} << 24;  // of one batch

// The fields' numbers, as Pulsar's PulsarApi.proto gives them.
namespace metadata_field {
inline constexpr u32 producer_name = 1, sequence_id = 2, publish_time = 3, properties = 4,
                     replicated_from = 5, partition_key = 6, compression = 8, uncompressed_size = 9,
                     num_messages_in_batch = 11, event_time = 12, encryption_keys = 13,
                     schema_version = 16, partition_key_b64_encoded = 17, ordering_key = 18,
                     deliver_at_time = 19, marker_type = 20, txnid_least_bits = 22,
                     txnid_most_bits = 23, highest_sequence_id = 24, null_value = 25, uuid = 26,
                     num_chunks_from_msg = 27, total_chunk_msg_size = 28, chunk_id = 29,
                     null_partition_key = 30;
// Ours, in compressed batches that were thinned (entry/thin.hpp): the mask of the messages that are
// left. The first one has the lowest bit of the first byte. Clients skip fields that they do not know.
inline constexpr u32 kept_messages = 20000;
}  // namespace metadata_field
namespace single_field {
inline constexpr u32 properties = 1, partition_key = 2, payload_size = 3, compacted_out = 4,
                     event_time = 5, partition_key_b64_encoded = 6, ordering_key = 7,
                     sequence_id = 8, null_value = 9, null_partition_key = 10;
}
namespace pair_field {
inline constexpr u32 key = 1, value = 2;
}

// The fields of a message beside its payload, alone in its entry or in a batch.
struct MessageFields {
    std::string_view partition_key, ordering_key;
    u64 event_time_ms = 0;
    i64 sequence = 0;
    u32 properties = 0;  // number of properties
    bool has_key = false;
    bool key_base64 = false;  // the key is bytes, written in base64
    bool null_key = false;
    bool has_ordering_key = false;
    bool null_value = false;
};

struct EntryMetadata : MessageFields {
    std::string_view producer, uuid, schema_version, replicated_from, kept_messages;
    u64 publish_time_ms = 0;
    u64 highest_sequence = 0;
    i64 deliver_at_ms = 0;
    u64 transaction_least = 0, transaction_most = 0;
    u32 compression = 0;  // 0 none, 1 LZ4, 2 ZLIB, 3 ZSTD, 4 SNAPPY
    u32 uncompressed_size = 0;
    u32 messages = 1;
    i32 chunk = -1, chunks = 0, chunked_size = 0;
    i32 marker = 0;
    bool batch = false;
    bool encrypted = false;
    bool has_transaction = false;

    // The payload of a batch can be split here.
    bool open() const { return compression == 0 && !encrypted; }
};

struct SingleMetadata : MessageFields {
    u32 payload_size = 0;
    bool compacted_out = false;
    bool has_sequence = false;
};

enum class EntryFault { none, size, magic, crc, metadata_size, metadata, required, count, batch };

constexpr std::string_view fault_name(EntryFault fault) {
    switch (fault) {
        case EntryFault::none:
            return "nothing";
        case EntryFault::size:
            return "it is shorter than its header";
        case EntryFault::magic:
            return "it does not begin with the magic number 0x0e01";
        case EntryFault::crc:
            return "its checksum is wrong";
        case EntryFault::metadata_size:
            return "its metadata is longer than the entry";
        case EntryFault::metadata:
            return "its metadata is not a protocol buffer";
        case EntryFault::required:
            return "its metadata lacks producer name, sequence or publish time";
        case EntryFault::count:
            return "its number of messages is not possible";
        case EntryFault::batch:
            return "its batch ends within a message";
    }
    return "unknown";
}

inline u32 load_big32(const void* bytes) {
    u32 value;
    std::memcpy(&value, bytes, 4);
    return __builtin_bswap32(value);
}
inline void store_big32(void* bytes, u32 value) {
    value = __builtin_bswap32(value);
    std::memcpy(bytes, &value, 4);
}

namespace entry_detail {

inline bool read_pair(std::string_view bytes, std::string_view& key, std::string_view& value) {
    ProtoReader in(bytes);
    bool has_key = false, has_value = false;
    while (const u32 tag = in.next()) {
        if (tag == proto_tag(pair_field::key, Wire::bytes)) {
            key = in.bytes();
            has_key = true;
        } else if (tag == proto_tag(pair_field::value, Wire::bytes)) {
            value = in.bytes();
            has_value = true;
        } else {
            in.skip(tag);
        }
    }
    return !in.bad() && has_key && has_value;
}

inline bool sound_pair(std::string_view bytes) {
    std::string_view key, value;
    return read_pair(bytes, key, value);
}

// An int32 travels as 64 bits with its sign; higher bits are cut, as protocol buffers do.
inline i32 narrow(u64 value) {
    return static_cast<i32>(static_cast<u32>(value));
}

}  // namespace entry_detail

// Calls use(key, value) for each property, in order. `field` is their field number in this
// kind of metadata.
template <class Use>
void each_property(std::string_view metadata, u32 field, Use use) {
    ProtoReader in(metadata);
    while (const u32 tag = in.next()) {
        if (tag != proto_tag(field, Wire::bytes)) {
            in.skip(tag);
            continue;
        }
        std::string_view key, value;
        if (entry_detail::read_pair(in.bytes(), key, value)) use(key, value);
    }
}

inline EntryFault read_metadata(std::string_view bytes, EntryMetadata& out) {
    namespace f = metadata_field;
    const auto varint = [](u32 field) { return proto_tag(field, Wire::varint); };
    const auto string = [](u32 field) { return proto_tag(field, Wire::bytes); };
    ProtoReader in(bytes);
    u32 required = 0;
    i64 messages = 1;
    while (const u32 tag = in.next()) {
        if (tag == string(f::producer_name)) {
            out.producer = in.bytes();
            required |= 1;
        } else if (tag == varint(f::sequence_id)) {
            out.sequence = static_cast<i64>(in.varint());
            required |= 2;
        } else if (tag == varint(f::publish_time)) {
            out.publish_time_ms = in.varint();
            required |= 4;
        } else if (tag == string(f::properties)) {
            if (!entry_detail::sound_pair(in.bytes())) return EntryFault::metadata;
            ++out.properties;
        } else if (tag == string(f::partition_key)) {
            out.partition_key = in.bytes();
            out.has_key = true;
        } else if (tag == varint(f::num_messages_in_batch)) {
            messages = entry_detail::narrow(in.varint());
            out.batch = true;
        } else if (tag == varint(f::event_time)) {
            out.event_time_ms = in.varint();
        } else if (tag == varint(f::partition_key_b64_encoded)) {
            out.key_base64 = in.varint() != 0;
        } else if (tag == string(f::ordering_key)) {
            out.ordering_key = in.bytes();
            out.has_ordering_key = true;
        } else if (tag == varint(f::highest_sequence_id)) {
            out.highest_sequence = in.varint();
        } else if (tag == varint(f::compression)) {
            out.compression = static_cast<u32>(in.varint());
        } else if (tag == varint(f::uncompressed_size)) {
            out.uncompressed_size = static_cast<u32>(in.varint());
        } else if (tag == string(f::encryption_keys)) {
            in.bytes();
            out.encrypted = true;
        } else if (tag == string(f::schema_version)) {
            out.schema_version = in.bytes();
        } else if (tag == string(f::replicated_from)) {
            out.replicated_from = in.bytes();
        } else if (tag == varint(f::deliver_at_time)) {
            out.deliver_at_ms = static_cast<i64>(in.varint());
        } else if (tag == varint(f::marker_type)) {
            out.marker = entry_detail::narrow(in.varint());
        } else if (tag == varint(f::txnid_least_bits)) {
            out.transaction_least = in.varint();
            out.has_transaction = true;
        } else if (tag == varint(f::txnid_most_bits)) {
            out.transaction_most = in.varint();
            out.has_transaction = true;
        } else if (tag == varint(f::null_value)) {
            out.null_value = in.varint() != 0;
        } else if (tag == string(f::uuid)) {
            out.uuid = in.bytes();
        } else if (tag == varint(f::num_chunks_from_msg)) {
            out.chunks = entry_detail::narrow(in.varint());
        } else if (tag == varint(f::total_chunk_msg_size)) {
            out.chunked_size = entry_detail::narrow(in.varint());
        } else if (tag == varint(f::chunk_id)) {
            out.chunk = entry_detail::narrow(in.varint());
        } else if (tag == varint(f::null_partition_key)) {
            out.null_key = in.varint() != 0;
        } else if (tag == string(f::kept_messages)) {
            out.kept_messages = in.bytes();
        } else {
            in.skip(tag);
        }
    }
    if (in.bad()) return EntryFault::metadata;
    if (required != 7) return EntryFault::required;
    if (messages < 1 || static_cast<u64>(messages) > kEntryMessagesMax) return EntryFault::count;
    out.messages = static_cast<u32>(messages);
    return EntryFault::none;
}

inline bool read_single(std::string_view bytes, SingleMetadata& out) {
    namespace f = single_field;
    const auto varint = [](u32 field) { return proto_tag(field, Wire::varint); };
    const auto string = [](u32 field) { return proto_tag(field, Wire::bytes); };
    ProtoReader in(bytes);
    bool has_size = false;
    i32 size = 0;
    while (const u32 tag = in.next()) {
        if (tag == varint(f::payload_size)) {
            size = entry_detail::narrow(in.varint());
            has_size = true;
        } else if (tag == string(f::properties)) {
            if (!entry_detail::sound_pair(in.bytes())) return false;
            ++out.properties;
        } else if (tag == string(f::partition_key)) {
            out.partition_key = in.bytes();
            out.has_key = true;
        } else if (tag == varint(f::sequence_id)) {
            out.sequence = static_cast<i64>(in.varint());
            out.has_sequence = true;
        } else if (tag == varint(f::event_time)) {
            out.event_time_ms = in.varint();
        } else if (tag == varint(f::partition_key_b64_encoded)) {
            out.key_base64 = in.varint() != 0;
        } else if (tag == string(f::ordering_key)) {
            out.ordering_key = in.bytes();
            out.has_ordering_key = true;
        } else if (tag == varint(f::compacted_out)) {
            out.compacted_out = in.varint() != 0;
        } else if (tag == varint(f::null_value)) {
            out.null_value = in.varint() != 0;
        } else if (tag == varint(f::null_partition_key)) {
            out.null_key = in.varint() != 0;
        } else {
            in.skip(tag);
        }
    }
    out.payload_size = static_cast<u32>(size);
    return !in.bad() && has_size && size >= 0;
}

// One message of a batch, with its offset in the entry's payload.
struct BatchPart {
    std::string_view metadata, payload;
    SingleMetadata fields;
};

// Walks through the payload of an open batch.
class BatchReader {
 public:
    explicit BatchReader(std::string_view payload) : rest_(payload) {}

    // Returns false if the rest is not a message.
    bool next(BatchPart& part) {
        if (rest_.size() < 4) return false;
        const u64 size = load_big32(rest_.data());
        if (size > rest_.size() - 4) return false;
        part.metadata = rest_.substr(4, size);
        part.fields = SingleMetadata{};
        if (!read_single(part.metadata, part.fields)) return false;
        if (part.fields.payload_size > rest_.size() - 4 - size) return false;
        part.payload = rest_.substr(4 + size, part.fields.payload_size);
        rest_.remove_prefix(4 + size + part.fields.payload_size);
        return true;
    }

 private:
    std::string_view rest_;
};

struct Entry {
    EntryMetadata metadata;
    std::string_view metadata_bytes, payload;
    bool thinned = false;  // messages of its open batch are compacted out
};

// Finds metadata and payload; reads neither.
inline EntryFault read_frame(std::string_view bytes, std::string_view& metadata,
                             std::string_view& payload) {
    if (bytes.size() < kEntryHeader) return EntryFault::size;
    if (static_cast<u8>(bytes[0]) != kEntryMagic >> 8 ||
        static_cast<u8>(bytes[1]) != (kEntryMagic & 0xff))
        return EntryFault::magic;
    const u64 size = load_big32(bytes.data() + kEntrySummed);
    if (size > bytes.size() - kEntryHeader) return EntryFault::metadata_size;
    metadata = bytes.substr(kEntryHeader, size);
    payload = bytes.substr(kEntryHeader + size);
    return EntryFault::none;
}

// Reads the metadata; checks neither the payload nor the sum.
inline EntryFault read_head(std::string_view bytes, Entry& out) {
    if (const auto fault = read_frame(bytes, out.metadata_bytes, out.payload);
        fault != EntryFault::none)
        return fault;
    out.metadata = EntryMetadata{};
    out.thinned = false;
    return read_metadata(out.metadata_bytes, out.metadata);
}

// Checks all but the sum: for bytes that a block's sum covers already.
inline EntryFault read_entry(std::string_view bytes, Entry& out) {
    if (const auto fault = read_head(bytes, out); fault != EntryFault::none) return fault;
    out.thinned = out.metadata.batch && !out.metadata.kept_messages.empty();
    if (!out.metadata.batch || !out.metadata.open()) return EntryFault::none;
    if (out.metadata.messages > out.payload.size() / 4) return EntryFault::count;
    BatchReader reader(out.payload);
    BatchPart part;
    for (u32 i = 0; i < out.metadata.messages; ++i) {
        if (!reader.next(part)) return EntryFault::batch;
        out.thinned = out.thinned || part.fields.compacted_out;
    }
    return EntryFault::none;
}

inline bool sum_is_right(std::string_view bytes) {
    return bytes.size() >= kEntryHeader &&
           crc32c(0, bytes.data() + kEntrySummed, bytes.size() - kEntrySummed) ==
               load_big32(bytes.data() + 2);
}

// Checks the sum, too: for bytes from outside.
inline EntryFault check_entry(std::string_view bytes, Entry& out) {
    const EntryFault fault = read_entry(bytes, out);
    if (fault == EntryFault::size || fault == EntryFault::magic) return fault;
    return sum_is_right(bytes) ? fault : EntryFault::crc;
}

}  // namespace holdfast
