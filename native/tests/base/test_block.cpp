// The block format: its bytes, its sum, and that each damaged bit is found and named.
#include <cstring>
#include <string>

#include "holdfast/base/block.hpp"
#include "tests/check.hpp"

using namespace holdfast;

static void test_bytes() {
    const BlockHeader header = make_block(kMessageBlock, 0, 0x01020304, 0x1112131415161718, 7);
    unsigned char bytes[32];
    std::memcpy(bytes, &header, 32);
    CHECK(bytes[0] == 'H' && bytes[1] == 'F' && bytes[2] == 1 && bytes[3] == 0);
    CHECK(bytes[4] == 4 && bytes[7] == 1);
    CHECK(bytes[8] == 0x18 && bytes[15] == 0x11);
    CHECK(bytes[16] == 7 && bytes[23] == 0);
    u32 stored;
    std::memcpy(&stored, bytes + 24, 4);
    std::memset(bytes + 24, 0, 4);
    CHECK(stored == crc32c(0, bytes, 32));  // the sum takes its own field as zero
}

static void test_faults_have_names() {
    const BlockHeader good = make_block(kMessageBlock, 0, 100, 42, 7);
    CHECK(verify(good, 42, 100) == BlockFault::none);
    CHECK(verify(good, 43, 100) == BlockFault::tag);
    CHECK(verify(good, 42, 99) == BlockFault::size);
    const auto damaged = [&](auto change) {
        BlockHeader bad = good;
        change(bad);
        return verify(bad, 42, 100);
    };
    CHECK(damaged([](BlockHeader& h) { h.magic ^= 1; }) == BlockFault::magic);
    CHECK(damaged([](BlockHeader& h) { h.kind = 0; }) == BlockFault::kind);
    CHECK(damaged([](BlockHeader& h) { h.kind = kBlockKindMax + 1; }) == BlockFault::kind);
    CHECK(damaged([](BlockHeader& h) { h.flags = 0x80; }) == BlockFault::reserved);
    CHECK(damaged([](BlockHeader& h) { h.zero = 1; }) == BlockFault::reserved);
    CHECK(damaged([](BlockHeader& h) { h.size = ~0u; }) == BlockFault::size);
    CHECK(damaged([](BlockHeader& h) { h.size -= 1; }) == BlockFault::crc);
    CHECK(damaged([](BlockHeader& h) { h.time += 1; }) == BlockFault::crc);
    CHECK(damaged([](BlockHeader& h) { h.crc = 0; }) == BlockFault::crc);
    // A block that a hostile writer sealed again is refused all the same.
    const auto resealed = [&](auto change) {
        return damaged([&](BlockHeader& h) {
            change(h);
            seal(h, "");
        });
    };
    CHECK(resealed([](BlockHeader& h) { h.zero = 1; }) == BlockFault::reserved);
    CHECK(resealed([](BlockHeader& h) { h.flags = 0x80; }) == BlockFault::reserved);
    CHECK(resealed([](BlockHeader& h) { h.kind = 0; }) == BlockFault::kind);
    CHECK(resealed([](BlockHeader& h) { h.magic = 0; }) == BlockFault::magic);
    CHECK(resealed([](BlockHeader& h) { h.size = 101; }) == BlockFault::size);
    CHECK(resealed([](BlockHeader& h) { h.tag = 41; }) == BlockFault::tag);
    CHECK(verify(BlockHeader{}, 0, 100) == BlockFault::magic);  // zeroed memory is not a block
    CHECK(fault_name(BlockFault::reserved) == "reserved");
}

// A fault found only after the payload was summed counts as found: a reader works that way.
static BlockFault verify_all(const BlockHeader& header, const std::string& payload) {
    const BlockFault fault = verify(header, 42, static_cast<u32>(payload.size()));
    return fault != BlockFault::none ? fault : verify_payload(header, payload.data());
}

static void test_every_bit() {
    const std::string payload(133, 'x');
    for (const u8 flags : {u8{0}, kFullChecksum}) {
        const BlockHeader good = make_block(kMessageBlock, flags, 133, 42, 7, payload.data());
        CHECK(verify_all(good, payload) == BlockFault::none);
        for (unsigned bit = 0; bit < 256; ++bit) {
            unsigned char bytes[32];
            std::memcpy(bytes, &good, 32);
            bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ 1u << (bit % 8));
            BlockHeader bad;
            std::memcpy(&bad, bytes, 32);
            CHECK(verify_all(bad, payload) != BlockFault::none);
        }
        for (unsigned bit = 0; bit < payload.size() * 8; ++bit) {
            std::string other = payload;
            other[bit / 8] = static_cast<char>(other[bit / 8] ^ 1 << (bit % 8));
            const bool noticed = verify_all(good, other) != BlockFault::none;
            CHECK(noticed == (flags == kFullChecksum));
        }
    }
    const BlockHeader empty = make_block(kMessageBlock, kFullChecksum, 0, 1, 1, nullptr);
    CHECK(verify(empty, 1, 0) == BlockFault::none);
    CHECK(verify_payload(empty, nullptr) == BlockFault::none);
}

int main() {
    test_bytes();
    test_faults_have_names();
    test_every_bit();
}
