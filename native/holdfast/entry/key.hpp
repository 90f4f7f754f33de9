// The hash of an entry's key, by which a Key_Shared subscription chooses a consumer.
//
// The key is the ordering key of the entry's metadata, else its partition key. A batch whose
// metadata has neither counts by its first message. An entry without a key counts by its producer
// and sequence. So such entries are spread over all consumers, and the parts of one chunked message
// stay together.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/base/base64.hpp"
#include "holdfast/base/murmur3.hpp"
#include "holdfast/entry/entry.hpp"

namespace holdfast {

inline constexpr u32 kKeyHashes = 65536;

inline u32 key_hash(std::string_view key) {
    return (murmur3(key) & 0x7fffffffu) % kKeyHashes;
}

namespace entry_detail {

inline bool hash_of_fields(const MessageFields& fields, u32& hash) {
    if (fields.has_ordering_key) {
        hash = key_hash(fields.ordering_key);
        return true;
    }
    if (!fields.has_key) return false;
    std::string bytes;
    if (fields.key_base64 && from_base64(fields.partition_key, bytes))
        hash = key_hash(bytes);
    else
        hash = key_hash(fields.partition_key);
    return true;
}

// The fields of the metadata that a key needs; the rest is skipped.
struct KeyFields : MessageFields {
    std::string_view producer;
    bool batch = false;
    bool open = true;
};

inline bool read_key_fields(std::string_view bytes, KeyFields& out) {
    namespace f = metadata_field;
    ProtoReader in(bytes);
    while (const u32 tag = in.next()) {
        switch (tag) {
            case proto_tag(f::producer_name, Wire::bytes):
                out.producer = in.bytes();
                break;
            case proto_tag(f::sequence_id, Wire::varint):
                out.sequence = static_cast<i64>(in.varint());
                break;
            case proto_tag(f::partition_key, Wire::bytes):
                out.partition_key = in.bytes();
                out.has_key = true;
                break;
            case proto_tag(f::partition_key_b64_encoded, Wire::varint):
                out.key_base64 = in.varint() != 0;
                break;
            case proto_tag(f::ordering_key, Wire::bytes):
                out.ordering_key = in.bytes();
                out.has_ordering_key = true;
                break;
            case proto_tag(f::num_messages_in_batch, Wire::varint):
                in.varint();
                out.batch = true;
                break;
            case proto_tag(f::compression, Wire::varint):
                out.open = in.varint() == 0 && out.open;
                break;
            case proto_tag(f::encryption_keys, Wire::bytes):
                in.bytes();
                out.open = false;
                break;
            default:
                in.skip(tag);
        }
    }
    return !in.bad();
}

}  // namespace entry_detail

// For any bytes: those that are not an entry have the hash of all their bytes.
inline u32 sticky_hash(std::string_view entry) {
    std::string_view metadata, payload;
    entry_detail::KeyFields fields;
    if (read_frame(entry, metadata, payload) != EntryFault::none ||
        !entry_detail::read_key_fields(metadata, fields))
        return key_hash(entry);
    u32 hash = 0;
    if (entry_detail::hash_of_fields(fields, hash)) return hash;
    BatchPart first;
    if (fields.batch && fields.open && BatchReader(payload).next(first) &&
        entry_detail::hash_of_fields(first.fields, hash))
        return hash;
    return key_hash(std::string(fields.producer) + "-" + std::to_string(fields.sequence));
}

}  // namespace holdfast
