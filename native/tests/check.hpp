// A check that reports its line and values, and child processes that live and die on command.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "holdfast/base/errors.hpp"

#define CHECK(condition) ::holdfast::test::check((condition), __FILE__, __LINE__, #condition)

namespace holdfast::test {

inline void check(bool condition, const char* file, int line, const char* words) {
    if (condition) return;
    std::fprintf(stderr, "%s:%d: not true: %s\n", file, line, words);
    std::_Exit(1);
}

// How often a random case is tried: a slice in `make test`, all of it in `make nightly`.
inline int rounds(int test, int nightly) {
    const char* night = std::getenv("HOLDFAST_NIGHTLY");
    return night != nullptr && std::string_view(night) == "1" ? nightly : test;
}

// How long a test waits for an event that must happen; mutants shorten it.
inline int patience_ms() {
    const char* told = std::getenv("HOLDFAST_TEST_PATIENCE_MS");
    return told != nullptr ? std::atoi(told) : 30'000;
}

// The test cannot run here, for the reason named: the suite shows it as skipped.
[[noreturn]] inline void skip(const std::string& reason) {
    std::printf("skipped: %s\n", reason.c_str());
    std::fflush(stdout);
    std::_Exit(77);
}

// `action` must fail with this code, in words that contain each of `parts`.
template <class Action, class... Parts>
void check_error(const char* file, int line, Code code, Action action, Parts... parts) {
    try {
        action();
    } catch (const Error& error) {
        const std::string_view what = error.what();
        if (error.code == code && ((what.find(parts) != std::string_view::npos) && ...)) return;
        std::fprintf(stderr, "%s:%d: another error (code %d): %s\n", file, line,
                     static_cast<int>(error.code), error.what());
        std::_Exit(1);
    }
    std::fprintf(stderr, "%s:%d: no error\n", file, line);
    std::_Exit(1);
}
#define CHECK_ERROR(code, action, ...) \
    ::holdfast::test::check_error(__FILE__, __LINE__, code, [&] { action; }, __VA_ARGS__)

// A one-way line between processes: one side sends, the other waits.
class Line {
 public:
    Line() { CHECK(::pipe(ends_) == 0); }
    ~Line() {
        ::close(ends_[0]);
        ::close(ends_[1]);
    }
    void tell(char word = '.') const { CHECK(::write(ends_[1], &word, 1) == 1); }
    char wait() const {
        pollfd ready{ends_[0], POLLIN, 0};
        CHECK(::poll(&ready, 1, patience_ms()) ==
              1);  // else the other side failed, and has reported it
        char word = 0;
        CHECK(::read(ends_[0], &word, 1) == 1);
        return word;
    }

 private:
    int ends_[2];
};

// Runs `body` in a child, which ends with status 0 if it returns.
template <class Body>
pid_t start(Body body) {
    const pid_t child = ::fork();
    CHECK(child >= 0);
    if (child == 0) {
        ::alarm(60);  // no child is left behind, whichever check fails
        body();
        ::_exit(0);
    }
    return child;
}

inline int finish(pid_t child) {
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    return status;
}

inline void kill_and_reap(pid_t child) {
    CHECK(::kill(child, SIGKILL) == 0);
    const int status = finish(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

template <class Body>
void in_child(Body body) {
    const int status = finish(start(body));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

inline bool stopped(pid_t child) {
    int status = 0;
    return ::waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status);
}

}  // namespace holdfast::test
