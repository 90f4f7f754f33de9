// A run of entries: neighbours of one ledger, in one buffer, checked, and never changed again.
//
// Runs and parts of runs share the buffer, so that splitting one costs nothing. The buffer holds
// the blocks as in the ledger's data file (base/file_header.hpp: kEntryBlock). A slot has the
// offset of an entry and its number of messages.
//
// A block's sum covers its bytes, not their meaning, which comes from a producer. An entry that is
// sound as a block and not as an entry (entry/entry.hpp) is one message, delivered unchanged. It
// must not hold up the entries behind it.
//
// A run can have gaps: places whose entries were compacted. A gap has no bytes and no messages.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/block.hpp"
#include "holdfast/base/buffer_pool.hpp"
#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/base/file_header.hpp"
#include "holdfast/entry/entry.hpp"

namespace holdfast {

inline constexpr std::size_t kRunMax = 4096;        // entries of one run
inline constexpr std::size_t kSpreadMax = 1 << 16;  // of one run with gaps

enum class ChunkPart : u8 { none, first, middle, last };  // of a chunked message

struct EntrySlot {
    u64 offset;    // of the entry's bytes in the buffer
    u64 time;      // log time, nanoseconds since the epoch
    u32 size;      // of the entry
    u32 header;    // of its first part, magic to metadata: the payload begins there
    u32 messages;  // messages, as a consumer's permits count them
    bool sound;
    bool batch;             // can be split into `messages` messages
    i64 deliver_at_ms = 0;  // delivery time since the epoch; 0: none
    bool thinned = false;   // a batch of which messages are compacted out
    ChunkPart part = ChunkPart::none;

    bool gap() const { return messages == 0; }
};
inline constexpr EntrySlot kGap{0, 0, 0, 0, 0, false, false};

// The shared bytes and slots of runs. Filled by append(), then only read.
class EntryStore {
 public:
    // The buffer goes to `pool`, if there is one, when the last run is gone. `unread`: the receiver
    // of the run reads the entries anyway, so they are not read here. Slots then have only the end
    // of each entry's metadata.
    EntryStore(u64 ledger, ByteBuffer&& blocks, std::shared_ptr<BufferPool> pool = nullptr,
               bool unread = false)
        : ledger_(ledger), blocks_(std::move(blocks)), pool_(std::move(pool)), unread_(unread) {}
    // Other slots over the bytes of `base`.
    EntryStore(u64 ledger, std::shared_ptr<const EntryStore> base, std::vector<EntrySlot>&& slots)
        : ledger_(ledger), unread_(false), slots_(std::move(slots)), base_(std::move(base)) {}
    EntryStore(const EntryStore&) = delete;
    ~EntryStore() {
        if (pool_) pool_->put(std::move(blocks_));
    }

    u64 ledger() const { return ledger_; }
    std::string_view blocks() const { return base_ ? base_->blocks() : blocks_.view(); }
    const std::vector<EntrySlot>& slots() const { return slots_; }

    // Takes the block at `offset` of the buffer as the next entry, if it is whole, sound and has
    // this number. Returns what is wrong with it; `size` also if the buffer ends within it.
    BlockFault append(u64 offset, u64 number) {
        const std::string_view rest = blocks_.view().substr(offset);
        if (rest.size() < sizeof(BlockHeader)) return BlockFault::size;
        BlockHeader header;
        std::memcpy(&header, rest.data(), sizeof header);
        if (const auto fault = verify(header, number, kEntrySizeMax); fault != BlockFault::none)
            return fault;
        if (header.kind != kEntryBlock) return BlockFault::kind;
        if (!(header.flags & kFullChecksum)) return BlockFault::reserved;
        if (header.size > rest.size() - sizeof header) return BlockFault::size;
        const std::string_view bytes = rest.substr(sizeof header, header.size);
        if (verify_payload(header, bytes.data()) != BlockFault::none) return BlockFault::crc;
        if (unread_) {
            std::string_view metadata, payload;
            const bool framed = read_frame(bytes, metadata, payload) == EntryFault::none;
            slots_.push_back({offset + sizeof header, header.time, header.size,
                              framed ? static_cast<u32>(bytes.size() - payload.size()) : 0, 1,
                              framed, false});
            return BlockFault::none;
        }
        Entry entry;
        const bool sound = read_entry(bytes, entry) == EntryFault::none;
        const EntryMetadata& metadata = entry.metadata;
        slots_.push_back({offset + sizeof header, header.time, header.size,
                          sound ? static_cast<u32>(bytes.size() - entry.payload.size()) : 0,
                          sound ? metadata.messages : 1, sound,
                          sound && metadata.batch && metadata.open(),
                          sound ? metadata.deliver_at_ms : 0, sound && entry.thinned,
                          sound ? part_of(metadata) : ChunkPart::none});
        return BlockFault::none;
    }

 private:
    static ChunkPart part_of(const EntryMetadata& metadata) {
        if (metadata.chunks < 2 || metadata.chunk < 0) return ChunkPart::none;
        if (metadata.chunk == 0) return ChunkPart::first;
        return metadata.chunk + 1 < metadata.chunks ? ChunkPart::middle : ChunkPart::last;
    }

