// Toy structures that test the stepping itself: one word, some bytes, and two words that must agree.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/files.hpp"
#include "holdfast/base/types.hpp"
#include "stepping/situation.hpp"
#include "tests/check.hpp"

namespace holdfast::stepping {

// Its operation changes the words of a file in steps, and the survivor counts the steps. Kills come in the order of the
// instructions, all of them. So the count grows from kill to kill, and by at most one.
class Toy : public Situation {
 public:
    explicit Toy(std::string path) : path_(std::move(path)) {}

    std::vector<std::string> files() const override { return {path_}; }
    bool has_bystander() const override { return false; }
    void prepare() override {
        const OwnedFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        CHECK(fd.get() >= 0 && ::ftruncate(fd.get(), kBytes) == 0);
    }
    void clean() override { ::unlink(path_.c_str()); }

    void ready() override {
        const OwnedFd fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
        void* at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
        CHECK(at != MAP_FAILED);
        words_ = static_cast<volatile u64*>(at);
    }

    Outcome account(bool returned) override {
        if (words_ == nullptr) ready();
        const u64 steps = count();
        if (returned && steps != all()) throw Wrong("it returned after a part of its steps");
        if (!returned && (steps < before_ || steps > before_ + 1))
            throw Wrong(std::to_string(steps) + " steps after " + std::to_string(before_));
        before_ = returned ? 0 : steps;
        return steps == 0       ? Outcome::not_begun
               : steps == all() ? Outcome::done
                                : Outcome::recovered;
    }

 protected:
    static constexpr std::size_t kBytes = 4096;

    virtual u64 all() const = 0;
    virtual u64 count() const = 0;

    volatile u64* words_ = nullptr;

 private:
    std::string path_;
    u64 before_ = 0;
};

// A loop: most of its instructions are executed often.
class LoopToy : public Toy {
 public:
    using Toy::Toy;
    std::string name() const override { return "toy: a loop"; }
    bool operate() override {
        for (u64 i = 1; i <= all(); ++i) words_[0] = i;
        return true;
    }

 protected:
    u64 all() const override { return 40; }
    u64 count() const override { return words_[0]; }
};

// One instruction that repeats itself: it can be killed between two bytes.
class RepeatToy : public Toy {
 public:
    using Toy::Toy;
    std::string name() const override { return "toy: a repeated instruction"; }
    bool operate() override {
        const char* from = kText;
        volatile u64* to = words_;
        u64 size = all();
        asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
        return true;
    }

 protected:
    static constexpr char kText[] = "one byte after the other";

    u64 all() const override { return sizeof kText - 1; }
    u64 count() const override {
        const volatile char* bytes = reinterpret_cast<const volatile char*>(words_);
        u64 size = 0;
        while (size < all() && bytes[size] == kText[size]) ++size;
        for (u64 i = size; i < all(); ++i)
            if (bytes[i] != 0) throw Wrong("a byte was written before one in front of it");
        return size;
    }
};

// Two words that must agree, and that no survivor repairs: it must be found wrong.
class TornToy : public Toy {
 public:
    using Toy::Toy;
    std::string name() const override { return "toy: two words"; }
    bool operate() override {
        words_[0] = 1;
        words_[1] = 1;
        return true;
    }

 protected:
    u64 all() const override { return 1; }
    u64 count() const override {
        if (words_[0] != words_[1]) throw Wrong("the words differ");
        return words_[0];
    }
};

inline std::vector<std::unique_ptr<Situation>> toy_situations(const std::string& path) {
    std::vector<std::unique_ptr<Situation>> all;
    all.push_back(std::make_unique<LoopToy>(path));
    all.push_back(std::make_unique<RepeatToy>(path));
    all.push_back(std::make_unique<TornToy>(path));
    return all;
}

}  // namespace holdfast::stepping
