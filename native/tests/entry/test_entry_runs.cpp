// Runs of entries and their handovers: sound blocks in order, every other one refused. Of batches,
// the messages that are not acknowledged.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "holdfast/entry/handover.hpp"
#include "holdfast/entry/writer.hpp"
#include "holdfast/log/ledger_read.hpp"
#include "tests/check.hpp"
#include "tests/entry/ledger_bytes.hpp"

using namespace holdfast;
using namespace holdfast::test;

static EntryRun run_of(const LedgerBytes& ledger, u64 entry = 0) {
    return parse_run(7, 1000, entry, ledger.index_from(entry), ledger.data_from(entry));
}

static void test_run() {
    LedgerBytes ledger;
    for (int i = 0; i < 5; ++i)
        ledger.add(single_entry(i, std::string(static_cast<std::size_t>(i) * 7, 'x')), 100 + i);
    ledger.add(batch_entry(5, {"a", "b", "c"}), 200);
    const EntryRun run = run_of(ledger, 2);
    CHECK(run.count() == 4 && run.ledger() == 7 && run.first_entry() == 2);
    CHECK(run.first_ordinal() == 1002 && run.end_ordinal() == 1006);
    CHECK(run.time(0) == 102 && run.messages(0) == 1 && run.messages(3) == 3);
    CHECK(run.bytes(1) == single_entry(3, std::string(21, 'x')));
    CHECK(run.space() == ledger.data().size() - (ledger.offset(2) - kFileHeaderSize));
    const EntryRun part = run.slice(1, 3);
    CHECK(part.count() == 2 && part.first_entry() == 3 && part.first_ordinal() == 1003);
    CHECK(part.bytes(0) == run.bytes(1) &&
          part.size() == run.bytes(1).size() + run.bytes(2).size());
    CHECK(run.slice(3, 1).count() == 0 && run.slice(2, 99).count() == 2);
    // Fewer if the index has fewer, or the bytes end.
    CHECK(parse_run(7, 0, 0, ledger.index_from(0).substr(0, 16), ledger.data()).count() == 2);
    CHECK(parse_run(7, 0, 0, "", ledger.data()).count() == 6);
}

// Every damage to a run: the result is right, or there is no result (I70).
static void test_damaged_run() {
    LedgerBytes ledger;
    ledger.add(single_entry(0, "first"), 1);
    ledger.add(batch_entry(1, {"one", "two"}), 2);
    ledger.add("no entry at all", 3);
    const std::string data(ledger.data());
    const EntryRun good = run_of(ledger);
    CHECK(good.count() == 3 && !good.slot(2).sound && good.messages(2) == 1);
    const auto check_prefix = [&](std::string_view bytes) {
        const std::unique_ptr<char[]> copy(new char[bytes.size()]);
        if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
        std::size_t count = 0;
        try {
            const EntryRun run = parse_run(7, 1000, 0, "", {copy.get(), bytes.size()});
            count = run.count();
            for (std::size_t i = 0; i < count; ++i)
                CHECK(run.bytes(i) == good.bytes(i) && run.time(i) == good.time(i));
        } catch (const Error& error) {
            CHECK(error.code == Code::corrupt);
            CHECK(std::string_view(error.what()).find("ledger 7: entry 0") !=
                  std::string_view::npos);
        }
        return count;
    };
    for (std::size_t size = 0; size < data.size(); ++size) {
        const std::size_t count = check_prefix(std::string_view(data).substr(0, size));
        std::size_t whole = 0;
        while (whole < 3 && ledger.offset(whole) - kFileHeaderSize + sizeof(BlockHeader) +
                                    good.bytes(whole).size() <=
                                size)
            ++whole;
        CHECK(count == whole);
    }
    for (std::size_t bit = 0; bit < data.size() * 8; ++bit) {
        std::string bad = data;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << (bit % 8));
        std::size_t hit = 0;
        while (hit < 2 && ledger.offset(hit + 1) - kFileHeaderSize <= bit / 8) ++hit;
        const bool padding = bit / 8 >= ledger.offset(hit) - kFileHeaderSize + sizeof(BlockHeader) +
                                            good.bytes(hit).size();
        CHECK(check_prefix(bad) == (padding ? 3 : hit));
    }
}

