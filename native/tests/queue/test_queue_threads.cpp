// Real threads on one ring, each as a participant of its own. The explorer goes through all
// interleavings of a few steps. This test goes through many steps of a few interleavings, on the
// real processor. It also runs under the thread sanitizer
// (tests/process/core/test_thread_sanitizer.py), which sees a payload byte that is read without
// being ordered after its write.
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/queue/check.hpp"
#include "holdfast/queue/queue.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

constexpr u64 kGranules = 32;
constexpr u32 kProducers = 2, kConsumers = 2;
constexpr u64 kEach = 3000;

class Threads {
 public:
    explicit Threads(u64 first) : geometry_(kGranules, 8), bytes_(geometry_.size() + 64) {
        const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
        base_ = reinterpret_cast<std::byte*>((at + 63) & ~std::uintptr_t{63});
        initialise_queue(base_, geometry_, first);
    }

    void run() {
        std::vector<std::thread> threads;
        for (u32 i = 0; i < kProducers; ++i) threads.emplace_back([this, i] { produce(i); });
        for (u32 i = 0; i < kConsumers; ++i)
            threads.emplace_back([this, i] { consume(kProducers + i); });
        for (std::thread& thread : threads) thread.join();
        for (const std::atomic<u32>& each : settled_) CHECK(each.load() == 1);
        NativeMemory memory;
        Queue<NativeMemory> q = attach(memory, 0);
        CHECK(survey(q, [] {}, [](u64, u64) {}).sound());
    }

 private:
    Queue<NativeMemory> attach(NativeMemory& memory, u32 slot) {
        return {memory, geometry_, base_, slot, Delivery::at_least_once, kNoStallLimit};
    }

    // A message is its number, repeated as often as it fits.
    static std::vector<u64> message(u64 number) {
        return std::vector<u64>(1 + number % 40, number);
    }

    void produce(u32 slot) {
        NativeMemory memory;
        Queue<NativeMemory> q = attach(memory, slot);
        for (u64 i = 0; i < kEach; ++i) {
            const std::vector<u64> first = message(slot * kEach + i);
            const bool two = i % 5 == 0 && i + 1 < kEach;
            const std::vector<u64> second = message(slot * kEach + i + 1);
            const Payload payloads[] = {payload(first), payload(second)};
            while (q.put({payloads, two ? 2u : 1u}, 1, i % 3 == 0, i % 7 == 0) != Verdict::ok)
                std::this_thread::yield();
            i += two;
        }
    }

    static Payload payload(const std::vector<u64>& words) {
        return {reinterpret_cast<const std::byte*>(words.data()), words.size() * sizeof(u64)};
    }

    void consume(u32 slot) {
        NativeMemory memory;
        Queue<NativeMemory> q = attach(memory, slot);
        u64 turn = 0;
        while (done_.load(std::memory_order_relaxed) < kProducers * kEach) {
            Taken taken[3];
            u32 count = 0;
            if (q.take(taken, 3, count, ++turn % 4 == 0) != Verdict::ok) {
                std::this_thread::yield();
                continue;
            }
            for (u32 i = 0; i < count; ++i) {
                const u64 number = read(q, taken[i]);
                if (number % 11 == 0 && taken[i].redelivered < 2) {
                    CHECK(q.give_back(taken[i]));
                    continue;
                }
                CHECK(taken[i].redelivered == (number % 11 == 0 ? 2 : 0));
                CHECK(q.settle(taken[i]));
                settled_[number].fetch_add(1, std::memory_order_relaxed);
                done_.fetch_add(1, std::memory_order_relaxed);
            }
            q.announce_space();
        }
    }

    u64 read(Queue<NativeMemory>& q, const Taken& taken) {
        const std::byte* block = q.block(taken.position);
        const BlockHeader header = q.memory.read_header(block);
        CHECK(verify(header, taken.position, static_cast<u32>(geometry_.size_max())) ==
              BlockFault::none);
        std::vector<u64> words(header.size / sizeof(u64));
        std::memcpy(words.data(), block + sizeof header, header.size);
        CHECK(!words.empty() && words == message(words[0]));
        return words[0];
    }

    Geometry geometry_;
    std::vector<std::byte> bytes_;
    std::byte* base_;
    std::array<std::atomic<u32>, kProducers * kEach> settled_{};
    std::atomic<u64> done_{0};
};

int main() {
    for (const u64 first : {u64{0}, (u64{1} << 16) * kGranules - 5, (u64{1} << 40)})
        Threads(first).run();
}
