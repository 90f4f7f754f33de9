// Entries and frames: the codec against itself, and against every truncation and every flipped bit.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "holdfast/base/base64.hpp"
#include "holdfast/entry/writer.hpp"
#include "holdfast/log/frame_writer.hpp"
#include "tests/check.hpp"

using namespace holdfast;

using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;

static std::string view(const ByteBuffer& buffer) {
    return std::string(buffer.view());
}

static const Pairs kProperties{{"colour", "blue"}, {"", ""}, {"k", std::string_view("\0\xff", 2)}};

static MessageShape full_shape() {
    MessageShape shape;
    shape.producer = "producer-1";
    shape.publish_time_ms = 1'700'000'000'123;
    shape.event_time_ms = 5;
    shape.key = "a key";
    shape.has_key = true;
    shape.ordering_key = std::string_view("o\0", 2);
    shape.has_ordering_key = true;
    shape.properties = kProperties;
    return shape;
}

static std::string alone(i64 sequence, std::string_view payload) {
    ByteBuffer out;
    const std::size_t size = EntryWriter(full_shape()).add(out, sequence, payload);
    CHECK(size == out.size());
    return view(out);
}

static std::string batch(i64 sequence, const std::vector<std::string_view>& payloads) {
    ByteBuffer out;
    const EntryWriter writer(full_shape());
    std::size_t bytes = 0;
    for (const auto payload : payloads) bytes += payload.size();
    const std::size_t size = writer.add_batch(out, sequence, payloads);
    CHECK(size == out.size() && size <= writer.size_bound(payloads.size(), bytes));
    return view(out);
}

