// The wire codec against every truncation, every flipped bit, wrong sizes and random protocol buffers.
#include <random>
#include <string>
#include <vector>

#include "tests/entry/ledger_bytes.hpp"
#include "tests/wire/wire_judge.hpp"

using namespace holdfast;
using namespace holdfast::test;

static std::string framed(u32 type, std::string_view body, std::string_view entry = {}) {
    ByteBuffer command;
    append_field(command, 1, u64{type});
    append_field(command, type, body);
    std::string out(8, '\0');
    store_big32(out.data(), static_cast<u32>(4 + command.size() + entry.size()));
    store_big32(out.data() + 4, static_cast<u32>(command.size()));
    out += command.view();
    out += entry;
    return out;
}

using Fields = std::vector<std::pair<u32, u64>>;

static std::string fields(const Fields& all) {
    ByteBuffer out;
    for (const auto& [field, value] : all) append_field(out, field, value);
    return std::string(out.view());
}

static std::string send(u64 producer, u64 sequence, std::string_view entry, Fields more = {}) {
    Fields all{{1, producer}, {2, sequence}};
    all.insert(all.end(), more.begin(), more.end());
    return framed(wire_type::send, fields(all), entry);
}

static std::string ack(u64 consumer, const std::vector<Fields>& ids, Fields more = {},
                       u64 type = 0) {
    ByteBuffer body;
    append_field(body, 1, consumer);
    append_field(body, 2, type);
    for (const Fields& each : ids) append_field(body, 3, fields(each));
    for (const auto& [field, value] : more) append_field(body, field, value);
    return framed(wire_type::ack, body.view());
}

static std::string flow(u64 consumer, u64 permits) {
    return framed(wire_type::flow, fields({{1, consumer}, {2, permits}}));
}

// A stream with all kinds of commands.
static std::string sample() {
    std::string out = send(0, 5, single_entry(5, "alone"));
    out += send(1, 6, batch_entry(6, {"a", "bc", ""}), {{3, 3}, {6, 8}});
    out += ack(2, {{{1, 7}, {2, 0}},
                   {{1, 7}, {2, 1}},
                   {{1, 7}, {2, 5}},
                   {{1, 7}, {2, 9}, {5, 6}, {5, 1}, {6, 70}}});
    out += send(0, 6, compressed_batch(6, 4, "sealed"));
    out += flow(2, 1000) + flow(2, 24) + ack(2, {{{1, 7}, {2, 2}}});
    out += ack(2, {{{1, 7}, {2, 3}}}, {{8, 77}}) + ack(3, {{{1, 1}, {2, 4}}}, {}, 1);
    out += ack(2, {{{1, ~u64{0}}, {2, ~u64{0}}}, {{1, 7}, {2, 11}, {5, 0}}});  // no id; a whole one
    out += send(9, 1, "for nobody");
    out += framed(18, "") + framed(1003, std::string(300, 'x'));
    out += send(3, 1, std::string_view(single_entry(1, "no sum")).substr(kEntrySummed));
    return out;
}

static void test_sample() {
    WireJudge judge;
    judge.feed(sample());
    const Heard& heard = judge.heard();
    CHECK(heard.reason.empty());
    CHECK(heard.entries.at(0).size() == 2 && heard.entries.at(1).size() == 1);
    CHECK(heard.entries.at(3)[0] == single_entry(1, "no sum"));
    CHECK((heard.sent.at(1)[0] == std::pair<u64, u64>{6, 8}));
    CHECK(heard.permits.at(2) == 1024);
    using Ids = std::multiset<std::pair<u64, u64>>;
    CHECK((heard.whole.at({2, false}) == Ids{{7, 0}, {7, 1}, {7, 2}, {7, 3}, {7, 5}, {7, 11}}));
    CHECK((heard.whole.at({3, true}) == Ids{{1, 4}}));
    CHECK((*heard.parts.at(2).begin() ==
           std::tuple<u64, u64, u32, std::vector<u64>>{7, 9, 70, {6, 1}}));
    CHECK(heard.refused.at(9)[0].second == static_cast<int>(SendFault::producer));
    CHECK(heard.commands.size() == 2 && heard.commands[1].first == 1003);
}

