// A process that is run to any machine instruction of one operation, and killed there. x86-64.
//
// The operation stands between two marks. It is recorded once, instruction by instruction. Later runs are forks of the
// same process, so they execute the same instructions at the same addresses. A breakpoint brings them to an instruction,
// which is cheaper than stepping. A breakpoint is the byte of `int3`, which the processor executes instead.
//
// On aarch64 this does not work: each step ends the exclusive access of an LL/SC loop, so the loop never ends.
#pragma once

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/types.hpp"

#if !defined(__x86_64__)
#error "only x86-64 is single-stepped"
#endif

extern "C" const char holdfast_step_end[];  // the address of the mark

namespace holdfast::stepping {

// This process cannot be traced: the kernel or a container forbids it.
struct NotPermitted : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The marks. Neither is part of the operation.
[[gnu::noinline]] inline void mark_begin() {
    asm volatile("int3");
}
[[gnu::noinline, gnu::noclone]] inline void mark_end() {
    asm volatile(".globl holdfast_step_end\nholdfast_step_end: int3");
}

// Ends this process when its parent ends.
inline void die_with_parent() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

// The addresses of the instructions of one operation, in order; the last one is the mark behind it. Its memory is there
// from the start: the heap of all runs is the same.
class Trace {
 public:
    Trace() {
        addresses_.reserve(kInstructionsMax);
        before_.reserve(kInstructionsMax);
        order_.reserve(kInstructionsMax);
    }

    void clear() { addresses_.clear(); }
    void add(u64 address) {
        if (addresses_.size() == kInstructionsMax)
            throw std::runtime_error("the operation has too many instructions");
        addresses_.push_back(address);
    }
    // After the last one was added.
    void finish() {
        order_.resize(addresses_.size());
        std::iota(order_.begin(), order_.end(), 0);
        std::sort(order_.begin(), order_.end(), [&](u32 a, u32 b) {
            return std::pair(addresses_[a], a) < std::pair(addresses_[b], b);
        });
        before_.assign(addresses_.size(), kNever);
        for (std::size_t i = 1; i < order_.size(); ++i)
            if (addresses_[order_[i]] == addresses_[order_[i - 1]])
                before_[order_[i]] = order_[i - 1];
    }

    std::size_t instructions() const { return addresses_.size() - 1; }
    u64 address(std::size_t index) const { return addresses_[index]; }

    // From instruction `here`: the last one up to `goal` to which one breakpoint leads, because its address is not
    // executed on the way. `here` itself: no breakpoint leads on, so make one step.
    std::size_t next_stop(std::size_t here, std::size_t goal) const {
        while (goal > here && before_[goal] >= static_cast<std::ptrdiff_t>(here)) --goal;
        return goal;
    }

 private:
    static constexpr std::size_t kInstructionsMax = 1 << 18;
    static constexpr std::ptrdiff_t kNever = -1;

    std::vector<u64> addresses_;
    std::vector<std::ptrdiff_t> before_;  // where the same address was executed before
    std::vector<u32> order_;              // indices, by address
};

class Traced {
 public:
    // Runs `body` in a child, up to its mark_begin().
    template <class Body>
    explicit Traced(Body&& body) : pid_(::fork()) {
        if (pid_ < 0) throw std::runtime_error("fork: " + errno_text(errno));
        if (pid_ == 0) {
            die_with_parent();
            ::alarm(kAlarmS);
            if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(kRefused);
            body();
            ::_exit(0);
        }
        wait();
    }

    ~Traced() {
        if (pid_ > 0) kill();
    }
    Traced(const Traced&) = delete;
    Traced& operator=(const Traced&) = delete;

    u64 address() const {
        return static_cast<u64>(::ptrace(PTRACE_PEEKUSER, pid_, kInstruction, nullptr));
    }
    bool at_end() const { return address() == end_mark(); }

    void step() {
        require(::ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr), "PTRACE_SINGLESTEP");
        wait();
    }

    // Runs until `address` is next. False: the operation ended before.
    bool run_to(u64 address) {
        const u64 place = address & ~u64{7};  // a word never crosses the end of a mapping
        const unsigned shift = static_cast<unsigned>(address & 7) * 8;
        const bool planted = address != end_mark();
        errno = 0;
        const long word = planted ? ::ptrace(PTRACE_PEEKTEXT, pid_, place, nullptr) : 0;
        require(errno == 0 ? 0 : -1, "PTRACE_PEEKTEXT");
        if (planted) {
            const u64 broken = (static_cast<u64>(word) & ~(u64{0xff} << shift)) | kInt3 << shift;
            require(::ptrace(PTRACE_POKETEXT, pid_, place, broken), "PTRACE_POKETEXT");
        }
        require(::ptrace(PTRACE_CONT, pid_, nullptr, nullptr), "PTRACE_CONT");
        wait();
        const u64 stopped = this->address() - 1;  // the int3 was executed
        if (stopped != address && stopped != end_mark())
            throw std::runtime_error("the traced process stopped at an unknown place");
        if (planted) require(::ptrace(PTRACE_POKETEXT, pid_, place, word), "PTRACE_POKETEXT");
        require(::ptrace(PTRACE_POKEUSER, pid_, kInstruction, stopped), "PTRACE_POKEUSER");
        return stopped == address;
    }

    // When it returns, the kernel has released the locks of the process.
    void kill() {
        ::kill(pid_, SIGKILL);
        int status = 0;
        while (::waitpid(pid_, &status, 0) == pid_ && WIFSTOPPED(status)) {
        }
        pid_ = -1;
    }

 private:
    static constexpr int kRefused = 87;
    static constexpr unsigned kAlarmS = 120;  // hang limit
    static constexpr u64 kInt3 = 0xcc;
    static constexpr std::size_t kInstruction = offsetof(user, regs.rip);

    static u64 end_mark() { return reinterpret_cast<u64>(&holdfast_step_end); }

    static void require(long result, const char* what) {
        if (result == -1) throw std::runtime_error(std::string(what) + ": " + errno_text(errno));
    }

    void wait() {
        int status = 0;
        if (::waitpid(pid_, &status, 0) != pid_)
            throw std::runtime_error("waitpid: " + errno_text(errno));
        if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP) return;
        const bool gone = !WIFSTOPPED(status);
        if (gone) pid_ = -1;
        if (gone && WIFEXITED(status) && WEXITSTATUS(status) == kRefused)
            throw NotPermitted("ptrace is not permitted here");
        throw std::runtime_error("the traced process has wait status " + std::to_string(status) +
                                 " outside of its marks");
    }

    pid_t pid_;
};

}  // namespace holdfast::stepping
