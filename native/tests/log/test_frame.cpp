// Frames: sound ones are read, all others refused: every truncation, every changed byte, every
// wrong size.
#include <cstdlib>

#include "tests/log/frames.hpp"

using namespace holdfast;
using namespace holdfast::test;

static const std::string kGood =
    frame({publish(1, 2, 3, "producer", {{0, 1, "abc"}, {1, 9, ""}}), event(7, 2, "body"),
           event(8, 1, ""), publish(4, 5, 6, "", {{1'000'000, 1, "x"}})});

// A copy of exactly that size on the heap, so that the sanitizer sees a read beyond it.
class Exact {
 public:
    explicit Exact(const std::string& text)
        : size_(text.size()), bytes_(static_cast<std::byte*>(std::malloc(size_ == 0 ? 1 : size_))) {
        std::memcpy(bytes_, text.data(), size_);
    }
    ~Exact() { std::free(bytes_); }
    Exact(const Exact&) = delete;
    Bytes view() const { return {bytes_, size_}; }

 private:
    std::size_t size_;
    std::byte* bytes_;
};

// Reads all of a frame; returns the number of bytes seen, or -1 if it was refused as corrupt.
static long read_all(const std::string& text) {
    const Exact exact(text);
    long seen = 0;
    try {
        FrameReader reader(exact.view());
        while (!reader.at_end()) {
            const EventView event = reader.next();
            for (const std::byte each : event.whole) seen += each == std::byte{0} ? 1 : 1;
            if (event.kind != kPublishKind) continue;
            const PublishView view(event.body);
            std::size_t sum = 0;
            for (u32 i = 0; i < view.count(); ++i) sum += view.row(i).size;
            CHECK(sum == view.entries().size());
            CHECK(view.producer().size() <= event.body.size());
        }
    } catch (const Error& error) {
        CHECK(error.code == Code::corrupt);
        return -1;
    }
    return seen;
}

static void test_events() {
    FrameReader reader(bytes_of(kGood));
    CHECK(reader.count() == 4 && reader.time() == 7);
    const EventView first = reader.next();
    CHECK(first.number == 0 && first.kind == 1 && first.whole.size() == first.body.size() + 8);
    const PublishView view(first.body);
    CHECK(view.topic() == 1 && view.session() == 2 && view.epoch() == 3 && view.count() == 2);
    CHECK(view.producer() == "producer");
    CHECK(view.row(0).sequence == 0 && view.row(0).size == 3 && view.row(1).span == 9);
    CHECK(view.entries().size() == 3 && std::memcmp(view.entries().data(), "abc", 3) == 0);
    const EventView second = reader.next();
    CHECK(second.number == 1 && second.kind == 7 && second.version == 2 && second.body.size() == 4);
    CHECK(reader.next().body.empty());
    CHECK(PublishView(reader.next().body).producer().empty());
    CHECK(reader.at_end());
    CHECK(read_all(kGood) == static_cast<long>(kGood.size() - sizeof(FrameHeader)));
    CHECK(read_all(frame({})) == 0);
}

static void test_every_truncation() {
    for (std::size_t size = 0; size < kGood.size(); ++size)
        CHECK(read_all(kGood.substr(0, size)) == -1);
    CHECK(read_all(kGood + '\0') == -1);
}

// A frame that is still valid after a byte was changed has the same size: entries and names may
// differ.
static void test_every_changed_byte() {
    for (std::size_t i = 0; i < kGood.size(); ++i) {
        for (unsigned value = 0; value < 256; ++value) {
            std::string bad = kGood;
            bad[i] = static_cast<char>(value);
            const long seen = read_all(bad);
            CHECK(seen == -1 || seen == static_cast<long>(bad.size() - sizeof(FrameHeader)));
            if (i < 4 && bad != kGood) CHECK(seen == -1);
        }
    }
}

template <class T>
static std::string with(std::string text, std::size_t offset, T value) {
    std::memcpy(text.data() + offset, &value, sizeof value);
    return text;
}

static void test_lies() {
    const std::string one = frame({publish(1, 2, 3, "p", {{5, 1, "abc"}, {6, 1, "de"}})});
    constexpr std::size_t body = 24, rows = body + 33;
    const auto refused = [](const std::string& bad, const char* words) {
        CHECK_ERROR(Code::corrupt, FrameReader(bytes_of(bad)), words, "byte", "nothing of it");
    };
    for (const u32 value : {0u, 1u, 3u, 0x7fffffffu, 0xffffffffu}) {
        if (value != 2) refused(with(one, body + 24, value), "");  // entries
        if (value != 3) refused(with(one, rows + 12, value), "");  // size of the first
        refused(with(one, 16, value), "");                         // size of the event
        if (value != 1) refused(with(one, 4, value), "");          // events
    }
    refused(with(one, body + 28, u16{0xffff}), "name that reaches too far");
    refused(with(one, body + 30, u16{1}), "reserved");
    refused(with(one, 22, u16{1}), "reserved");
    refused(with(one, 3, u8{1}), "reserved");
    refused(with(one, 20, u8{0}), "kind 0");
    refused(with(one, 21, u8{2}), "publish of version 2");
    refused(with(one, 2, u8{2}), "version 2");
    refused(with(one, rows, std::int64_t{-1}), "impossible sequence");
    refused(with(with(one, rows, std::int64_t{0x7fffffffffffffff}), rows + 8, u32{1}),
            "impossible sequence");
    refused(with(one, body + 32, u8{0xff}), "not UTF-8");
    CHECK(read_all(with(one, rows, std::int64_t{0x7ffffffffffffffe})) > 0);
    CHECK(read_all(with(one, rows + 8, u32{0})) > 0);  // a chunk that is not the last
}

static void test_utf8() {
    for (const char* good :
         {"", "plain", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
        CHECK(detail::valid_utf8(good));
    for (const char* bad :
         {"\x80", "\xc3", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80", "\xe2\x82",
          "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "a\xe2(\xa1"})
        CHECK(!detail::valid_utf8(bad));
}

int main() {
    test_events();
    test_every_truncation();
    test_every_changed_byte();
    test_lies();
    test_utf8();
}