static void test_index_must_agree() {
    LedgerBytes ledger;
    for (int i = 0; i < 3; ++i) ledger.add(single_entry(i, "payload"), 1);
    std::string index(ledger.index_from(0));
    index[8] = static_cast<char>(index[8] ^ 8);
    CHECK_ERROR(Code::corrupt, parse_run(7, 0, 0, index, ledger.data()), "entry 1",
                "another offset");
    CHECK_ERROR(Code::corrupt, parse_run(7, 0, 0, "", ""), "no bytes");
    CHECK_ERROR(Code::corrupt, parse_run(7, 0, 1, "", ledger.data()), "tag");
    // Blocks of other kinds, or without a sum of their payload, are not entries.
    const std::string payload = single_entry(0, "p");
    for (const auto& [kind, flags] :
         {std::pair{kFrameBlock, kFullChecksum}, {kEntryBlock, u8{0}}}) {
        const BlockHeader header =
            make_block(kind, flags, static_cast<u32>(payload.size()), 0, 0, payload.data());
        std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
        CHECK_ERROR(Code::corrupt, parse_run(7, 0, 0, "", bytes + payload), "entry 0");
    }
}

static std::vector<std::string> messages_of(const Handover& handover) {
    std::vector<std::string> out;
    MessageWalk walk(handover);
    while (const auto place = walk.next()) {
        const HandoverItem& item = handover.items()[place->item];
        const std::string_view entry = handover.run().bytes(item.index);
        out.push_back(std::to_string(handover.ordinal(item)) + ":" +
                      std::to_string(place->batch_index) + " " +
                      std::string(entry.substr(place->payload_at, place->payload_size)));
    }
    CHECK(out.size() == handover.messages());
    return out;
}

static void test_handover() {
    LedgerBytes ledger;
    ledger.add(single_entry(0, "alone"), 1);
    ledger.add(batch_entry(1, {"a", "b", "c"}), 1);
    ledger.add("no entry at all", 1);
    ledger.add(compressed_batch(4, 5, "squeezed"), 1);
    ledger.add(batch_entry(9, {"d"}), 1);
    const EntryRun run = run_of(ledger);
    Handover all(run, 3);
    for (u32 i = 0; i < 5; ++i) all.add(i, i);
    using Strings = std::vector<std::string>;
    CHECK((messages_of(all) == Strings{"1000:-1 alone", "1001:0 a", "1001:1 b", "1001:2 c",
                                       "1002:-1 no entry at all", "1003:-1 squeezed", "1004:0 d"}));
    CHECK(all.permits() == 1 + 3 + 1 + 5 + 1 && !all.plain() && all.reset_number() == 3);

    Handover some(run, 0);
    const u64 ends[] = {0b101}, none[] = {0}, above[] = {~u64{0} << 3 | 0b010}, wide[] = {0, 1};
    some.add(1, 0, ends);
    some.add(1, 0, none);
    some.add(1, 0, above);
    some.add(1, 0, wide);
    some.add(3, 0, ends);  // counted, and still one message
    CHECK((messages_of(some) == Strings{"1001:0 a", "1001:2 c", "1001:1 b", "1003:-1 squeezed"}));
    CHECK(some.permits() == 2 + 0 + 1 + 0 + 2);
    CHECK_ERROR(Code::misuse, some.add(5, 0), "no entry 5");

    // More than a word of messages.
    std::vector<std::string> names;
    for (int i = 0; i < 130; ++i) names.push_back(std::to_string(i));
    LedgerBytes large;
    large.add(batch_entry(0, {names.begin(), names.end()}), 1);
    Handover handover(run_of(large), 0);
    const u64 mask[] = {1, u64{1} << 63, 0b110};
    handover.add(0, 0, mask);
    CHECK((messages_of(handover) == Strings{"1000:0 0", "1000:127 127", "1000:129 129"}));
    CHECK(handover.permits() == 3);
    Handover first_word(run_of(large), 0);
    first_word.add(0, 0, std::span(mask, 1));  // messages beyond the mask are acknowledged
    CHECK((messages_of(first_word) == Strings{"1000:0 0"}));
}