// Only commands of one consumer are joined.
static void test_two_consumers() {
    WireJudge judge;
    judge.feed(ack(2, {{{1, 7}, {2, 0}}}) + ack(3, {{{1, 7}, {2, 1}}}) + flow(2, 10) + flow(3, 5));
    using Ids = std::multiset<std::pair<u64, u64>>;
    CHECK((judge.heard().whole.at({2, false}) == Ids{{7, 0}}));
    CHECK((judge.heard().whole.at({3, false}) == Ids{{7, 1}}));
    CHECK(judge.heard().permits.at(2) == 10 && judge.heard().permits.at(3) == 5);
}

// The last number is not used: its successor could not be counted.
static void test_sequences() {
    constexpr u64 last = ~u64{0} >> 1;
    WireJudge judge;
    judge.feed(send(0, last - 1, single_entry(5, "good")) + send(1, last, single_entry(5, "bad")) +
               send(2, 6, batch_entry(6, {"a", "b"}), {{3, 2}, {6, last}}) +
               send(3, 0, single_entry(5, "x"), {{6, ~u64{0}}}));  // 2^64 of them: none, by 64 bits
    CHECK(judge.heard().entries.at(0).size() == 1);
    CHECK(judge.heard().refused.at(1)[0].second == static_cast<int>(SendFault::malformed));
    CHECK(judge.heard().refused.at(2)[0].second == static_cast<int>(SendFault::malformed));
    CHECK(judge.heard().refused.at(3)[0].second == static_cast<int>(SendFault::malformed));
    // A batch covers as many numbers as it has messages: an accepted one can be applied.
    const std::string batch = batch_entry(6, {"a", "b", "c"});
    WireJudge edge;
    edge.feed(send(0, last - 3, batch) + send(1, last - 2, batch) + send(2, last - 1, batch));
    CHECK(edge.heard().entries.at(0).size() == 1 && edge.heard().entries.size() == 1);
    CHECK(edge.heard().refused.at(1).size() == 1 && edge.heard().refused.at(2).size() == 1);
    FrameWriter frame;
    for (const u64 span : {u64{1}, u64{2}, u64{0xffffffff}}) {
        const i64 first = static_cast<i64>(last - span);
        FrameWriter::Publish taken(frame, 1, 1, 1, "p", 1, 0);
        taken.entry(first, span, "x");
        taken.keep();
        FrameWriter::Publish refused(frame, 1, 1, 1, "p", 1, 0);
        CHECK_ERROR(Code::misuse, refused.entry(first + 1, span, "x"), "is not possible");
    }
    const std::string_view made = frame.finish(1);
    CHECK(FrameReader({reinterpret_cast<const std::byte*>(made.data()), made.size()}).count() == 3);
}

static void test_what_is_missing() {
    const std::string bad[] = {
        framed(wire_type::send, fields({{1, 0}}), "entry"),
        framed(wire_type::send, fields({{2, 0}}), "entry"),
        framed(wire_type::flow, fields({{1, 0}})),
        framed(wire_type::flow, fields({{2, 0}})),
        framed(wire_type::ack, fields({{1, 0}})),
        framed(wire_type::ack, fields({{2, 0}})),
        ack(1, {{{1, 7}}}),
        ack(1, {{{2, 7}}}),
        ack(1, {{{1, 7}, {2, 7}, {5, 1}, {6, kEntryMessagesMax + 1}}}),
        ack(1, {{{1, 7}, {2, 7}}}, {}, 2),
        std::string("\0\0\0\4\0\0\0\0", 8),
        std::string("\0\0\0\6\0\0\0\2\x92\1", 10),
        framed(18, "") + framed(18, "", "behind"),
    };
    for (const std::string& each : bad) {
        WireJudge judge;
        judge.feed(each);
        CHECK(!judge.heard().reason.empty());
    }
}

