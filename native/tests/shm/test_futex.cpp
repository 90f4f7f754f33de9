// Futexes between processes: every way in which a wait can end.
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "holdfast/shm/futex.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

constexpr u64 kLong = 20'000'000'000u;

static u32* shared_words() {
    void* at = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return static_cast<u32*>(at);
}

static void wake_until_ended(pid_t child, u32* word) {
    int status = 0;
    while (::waitpid(child, &status, WNOHANG) == 0) {
        futex_wake_all(word);
        ::usleep(1000);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_wait() {
    u32* word = shared_words();
    CHECK(futex_wait(word, 1, kLong) == Wait::changed);
    const u64 before = monotonic_ns();
    constexpr u64 kShort = 20'000'000;
    CHECK(futex_wait(word, 0, kShort) == Wait::timed_out);
    CHECK(monotonic_ns() - before >= kShort);
    CHECK(futex_wait(word, 0, 0) == Wait::timed_out);
    wake_until_ended(start([&] { CHECK(futex_wait(word, 0, kLong) == Wait::woken); }), word);
}

static void test_signal_interrupts() {
    u32* word = shared_words();
    struct sigaction action{};
    action.sa_handler = [](int) {};
    CHECK(::sigaction(SIGUSR1, &action, nullptr) == 0);  // without SA_RESTART, as Python does
    const pthread_t waiter = ::pthread_self();
    std::atomic<bool> ended{false};
    std::thread disturber([&] {
        while (!ended.load()) {
            ::usleep(5000);
            ::pthread_kill(waiter, SIGUSR1);
        }
    });
    CHECK(futex_wait(word, 0, kLong) == Wait::interrupted);
    const FutexWord words[] = {{word, 0}};
    const Wait many = holdfast::futex_waitv(words, kLong).result;
    CHECK(many == Wait::interrupted || many == Wait::unsupported);
    ended.store(true);
    disturber.join();
}

static void test_wait_many() {
    u32* word = shared_words();
    const FutexWord words[] = {{word, 0}, {word + 16, 0}, {word + 32, 0}};
    if (holdfast::futex_waitv(words, 1000).result == Wait::unsupported) {
        skip("this kernel has no futex_waitv (it came with 5.16)");
    }
    CHECK(holdfast::futex_waitv(words, 20'000'000).result == Wait::timed_out);
    word[16] = 5;
    CHECK(holdfast::futex_waitv(words, kLong).result == Wait::changed);
    word[16] = 0;
    wake_until_ended(start([&] {
                         const WaitMany ended = holdfast::futex_waitv(words, kLong);
                         CHECK(ended.result == Wait::woken && ended.index == 2);
                     }),
                     word + 32);
}

int main() {
    test_wait();
    test_signal_interrupts();
    test_wait_many();
}
