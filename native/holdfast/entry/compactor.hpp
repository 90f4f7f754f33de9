// Which entries of a topic survive a compaction: of each key the newest message.
//
//   note(run) … end_pass()     until it returns true: reads everything once, or as often as the
//                              memory for the keys needs (entry/newest.hpp)
//   take(run) … finish()       reads everything once more, and returns what survives
//
// Each pass reads the same entries in the same order. The message of a key's newest value survives.
// An empty payload says that the key has no value; then nothing of the key survives. A batch that loses some of its messages is written again (entry/thin.hpp).
//
// Entries that cannot be read stay as they are, and so do batches that cannot be opened. The parts
// of a message stay until its last part has come. The parts of a large message share its fate; only
// kPartsMax of them are remembered, and further ones are kept.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/entry/newest.hpp"
#include "holdfast/entry/run.hpp"
#include "holdfast/entry/thin.hpp"

namespace holdfast {

// The payload of a compressed batch, opened: (place in the run, bytes), in order.
using Opened = std::span<const std::pair<std::size_t, std::string_view>>;

inline constexpr std::size_t kPartsMax = std::size_t{1} << 16;

// Messages of an opened batch, by the size that it has on the disk: each costs a bit, and time.
inline constexpr u64 kOpenedMin = 1000, kOpenedPerByte = 16;

// The batches of a run that have to be opened first: use(place, metadata, payload).
template <class Use>
void each_packed(const EntryRun& run, Use use) {
    for (std::size_t i = 0; i < run.count(); ++i) {
        const EntrySlot& slot = run.slot(i);
        if (slot.gap() || !slot.sound || slot.batch) continue;
        Entry entry;
        if (read_head(run.bytes(i), entry) != EntryFault::none) continue;
        if (entry.metadata.batch && !entry.metadata.encrypted)
            use(i, entry.metadata, entry.payload);
    }
}

class Compactor {
 public:
    struct Options {
        std::size_t memory;  // bytes of the table of keys
        bool keep_keyless;   // messages without a key survive
        SipKey key;          // random
    };

    explicit Compactor(const Options& options)
        : newest_(options.memory, options.key),
          keep_keyless_(options.keep_keyless),
          parts_key_{options.key.second, ~options.key.first} {}

    void note(const EntryRun& run, Opened opened) {
        each_entry(run, opened, [&](const Part& part) { note(part); });
    }

    bool end_pass() {
        if (passes_++ == 0)
            total_ = next_;
        else
            require_total();
        next_ = 0;
        if (!newest_.end_pass()) return false;
        for (const auto& [number, last] : parts_) newest_.bits.put(number, newest_.bits.get(last));
        parts_.clear();
        open_parts_.clear();
        return true;
    }

    // Calls survives(ordinal, bytes) for each surviving entry.
    template <class Survives>
    void take(const EntryRun& run, Opened opened, Survives survives) {
        each_entry(run, opened, [&](const Part& part) {
            const u64 first = next_;
            next_ += part.messages;
            u32 kept = 0, there = part.messages;
            for (u32 i = 0; i < part.messages; ++i) kept += newest_.bits.get(first + i);
            if (part.batch && part.thinned) there = count_there(part);
            if (kept == 0) return;
            kept_ += kept;
            const u64 ordinal = run.first_ordinal() + part.place;
            if (kept == there) return survives(ordinal, part.bytes);
            const std::string entry =
                thinned(part.entry.metadata_bytes, part.payload, part.messages,
                        [&](u32 i) { return newest_.bits.get(first + i); });
            survives(ordinal, std::string_view(entry));
        });
    }

    void finish() const { require_total(); }

    u64 read() const { return read_; }  // messages of the first pass
    u64 kept() const { return kept_; }
    u32 passes() const { return passes_; }
    std::size_t memory() const { return newest_.memory(); }
    std::size_t remembered() const { return std::min(remembered_, kPartsMax); }  // parts

 private:
    // One entry, as far as it can be told apart.
    struct Part {
        std::size_t place;
        std::string_view bytes;
        Entry entry;
        std::string_view payload;  // of a batch: opened
        u32 messages = 1;
        bool readable = false;
        bool batch = false;    // its messages can be told apart
        bool thinned = false;  // some of them were compacted out before
    };

