// A batch without some of its messages: the second half of a compaction.
//
// The number of messages stays, so that the index of each is what it was. A message that is left
// out has no payload and the mark `compacted_out`, as Pulsar's compactor writes it.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/entry/entry.hpp"

namespace holdfast {

namespace entry_detail {

// Appends the fields of a batch's metadata but compression and size: its payload is another one.
inline void append_rest(ByteBuffer& out, std::string_view metadata) {
    namespace f = metadata_field;
    ProtoReader in(metadata);
    std::string_view rest = metadata;
    while (const u32 tag = in.next()) {
        in.skip(tag);
        const std::string_view field = rest.substr(0, rest.size() - in.left());
        rest.remove_prefix(field.size());
        if (tag != proto_tag(f::compression, Wire::varint) &&
            tag != proto_tag(f::uncompressed_size, Wire::varint))
            out.append(field);
    }
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
    ByteBuffer head;
    entry_detail::append_rest(head, metadata);
    append_field(head, metadata_field::uncompressed_size, u64{body.size()});
    std::string entry(kEntryHeader, '\0');
    entry[0] = kEntryMagic >> 8;
    entry[1] = kEntryMagic & 0xff;
    store_big32(entry.data() + kEntrySummed, static_cast<u32>(head.size()));
    entry.append(head.view()).append(body.view());
    store_big32(entry.data() + 2,
                crc32c(0, entry.data() + kEntrySummed, entry.size() - kEntrySummed));
    return entry;
}

}  // namespace holdfast