static void test_varints() {
    const u64 values[] = {0, 1, 127, 128, 300, 16383, 16384, u64{1} << 32, ~u64{0} >> 1, ~u64{0}};
    for (const u64 value : values) {
        ByteBuffer out;
        append_varint(out, value);
        CHECK(out.size() == varint_size(value));
        ProtoReader in(out.view());
        CHECK(in.varint() == value && !in.bad());
        for (std::size_t cut = 0; cut < out.size(); ++cut) {
            ProtoReader shorter(out.view().substr(0, cut));
            shorter.varint();
            CHECK(shorter.bad());
        }
    }
    for (const std::string_view endless :
         {std::string_view("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"),
          std::string_view("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
          std::string_view("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 12)}) {
        ProtoReader in(endless);
        in.varint();
        CHECK(in.bad() && in.next() == 0);
    }
    // A size that would wrap around, field number 0, a tag above 32 bits, a group.
    for (const std::string_view bad :
         {std::string_view("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
          std::string_view("\x02\x00", 2), std::string_view("\x80\x80\x80\x80\x80\x01\x00", 7),
          std::string_view("\x0b")}) {
        ProtoReader in(bad);
        while (const u32 tag = in.next()) in.skip(tag);
        CHECK(in.bad());
    }
}

static void test_alone() {
    const std::string payload(1000, 'p');
    const std::string bytes = alone(77, payload);
    Entry entry;
    CHECK(check_entry(bytes, entry) == EntryFault::none);
    const EntryMetadata& m = entry.metadata;
    CHECK(m.producer == "producer-1" && m.sequence == 77 && m.publish_time_ms == 1'700'000'000'123);
    CHECK(m.has_key && !m.key_base64 && m.partition_key == "a key" && m.event_time_ms == 5);
    CHECK(m.has_ordering_key && m.ordering_key == std::string_view("o\0", 2));
    CHECK(!m.batch && m.messages == 1 && m.open() && m.properties == 3 && m.chunk == -1);
    CHECK(entry.payload == payload);
    Pairs seen;
    each_property(
        entry.metadata_bytes, metadata_field::properties,
        [&](std::string_view key, std::string_view value) { seen.push_back({key, value}); });
    CHECK(seen == kProperties);
    for (const i64 sequence : {i64{0}, i64{127}, i64{128}, std::numeric_limits<i64>::max()}) {
        const std::string other = alone(sequence, "");
        CHECK(check_entry(other, entry) == EntryFault::none);
        CHECK(entry.metadata.sequence == sequence && entry.payload.empty());
    }
}

static void test_batch() {
    const std::string large(300, 'l');
    const std::string bytes = batch(126, {"one", "", large});
    Entry entry;
    CHECK(check_entry(bytes, entry) == EntryFault::none);
    CHECK(entry.metadata.batch && entry.metadata.messages == 3 && entry.metadata.sequence == 126);
    CHECK(entry.metadata.highest_sequence == 128 && entry.metadata.properties == 0);
    BatchReader reader(entry.payload);
    BatchPart part;
    const std::string_view expected[] = {"one", "", large};
    for (int i = 0; i < 3; ++i) {
        CHECK(reader.next(part) && part.payload == expected[i]);
        CHECK(part.fields.has_sequence && part.fields.sequence == 126 + i);
        CHECK(part.fields.partition_key == "a key" && part.fields.event_time_ms == 5);
        CHECK(part.fields.properties == 3 && part.fields.has_ordering_key);
    }
    CHECK(!reader.next(part));
}

// Reads a copy in memory of exactly that size, so that the sanitizer sees a read beyond it. Returns
// the result of read_entry.
static EntryFault judge(std::string_view bytes, bool& sum) {
    const std::unique_ptr<char[]> copy(new char[bytes.size()]);
    if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
    const std::string_view exact(copy.get(), bytes.size());
    Entry entry;
    const EntryFault fault = read_entry(exact, entry);
    sum = sum_is_right(exact);
    if (fault != EntryFault::none) return fault;
    std::size_t used = 0;
    each_property(entry.metadata_bytes, metadata_field::properties,
                  [&](std::string_view k, std::string_view v) { used += k.size() + v.size(); });
    if (entry.metadata.batch && entry.metadata.open()) {
        BatchReader reader(entry.payload);
        BatchPart part;
        for (u32 i = 0; i < entry.metadata.messages; ++i) {
            CHECK(reader.next(part));  // read_entry has promised it
            used += part.payload.size();
            each_property(part.metadata, single_field::properties,
                          [&](std::string_view k, std::string_view) { used += k.size(); });
        }
    }
    CHECK(used <= bytes.size());
    return fault;
}

static void test_truncated_and_flipped() {
    const std::string entries[] = {alone(3, "payload"),
                                   batch(200, {"a", "bb", std::string(150, 'c')}), alone(0, "")};
    for (const std::string& good : entries) {
        bool sum = false;
        CHECK(judge(good, sum) == EntryFault::none && sum);
        for (std::size_t size = 0; size < good.size(); ++size) {
            judge(std::string_view(good).substr(0, size), sum);
            CHECK(!sum);
        }
        for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
            std::string bad = good;
            bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << (bit % 8));
            Entry entry;
            judge(bad, sum);
            CHECK(check_entry(bad, entry) != EntryFault::none);
        }
    }
}

// The sum keeps most damage away from the reader of metadata; here it is made right again.
static void test_hostile_metadata() {
    std::mt19937_64 random(1);
    const std::string good = batch(9, {"x", "yy", "zzz"});
    u64 sound = 0;
    for (int i = 0; i < 60'000; ++i) {
        std::string bad = good;
        for (u64 changes = 1 + random() % 4; changes > 0; --changes) {
            const std::size_t at = kEntrySummed + random() % (bad.size() - kEntrySummed);
            bad[at] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
        }
        if (random() % 4 == 0) bad.resize(random() % bad.size());
        bool sum;
        sound += judge(bad, sum) == EntryFault::none;
    }
    CHECK(sound > 1000);  // changes in payloads and names still leave an entry
}

static std::string raw(std::string_view metadata, std::string_view payload) {
    std::string out("\x0e\x01\0\0\0\0\0\0\0\0", 10);
    out[9] = static_cast<char>(metadata.size());
    out += metadata;
    out += payload;
    store_big32(out.data() + 2, crc32c(0, out.data() + 6, out.size() - 6));
    return out;
}

static void test_faults_have_names() {
    Entry entry;
    const std::string needed("\x0a\x01p\x10\x01\x18\x02", 7);  // producer, sequence, publish time
    const auto fault_of = [&](const std::string& bytes) { return check_entry(bytes, entry); };
    CHECK(fault_of(raw(needed, "data")) == EntryFault::none);
    CHECK(fault_of("\x0e\x01") == EntryFault::size);
    CHECK(fault_of(std::string(20, '\0')) == EntryFault::magic);
    std::string bytes = raw(needed, "data");
    bytes[5] = static_cast<char>(bytes[5] ^ 1);
    CHECK(fault_of(bytes) == EntryFault::crc);
    bytes = raw(needed, "");
    bytes[9] = 8;
    store_big32(bytes.data() + 2, crc32c(0, bytes.data() + 6, bytes.size() - 6));
    CHECK(fault_of(bytes) == EntryFault::metadata_size);
    CHECK(fault_of(raw("\x0a\x05p", "")) == EntryFault::metadata);
    CHECK(fault_of(raw(needed + std::string("\x22\x03\x0a\x01k", 5), "")) == EntryFault::metadata);
    CHECK(fault_of(raw(needed.substr(0, 5), "")) == EntryFault::required);
    CHECK(fault_of(raw(needed + std::string("\x58\x00", 2), "")) == EntryFault::count);
    // 2^24 messages in 4 bytes, and -1 of them.
    CHECK(fault_of(raw(needed + std::string("\x58\x80\x80\x80\x08", 5), "data")) ==
          EntryFault::count);
    CHECK(fault_of(raw(needed + "\x58\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "data")) ==
          EntryFault::count);
    CHECK(fault_of(raw(needed + "\x58\x01", "data")) == EntryFault::batch);
    // The same compressed or encrypted is not read.
    CHECK(fault_of(raw(needed + "\x58\x05\x40\x01", "data")) == EntryFault::none);
    CHECK(entry.metadata.messages == 5 && !entry.metadata.open());
    CHECK(fault_of(raw(needed + std::string("\x58\x05\x6a\x00", 4), "data")) == EntryFault::none);
    // A negative payload size.
    const std::string part("\0\0\0\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 15);
    CHECK(fault_of(raw(needed + "\x58\x01", part)) == EntryFault::batch);
    // A message that is longer than the rest of the batch.
    CHECK(fault_of(raw(needed + "\x58\x01", std::string("\0\0\0\x02\x18\x03"
                                                        "ab",
                                                        8))) == EntryFault::batch);
    // Unknown: field 99 of each kind, and a known number with another type. The last of two wins.
    const std::string strange =
        "\x98\x06\x07\x99\x06 12345678\x9a\x06\x02xy\x9d\x06 1234\x12\x01q\x10\x09";
    std::string unknown;
    for (const char byte : strange)
        if (byte != ' ') unknown += byte;
    bytes = raw(needed + unknown, "data");
    CHECK(fault_of(bytes) == EntryFault::none);
    CHECK(entry.metadata.sequence == 9 && entry.payload == "data");
    for (int i = 0; i <= static_cast<int>(EntryFault::batch); ++i)
        CHECK(fault_name(static_cast<EntryFault>(i)) != "unknown");
}

static void test_base64() {
    const std::pair<std::string_view, std::string_view> known[] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"}};  // RFC 4648
    std::string out;
    for (const auto& [bytes, text] : known) {
        CHECK(base64(bytes) == text);
        CHECK(from_base64(text, out) && out == bytes);
    }
    for (const std::string_view bad : {"Z", "Zg=", "Zg===", "A===", "Z!==", "=Zm8", "Zm=v"})
        CHECK(!from_base64(bad, out));
}

static void test_frame() {
    FrameWriter frame;
    frame.event(9, 2, "body");
    {
        FrameWriter::Publish publish(frame, 1, 2, 3, "name", 2, 0);
        publish.entry(5, 1, "first");
        publish.entry(6, 10, "second!");
        publish.keep();
    }
    const std::string before(frame.finish(1));
    // An addition that fails leaves the frame as it was.
    CHECK_ERROR(Code::misuse, FrameWriter::Publish(frame, 1, 2, 3, "name", 0, 0), "at least one");
    CHECK_ERROR(Code::too_large,
                FrameWriter::Publish(frame, 1, 2, 3, std::string(65536, 'n'), 1, 0), "65536");
    const auto publish_one = [&](i64 sequence, u64 span, std::size_t entries) {
        FrameWriter::Publish publish(frame, 1, 2, 3, "name", entries, 0);
        publish.entry(sequence, span, "entry");
        publish.keep();
    };
    CHECK_ERROR(Code::misuse, publish_one(-1, 1, 1), "sequence -1");
    CHECK_ERROR(Code::misuse, publish_one(1, 0, 1), "span of 0");
    CHECK_ERROR(Code::misuse, publish_one(std::numeric_limits<i64>::max(), 2, 1), "not possible");
    CHECK_ERROR(Code::misuse, publish_one(1, 1, 2), "fewer");
    CHECK_ERROR(Code::full, frame.event(1, 1, std::string(kFrameSizeMax, 'x')), "take()");
    CHECK(frame.finish(1) == before && frame.count() == 2);

    const std::string bytes(frame.finish(0x0102030405060708));
    FrameHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    CHECK(header.magic == kFrameMagic && header.version == 1 && header.count == 2);
    CHECK(header.time == 0x0102030405060708 && bytes.substr(0, 2) == "FR");
    EventHeader event;
    std::memcpy(&event, bytes.data() + 16, sizeof event);
    CHECK(event.size == 4 && event.kind == 9 && event.version == 2);
    CHECK(bytes.substr(24, 4) == "body");
    std::memcpy(&event, bytes.data() + 28, sizeof event);
    CHECK(event.kind == kPublishKind && event.size == bytes.size() - 36);
    PublishHeader publish;
    std::memcpy(&publish, bytes.data() + 36, sizeof publish);
    CHECK(publish.topic == 1 && publish.session == 2 && publish.epoch == 3 && publish.count == 2);
    CHECK(publish.name_size == 4 && bytes.substr(68, 4) == "name");
    PublishRow rows[2];
    std::memcpy(rows, bytes.data() + 72, sizeof rows);
    CHECK(rows[0].sequence == 5 && rows[0].span == 1 && rows[0].size == 5);
    CHECK(rows[1].sequence == 6 && rows[1].span == 10 && rows[1].size == 7);
    CHECK(bytes.substr(104) == "firstsecond!");

    frame.clear();
    CHECK(frame.count() == 0 && frame.size() == sizeof(FrameHeader));
    frame.event(1, 1, std::string(kFrameSizeMax, 'x'));  // alone it may be larger
    CHECK_ERROR(Code::full, frame.event(2, 1, ""), "1 events");
    CHECK(frame.count() == 1);
}

int main() {
    test_varints();
    test_alone();
    test_batch();
    test_truncated_and_flipped();
    test_hostile_metadata();
    test_faults_have_names();
    test_base64();
    test_frame();
}
