// Rare cases of a long life. Other processes are faster each time; a copy takes longer than the
// stall limit; the view of a recoverer is a lap old. One thread plays all parts, step by step.
#include <functional>
#include <string>
#include <vector>

#include "holdfast/queue/check.hpp"
#include "holdfast/queue/queue.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

// The real memory, in which a test can act between two accesses of a process.
class Meddled : public NativeMemory {
 public:
    std::function<void(const u64*)> after_load = nullptr;
    std::function<void()> during_copy = nullptr;
    bool frozen = false;  // no exchange ever succeeds
    u64 clock_ms = 1000;
    u32 dead = ~0u;

    using NativeMemory::load;
    u64 load(const u64* word, std::memory_order order) {
        const u64 value = NativeMemory::load(word, order);
        if (after_load && !inside_) meddle([&] { after_load(word); });
        return value;
    }
    using NativeMemory::cas;
    bool cas(u64* word, u64& expected, u64 desired, std::memory_order success) {
        return !frozen && NativeMemory::cas(word, expected, desired, success);
    }
    void write_block(std::byte* to, BlockHeader header, const std::byte* data, std::size_t size) {
        if (during_copy && !inside_) meddle(during_copy);
        NativeMemory::write_block(to, header, data, size);
    }
    bool take_byte(unsigned slot) { return slot == dead; }
    u64 now_ms() const { return clock_ms; }

 private:
    template <class Body>
    void meddle(Body&& body) {
        inside_ = true;
        body();
        inside_ = false;
    }
    bool inside_ = false;
};

struct Ring {
    Geometry geometry;
    std::vector<std::byte> bytes;
    std::byte* base;
    Meddled memory;

    explicit Ring(u64 granules, u64 first = 0)
        : geometry(granules, 4), bytes(geometry.size() + 64), base(aligned(bytes.data())) {
        initialise_queue(base, geometry, first);
    }
    Queue<Meddled> attach(u32 slot, u32 stall_limit_ms = kNoStallLimit) {
        return Queue<Meddled>(memory, geometry, base, slot, Delivery::at_least_once,
                              stall_limit_ms);
    }
    bool sound(Queue<Meddled>& q) {
        return survey(q, [] {}, [](u64, u64) {}).sound();
    }
    static std::byte* aligned(std::byte* at) {
        return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(at) + 63) &
                                            ~std::uintptr_t{63});
    }
};

static Verdict put(Queue<Meddled>& q, std::size_t size = 8) {
    const std::string data(size, 'x');
    const Payload payload{reinterpret_cast<const std::byte*>(data.data()), data.size()};
    return q.put({&payload, 1}, 1, false, true);
}

static Verdict take(Queue<Meddled>& q, Taken& taken, bool probe = false) {
    u32 count = 0;
    return q.take(&taken, 1, count, probe);
}

static void put_and_settle(Queue<Meddled>& q) {
    Taken taken;
    CHECK(put(q) == Verdict::ok && take(q, taken) == Verdict::ok && q.settle(taken));
}

// A process that loses every race gets an error that says so, and not that the queue is damaged.
static void test_contention_is_not_damage() {
    patience_turns = 1000;
    Ring ring(64);
    Queue<Meddled> slow = ring.attach(0), quick = ring.attach(1);
    ring.memory.after_load = [&](const u64* word) {
        if (word == slow.words.head) put_and_settle(quick);
    };
    CHECK(put(slow) == Verdict::contended);
    CHECK(slow.close() == Verdict::contended);
    ring.memory.after_load = [&](const u64* word) {
        if (word == slow.words.read) put_and_settle(quick);
    };
    Taken taken;
    CHECK(take(slow, taken) == Verdict::contended);
    ring.memory.after_load = nullptr;
    CHECK(put(slow) == Verdict::ok && take(slow, taken) == Verdict::ok && slow.settle(taken));
    CHECK(ring.sound(slow));
    // Where no process makes progress, the queue is damaged.
    ring.memory.frozen = true;
    CHECK(put(slow) == Verdict::corrupt && slow.fault.what != nullptr);
    CHECK(slow.close() == Verdict::corrupt);
    ring.memory.frozen = false;
    CHECK(put(slow) == Verdict::ok);
    patience_turns = u64{1} << 22;
}

// A call with two loops and one patience: when it is over in the first loop, the second one ends at once.
static void test_patience_stays_over() {
    patience_turns = 10;
    Ring ring(4);
    Queue<Meddled> q = ring.attach(0);
    Patience patience(0);
    for (int turn = 0; turn < 10; ++turn) CHECK(!patience.over(q));
    for (int turn = 0; turn < 3; ++turn) CHECK(patience.over(q));
    patience_turns = u64{1} << 22;
}

// A copy of 20 ms, a stall limit of 1 ms, and a consumer that waits all the time.
static void test_a_copy_longer_than_the_stall_limit() {
    Ring ring(64);
    Queue<Meddled> writer = ring.attach(0, 1), reader = ring.attach(1, 1);
    Taken taken;
    bool large = false;
    ring.memory.during_copy = [&] {
        for (int ms = 0; large && ms < 20; ++ms) {
            ++ring.memory.clock_ms;
            CHECK(take(reader, taken, true) == Verdict::empty);
        }
    };
    int attempts = 0;
    Verdict verdict = Verdict::fenced;
    while (verdict == Verdict::fenced && attempts < 30) {
        ++attempts;
        large = true;
        verdict = put(writer, 200);
        large = false;
        if (verdict == Verdict::ok) break;
        CHECK(verdict == Verdict::fenced);
        // A small put gets through, perhaps from another thread: the large one does not start over.
        CHECK(put(writer) == Verdict::ok && take(reader, taken) == Verdict::ok);
        CHECK(reader.settle(taken));
    }
    CHECK(verdict == Verdict::ok && attempts > 1 && attempts <= 7);
    // The doubling of the limit is not a delivery.
    CHECK(take(reader, taken) == Verdict::ok && taken.redelivered == 0);
    CHECK(reader.deliveries_with_this(taken.position) == 1);
    CHECK(reader.settle(taken));
    // And the next one starts anew.
    ring.memory.during_copy = [&] {
        for (int ms = 0; ms < 3; ++ms) {
            ++ring.memory.clock_ms;
            take(reader, taken, true);
        }
    };
    CHECK(put(writer, 200) == Verdict::fenced);
    CHECK(ring.sound(writer));
}

