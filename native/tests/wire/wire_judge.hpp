// Feeds any bytes to the wire codec and judges the result, for tests and for the fuzzer.
//
// - the built frame is sound, and has one publish for each run of SENDs, with the entries that its
// item counts;
// - every accepted entry is sound, and can be delivered: its frames are read back;
// - the result does not depend on the pieces in which the bytes arrive, nor on the limit of
// commands;
// - after a refused SEND, for more than its checksum, nothing more of its producer is accepted;
// - at most the bytes of one frame are kept.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "holdfast/log/frame.hpp"
#include "holdfast/wire/reader.hpp"
#include "holdfast/wire/writer.hpp"
#include "tests/check.hpp"

namespace holdfast::test {

inline constexpr u64 kJudgedFrameMax = u64{1} << 16;

// All results of one stream, in a form that does not depend on how its bytes arrived.
struct Heard {
    std::map<u64, std::vector<std::string>> entries;  // by producer
    std::map<u64, std::vector<std::pair<u64, u64>>> sent;
    std::map<u64, std::vector<std::pair<u64, int>>> refused;
    // Acknowledged ids have no order.
    std::map<std::pair<u64, bool>, std::multiset<std::pair<u64, u64>>> whole;
    std::map<u64, std::multiset<std::tuple<u64, u64, u32, std::vector<u64>>>> parts;
    std::vector<std::tuple<u64, u64, bool>> receipts;  // ACKs that want one
    std::map<u64, u64> permits;
    std::vector<std::pair<u64, std::string>> commands;
    std::string reason;

    bool operator==(const Heard&) const = default;
};

class WireJudge {
 public:
    WireJudge() : reader_(kJudgedFrameMax) {
        for (u64 id = 0; id < 4; ++id) reader_.set_producer(id, id + 10, id + 20, id + 30, "p");
    }

    // With limits for commands and items.
    void feed(std::string_view data, u64 commands_max, u64 items_max = WireReader::kAll) {
        feed_some(data, commands_max, items_max);
        while (reader_.stalled()) feed_some({}, commands_max, items_max);
        CHECK(reader_.pending() <= 4 + kJudgedFrameMax);
    }

    void feed(std::string_view data) {
        feed_some(data, WireReader::kAll);
        CHECK(!reader_.stalled());
        CHECK(reader_.pending() <= 4 + kJudgedFrameMax);
    }

    const Heard& heard() const { return heard_; }

 private:
    void feed_some(std::string_view data, u64 commands_max, u64 items_max = WireReader::kAll) {
        FrameWriter frame;
        const std::vector<WireItem> items = reader_.feed(data, frame, commands_max, items_max);
        u64 commands = 0;
        for (const WireItem& item : items) commands += item.kind == WireKind::command;
        const u64 count = items.size() - reader_.broken();
        CHECK(commands <= commands_max && count <= items_max);
        CHECK(!reader_.stalled() || commands == commands_max || count == items_max);
        CHECK(heard_.reason.empty() || items.empty());
        const std::string_view built = frame.finish(1);
        FrameReader events({reinterpret_cast<const std::byte*>(built.data()),
                            built.size()});  // throws if not sound
        for (const WireItem& item : items) note(item, events);
        CHECK(events.at_end());
        CHECK(items.empty() || reader_.broken() == (items.back().kind == WireKind::broken));
    }

    void note(const WireItem& item, FrameReader& events) {
        CHECK(heard_.reason.empty());  // it is the last
        switch (item.kind) {
            case WireKind::command:
                heard_.commands.emplace_back(item.id, item.bytes);
                return;
            case WireKind::sends:
                CHECK(!events.at_end() && failed_.count(item.id) == 0);
                return run(item, events.next());
            case WireKind::passed:  // none of these producers is of a non-persistent topic
                CHECK(false);
                return;
            case WireKind::refused:
                heard_.refused[item.id].emplace_back(item.number, static_cast<int>(item.fault));
                if (item.fault != SendFault::checksum) failed_.insert(item.id);
                return;
            case WireKind::acks:
                return acks(item);
            case WireKind::flow:
                heard_.permits[item.id] += item.number;
                return;
            case WireKind::broken:
                CHECK(!item.bytes.empty());
                heard_.reason = item.bytes;
        }
    }

    void run(const WireItem& item, const EventView& event) {
        CHECK(event.kind == kPublishKind && !item.sent.empty());
        const PublishView publish(event.body);
        CHECK(publish.topic() == item.id + 10 && publish.session() == item.id + 20);
        CHECK(publish.epoch() == item.id + 30 && publish.count() == item.sent.size());
        std::string_view rest(reinterpret_cast<const char*>(publish.entries().data()),
                              publish.entries().size());
        CHECK(rest.size() == item.size);
        u64 messages = 0;
        std::vector<std::string> entries;
        for (u32 i = 0; i < publish.count(); ++i) {
            const PublishRow row = publish.row(i);
            CHECK(static_cast<u64>(row.sequence) == item.sent[i].sequence);
            Entry entry;
            CHECK(check_entry(rest.substr(0, row.size), entry) == EntryFault::none);
            messages += entry.metadata.messages;
            entries.emplace_back(rest.substr(0, row.size));
            rest.remove_prefix(row.size);
            heard_.sent[item.id].emplace_back(item.sent[i].sequence, item.sent[i].highest);
        }
        CHECK(messages == item.messages);
        receipts(item);
        deliver(entries);
        auto& mine = heard_.entries[item.id];
        mine.insert(mine.end(), entries.begin(), entries.end());
    }

