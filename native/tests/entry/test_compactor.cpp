// The compactor against the plain rule: of each key the newest message, unless that one is empty.
// Random topics of single messages, batches and parts of large messages, in a table of any size.
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "holdfast/entry/compactor.hpp"
#include "holdfast/log/ledger_read.hpp"
#include "tests/check.hpp"
#include "tests/entry/ledger_bytes.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

using Strings = std::vector<std::string>;
constexpr SipKey kKey{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

struct One {
    std::string key, payload;
    bool keyed = true;
    bool null = false;  // the field that says so
};

void append_key(ByteBuffer& out, const One& one, u32 key, u32 null) {
    if (one.keyed) append_field(out, key, std::string_view(one.key));
    if (one.null) append_field(out, null, u64{1});
}

std::string single(u64 sequence, const One& one) {
    ByteBuffer metadata = needed_fields(sequence);
    append_key(metadata, one, metadata_field::partition_key, metadata_field::null_value);
    return entry_of(metadata.view(), one.payload);
}

std::string part_of(u64 sequence, const One& one, const std::string& uuid, u32 chunk, u32 chunks) {
    ByteBuffer metadata = needed_fields(sequence);
    append_key(metadata, one, metadata_field::partition_key, metadata_field::null_value);
    append_field(metadata, metadata_field::uuid, std::string_view(uuid));
    append_field(metadata, metadata_field::num_chunks_from_msg, u64{chunks});
    append_field(metadata, metadata_field::chunk_id, u64{chunk});
    return entry_of(metadata.view(), one.payload);
}

std::string body_of(const std::vector<One>& messages) {
    std::string body;
    for (const One& one : messages) {
        ByteBuffer fields;
        append_key(fields, one, single_field::partition_key, single_field::null_value);
        append_field(fields, single_field::payload_size, u64{one.payload.size()});
        char size[4];
        store_big32(size, static_cast<u32>(fields.size()));
        body.append(size, 4).append(fields.view()).append(one.payload);
    }
    return body;
}

std::string batch(u64 sequence, const std::vector<One>& messages, u32 compression = 0) {
    ByteBuffer metadata = needed_fields(sequence);
    const std::string body = body_of(messages);
    if (compression != 0) append_field(metadata, metadata_field::compression, u64{compression});
    append_field(metadata, metadata_field::num_messages_in_batch, u64{messages.size()});
    append_field(metadata, metadata_field::uncompressed_size, u64{body.size()});
    return entry_of(metadata.view(), compression != 0 ? "squeezed" : body);
}

EntryRun run_of(const Strings& entries, u64 first) {
    LedgerBytes ledger;
    for (const std::string& each : entries) ledger.add(each, 1);
    return parse_run(7, first, 0, ledger.index_from(0), ledger.data_from(0));
}

// The messages of an entry, as a reader sees them: "index key=payload".
Strings messages_of(std::string_view bytes) {
    Entry entry;
    CHECK(check_entry(bytes, entry) == EntryFault::none);
    if (!entry.metadata.batch)
        return {std::string(entry.metadata.partition_key) + "=" + std::string(entry.payload)};
    CHECK(entry.metadata.compression == 0 &&
          entry.metadata.uncompressed_size == entry.payload.size());
    Strings out;
    BatchReader reader(entry.payload);
    BatchPart part;
    for (u32 i = 0; i < entry.metadata.messages; ++i) {
        CHECK(reader.next(part));
        if (part.fields.compacted_out) {
            CHECK(part.payload.empty());
            continue;
        }
        out.push_back(std::to_string(i) + " " + std::string(part.fields.partition_key) + "=" +
                      std::string(part.payload));
    }
    return out;
}

// Returns the survivors by ordinal; the runs are cut anew for each pass.
std::map<u64, std::string> compacted(const Strings& entries, std::size_t memory, bool keyless,
                                     std::mt19937& random, Compactor* out = nullptr,
                                     const std::map<std::size_t, std::string>& opened = {}) {
    Compactor compactor({memory, keyless, kKey});
    const auto pass = [&](auto use) {
        for (std::size_t at = 0; at < entries.size();) {
            const std::size_t count = std::min<std::size_t>(1 + random() % 20, entries.size() - at);
            const auto from = entries.begin() + static_cast<std::ptrdiff_t>(at);
            std::vector<std::pair<std::size_t, std::string_view>> here;
            for (std::size_t i = 0; i < count; ++i)
                if (const auto found = opened.find(at + i); found != opened.end())
                    here.emplace_back(i, found->second);
            use(run_of({from, from + static_cast<std::ptrdiff_t>(count)}, 100 + at), here);
            at += count;
        }
    };
    do pass([&](const EntryRun& run, Opened here) { compactor.note(run, here); });
    while (!compactor.end_pass());
    std::map<u64, std::string> found;
    pass([&](const EntryRun& run, Opened here) {
        compactor.take(run, here, [&](u64 ordinal, std::string_view bytes) {
            CHECK(found.empty() || found.rbegin()->first < ordinal);
            found[ordinal] = bytes;
        });
    });
    compactor.finish();
    if (out != nullptr) *out = std::move(compactor);
    return found;
}

void test_sums() {
    const Hash128 empty = siphash("", kKey);
    CHECK(empty.low == 0xe6a825ba047f81a3u && empty.high == 0x930255c71472f66du);
    const Hash128 some = siphash("hello compaction, a longer input", kKey);
    CHECK(some.low == 0x96c9276ccc1bda3bu && some.high == 0xdf577c1649788827u);
    CHECK(siphash("a", kKey) != siphash("b", kKey) && siphash("a", {}) != siphash("a", kKey));
}

void test_rules() {
    std::mt19937 random(1);
    Compactor of({1 << 16, false, kKey});
    const One none{"", "free", false, false};
    Strings entries{single(0, {"a", "1"}),
                    single(1, {"b", "1"}),
                    single(2, {"a", "2"}),
                    single(3, none),
                    single(4, {"b", ""}),
                    single(5, {"c", "3"}),
                    single(6, {"c", "x", true, true})};
    auto found = compacted(entries, 1 << 16, false, random, &of);
    CHECK(found.size() == 1 && messages_of(found.at(102)) == Strings{"a=2"});
    CHECK(of.read() == 7 && of.kept() == 1 && of.passes() == 1);
    found = compacted(entries, 1 << 16, true, random);
    CHECK(found.size() == 2 && found.at(103) == entries[3]);

    // Batches: whole, in part, and gone.
    entries = {batch(0, {{"a", "1"}, {"b", "1"}, {"c", "1"}}), batch(1, {{"d", "1"}, {"e", "1"}}),
               batch(2, {{"b", "2"}, {"b", "3"}}), batch(3, {{"c", ""}, {"f", "9"}})};
    found = compacted(entries, 1 << 16, false, random);
    CHECK(messages_of(found.at(100)) == Strings{"0 a=1"});
    CHECK(found.at(101) == entries[1]);
    CHECK(messages_of(found.at(102)) == Strings{"1 b=3"});
    CHECK(messages_of(found.at(103)) == Strings{"1 f=9"});
    entries.push_back(batch(4, {{"a", "5"}}));
    entries.push_back(found.at(100));  // a thinned batch counts by what it still has
    entries.push_back(batch(5, {{"a", ""}}));
    found = compacted(entries, 1 << 16, false, random);
    CHECK(found.size() == 3 && !found.contains(100) && !found.contains(105));

    // A batch that was opened, one that was not, and bytes without an entry.
    const std::vector<One> packed{{"a", "1"}, {"b", "1"}};
    entries = {batch(0, packed, 2), batch(1, {{"a", "2"}}), batch(2, packed, 3), "no entry"};
    found = compacted(entries, 1 << 16, false, random, nullptr, {{0, body_of(packed)}});
    CHECK(messages_of(found.at(100)) == Strings{"1 b=1"});
    CHECK(found.at(101) == entries[1] && found.at(102) == entries[2] &&
          found.at(103) == "no entry");
    found = compacted(entries, 1 << 16, false, random, nullptr, {{0, "no messages"}});
    CHECK(found.at(100) == entries[0]);

    // The parts of a large message share its fate; without its last part they stay.
    const One large{"a", "part"}, later{"a", "small"}, other{"b", "part"};
    entries = {part_of(0, large, "u", 0, 2), part_of(1, other, "w", 0, 2),
               part_of(2, large, "u", 1, 2), part_of(3, large, "v", 0, 3)};
    found = compacted(entries, 1 << 16, false, random);
    CHECK(found.size() == 4);
    auto again = entries;
    again.push_back(entries[2]);  // a client drops a repeated last part
    for (const std::size_t memory : {1u, 1u << 16}) {
        for (u64 i = 0; i < 200; ++i) again.push_back(single(i, {std::to_string(i), "x"}));
        found = compacted(again, memory, false, random);
        CHECK(found.contains(100) && found.contains(102));
    }
    entries.push_back(single(4, later));
    found = compacted(entries, 1 << 16, false, random);
    CHECK(found.size() == 3 && found.contains(101) && found.contains(103) && found.contains(104));
}

void test_changed_between_passes() {
    Compactor compactor({1 << 16, false, kKey});
    const EntryRun run = run_of({single(0, {"a", "1"}), single(1, {"b", "1"})}, 0);
    compactor.note(run, {});
    CHECK(compactor.end_pass());
    compactor.take(run.slice(0, 1), {}, [](u64, std::string_view) {});
    CHECK_ERROR(Code::corrupt, compactor.finish(), "1 messages in one pass, and 2");
}

// Bytes as a key are another key than their base64 as text.
void test_binary_keys() {
    const auto keyed = [](u64 sequence, bool binary) {
        ByteBuffer metadata = needed_fields(sequence);
        append_field(metadata, metadata_field::partition_key, std::string_view("YQ=="));
        if (binary) append_field(metadata, metadata_field::partition_key_b64_encoded, u64{1});
        return entry_of(metadata.view(), "x");
    };
    std::mt19937 random(1);
    const Strings entries{keyed(0, true), keyed(1, false), keyed(2, true)};
    const auto found = compacted(entries, 1 << 16, false, random);
    CHECK(found.size() == 2 && found.contains(101) && found.contains(102));
}

// An opened batch with more messages than its size on the disk allows stays whole.
void test_hostile_batches() {
    std::vector<One> many(20'000, One{"a", ""});
    std::mt19937 random(1);
    const Strings entries{batch(0, many, 2), single(1, {"a", "1"})};
    const auto found = compacted(entries, 1 << 16, false, random, nullptr, {{0, body_of(many)}});
    CHECK(found.size() == 2 && found.at(100) == entries[0]);
}

void test_compressed() {
    std::mt19937 random(1);
    const std::vector<One> both{{"a", "1"}, {"b", "2"}};
    const auto thin = compacted({batch(4, both), single(5, {"a", "3"})}, 1 << 16, false, random);
    const std::string plain = thin.at(100);
    const std::string packed = compressed(plain, 3, "small");
    Entry entry;
    CHECK(check_entry(packed, entry) == EntryFault::none);
    CHECK(entry.payload == "small" && entry.metadata.compression == 3);
    CHECK(entry.metadata.messages == 2 && entry.metadata.sequence == 4);
    Entry before;
    CHECK(read_entry(plain, before) == EntryFault::none);
    CHECK(entry.metadata.uncompressed_size == before.payload.size() && entry.thinned);
    const EntryRun run = run_of({packed, plain, batch(6, both, 3)}, 7);
    CHECK(run.slot(0).thinned && run.open_mask(0) == std::vector<u64>{0b10});
    CHECK(run.slot(1).thinned && run.open_mask(1) == std::vector<u64>{0b10});
    CHECK(!run.slot(2).thinned && run.messages(0) == 2);
    // A thinned batch that is compacted again has one mask, the newer one.
    const auto again = compacted({packed, single(7, {"b", "9"})}, 1 << 16, false, random, nullptr,
                                 {{0, std::string(before.payload)}});
    CHECK(again.size() == 1 && again.contains(101));
    CHECK_ERROR(Code::misuse, compressed("no entry", 3, "x"), "not a batch");
}

// Any order of passes and any size of the table gives the plain rule's result.
void test_random_topics() {
    std::mt19937 random(7);
    const int rounds = test::rounds(60, 2000);
    u32 most_passes = 0;
    for (int round = 0; round < rounds; ++round) {
        const u32 keys = 1 + random() % 400;
        Strings entries;
        std::map<std::string, std::pair<u64, std::string>> newest;
        std::vector<std::vector<One>> all;
        const std::size_t count = random() % 120;
        for (std::size_t at = 0; at < count; ++at) {
            std::vector<One> messages(1 + random() % 12);
            for (One& one : messages) {
                one = {"k" + std::to_string(random() % keys), std::to_string(random() % 1000)};
                if (random() % 8 == 0) one.payload.clear();
            }
            if (random() % 3 == 0) messages.resize(1);
            entries.push_back(messages.size() == 1 ? single(at, messages[0]) : batch(at, messages));
            all.push_back(messages);
        }
        std::map<std::string, std::pair<std::size_t, std::size_t>> last;
        for (std::size_t at = 0; at < all.size(); ++at)
            for (std::size_t i = 0; i < all[at].size(); ++i) last[all[at][i].key] = {at, i};
        std::map<u64, Strings> expected;
        std::size_t kept = 0;
        for (std::size_t at = 0; at < all.size(); ++at)
            for (std::size_t i = 0; i < all[at].size(); ++i) {
                const One& one = all[at][i];
                if (last[one.key] != std::pair{at, i} || one.payload.empty()) continue;
                const std::string text = one.key + "=" + one.payload;
                const std::string index = std::to_string(i) + " ";
                expected[100 + at].push_back(all[at].size() == 1 ? text : index + text);
                ++kept;
            }
        Compactor of({1, false, kKey});
        const std::size_t memory = 1 + random() % 4 * 8192;  // the smallest has 64 places
        std::map<u64, Strings> found;
        for (const auto& [ordinal, bytes] : compacted(entries, memory, false, random, &of))
            found[ordinal] = messages_of(bytes);
        CHECK(found == expected && of.kept() == kept);
        most_passes = std::max(most_passes, of.passes());
    }
    CHECK(most_passes >= 4);
}

void test_memory() {
    Compactor compactor({1 << 20, false, kKey});
    Strings entries;
    for (int i = 0; i < 2000; ++i) entries.push_back(single(0, {std::to_string(i), "x"}));
    std::size_t most = 0;
    for (int round = 0; round < 100; ++round) {
        for (std::size_t i = 0; i < entries.size(); ++i)
            entries[i] = single(0, {std::to_string(round) + "/" + std::to_string(i), "x"});
        compactor.note(run_of(entries, 0), {});
        most = std::max(most, compactor.memory());
    }
    CHECK(most <= (1 << 20) + 200'000 / 8 * 2 && compactor.passes() == 0);
    CHECK(!compactor.end_pass());
    // Parts of large messages that never end.
    Compactor endless({1 << 16, false, kKey});
    for (int round = 0; round < 300; ++round) {
        Strings parts;
        for (int i = 0; i < 1000; ++i)
            parts.push_back(part_of(0, {"k", "p"}, std::to_string(round * 1000 + i), 0, 2));
        endless.note(run_of(parts, 0), {});
    }
    CHECK(endless.remembered() == kPartsMax);
}

}  // namespace

int main() {
    test_sums();
    test_rules();
    test_changed_between_passes();
    test_binary_keys();
    test_hostile_batches();
    test_compressed();
    test_random_topics();
    test_memory();
}
