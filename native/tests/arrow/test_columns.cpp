// Entries decoded into Arrow columns: the right rows, released once, and no read outside of any
// entry.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "holdfast/arrow/columns.hpp"
#include "holdfast/log/ledger_read.hpp"
#include "tests/check.hpp"
#include "tests/entry/ledger_bytes.hpp"

using namespace holdfast;
using namespace holdfast::test;

static std::vector<Column> every_column() {
    std::vector<Column> out;
    for (std::size_t i = 0; i < kColumnNames.size(); ++i) out.push_back(static_cast<Column>(i));
    return out;
}

static ColumnDecoder decoder(ColumnLimits limits = {}, RowFilter filter = {}) {
    return ColumnDecoder(every_column(), "persistent://public/default/t", 3, std::move(filter),
                         limits);
}

static EntryRun run_of(const std::vector<std::string>& entries) {
    LedgerBytes ledger;
    for (const std::string& each : entries) ledger.add(each, 1);
    return parse_run(7, 1000, 0, ledger.index_from(0), ledger.data());
}

// Reads every byte of an exported array, as an importer would.
static u64 touch(const ArrowArray& array, const ArrowSchema& schema) {
    const std::string_view format = schema.format;
    u64 sum = 0;
    const auto add = [&](const void* at, std::size_t size) {
        const auto* bytes = static_cast<const u8*>(at);
        for (std::size_t i = 0; i < size; ++i) sum += bytes[i];
    };
    const auto rows = static_cast<std::size_t>(array.length);
    if (array.buffers[0] != nullptr) add(array.buffers[0], (rows + 7) / 8);
    if (format == "z" || format == "u") {
        const auto* offsets = static_cast<const i32*>(array.buffers[1]);
        CHECK(offsets[0] == 0);
        for (std::size_t i = 0; i < rows; ++i) CHECK(offsets[i] <= offsets[i + 1]);
        add(array.buffers[2], static_cast<std::size_t>(offsets[rows]));
    } else if (format == "i") {
        add(array.buffers[1], rows * 4);
    } else if (format == "l" || format == "tsu:UTC") {
        add(array.buffers[1], rows * 8);
    } else if (format == "+m") {
        const auto* offsets = static_cast<const i32*>(array.buffers[1]);
        CHECK(offsets[rows] == array.children[0]->length);
    }
    CHECK(array.n_children == schema.n_children);
    for (i64 i = 0; i < array.n_children; ++i)
        sum += touch(*array.children[i], *schema.children[i]);
    return sum;
}

static void import(const std::shared_ptr<ColumnData>& data) {
    ArrowSchema schema;
    ArrowArray array;
    arrow_export::schema(data->node(), &schema);
    arrow_export::array(data->node(), data, &array);
    CHECK(array.length == static_cast<i64>(data->rows));
    CHECK(array.n_children == static_cast<i64>(kColumnNames.size()));
    for (i64 i = 0; i < array.n_children; ++i) CHECK(array.children[i]->length == array.length);
    touch(array, schema);
    ArrowArray moved = *array.children[0];  // as an importer takes a child over
    array.children[0]->release = nullptr;
    array.release(&array);
    CHECK(array.release == nullptr);
    moved.release(&moved);
    schema.release(&schema);
}

// Gaps of a compacted run, and messages that are compacted out, make no rows.
static void test_gaps() {
    const EntryRun run = run_of({single_entry(1, "alone"), thinned_batch(2, {"a", nullptr, "c"})});
    const u64 ordinals[] = {5, 8};
    const EntryRun spread = run.spread(ordinals, 7, 0, 4, 6);
    ColumnDecoder made = decoder();
    std::size_t at = 0;
    CHECK(made.take(spread, at) == Stop::end && at == 6 && made.rows() == 3);
    const auto data = made.finish();
    const auto* positions = reinterpret_cast<const i64*>(data->position.values().view().data());
    CHECK(positions[0] == 5 && positions[1] == 8 && positions[2] == 8);
    import(data);
}