// Two threads put through one object. The progress of one says nothing about the mark of the other,
// which copies.
static void test_fences_of_threads_are_no_deliveries() {
    Ring ring(64);
    Queue<Meddled> writer = ring.attach(0, 1), reader = ring.attach(1, 1);
    Taken taken;
    ring.memory.during_copy = [&] {
        for (int ms = 0; ms < 3; ++ms) {
            ++ring.memory.clock_ms;
            take(reader, taken, true);
        }
    };
    CHECK(put(writer, 200) == Verdict::fenced);
    ring.memory.during_copy = [&] { CHECK(put(writer, 200) == Verdict::ok); };
    CHECK(put(writer, 200) == Verdict::ok);
    ring.memory.during_copy = nullptr;
    for (int i = 0; i < 2; ++i) {
        CHECK(take(reader, taken) == Verdict::ok && taken.redelivered == 0);
        CHECK(reader.deliveries_with_this(taken.position) == 1);
        CHECK(reader.settle(taken));
    }
}

// A large put that is given up leaves the limit of small ones as it was.
static void test_a_limit_comes_down() {
    Ring ring(64);
    Queue<Meddled> writer = ring.attach(0, 1), reader = ring.attach(1, 1);
    Taken taken;
    int copy_ms = 2000;
    ring.memory.during_copy = [&] {
        for (int ms = 0; ms < copy_ms; ++ms) {
            ++ring.memory.clock_ms;
            take(reader, taken, true);
        }
    };
    for (int i = 0; i < 10; ++i) CHECK(put(writer, 500) == Verdict::fenced);
    copy_ms = 3;
    CHECK(put(writer) == Verdict::fenced);
    CHECK(put(writer) == Verdict::fenced);
    CHECK(put(writer) == Verdict::ok);
    CHECK(put(writer) == Verdict::fenced);
    copy_ms = 500;
    CHECK(put(writer, 500) == Verdict::ok);
    copy_ms = 3;
    CHECK(put(writer, 500) == Verdict::fenced);
}

// A process that read a block, slept for a lap and then proved its owner dead must not touch the
// new block there.
static void test_a_recoverer_that_is_a_lap_late() {
    for (const u64 first : {u64{0}, u64{8} << 16, u64{8} << 32, u64{8} << 44}) {
        Ring ring(8, first);
        Queue<Meddled> q = ring.attach(0), dead = ring.attach(1), late = ring.attach(2);
        Taken old, taken;
        CHECK(put(q) == Verdict::ok && take(dead, old) == Verdict::ok && dead.settle(old));
        for (int i = 0; i < 7; ++i) put_and_settle(q);
        CHECK(put(q) == Verdict::ok);
        for (u32 again = 0; again < 3; ++again) {
            CHECK(take(q, taken) == Verdict::ok && taken.redelivered == again);
            CHECK(taken.position == old.position + 8 && q.give_back(taken));
        }
        const Recovered sum = recover_holding(late, 1, old.position, old.word);
        CHECK(sum.complete && sum.handed_on == 0 && sum.skipped == 0);
        CHECK(take(q, taken) == Verdict::ok && taken.redelivered == 3);
        // Two processes recover it at once: the first is stopped before its exchange, the second
        // does all of it.
        ring.memory.dead = 0;
        Recovered first_one, second_one;
        repair(late, 0, taken.position, taken.word, first_one);
        repair(dead, 0, taken.position, taken.word, second_one);
        CHECK(first_one.handed_on == 1 && second_one.handed_on == 0);
        late.announce_return();
        CHECK(take(late, taken) == Verdict::ok && taken.redelivered == 4 && late.settle(taken));
        CHECK(ring.sound(q));
    }
}

// Half of the ring, up to the limit of 32 bits for a block's size: a ring of 256 GiB is not for a
// test.
static void test_the_largest_message_of_the_largest_ring() {
    constexpr u64 kFourGiB = u64{1} << 32;
    const auto largest = [](u64 granules) { return Geometry(granules, 1).size_max(); };
    CHECK(Geometry::valid(kFourGiB, 1) && !Geometry::valid(2 * kFourGiB, 1));
    CHECK(largest(4) == 128 - sizeof(BlockHeader));
    CHECK(largest(kFourGiB / 64) == kFourGiB / 2 - sizeof(BlockHeader));
    CHECK(largest(kFourGiB / 32) == kFourGiB - sizeof(BlockHeader));
    CHECK(largest(kFourGiB / 16) == kFourGiB - sizeof(BlockHeader));
    CHECK(largest(kFourGiB) == kFourGiB - sizeof(BlockHeader));
}

int main() {
    test_the_largest_message_of_the_largest_ring();
    test_contention_is_not_damage();
    test_patience_stays_over();
    test_a_copy_longer_than_the_stall_limit();
    test_fences_of_threads_are_no_deliveries();
    test_a_limit_comes_down();
    test_a_recoverer_that_is_a_lap_late();
}
