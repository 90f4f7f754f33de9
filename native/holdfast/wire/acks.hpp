// Acknowledgements of a consumer: the ids of ACK commands, joined into runs of entries as they
// arrive.
//
// An id names an entry of a ledger. With an ack set it names some messages of a batch: a bit is 1
// where a message is NOT acknowledged. The first message has the lowest bit of the first word;
// trailing words of 0 may be left out.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/protobuf.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/wire/command.hpp"

namespace holdfast {

// Whole entries of a ledger, `end` exclusive.
struct IdRun {
    u64 ledger, first, end;
};

// A batch of which some messages are acknowledged.
struct IdPart {
    u64 ledger, entry;
    u32 batch_size;  // 0: not given
    std::vector<u64> open;
};

// The positions of a ledger's entries in their topic.
struct LedgerPlace {
    u64 ledger;
    u64 first_ordinal;
    u64 entries;
};

class AckIds {
 public:
    const std::vector<IdRun>& runs() const { return runs_; }
    const std::vector<IdPart>& parts() const { return parts_; }
    u64 count() const { return count_; }  // ids, in the order of arrival

    void add(u64 ledger, u64 entry) {
        ++count_;
        if (!runs_.empty() && runs_.back().ledger == ledger && runs_.back().end == entry) {
            ++runs_.back().end;
            return;
        }
        runs_.push_back({ledger, entry, entry + 1});
    }
    void add(IdPart&& part) {
        ++count_;
        parts_.push_back(std::move(part));
    }
    void add(AckIds&& more) {
        count_ += more.count_;
        for (const IdRun& each : more.runs_) {
            if (!runs_.empty() && runs_.back().ledger == each.ledger &&
                runs_.back().end == each.first)
                runs_.back().end = each.end;
            else
                runs_.push_back(each);
        }
        for (IdPart& each : more.parts_) parts_.push_back(std::move(each));
    }

    // The ledgers that the ids name, in order.
    std::vector<u64> ledgers() const {
        std::vector<u64> out;
        const auto note = [&](u64 ledger) {
            if (out.empty() || out.back() != ledger) out.push_back(ledger);
        };
        for (const IdRun& each : runs_) note(each.ledger);
        for (const IdPart& each : parts_) note(each.ledger);
        std::sort(out.begin(), out.end());
        out.erase(std::unique(out.begin(), out.end()), out.end());
        return out;
    }

    // Returns the whole entries among the ids as ranges of ordinals, in order and apart. `places`
    // is sorted by ledger; an id of another ledger is left out.
    std::vector<std::pair<u64, u64>> ordinals(const std::vector<LedgerPlace>& places) const {
        std::vector<std::pair<u64, u64>> out;
        out.reserve(runs_.size());
        const LedgerPlace* place = nullptr;
        for (const IdRun& each : runs_) {
            if (place == nullptr || place->ledger != each.ledger) place = find(places, each.ledger);
            if (place == nullptr || each.first >= place->entries) continue;
            out.emplace_back(place->first_ordinal + each.first,
                             place->first_ordinal + std::min(each.end, place->entries));
        }
        join(out);
        return out;
    }

 private:
    static const LedgerPlace* find(const std::vector<LedgerPlace>& places, u64 ledger) {
        const auto at =
            std::lower_bound(places.begin(), places.end(), ledger,
                             [](const LedgerPlace& each, u64 id) { return each.ledger < id; });
        return at != places.end() && at->ledger == ledger ? &*at : nullptr;
    }

    static void join(std::vector<std::pair<u64, u64>>& ranges) {
        if (ranges.size() < 2) return;
        if (!std::is_sorted(ranges.begin(), ranges.end())) std::sort(ranges.begin(), ranges.end());
        std::size_t last = 0;
        for (std::size_t i = 1; i < ranges.size(); ++i) {
            if (ranges[i].first <= ranges[last].second)
                ranges[last].second = std::max(ranges[last].second, ranges[i].second);
            else
                ranges[++last] = ranges[i];
        }
        ranges.resize(last + 1);
    }

    std::vector<IdRun> runs_;  // in the order of arrival
    std::vector<IdPart> parts_;
    u64 count_ = 0;
};

struct AckCommand {
    u64 consumer = 0;
    u64 request = 0;
    bool has_request = false;
    bool cumulative = false;
    bool transaction = false;
    AckIds ids;
};

inline constexpr u64 kEntryIdMax =
    ~u64{0} >> 1;  // ids are signed in the protocol; -1 stands for no id

inline bool read_id(std::string_view bytes, AckIds& out) {
    namespace f = id_field;
    ProtoReader in(bytes);
    u64 ledger = 0, entry = 0;
    u32 required = 0, batch_size = 0;
    std::vector<u64> open;
    while (const u32 tag = in.next()) {
        if (tag == proto_tag(f::ledger, Wire::varint)) {
            ledger = in.varint();
            required |= 1;
        } else if (tag == proto_tag(f::entry, Wire::varint)) {
            entry = in.varint();
            required |= 2;
        } else if (tag == proto_tag(f::ack_set, Wire::varint)) {
            open.push_back(in.varint());
        } else if (tag == proto_tag(f::ack_set, Wire::bytes)) {  // packed
            ProtoReader words(in.bytes());
            while (!words.ended()) open.push_back(words.varint());
            if (words.bad()) return false;
        } else if (tag == proto_tag(f::batch_size, Wire::varint)) {
            batch_size = static_cast<u32>(in.varint());
        } else {
            in.skip(tag);
        }
    }
    if (in.bad() || required != 3) return false;
    if (batch_size > kEntryMessagesMax || open.size() > kEntryMessagesMax / 64) return false;
    if (entry > kEntryIdMax) return true;
    while (!open.empty() && open.back() == 0) open.pop_back();
    if (open.empty())
        out.add(ledger, entry);
    else
        out.add(IdPart{ledger, entry, batch_size, std::move(open)});
    return true;
}

inline bool read_ack(std::string_view bytes, AckCommand& out) {
    namespace f = ack_field;
    const auto varint = [](u32 field) { return proto_tag(field, Wire::varint); };
    ProtoReader in(bytes);
    u32 required = 0;
    u64 type = 0;
    while (const u32 tag = in.next()) {
        if (tag == proto_tag(f::message_id, Wire::bytes)) {
            if (!read_id(in.bytes(), out.ids)) return false;
        } else if (tag == varint(f::consumer_id)) {
            out.consumer = in.varint();
            required |= 1;
        } else if (tag == varint(f::ack_type)) {
            type = in.varint();
            required |= 2;
        } else if (tag == varint(f::request_id)) {
            out.request = in.varint();
            out.has_request = true;
        } else if (tag == varint(f::txnid_least_bits) || tag == varint(f::txnid_most_bits)) {
            in.varint();
            out.transaction = true;
        } else {
            in.skip(tag);
        }
    }
    out.cumulative = type == 1;
    return !in.bad() && required == 3 && type <= 1;
}

}  // namespace holdfast