    template <class Use>
    static void each_entry(const EntryRun& run, Opened opened, Use use) {
        auto next = opened.begin();
        for (std::size_t i = 0; i < run.count(); ++i) {
            const EntrySlot& slot = run.slot(i);
            if (slot.gap()) continue;
            Part part;
            part.place = i;
            part.bytes = run.bytes(i);
            while (next != opened.end() && next->first < i) ++next;
            if (slot.sound && read_head(part.bytes, part.entry) == EntryFault::none) {
                const EntryMetadata& metadata = part.entry.metadata;
                part.payload = part.entry.payload;
                part.readable = !metadata.batch;
                if (slot.batch) {
                    part.batch = true;
                    part.thinned = slot.thinned;
                } else if (metadata.batch && next != opened.end() && next->first == i) {
                    part.payload = next->second;
                    part.batch = is_batch(part);
                }
                if (part.batch) {
                    part.readable = true;
                    part.messages = metadata.messages;
                }
            }
            use(part);
        }
    }

    // Whether an opened payload has the messages that the metadata names.
    static bool is_batch(const Part& part) {
        const u32 messages = part.entry.metadata.messages;
        if (messages > part.payload.size() / 4) return false;
        if (messages > kOpenedMin + kOpenedPerByte * part.bytes.size()) return false;
        BatchReader reader(part.payload);
        BatchPart each;
        for (u32 i = 0; i < messages; ++i)
            if (!reader.next(each)) return false;
        return true;
    }

    static u32 count_there(const Part& part) {
        u32 there = 0;
        BatchReader reader(part.payload);
        BatchPart each;
        for (u32 i = 0; i < part.messages && reader.next(each); ++i)
            there += !each.fields.compacted_out;
        return there;
    }

    bool first_pass() const { return passes_ == 0; }

    void note(const Part& part) {
        if (!part.readable) {
            if (first_pass()) ++read_;
            newest_.bits.put(next_++, true);
            return;
        }
        const EntryMetadata& metadata = part.entry.metadata;
        if (!part.batch) {
            const u64 number = next_++;
            if (first_pass()) ++read_;
            if (metadata.chunks > 1 && !metadata.uuid.empty() && is_open_part(metadata, number))
                return;
            const bool empty = metadata.null_value || part.payload.empty() ||
                               (metadata.compression != 0 && !metadata.encrypted &&
                                metadata.chunks <= 1 && metadata.uncompressed_size == 0);
            note(metadata, number, empty);
            return;
        }
        BatchReader reader(part.payload);
        BatchPart each;
        for (u32 i = 0; i < part.messages && reader.next(each); ++i) {
            const u64 number = next_++;
            if (each.fields.compacted_out) {
                newest_.bits.put(number, false);
                continue;
            }
            if (first_pass()) ++read_;
            note(each.fields, number, each.fields.null_value || each.fields.payload_size == 0);
        }
    }

    void note(const MessageFields& fields, u64 number, bool empty) {
        if (fields.has_key && !fields.null_key)
            newest_.note(fields.partition_key, fields.key_base64, number, empty);
        else if (first_pass())
            newest_.bits.put(number, keep_keyless_);
    }

    // Whether this part of a large message does not count. The message counts by its last part, if
    // that came behind others. Clients drop a repeated last part, and one alone.
    bool is_open_part(const EntryMetadata& metadata, u64 number) {
        const bool last = i64{metadata.chunk} + 1 >= metadata.chunks;
        if (!first_pass()) return !last || alone_.contains(number);
        const Hash128 id = siphash(metadata.uuid, parts_key_);
        const auto found = open_parts_.find(id);
        if (last && found != open_parts_.end()) {
            for (const u64 each : found->second) parts_.emplace_back(each, number);
            open_parts_.erase(found);
            return false;
        }
        newest_.bits.put(number, true);
        if (++remembered_ > kPartsMax) return true;
        if (last)
            alone_.insert(number);
        else
            open_parts_[id].push_back(number);
        return true;
    }

    void require_total() const {
        if (next_ != total_)
            throw Error(Code::corrupt, "the entries to compact have " + std::to_string(next_) +
                                           " messages in one pass, and " + std::to_string(total_) +
                                           " in the first one; compact again");
    }

    NewestOfKeys newest_;
    bool keep_keyless_;
    u64 next_ = 0;   // number of the next message of this pass
    u64 total_ = 0;  // of the first pass
    u64 read_ = 0, kept_ = 0;
    u32 passes_ = 0;
    struct OfHash {
        std::size_t operator()(const Hash128& hash) const { return hash.low; }
    };
    SipKey parts_key_;
    std::unordered_map<Hash128, std::vector<u64>, OfHash> open_parts_;  // by uuid
    std::vector<std::pair<u64, u64>> parts_;                            // (part, last part)
    std::unordered_set<u64> alone_;                                     // last parts without others
    std::size_t remembered_ = 0;
};

}  // namespace holdfast
