// The limits of the machine, measured as the queue is: the benchmark prints them beside its figures.
// Nothing here is used by the library.

#include "bindings/base/reference.hpp"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace {

using namespace holdfast::bindings::reference;

constexpr std::uint64_t kEndOfStream = ~std::uint64_t{0};

// One cache line there and one back, both sides spinning: nothing between two cores is faster.
double pingpong_ns(std::uint64_t rounds) {
    Line there;
    Line back;
    return round_trip_ns(
        rounds,
        [&](std::uint64_t round) {
            there.value.store(round, std::memory_order_release);           // pairs with: there.load
            while (back.value.load(std::memory_order_acquire) != round) {  // pairs with: back.store
            }
        },
        [&](std::uint64_t round) {
            while (there.value.load(std::memory_order_acquire) !=
                   round) {  // pairs with: there.store
            }
            back.value.store(round, std::memory_order_release);  // pairs with: back.load
        });
}

// Bytes per second that one core copies, message by message, into a ring of shared pages. The
// thread is pinned like the benchmark's producer.
double memcpy_bytes_per_s(std::size_t size, std::size_t ring_bytes, double seconds) {
    if (size == 0 || size > ring_bytes) throw std::invalid_argument("a message must fit the ring");
    const std::vector<int> cores = allowed_cores();
    Pages ring(ring_bytes);
    const std::vector<std::byte> message(size, std::byte{7});
    // A look at the clock costs as much as a small message: look once per MiB.
    const std::size_t per_look = size < (1U << 20) ? (1U << 20) / size : 1;
    double rate = 0;
    std::thread worker([&] {
        if (!cores.empty()) pin(cores[0]);
        std::size_t offset = 0;
        std::uint64_t copied = 0;
        const Clock::time_point start = Clock::now();
        double elapsed = 0;
        while (elapsed < seconds) {
            for (std::size_t i = 0; i < per_look; ++i) {
                if (offset + size > ring_bytes) offset = 0;
                std::memcpy(ring.at(offset), message.data(), size);
                asm volatile(
                    "" ::
                        : "memory");  // no thread reads the ring: keep the copy all the same
                offset += size;
            }
            copied += per_look;
            elapsed = seconds_since(start);
        }
        rate = static_cast<double>(copied) * static_cast<double>(size) / elapsed;
    });
    worker.join();
    return rate;
}

// Messages per second through the plainest C++ ring there is: one producer, one consumer, a length
// and a payload, copied in and copied out. No recovery, no second producer, no waiting but spinning.
double ring_messages_per_s(std::size_t size, std::size_t ring_bytes, double seconds) {
    const std::size_t stride =
        (sizeof(std::uint64_t) + size + kLineBytes - 1) / kLineBytes * kLineBytes;
    const std::size_t slots = ring_bytes / stride;
    if (size == 0 || slots < 2) throw std::invalid_argument("two messages must fit the ring");
    const std::vector<int> cores = two_cores();
    Pages ring(ring_bytes);
    Line written;
    Line read;
    std::uint64_t count = 0;
    double elapsed = 0;
    const Clock::time_point start = Clock::now();

    std::thread producer([&] {
        pin(cores[0]);
        const std::vector<std::byte> message(size, std::byte{7});
        std::uint64_t seen = 0;  // what the consumer had read at the last look
        std::uint64_t sent = 0;
        bool last = false;
        while (!last) {
            last = sent % 256 == 255 && seconds_since(start) >= seconds;
            while (sent - seen == slots) {
                seen = read.value.load(std::memory_order_acquire);  // pairs with: read.store
            }
            std::byte* at = ring.at(sent % slots * stride);
            const std::uint64_t length = last ? kEndOfStream : size;
            std::memcpy(at, &length, sizeof length);
            std::memcpy(at + sizeof length, message.data(), size);
            written.value.store(++sent, std::memory_order_release);  // pairs with: written.load
        }
    });
    std::thread consumer([&] {
        pin(cores[1]);
        std::vector<std::byte> message(size);
        std::uint64_t seen = 0;
        std::uint64_t received = 0;
        while (true) {
            while (received == seen) {
                seen = written.value.load(std::memory_order_acquire);  // pairs with: written.store
            }
            const std::byte* at = ring.at(received % slots * stride);
            std::uint64_t length = 0;
            std::memcpy(&length, at, sizeof length);
            if (length == kEndOfStream) break;
            std::memcpy(message.data(), at + sizeof length, length);
            asm volatile("" ::: "memory");
            read.value.store(++received, std::memory_order_release);  // pairs with: read.load
        }
        count = received;
        elapsed = seconds_since(start);
    });
    producer.join();
    consumer.join();
    return static_cast<double>(count) / elapsed;
}

}  // namespace

void bind_reference(nb::module_& module) {
    using Release = nb::call_guard<nb::gil_scoped_release>;
    module.def("reference_pingpong", &pingpong_ns, nb::arg("rounds"), Release(),
               "Nanoseconds for one cache line there and one back between two spinning cores.");
    module.def("reference_memcpy", &memcpy_bytes_per_s, nb::arg("size"), nb::arg("ring_bytes"),
               nb::arg("seconds"), Release(),
               "Bytes per second that one core copies into a ring of shared pages.");
    module.def("reference_ring", &ring_messages_per_s, nb::arg("size"), nb::arg("ring_bytes"),
               nb::arg("seconds"), Release(),
               "Messages per second through a plain C++ ring, one producer and one consumer.");
}