static void test_ordinals() {
    AckIds ids;
    for (const u64 entry : {30, 31, 2, 3, 9, 10}) ids.add(7, entry);
    for (const u64 entry : {0, 1}) ids.add(9, entry);
    ids.add(8, 1);
    using Ranges = std::vector<std::pair<u64, u64>>;
    CHECK((ids.ledgers() == std::vector<u64>{7, 8, 9}));
    CHECK((ids.ordinals({{7, 100, 50}, {9, 150, 2}}) ==
           Ranges{{102, 104}, {109, 111}, {130, 132}, {150, 152}}));
    CHECK((ids.ordinals({{7, 100, 10}, {9, 110, 1}}) == Ranges{{102, 104}, {109, 111}}));
    CHECK((ids.ordinals({{8, 0, 2}}) == Ranges{{1, 2}}));
    CHECK(ids.count() == 9 && ids.runs().size() == 5);
}

static void test_every_cut() {
    const std::string stream = sample();
    WireJudge whole;
    whole.feed(stream);
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        WireJudge judge;
        judge.feed(stream.substr(0, cut));
        judge.feed(stream.substr(cut));
        CHECK(judge.heard() == whole.heard());
    }
    for (const std::size_t size : {1, 3, 7, 64}) {
        WireJudge judge;
        for (std::size_t at = 0; at < stream.size(); at += size)
            judge.feed(std::string_view(stream).substr(at, size));
        CHECK(judge.heard() == whole.heard());
    }
}

static void test_so_many_commands_at_once() {
    std::string stream;
    for (int i = 0; i < 20; ++i) stream += framed(18, "") + sample();
    WireJudge whole;
    whole.feed(stream);
    for (const u64 most : {1, 2, 3, 50}) {
        WireJudge judge;
        judge.feed(stream, most);
        CHECK(judge.heard() == whole.heard());
        WireJudge few;
        few.feed(stream, WireReader::kAll, most);
        CHECK(few.heard() == whole.heard());
    }
    WireReader reader;
    FrameWriter frame;
    const std::string pings = framed(18, "") + framed(18, "") + flow(1, 2);
    CHECK(reader.feed(pings, frame, 0).empty() && reader.stalled());
    CHECK(reader.feed("", frame, 1).size() == 1 && reader.stalled());
    CHECK(reader.feed(flow(1, 3), frame, 1).back().number == 5 && !reader.stalled());
    CHECK(reader.pending() == 0);
}

// I80: later messages would be stored before it when its producer sends it again.
static void test_after_a_refusal() {
    const std::string good = single_entry(1, "good"), bad("\x0e\x01\0\0\0\0", 6);
    std::string torn = good;
    torn.back() ^= 1;
    WireJudge judge;
    judge.feed(send(1, 0, good) + send(1, 1, bad) + send(1, 2, good) + send(2, 0, good));
    judge.feed(send(1, 3, good) + send(2, 1, torn) + send(2, 2, good));
    const Heard& heard = judge.heard();
    CHECK(heard.sent.at(1).size() == 1 && heard.refused.at(1).size() == 3);
    CHECK(heard.sent.at(2).size() == 2 && heard.refused.at(2).size() == 1);
}

static void test_every_bit() {
    const std::string stream = sample();
    for (std::size_t bit = 0; bit < stream.size() * 8; ++bit) {
        std::string bad = stream;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
        WireJudge judge;
        judge.feed(bad);
        repair_sums(bad);
        WireJudge repaired;
        repaired.feed(bad);
    }
}

// Every four bytes that could be a size become a bad one.
static void test_bad_sizes() {
    const std::string stream = sample();
    const u32 sizes[] = {0, 1, 3, 4, 7, 8, 255, 65535, 65536, 65537, 0x7fffffff, 0x80000000, ~0u};
    for (std::size_t at = 0; at + 4 <= stream.size(); ++at) {
        for (const u32 size : sizes) {
            std::string bad = stream;
            store_big32(bad.data() + at, size);
            repair_sums(bad);
            WireJudge judge;
            judge.feed(bad);
        }
    }
}

static void test_frames_of_every_size() {
    for (const u64 size : {kJudgedFrameMax - 1, kJudgedFrameMax, kJudgedFrameMax + 1}) {
        const std::string small = send(0, 1, single_entry(1, ""));
        std::string frame = send(0, 1, single_entry(1, std::string(size + 4 - small.size(), 'x')));
        CHECK(frame.size() == size + 4);
        WireJudge judge;
        for (const char& each : frame) judge.feed({&each, 1});
        CHECK(judge.heard().reason.empty() == (size <= kJudgedFrameMax));
        CHECK(judge.heard().entries.empty() == (size > kJudgedFrameMax));
    }
}

