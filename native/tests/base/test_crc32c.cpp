// CRC32C against the published vectors, and each implementation against the others.
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "holdfast/base/crc32c.hpp"
#include "tests/check.hpp"

using namespace holdfast;

static u32 of(const std::vector<unsigned char>& bytes) {
    return crc32c(0, bytes.data(), bytes.size());
}

static u32 by_table(u32 crc, const unsigned char* bytes, std::size_t size) {
    return ~crc_detail::table_update(~crc, bytes, size);
}

static void test_published_vectors() {  // RFC 3720, B.4
    std::vector<unsigned char> rising(32), falling(32);
    std::iota(rising.begin(), rising.end(), static_cast<unsigned char>(0));
    std::iota(falling.rbegin(), falling.rend(), static_cast<unsigned char>(0));
    CHECK(of(std::vector<unsigned char>(32, 0x00)) == 0x8a9136aau);
    CHECK(of(std::vector<unsigned char>(32, 0xff)) == 0x62a8ab43u);
    CHECK(of(rising) == 0x46dd794eu);
    CHECK(of(falling) == 0x113fdb5cu);
    CHECK(of({0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
              0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
              0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
              0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00}) ==
          0xd9963a56u);
    constexpr std::string_view digits = "123456789";
    CHECK(crc32c(0, digits.data(), digits.size()) == 0xe3069283u);
    CHECK(crc32c(0, nullptr, 0) == 0);
}

static void test_every_way_equals_table() {
    std::mt19937_64 random(1);
    std::vector<unsigned char> bytes(3 * 4096 * 5 + 997);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    for (int i = 0; i < 4000; ++i) {
        // Sizes around the joints of each implementation, small and random sizes, at any alignment.
        const std::size_t joints[] = {0,        8,    56,           248,          312,
                                      504,      768,  3 * 4096 - 8, 2 * 3 * 4096, 3 * 4096 + 768,
                                      256 + 63, 1016, 256 * 9 - 8};
        const std::size_t size =
            i % 2 == 0 ? random() % 20000 : joints[random() % std::size(joints)] + random() % 17;
        const std::size_t offset = random() % (bytes.size() - size);
        const unsigned char* at = &bytes[offset];
        const u32 crc = static_cast<u32>(random());
        const u32 expected = by_table(crc, at, size);
        CHECK(crc32c(crc, at, size) == expected);
        if (crc_detail::kHardware) CHECK(~crc_detail::hardware_update(~crc, at, size) == expected);
        if (crc_detail::kFolding && size >= crc_detail::kFoldMin)
            CHECK(~crc_detail::folding_update(~crc, at, size) == expected);
    }
}

#if defined(__x86_64__)
struct Product {
    u64 low = 0, high = 0;
};

static Product carryless(u64 a, u64 b) {
    Product out;
    for (int i = 0; i < 64; ++i) {
        if ((b >> i & 1) == 0) continue;
        out.low ^= a << i;
        if (i > 0) out.high ^= a >> (64 - i);
    }
    return out;
}

// The factors of folding, on any processor: 16 bytes have the same value when moved by that many
// bits.
static void check_fold(const crc_detail::Fold& factors, std::size_t bits) {
    std::mt19937_64 random(bits);
    std::vector<unsigned char> bytes(16 + bits / 8, 0);
    const u64 value[2] = {random(), random()};
    std::memcpy(bytes.data(), value, sizeof value);
    const Product first = carryless(value[0], factors.first);
    const Product second = carryless(value[1], factors.second);
    const u64 folded[2] = {first.low ^ second.low, first.high ^ second.high};
    unsigned char there[sizeof folded];
    std::memcpy(there, folded, sizeof folded);
    CHECK(crc_detail::table_update(0, bytes.data(), bytes.size()) ==
          crc_detail::table_update(0, there, sizeof there));
}

static void test_fold_factors() {
    for (const crc_detail::Fold& each : crc_detail::kFoldFar) check_fold(each, 2048);
    for (const crc_detail::Fold& each : crc_detail::kFoldNear) check_fold(each, 512);
    for (std::size_t i = 0; i < 3; ++i) check_fold(crc_detail::kFoldLanes[i], 384 - 128 * i);
}
#else
static void test_fold_factors() {}
#endif

// No implementation reads beyond its bytes: the sanitizer would see it in memory of exactly that
// size.
static void test_exact_memory() {
    for (std::size_t size = 0; size < 1200; ++size) {
        const std::vector<unsigned char> bytes(size, 0x5a);
        CHECK(of(bytes) == by_table(0, bytes.data(), size));
        if (crc_detail::kHardware)
            CHECK(~crc_detail::hardware_update(~0u, bytes.data(), size) == of(bytes));
    }
}

static void test_pieces_equal_whole() {
    std::mt19937_64 random(2);
    std::vector<unsigned char> bytes(50000);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
    for (int i = 0; i < 200; ++i) {
        const std::size_t cut = random() % bytes.size();
        const u32 first = crc32c(0, bytes.data(), cut);
        CHECK(crc32c(first, bytes.data() + cut, bytes.size() - cut) == of(bytes));
    }
    u64 words[4];
    std::memcpy(words, bytes.data(), 32);
    const u32 whole = crc32c(0, bytes.data(), 32);
    CHECK(crc32c_words(words[0], words[1], words[2], words[3]) == whole);
    CHECK(~crc_detail::table_update32(~0u, words[0], words[1], words[2], words[3]) == whole);
}

int main() {
    test_published_vectors();
    test_fold_factors();
    test_every_way_equals_table();
    test_exact_memory();
    test_pieces_equal_whole();
    std::printf("crc32c: table%s%s\n", crc_detail::kHardware ? ", hardware" : "",
                crc_detail::kFolding ? ", folding" : "");
}