    u64 ledger_;
    ByteBuffer blocks_;
    std::shared_ptr<BufferPool> pool_;
    bool unread_;
    std::vector<EntrySlot> slots_;
    std::shared_ptr<const EntryStore> base_;  // has the bytes, if it is there
};

class EntryRun {
 public:
    // Takes all of `store`, whose first entry has these numbers.
    EntryRun(std::shared_ptr<const EntryStore> store, u64 first_entry, u64 first_ordinal)
        : store_(std::move(store)),
          count_(store_->slots().size()),
          first_entry_(first_entry),
          first_ordinal_(first_ordinal) {}

    std::size_t count() const { return count_; }
    u64 ledger() const { return store_->ledger(); }
    u64 first_entry() const { return first_entry_; }      // its number in the ledger
    u64 first_ordinal() const { return first_ordinal_; }  // its position in the topic
    u64 end_ordinal() const { return first_ordinal_ + count_; }

    const EntrySlot& slot(std::size_t i) const { return store_->slots()[start_ + i]; }
    u64 time(std::size_t i) const { return slot(i).time; }
    u32 messages(std::size_t i) const { return slot(i).messages; }
    i64 deliver_at_ms(std::size_t i) const { return slot(i).deliver_at_ms; }
    ChunkPart part(std::size_t i) const { return slot(i).part; }
    std::string_view bytes(std::size_t i) const {
        const EntrySlot& s = slot(i);
        return store_->blocks().substr(s.offset, s.size);
    }

    // Of the entries' bytes together.
    u64 size() const {
        u64 total = 0;
        for (std::size_t i = 0; i < count_; ++i) total += slot(i).size;
        return total;
    }

    // The bytes of the blocks in the file, with padding: the offset from the first entry to the
    // next run.
    u64 space() const {
        u64 total = 0;
        for (std::size_t i = 0; i < count_; ++i)
            if (!slot(i).gap()) total += block_space(slot(i).size);
        return total;
    }

    EntryRun slice(std::size_t start, std::size_t stop) const {
        stop = std::min(stop, count_);
        start = std::min(start, stop);
        EntryRun out = *this;
        out.start_ += start;
        out.count_ = stop - start;
        out.first_entry_ += start;
        out.first_ordinal_ += start;
        return out;
    }

    // Returns `count` places from `first_ordinal` on, of another ledger, that share the bytes: entry
    // i has ordinals[i], and all other places are gaps.
    EntryRun spread(std::span<const u64> ordinals, u64 ledger, u64 first_entry, u64 first_ordinal,
                    std::size_t count) const {
        if (ordinals.size() != count_)
            throw Error(Code::misuse, "spread: " + std::to_string(ordinals.size()) +
                                          " ordinals for " + std::to_string(count_) + " entries");
        if (count > kSpreadMax || first_ordinal > ~u64{0} - count || first_entry > ~u64{0} - count)
            throw Error(Code::misuse, "spread: " + std::to_string(count) + " places from " +
                                          std::to_string(first_ordinal) + " on; at most " +
                                          std::to_string(kSpreadMax) + " are possible");
        std::vector<EntrySlot> slots(count, kGap);
        u64 next = first_ordinal;
        for (std::size_t i = 0; i < count_; ++i) {
            if (ordinals[i] < next || ordinals[i] - first_ordinal >= count)
                throw Error(Code::misuse,
                            "spread: ordinal " + std::to_string(ordinals[i]) +
                                " is out of order, or not from " + std::to_string(first_ordinal) +
                                " to " + std::to_string(first_ordinal + count) + ", exclusive");
            slots[ordinals[i] - first_ordinal] = slot(i);
            next = ordinals[i] + 1;
        }
        return EntryRun(std::make_shared<EntryStore>(ledger, store_, std::move(slots)), first_entry,
                        first_ordinal);
    }

    // Returns the mask of the messages of a batch that are not compacted out, the first one in the
    // lowest bit.
    std::vector<u64> open_mask(std::size_t i) const {
        std::vector<u64> words(slot(i).messages / 64 + 1);
        Entry entry;
        if (!slot(i).batch) {
            if (read_head(bytes(i), entry) != EntryFault::none) return words;
            const std::string_view kept = entry.metadata.kept_messages;
            for (u32 message = 0; message < slot(i).messages && message / 8 < kept.size();
                 ++message)
                if (static_cast<u8>(kept[message / 8]) >> (message % 8) & 1)
                    words[message / 64] |= u64{1} << (message % 64);
            return words;
        }
        BatchReader reader(bytes(i).substr(slot(i).header));
        BatchPart part;
        for (u32 message = 0; message < slot(i).messages && reader.next(part); ++message)
            if (!part.fields.compacted_out) words[message / 64] |= u64{1} << (message % 64);
        return words;
    }

 private:
    std::shared_ptr<const EntryStore> store_;
    std::size_t start_ = 0;
    std::size_t count_;
    u64 first_entry_;
    u64 first_ordinal_;
};

// Why a run ended before `count` entries, or could not start.
struct RunEnd {
    BlockFault fault = BlockFault::none;
    u64 offset = 0;  // in the buffer
};

// Takes blocks from the start of the store's buffer, which must be entry `first` and those after
// it. It stops after `count` blocks, or before one that is not sound.
inline RunEnd fill(EntryStore& store, u64 first, std::size_t count) {
    u64 offset = 0;
    for (std::size_t i = 0; i < count; ++i) {
        if (offset >= store.blocks().size()) return {BlockFault::size, offset};
        if (const auto fault = store.append(offset, first + i); fault != BlockFault::none)
            return {fault, offset};
        offset += block_space(store.slots().back().size);
    }
    return {BlockFault::none, offset};
}

}  // namespace holdfast