// A field of any number and wire type, sometimes with a message inside.
static void add_random(std::mt19937_64& random, ByteBuffer& out, int depth) {
    static constexpr u32 kNumbers[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 27, 29, 1000};
    const u32 number = kNumbers[random() % std::size(kNumbers)];
    const u64 value = random() >> random() % 64;
    switch (random() % 8) {
        case 0:
            append_varint(out, number << 3 | (random() % 8));
            append_varint(out, value);
            return;
        case 1:
        case 2:
        case 3:
            if (depth > 0) {
                ByteBuffer inner;
                for (u64 i = random() % 6; i > 0; --i) add_random(random, inner, depth - 1);
                append_field(out, number, inner.view());
                return;
            }
            append_field(out, number, std::string(random() % 9, 'y'));
            return;
        default:
            append_field(out, number, value);
    }
}

static void test_random_protocol_buffers() {
    std::mt19937_64 random(7);
    for (int round = 0; round < rounds(3000, 20000); ++round) {
        const u32 types[] = {wire_type::send, wire_type::ack, wire_type::flow, 20};
        ByteBuffer body, metadata;
        if (random() % 2 == 0) append_field(body, 1, random() % 4);
        if (random() % 2 == 0) append_field(body, 2, random() % 2);
        for (u64 i = random() % 6; i > 0; --i) add_random(random, body, 3);
        if (random() % 4 != 0)
            metadata.append("\x0a\x01p\x10\x01\x18\x01", 7);  // what it must have
        for (u64 i = random() % 6; i > 0; --i) add_random(random, metadata, 2);
        std::string entry("\x0e\x01\0\0\0\0\0\0\0\0", kEntryHeader);
        store_big32(entry.data() + kEntrySummed, static_cast<u32>(metadata.size()));
        entry += metadata.view();
        entry += std::string(random() % 40, '\0');
        const u32 type = types[random() % 4];
        std::string stream = framed(type, body.view(), type == wire_type::send ? entry : "");
        stream += send(1, 1, single_entry(1, "after it"));
        stream.insert(stream.begin(), static_cast<char>(random() | 1));
        judge_stream(stream);
    }
}

static void test_mutations() {
    std::mt19937_64 random(11);
    const std::string stream = sample();
    for (int round = 0; round < rounds(3000, 20000); ++round) {
        std::string bad = static_cast<char>(random()) + stream;
        for (u64 i = 1 + random() % 4; i > 0; --i) {
            const std::size_t at = 1 + random() % (bad.size() - 1);
            switch (random() % 4) {
                case 0:
                    bad[at] = static_cast<char>(random());
                    break;
                case 1:
                    bad.erase(at, 1 + random() % 9);
                    break;
                case 2:
                    bad.insert(at, std::string(1 + random() % 9, static_cast<char>(random())));
                    break;
                default:
                    bad.insert(at, stream.substr(random() % stream.size(), random() % 99));
            }
            if (bad.size() < 2) break;
        }
        judge_stream(bad);
    }
}

static void test_refusals_of_the_writer() {
    ByteBuffer out;
    const std::vector<SentEntry> sent{{1, 0}, {2, 0}};
    const std::vector<u64> beyond{2}, twice{0, 0}, backwards{1, 0};
    for (const auto& bad : {beyond, twice, backwards})
        CHECK_ERROR(Code::misuse, encode_receipts(out, 1, sent, 1, 1, bad), "in order");
    CHECK_ERROR(Code::misuse, WireReader(7), "8 bytes to 1 GiB");
    WireReader reader;
    CHECK_ERROR(Code::too_large, reader.set_producer(1, 1, 1, 1, std::string(65536, 'n')), "65535");
}

int main() {
    test_sample();
    test_two_consumers();
    test_sequences();
    test_what_is_missing();
    test_ordinals();
    test_every_cut();
    test_so_many_commands_at_once();
    test_after_a_refusal();
    test_every_bit();
    test_bad_sizes();
    test_frames_of_every_size();
    test_random_protocol_buffers();
    test_mutations();
    test_refusals_of_the_writer();
}