    void acks(const WireItem& item) {
        auto& whole = heard_.whole[{item.id, item.cumulative}];
        u64 count = item.ids.parts().size();
        for (const IdRun& each : item.ids.runs()) {
            CHECK(each.first < each.end);
            count += each.end - each.first;
            for (u64 entry = each.first; entry < each.end; ++entry)
                whole.emplace(each.ledger, entry);
        }
        for (const IdPart& each : item.ids.parts())
            heard_.parts[item.id].emplace(each.ledger, each.entry, each.batch_size, each.open);
        CHECK(count == item.ids.count());
        if (item.has_request) heard_.receipts.emplace_back(item.id, item.number, item.transaction);
        u64 before = 0;
        const std::vector<LedgerPlace> places{{1, 0, 50}, {7, 50, 1000}};
        for (const auto& [first, end] : item.ids.ordinals(places)) {
            CHECK(first < end && end <= 1050 && (before == 0 || first > before));
            before = end;
        }
    }

    // Reads frames back: calls use(type, body of the command, entry).
    template <class Use>
    static void each_frame(std::string_view bytes, Use use) {
        while (!bytes.empty()) {
            CHECK(bytes.size() >= kWireSizes);
            const u64 total = load_big32(bytes.data()), size = load_big32(bytes.data() + 4);
            CHECK(total >= 4 + size && total <= bytes.size() - 4);
            ProtoReader in(bytes.substr(kWireSizes, size));
            CHECK(in.next() == proto_tag(1, Wire::varint));
            const u64 type = in.varint();
            CHECK(in.next() == proto_tag(static_cast<u32>(type), Wire::bytes));
            const std::string_view body = in.bytes();
            CHECK(in.next() == 0 && !in.bad());
            use(type, body, bytes.substr(kWireSizes + size, total - 4 - size));
            bytes.remove_prefix(4 + total);
        }
    }

    static void receipts(const WireItem& item) {
        ByteBuffer out;
        const u64 duplicates[] = {0};
        encode_receipts(out, item.id, item.sent, 7, 100, duplicates);
        std::size_t i = 0;
        each_frame(out.view(), [&](u64 type, std::string_view body, std::string_view entry) {
            CHECK(type == wire_type::send_receipt && entry.empty());
            const u64 none = ~u64{0};
            ByteBuffer id, expected;
            append_field(id, 1, i == 0 ? none : 7);
            append_field(id, 2, i == 0 ? none : 99 + i);
            append_field(expected, 1, item.id);
            append_field(expected, 2, item.sent[i].sequence);
            append_field(expected, 3, id.view());
            if (item.sent[i].highest != 0) append_field(expected, 4, item.sent[i].highest);
            CHECK(body == expected.view());
            ++i;
        });
        CHECK(i == item.sent.size());
    }

    static void deliver(const std::vector<std::string>& entries) {
        ByteBuffer blocks;
        for (std::size_t i = 0; i < entries.size(); ++i) {
            const BlockHeader header =
                make_block(kEntryBlock, kFullChecksum, static_cast<u32>(entries[i].size()), i, 9,
                           entries[i].data());
            blocks.append(&header, sizeof header);
            blocks.append(entries[i]);
            const std::size_t pad = block_space(static_cast<u32>(entries[i].size())) -
                                    sizeof header - entries[i].size();
            if (pad > 0) std::memset(blocks.extend(pad), 0, pad);
        }
        auto store = std::make_shared<EntryStore>(7, std::move(blocks));
        CHECK(fill(*store, 0, entries.size()).fault == BlockFault::none);
        const EntryRun run(store, 0, 0);
        Handover handover(run, 1);
        const std::vector<u64> open{5};
        for (u32 i = 0; i < run.count(); ++i) {
            CHECK(run.slot(i).sound);
            if (i % 2 == 1)
                handover.add(i, i, open);
            else
                handover.add(i, i);
        }
        MessageWalk walk(handover);
        u64 messages = 0;
        while (walk.next()) ++messages;
        CHECK(messages == handover.messages());
        const Deliveries deliveries(handover, 3, 8, 1);
        std::string out(deliveries.size(), '\0');
        deliveries.write(reinterpret_cast<u8*>(out.data()));
        std::size_t i = 0;
        each_frame(out, [&](u64 type, std::string_view, std::string_view entry) {
            CHECK(type == wire_type::message && entry == entries[i++]);
        });
        CHECK(i == entries.size());
    }

    WireReader reader_;
    Heard heard_;
    std::set<u64> failed_;
};

// Puts the right sum into each SEND of a stream, so that the code behind the check is reached, too.
inline void repair_sums(std::string& stream) {
    std::size_t at = 0;
    while (stream.size() - at >= kWireSizes) {
        const u64 total = load_big32(stream.data() + at), size = load_big32(stream.data() + at + 4);
        if (total < 4 || total > stream.size() - at - 4 || size > total - 4) return;
        const std::size_t entry = at + kWireSizes + size, end = at + 4 + total;
        if (end - entry >= kEntryHeader && stream[entry] == 0x0e && stream[entry + 1] == 0x01)
            store_big32(stream.data() + entry + 2, crc32c(0, stream.data() + entry + kEntrySummed,
                                                          end - entry - kEntrySummed));
        at = end;
    }
}

// The first byte says how the rest arrives: bit 0 with right sums, the others the size of pieces.
inline void judge_stream(std::string_view input) {
    if (input.empty()) return;
    const u8 how = static_cast<u8>(input[0]);
    std::string stream(input.substr(1));
    if (how & 1) repair_sums(stream);
    WireJudge whole;
    whole.feed(stream);
    WireJudge pieces;
    const std::size_t size = std::size_t{1} + (how >> 1) * (how >> 1);
    for (std::size_t at = 0; at < stream.size(); at += size)
        pieces.feed(std::string_view(stream).substr(at, size), 1 + how % 3);
    CHECK(whole.heard() == pieces.heard());
}

}  // namespace holdfast::test
