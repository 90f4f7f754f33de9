// The delivery of one dispatch to one consumer: some entries of a run, and what the consumer must
// know of each. It is split into messages only on demand.
//
// Some messages of a batch entry may be acknowledged already. A mask of those that are still open
// goes with it, and the others are left out. An entry that cannot be split (compressed, encrypted,
// not sound) is one message.
#pragma once

#include <bit>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/entry/run.hpp"

namespace holdfast {

struct HandoverItem {
    u32 index;         // of the entry in the run
    u32 redeliveries;  // number of deliveries before
    u32 mask_at;       // where its mask begins in `masks`, in words
    u32 mask_words;    // 0: all its messages are open
};

// The location of one message.
struct MessagePlace {
    u32 item;
    std::int32_t batch_index;  // -1: the entry is not a batch
    u32 metadata_at, metadata_size;
    u32 payload_at, payload_size;  // both within the entry
};

class Handover {
 public:
    Handover(EntryRun run, u64 reset_number) : run_(std::move(run)), reset_number_(reset_number) {}

    // `open`: the mask of the batch's messages that are not acknowledged, the first in the lowest
    // bit; empty: all are open. A gap has nothing to deliver.
    void add(u32 index, u32 redeliveries, std::span<const u64> open = {}) {
        if (index >= run_.count())
            throw Error(Code::misuse, "there is no entry " + std::to_string(index) +
                                          " in a run of " + std::to_string(run_.count()));
        if (run_.slot(index).gap()) return;
        const u32 at = static_cast<u32>(masks_.size());
        masks_.insert(masks_.end(), open.begin(), open.end());
        items_.push_back({index, redeliveries, at, static_cast<u32>(open.size())});
        const EntrySlot& slot = run_.slot(index);
        const u64 left = open_messages(items_.back());
        permits_ += left;
        messages_ += slot.batch ? left : 1;
        bytes_ += slot.size;
        plain_ = plain_ && !slot.batch;
    }

    void reserve(std::size_t items) { items_.reserve(items); }

    const EntryRun& run() const { return run_; }
    u64 reset_number() const { return reset_number_; }
    std::span<const HandoverItem> items() const { return items_; }
    u64 messages() const { return messages_; }  // messages that can be taken from it
    u64 permits() const { return permits_; }    // what it costs the consumer
    u64 bytes() const { return bytes_; }        // of its entries, as they are stored
    bool plain() const { return plain_; }       // every entry is one message

    u64 ordinal(const HandoverItem& item) const { return run_.first_ordinal() + item.index; }

    bool is_open(const HandoverItem& item, u32 message) const {
        if (item.mask_words == 0) return true;
        return message / 64 < item.mask_words &&
               (masks_[item.mask_at + message / 64] >> (message % 64) & 1) != 0;
    }

 private:
    u64 open_messages(const HandoverItem& item) const {
        const u32 messages = run_.slot(item.index).messages;
        if (item.mask_words == 0) return messages;
        u64 left = 0;
        for (u32 word = 0; word < item.mask_words && word * u64{64} < messages; ++word) {
            u64 bits = masks_[item.mask_at + word];
            if (messages - word * u64{64} < 64) bits &= (u64{1} << (messages % 64)) - 1;
            left += static_cast<u64>(std::popcount(bits));
        }
        return left;
    }

    EntryRun run_;
    u64 reset_number_;
    std::vector<HandoverItem> items_;
    std::vector<u64> masks_;
    u64 messages_ = 0;
    u64 permits_ = 0;
    u64 bytes_ = 0;
    bool plain_ = true;
};

// Walks through the messages of a handover, which must outlive it.
class MessageWalk {
 public:
    explicit MessageWalk(const Handover& handover) : handover_(&handover) {}

    std::optional<MessagePlace> next() {
        while (item_ < handover_->items().size()) {
            const HandoverItem& item = handover_->items()[item_];
            const EntrySlot& slot = handover_->run().slot(item.index);
            if (!slot.batch) return whole(item_++, slot);
            const std::string_view entry = handover_->run().bytes(item.index);
            if (message_ == 0) reader_ = BatchReader(entry.substr(slot.header));
            while (message_ < slot.messages && reader_.next(part_)) {
                const u32 index = message_++;
                if (handover_->is_open(item, index)) return place(entry, index);
            }
            message_ = 0;
            ++item_;
        }
        return std::nullopt;
    }

    // Skips as many messages as possible at once, where nothing has to be split.
    void skip_entries(u32 count) { item_ += count; }

 private:
    static MessagePlace whole(u32 item, const EntrySlot& slot) {
        const u32 metadata = slot.sound ? static_cast<u32>(kEntryHeader) : 0;
        return {item,        -1,
                metadata,    slot.sound ? slot.header - metadata : 0,
                slot.header, slot.size - slot.header};
    }

    MessagePlace place(std::string_view entry, u32 index) const {
        const auto at = [&](std::string_view part) {
            return static_cast<u32>(part.data() - entry.data());
        };
        return {item_,
                static_cast<std::int32_t>(index),
                at(part_.metadata),
                static_cast<u32>(part_.metadata.size()),
                at(part_.payload),
                static_cast<u32>(part_.payload.size())};
    }

    const Handover* handover_;
    u32 item_ = 0;
    u32 message_ = 0;  // within the item's batch
    BatchReader reader_{std::string_view()};
    BatchPart part_;
};

}  // namespace holdfast