// Entries of a compacted file at their places in the topic: the others are gaps, without bytes and
// messages.
static void test_spread() {
    LedgerBytes ledger;
    ledger.add(single_entry(0, "alone"), 100);
    ledger.add(batch_entry(1, {"a", "b", "c"}), 101);
    ledger.add(thinned_batch(2, {"d", nullptr, "f"}), 102);
    ledger.add("no entry at all", 103);
    using Strings = std::vector<std::string>;
    std::vector<EntryRun> kept;
    {
        const EntryRun run = run_of(ledger);
        const u64 ordinals[] = {501, 502, 507};
        kept.push_back(run.slice(1, 4).spread(ordinals, 9, 20, 500, 10));
        kept.push_back(kept[0].slice(1, 8).slice(1, 99));
        kept.push_back(run.slice(0, 0).spread({}, 9, 0, 0, kSpreadMax));
    }  // they keep the bytes
    const EntryRun& spread = kept[0];
    CHECK(spread.count() == 10 && spread.ledger() == 9 && spread.first_entry() == 20);
    CHECK(spread.first_ordinal() == 500 && spread.end_ordinal() == 510);
    CHECK(spread.bytes(1) == batch_entry(1, {"a", "b", "c"}) && spread.time(1) == 101);
    CHECK(spread.bytes(7) == "no entry at all" && spread.messages(7) == 1);
    CHECK(spread.size() == spread.bytes(1).size() + spread.bytes(2).size() + 15);
    CHECK(spread.space() == run_of(ledger, 1).space());
    for (const std::size_t gap : {0, 3, 4, 5, 6, 8, 9}) {
        CHECK(spread.slot(gap).gap() && spread.bytes(gap).empty() && spread.messages(gap) == 0);
        CHECK(!spread.slot(gap).batch && spread.deliver_at_ms(gap) == 0 && spread.time(gap) == 0);
    }
    CHECK(spread.slot(2).thinned && spread.open_mask(2) == std::vector<u64>{0b101});
    CHECK(!spread.slot(1).thinned && spread.open_mask(1) == std::vector<u64>{0b111});
    CHECK(kept[1].count() == 6 && kept[1].first_ordinal() == 502 && kept[1].first_entry() == 22);
    CHECK(kept[1].bytes(5) == "no entry at all");
    CHECK(kept[2].count() == kSpreadMax && kept[2].size() == 0 && kept[2].space() == 0);

    Handover handover(spread, 0);
    for (u32 i = 0; i < 10; ++i)
        if (i == 2)
            handover.add(i, 0, spread.open_mask(i));
        else
            handover.add(i, 0);  // a gap has nothing to deliver
    CHECK((messages_of(handover) == Strings{"501:0 a", "501:1 b", "501:2 c", "502:0 d", "502:2 f",
                                            "507:-1 no entry at all"}));
    CHECK(handover.items().size() == 3 && handover.permits() == 3 + 2 + 1);

    const EntryRun run = run_of(ledger);
    const auto refused = [&](std::vector<u64> ordinals, u64 first, std::size_t count,
                             std::string_view words, u64 first_entry = 0) {
        CHECK_ERROR(Code::misuse, run.spread(ordinals, 9, first_entry, first, count), words);
    };
    refused({1, 2, 3}, 0, 10, "3 ordinals for 4 entries");
    refused({1, 2, 3, 4, 5}, 0, 10, "5 ordinals for 4 entries");
    refused({1, 2, 2, 3}, 0, 10, "ordinal 2 is out of order");
    refused({1, 4, 3, 5}, 0, 10, "ordinal 3 is out of order");
    refused({1, 2, 3, 10}, 0, 10, "ordinal 10");
    refused({0, 2, 3, 4}, 1, 10, "ordinal 0");
    refused({1, 2, 3, ~u64{0}}, 0, 10, "ordinal 18446744073709551615");
    refused({1, 2, 3, 4}, 0, kSpreadMax + 1, "at most 65536");
    refused({1, 2, 3, 4}, ~u64{0} - 5, 10, "at most 65536");
    refused({1, 2, 3, 4}, 0, 10, "at most 65536", ~u64{0} - 5);
    CHECK(run.spread(std::vector<u64>{6, 7, 8, 9}, 9, 0, 0, 10).bytes(9) == "no entry at all");
}

// A mask has a bit for each message, in as many words as needed.
static void test_open_mask_of_many() {
    std::vector<const char*> payloads(130, nullptr);
    payloads[0] = payloads[63] = payloads[64] = payloads[129] = "x";
    LedgerBytes ledger;
    ledger.add(thinned_batch(0, payloads), 1);
    const EntryRun run = run_of(ledger);
    CHECK((run.open_mask(0) == std::vector<u64>{u64{1} << 63 | 1, 1, 2}));
    Handover handover(run, 0);
    handover.add(0, 0, run.open_mask(0));
    CHECK((messages_of(handover) ==
           std::vector<std::string>{"1000:0 x", "1000:63 x", "1000:64 x", "1000:129 x"}));
}

// A sealed block around hostile bytes: the walk stays inside the entry, for all sizes in it (I73).
static void test_hostile_entries() {
    std::mt19937_64 random(3);
    const std::string good = batch_entry(9, {"x", "yy", "zzz"});
    for (int i = 0; i < 30'000; ++i) {
        std::string bad = good;
        for (u64 changes = 1 + random() % 4; changes > 0; --changes)
            bad[random() % bad.size()] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
        if (random() % 4 == 0) bad.resize(random() % bad.size());
        LedgerBytes ledger;
        ledger.add(bad, 1);
        Handover handover(run_of(ledger), 0);
        handover.add(0, 0);
        messages_of(handover);
        handover.run().open_mask(0);
    }
}

int main() {
    test_run();
    test_damaged_run();
    test_index_must_agree();
    test_handover();
    test_spread();
    test_open_mask_of_many();
    test_hostile_entries();
}