static void test_rows() {
    const EntryRun run = run_of({single_entry(1, "alone"), batch_entry(2, {"a", "b", "c"}),
                                 "no entry at all", compressed_batch(5, 2, "squeezed")});
    ColumnDecoder made = decoder();
    std::size_t at = 0;
    CHECK(made.take(run, at) == Stop::unsound && at == 2 && made.rows() == 4);
    CHECK(made.fault() == fault_name(EntryFault::magic));
    made.push_corrupt(7, 2, 1002, "it is none");
    ++at;
    CHECK(made.take(run, at) == Stop::compressed && at == 3);
    const std::string inside = batch_entry(5, {"d", "e"});
    Entry entry;
    CHECK(read_entry(inside, entry) == EntryFault::none);
    made.expand(1003, entry.payload);
    CHECK(made.take(run, at) == Stop::end && at == 4 && made.rows() == 7);
    const auto data = made.finish();
    CHECK(data->value.data().view() == "aloneabcde");
    CHECK(data->value.validity().nulls() == 1 && data->corrupt.validity().nulls() == 6);
    import(data);
    CHECK(made.rows() == 0);
    import(made.finish());  // no row at all
}

static void test_full() {
    const EntryRun run = run_of({batch_entry(0, {"a", "b", "c", "d", "e"}), single_entry(5, "f")});
    ColumnDecoder made = decoder({2, 1 << 20});
    std::size_t at = 0;
    std::string values;
    for (std::size_t batches = 0;; ++batches) {
        const Stop stop = made.take(run, at);
        const auto data = made.finish();
        CHECK(data->rows == 2);
        values += data->value.data().view();
        import(data);
        if (stop == Stop::end) break;
        CHECK(stop == Stop::full);
    }
    CHECK(values == "abcdef");
    // A batch that is being split cannot be exchanged for another one.
    at = 0;
    CHECK(made.take(run, at) == Stop::full);
    CHECK_ERROR(Code::misuse, made.expand(1000, "x"), "being decoded");
}

static void test_text() {
    const auto made = [](std::string_view text) {
        ByteBuffer out;
        utf8::append(out, text);
        return std::string(out.view());
    };
    CHECK(made("plain text, long enough for words") == "plain text, long enough for words");
    CHECK(made("\xc3\xa4 \xe2\x82\xac \xf0\x9f\xaa\xa2") ==
          "\xc3\xa4 \xe2\x82\xac \xf0\x9f\xaa\xa2");
    const std::string wrong = "\xef\xbf\xbd";
    for (const char* bad : {"\x80", "\xc0", "\xc1", "\xf5", "\xff"}) CHECK(made(bad) == wrong);
    CHECK(made("\xed\xa0\x80") == wrong + wrong + wrong);  // half of a pair
    CHECK(made("\xe0\x80\x80") == wrong + wrong + wrong);  // too long for what it says
    CHECK(made("\xf4\x90\x80\x80") == wrong + wrong + wrong + wrong);
    for (std::size_t size = 1; size < 4; ++size)
        CHECK(made(std::string_view("\xf0\x9f\xaa\xa2", size)).size() == 3 * size);
}

// Takes everything, with any payload where one is needed. Each buffer is its own, so that
// sanitizers see its ends.
static void take_all(const std::string& entry, std::string_view payload) {
    const EntryRun run = run_of({entry, single_entry(9, "good")});
    ColumnDecoder made = decoder({3, 64});
    std::size_t at = 0, asked = 0;
    u64 rows = 0;
    for (;;) {
        const Stop stop = made.take(run, at);
        if (stop == Stop::compressed || stop == Stop::chunk) {
            CHECK(at == 0 && ++asked < 3);
            made.expand(1000, payload);
        } else if (stop == Stop::unsound) {
            CHECK(at == 0);
            ++at;
        } else {
            const auto data = made.finish();
            rows += data->rows;
            if (stop == Stop::end) CHECK(data->value.data().view().ends_with("good"));
            import(data);
            if (stop == Stop::end) break;
        }
    }
    CHECK(rows >= 1);
}

static std::string reseal(std::string entry) {
    if (entry.size() >= kEntryHeader)
        store_big32(entry.data() + 2,
                    crc32c(0, entry.data() + kEntrySummed, entry.size() - kEntrySummed));
    return entry;
}

