// How references are measured: pinned threads, shared pages, medians of round trips.
//
// Two threads of one process stand for the two processes of the benchmark. The cost of a cache line that
// changes cores, and of bytes copied into a ring of shared pages, does not depend on address spaces.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace holdfast::bindings::reference {

using Clock = std::chrono::steady_clock;

inline constexpr std::size_t kLineBytes = 64;

inline double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// The cores this process may use; the benchmark pins its two processes to the first two of them.
inline std::vector<int> allowed_cores() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> cores;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
    return cores;
}

inline void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    // A refusal (a container that forbids it) only makes the figure noisier.
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

inline std::vector<int> two_cores() {
    std::vector<int> cores = allowed_cores();
    if (cores.size() < 2)
        throw std::runtime_error("this reference needs two cores, one is allowed");
    return cores;
}

// Shared pages, touched once, as a queue's ring is.
class Pages {
 public:
    explicit Pages(std::size_t size) : size_(size) {
        if (size == 0) throw std::invalid_argument("the ring must not be empty");
        void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        at_ = static_cast<std::byte*>(at);
        std::memset(at_, 1, size);
    }
    ~Pages() { munmap(at_, size_); }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    std::byte* at(std::size_t offset) { return at_ + offset; }

 private:
    std::byte* at_ = nullptr;
    std::size_t size_;
};

struct alignas(kLineBytes) Line {
    std::atomic<std::uint64_t> value{0};
};

// The median of `rounds` round trips between two pinned cores, in ns. The first core calls `ping(round)`, the second
// `pong(round)`. A look at the clock costs as much as a round trip, so that the times of 64 are taken together.
template <class Ping, class Pong>
double round_trip_ns(std::uint64_t rounds, Ping&& ping, Pong&& pong) {
    constexpr std::uint64_t kTogether = 64;
    if (rounds == 0) throw std::invalid_argument("at least one round");
    const std::vector<int> cores = two_cores();
    std::thread partner([&] {
        pin(cores[1]);
        for (std::uint64_t round = 1; round <= rounds; ++round) pong(round);
    });
    std::vector<double> times;
    std::thread caller([&] {
        pin(cores[0]);
        for (std::uint64_t round = 1; round <= rounds;) {
            const std::uint64_t together = std::min(kTogether, rounds - round + 1);
            const Clock::time_point start = Clock::now();
            for (std::uint64_t i = 0; i < together; ++i) ping(round++);
            times.push_back(seconds_since(start) * 1e9 / static_cast<double>(together));
        }
    });
    caller.join();
    partner.join();
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
}

}  // namespace holdfast::bindings::reference
