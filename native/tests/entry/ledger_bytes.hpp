// Ledgers made by hand, for tests: the bytes of data and index, and entries for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/file_header.hpp"
#include "holdfast/entry/writer.hpp"

namespace holdfast::test {

inline MessageShape plain_shape() {
    MessageShape shape;
    shape.producer = "p";
    shape.publish_time_ms = 1;
    return shape;
}

inline std::string single_entry(i64 sequence, std::string_view payload) {
    ByteBuffer out;
    EntryWriter(plain_shape()).add(out, sequence, payload);
    return std::string(out.view());
}

inline std::string batch_entry(i64 sequence, const std::vector<std::string_view>& payloads) {
    ByteBuffer out;
    EntryWriter(plain_shape()).add_batch(out, sequence, payloads);
    return std::string(out.view());
}

// An entry of this metadata, a protocol buffer, and payload.
inline std::string entry_of(std::string_view metadata, std::string_view payload) {
    std::string out(kEntryHeader, '\0');
    out[0] = kEntryMagic >> 8;
    out[1] = kEntryMagic & 0xff;
    store_big32(out.data() + kEntrySummed, static_cast<u32>(metadata.size()));
    out += metadata;
    out += payload;
    store_big32(out.data() + 2, crc32c(0, out.data() + kEntrySummed, out.size() - kEntrySummed));
    return out;
}

// The fields that every entry has.
inline ByteBuffer needed_fields(u64 sequence) {
    ByteBuffer metadata;
    append_field(metadata, metadata_field::producer_name, std::string_view("p"));
    append_field(metadata, metadata_field::sequence_id, sequence);
    append_field(metadata, metadata_field::publish_time, u64{1});
    return metadata;
}

// A batch that only its clients can split.
inline std::string compressed_batch(u64 sequence, u32 messages, std::string_view payload) {
    ByteBuffer metadata = needed_fields(sequence);
    append_field(metadata, metadata_field::compression, u64{3});
    append_field(metadata, metadata_field::num_messages_in_batch, u64{messages});
    return entry_of(metadata.view(), payload);
}

// A batch of these payloads, of which those that are null are compacted out.
inline std::string thinned_batch(u64 sequence, const std::vector<const char*>& payloads) {
    ByteBuffer metadata = needed_fields(sequence);
    append_field(metadata, metadata_field::num_messages_in_batch, u64{payloads.size()});
    std::string body;
    for (const char* each : payloads) {
        const std::string_view payload = each == nullptr ? "" : each;
        ByteBuffer single;
        append_field(single, single_field::payload_size, u64{payload.size()});
        if (each == nullptr) append_field(single, single_field::compacted_out, u64{1});
        char size[4];
        store_big32(size, static_cast<u32>(single.size()));
        body.append(size, 4).append(single.view()).append(payload);
    }
    return entry_of(metadata.view(), body);
}

// The bytes behind the header in the two files of a ledger.
class LedgerBytes {
 public:
    void add(std::string_view entry, u64 time) {
        offsets_.push_back(kFileHeaderSize + data_.size());
        const BlockHeader header =
            make_block(kEntryBlock, kFullChecksum, static_cast<u32>(entry.size()),
                       offsets_.size() - 1, time, entry.data());
        data_.append(reinterpret_cast<const char*>(&header), sizeof header);
        data_ += entry;
        data_.resize(padded(data_.size()));
    }

    std::size_t count() const { return offsets_.size(); }
    u64 offset(std::size_t entry) const { return offsets_[entry]; }
    std::string_view data() const { return data_; }
    std::string_view data_from(std::size_t entry) const {
        return data().substr(offsets_[entry] - kFileHeaderSize);
    }
    std::string_view index_from(std::size_t entry) const {
        return {reinterpret_cast<const char*>(offsets_.data() + entry),
                8 * (offsets_.size() - entry)};
    }

 private:
    std::string data_;
    std::vector<u64> offsets_;
};

}  // namespace holdfast::test