// I151: every truncation and every flipped bit of entries, under right sums.
static void test_hostile() {
    const std::string payload = batch_entry(0, {"one", "two", "three"}).substr(kEntryHeader + 12);
    std::string chunk = compressed_batch(4, 3, "part");
    const std::vector<std::string> entries = {single_entry(0, "first"),
                                              batch_entry(1, {"one", "two"}),
                                              compressed_batch(3, 3, "squeezed"), chunk};
    for (const std::string& entry : entries) {
        for (std::size_t size = 0; size < entry.size(); ++size)
            take_all(reseal(entry.substr(0, size)), payload);
        for (std::size_t bit = 0; bit < entry.size() * 8; ++bit) {
            std::string bad = entry;
            bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << (bit % 8));
            take_all(reseal(bad), payload);
        }
    }
    std::mt19937 random(7);
    const std::string inside(entries[1]);
    for (int i = 0; i < rounds(4000, 20'000); ++i) {
        std::string bad = inside;
        for (u32 n = random() % 8 + 1; n > 0; --n)
            bad[random() % bad.size()] = static_cast<char>(random());
        take_all(entries[2], bad);
    }
}

static void test_filter() {
    RowFilter filter;
    filter.publish_min_us = 1000;
    filter.publish_max_us = 1000;
    const EntryRun run = run_of({single_entry(1, "x"), batch_entry(2, {"a", "b"})});
    std::size_t at = 0;
    ColumnDecoder all = decoder({}, filter);
    CHECK(all.take(run, at) == Stop::end && all.rows() == 3);
    filter.publish_min_us = 1001;
    at = 0;
    ColumnDecoder none = decoder({}, filter);
    CHECK(none.take(run, at) == Stop::end && none.rows() == 0);
    filter.publish_min_us = kNoTime;
    filter.by_key = true;
    at = 0;
    ColumnDecoder keyed = decoder({}, filter);
    CHECK(keyed.take(run, at) == Stop::end && keyed.rows() == 0);
}

static std::string encrypted_entry(std::string_view payload) {
    ByteBuffer metadata;
    append_field(metadata, metadata_field::producer_name, std::string_view("p"));
    append_field(metadata, metadata_field::sequence_id, u64{1});
    append_field(metadata, metadata_field::publish_time, u64{1});
    append_field(metadata, metadata_field::encryption_keys, std::string_view("key"));
    std::string out(kEntryHeader, '\0');
    out[0] = kEntryMagic >> 8;
    out[1] = kEntryMagic & 0xff;
    store_big32(out.data() + kEntrySummed, static_cast<u32>(metadata.size()));
    return reseal(out + std::string(metadata.view()) + std::string(payload));
}

// For every kind of entry, the columns stay below the limit of their offsets.
static void test_too_long() {
    const std::string large(1000, 'x');
    for (const std::string& entry :
         {single_entry(0, large), batch_entry(0, {large, "b"}), encrypted_entry(large)}) {
        const EntryRun run = run_of({entry, single_entry(9, "good")});
        ColumnDecoder made = decoder({100, 1 << 20, 900});
        std::size_t at = 0;
        CHECK(made.take(run, at) == Stop::unsound && at == 0 && made.rows() == 0);
        CHECK(made.fault() == "it is too long for a row");
        CHECK(made.take(run, ++at) == Stop::end && made.rows() == 1);
        at = 0;
        ColumnDecoder enough = decoder({100, 1 << 20, 1 << 20});
        CHECK(enough.take(run, at) == Stop::end);
        import(enough.finish());
    }
    // A row for damage counts, too, and so do the fields of an encrypted message.
    ColumnDecoder made = decoder({100, 2500});
    for (u64 i = 0; i < 3; ++i) {
        CHECK(!made.full());
        made.push_corrupt(7, i, i, large);
    }
    CHECK(made.full());
    made.finish();
    const EntryRun run = run_of({encrypted_entry(""), encrypted_entry("")});
    std::size_t at = 0;
    ColumnDecoder small = decoder({100, 20});
    CHECK(small.take(run, at) == Stop::full && at == 1);
    // Every row has the topic's name.
    ColumnDecoder named({Column::topic}, std::string(std::size_t{1} << 29, 't'), 0, {}, {});
    CHECK(!named.full());
    named.push_corrupt(7, 0, 0, "");
    named.push_corrupt(7, 1, 1, "");
    CHECK(named.full());
}

int main() {
    test_gaps();
    test_rows();
    test_too_long();
    test_full();
    test_text();
    test_hostile();
    test_filter();
}
