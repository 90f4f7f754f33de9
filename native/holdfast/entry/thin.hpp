// A batch without some of its messages: the second half of a compaction.
//
// The number of messages stays, so that the index of each is what it was. A message that is left
// out has no payload and the mark `compacted_out`, as Pulsar's compactor writes it.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/entry/entry.hpp"

namespace holdfast {

namespace entry_detail {

// Appends the fields of a batch's metadata but those of its payload, which is another one.
inline void append_rest(ByteBuffer& out, std::string_view metadata) {
    namespace f = metadata_field;
    ProtoReader in(metadata);
    std::string_view rest = metadata;
    while (const u32 tag = in.next()) {
        in.skip(tag);
        const std::string_view field = rest.substr(0, rest.size() - in.left());
        rest.remove_prefix(field.size());
        if (tag != proto_tag(f::compression, Wire::varint) &&
            tag != proto_tag(f::uncompressed_size, Wire::varint) &&
            tag != proto_tag(f::kept_messages, Wire::bytes))
            out.append(field);
    }
}

inline std::string batch_of(std::string_view metadata, std::string_view payload, u32 compression,
                            std::size_t size, std::string_view kept) {
    ByteBuffer head;
    append_rest(head, metadata);
    if (compression != 0) append_field(head, metadata_field::compression, u64{compression});
    append_field(head, metadata_field::uncompressed_size, u64{size});
    if (!kept.empty()) append_field(head, metadata_field::kept_messages, kept);
    std::string entry(kEntryHeader, '\0');
    entry[0] = kEntryMagic >> 8;
    entry[1] = kEntryMagic & 0xff;
    store_big32(entry.data() + kEntrySummed, static_cast<u32>(head.size()));
    entry.append(head.view()).append(payload);
    store_big32(entry.data() + 2,
                crc32c(0, entry.data() + kEntrySummed, entry.size() - kEntrySummed));
    return entry;
}

}  // namespace entry_detail

// Returns a sound batch without those messages for which `stays` (of an index) is false. `payload`:
// that of the batch, opened.
template <class Stays>
std::string thinned(std::string_view metadata, std::string_view payload, u32 messages,
                    Stays stays) {
    ByteBuffer out_of;
    append_field(out_of, single_field::payload_size, u64{0});
    append_field(out_of, single_field::compacted_out, u64{1});
    ByteBuffer body;
    BatchReader reader(payload);
    BatchPart part;
    for (u32 i = 0; i < messages && reader.next(part); ++i) {
        const bool whole = stays(i);
        const std::string_view single = whole ? part.metadata : out_of.view();
        store_big32(body.extend(4), static_cast<u32>(single.size()));
        body.append(single);
        if (whole) body.append(part.payload);
    }
    return entry_detail::batch_of(metadata, body.view(), 0, body.size(), {});
}

// Returns a thinned batch without compression as one with this payload, which opens to its own. The
// metadata has the mask of the messages that are left, as the payload cannot be looked into.
inline std::string compressed(std::string_view bytes, u32 compression, std::string_view payload) {
    Entry entry;
    if (read_entry(bytes, entry) != EntryFault::none || !entry.metadata.batch)
        throw Error(Code::misuse, "the bytes to compress are not a batch without compression");
    std::string kept(entry.metadata.messages / 8 + 1, '\0');
    BatchReader reader(entry.payload);
    BatchPart part;
    for (u32 i = 0; i < entry.metadata.messages && reader.next(part); ++i)
        if (!part.fields.compacted_out)
            kept[i / 8] = static_cast<char>(static_cast<u8>(kept[i / 8]) | 1u << (i % 8));
    return entry_detail::batch_of(entry.metadata_bytes, payload, compression, entry.payload.size(),
                                  kept);
}

}  // namespace holdfast
