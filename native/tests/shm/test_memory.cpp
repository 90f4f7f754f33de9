// The native memory policy: its words, its blocks, and the state after a death during a write.
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <thread>

#include "holdfast/shm/memory.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

static void test_words() {
    NativeMemory memory;
    alignas(8) u64 wide = 5;
    alignas(8) u32 narrow = 5;
    memory.store(&wide, 6, std::memory_order_release);
    CHECK(memory.load(&wide, std::memory_order_acquire) == 6);
    u64 expected = 7;
    CHECK(!memory.cas(&wide, expected, 8, std::memory_order_acq_rel) && expected == 6);
    CHECK(memory.cas(&wide, expected, 8, std::memory_order_relaxed) && wide == 8);
    CHECK(memory.fetch_add(&wide, 2, std::memory_order_relaxed) == 8 && wide == 10);
    CHECK(memory.fetch_or(&wide, 1, std::memory_order_relaxed) == 10 && wide == 11);
    memory.store(&narrow, 6, std::memory_order_release);
    u32 expected32 = 6;
    CHECK(memory.cas(&narrow, expected32, 8, std::memory_order_release) && narrow == 8);
    CHECK(memory.fetch_or(&narrow, 1, std::memory_order_relaxed) == 8);
    CHECK(memory.fetch_add(&narrow, 1, std::memory_order_relaxed) == 9);
    CHECK(memory.load(&narrow, std::memory_order_relaxed) == 10);
    CHECK(memory.exchange(&narrow, 7, std::memory_order_acq_rel) == 10 && narrow == 7);
    CHECK(memory.fetch_and(&narrow, 5, std::memory_order_relaxed) == 7 && narrow == 5);
    memory.fence();
    memory.wake(&narrow);
    memory.again();
    const u64 before_ns = monotonic_ns(), first = memory.now_ms();
    while (memory.now_ms() < first + 20) ::usleep(1000);
    const u64 age = memory.now_ms() - first;  // its clock has steps
    CHECK(age <= (monotonic_ns() - before_ns) / 1'000'000 + 10);
    CHECK(!memory.take_byte(0));  // no participant: nothing can be proven
    memory.drop_byte(0);
}

// The neighbours of a byte stay as they are.
static void test_bytes() {
    NativeMemory memory;
    u8 bytes[4] = {1, 255, 3, 4};
    CHECK(memory.fetch_add(&bytes[1], 1, std::memory_order_relaxed) == 255);
    CHECK(bytes[0] == 1 && bytes[1] == 0 && bytes[2] == 3);
    CHECK(memory.fetch_or(&bytes[2], 0x80, std::memory_order_acq_rel) == 3 && bytes[2] == 0x83);
    CHECK(memory.fetch_and(&bytes[2], 0x80, std::memory_order_release) == 0x83);
    CHECK(memory.exchange(&bytes[2], 9, std::memory_order_acq_rel) == 0x80);
    u8 expected = 8;
    CHECK(!memory.cas(&bytes[2], expected, 7, std::memory_order_release) && expected == 9);
    CHECK(memory.cas(&bytes[2], expected, 7, std::memory_order_release));
    memory.store(&bytes[3], 6, std::memory_order_release);
    CHECK(memory.load(&bytes[3], std::memory_order_acquire) == 6);
    memory.plain_write(&bytes[0], 2);
    CHECK(memory.plain_read(&bytes[0]) == 2 && bytes[1] == 0 && bytes[2] == 7);
}

static void test_blocks() {
    NativeMemory memory;
    alignas(64) static std::byte ring[128 << 10];
    const std::string payload(70'000, 'p');
    const auto* data = reinterpret_cast<const std::byte*>(payload.data());
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{1000}, payload.size()}) {
        const BlockHeader header =
            make_block(kMessageBlock, kFullChecksum, static_cast<u32>(size), 9, 1, data);
        for (const bool piecewise : {false, true}) {
            std::memset(ring, 0xee, sizeof ring);
            if (piecewise)
                arm(SegmentPoint::create_file);  // any armed point: the same bytes, in pieces
            memory.write_block(ring, header, size == 0 ? nullptr : data, size);
            disarm();
            const BlockHeader copy = memory.read_header(ring);
            CHECK(verify(copy, 9, 70'000) == BlockFault::none);
            CHECK(verify_payload(copy, ring + sizeof copy) == BlockFault::none);
            CHECK(ring[sizeof copy + size] == std::byte{0xee});  // not a byte further
        }
    }
}

// The seed's cases: the magic alone, the size too, half the payload, everything but the commit.
static void test_half_written() {
    void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    auto* at = static_cast<std::byte*>(shared);
    const std::string payload(1000, 'p');
    const auto* data = reinterpret_cast<const std::byte*>(payload.data());
    const BlockHeader header = make_block(kMessageBlock, kFullChecksum, 1000, 9, 1, data);
    const auto die_at = [&](Point point) {
        std::memset(at, 0, 4096);
        const int status = finish(start([&] {
            NativeMemory memory;
            arm(point);
            memory.write_block(at, header, data, payload.size());
        }));
        CHECK(WIFSIGNALED(status));
        return NativeMemory().read_header(at);
    };
    const std::byte* body = at + sizeof header;
    BlockHeader found = die_at(BlockPoint::put_magic);
    CHECK(found.magic == kBlockMagic && found.size == 0 && found.crc == 0);
    found = die_at(BlockPoint::put_size);
    CHECK(found.size == 1000 && found.crc == 0 && body[0] == std::byte{0});
    found = die_at(BlockPoint::put_payload);
    CHECK(found.tag == 9 && found.crc == 0);
    CHECK(body[499] == std::byte{'p'} && body[500] == std::byte{0});
    CHECK(verify(found, 9, 1000) != BlockFault::none ||
          verify_payload(found, body) != BlockFault::none);
    found = die_at(BlockPoint::put_checksum);
    CHECK(verify(found, 9, 1000) == BlockFault::none);
    CHECK(verify_payload(found, body) == BlockFault::none);
}

int main() {
    test_words();
    test_bytes();
    test_blocks();
    test_half_written();
}
