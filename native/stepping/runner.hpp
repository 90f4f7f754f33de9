// Kills the process of one situation before each of its machine instructions, and lets a survivor give the account.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/files.hpp"
#include "stepping/situation.hpp"
#include "stepping/traced.hpp"
#include "tests/check.hpp"

namespace holdfast::stepping {

// The bytes of a file as they were, to be written back.
class KeptFile {
 public:
    explicit KeptFile(const std::string& path) {
        const OwnedFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
        struct stat status{};
        CHECK(fd.get() >= 0 && ::fstat(fd.get(), &status) == 0);
        size_ = static_cast<std::size_t>(status.st_size);
        void* at = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
        CHECK(at != MAP_FAILED && ::madvise(at, size_, MADV_DONTFORK) == 0);
        live_ = static_cast<std::byte*>(at);
        kept_.assign(live_, live_ + size_);
    }
    ~KeptFile() { ::munmap(live_, size_); }
    KeptFile(const KeptFile&) = delete;
    KeptFile& operator=(const KeptFile&) = delete;

    void write_back() { std::memcpy(live_, kept_.data(), size_); }

 private:
    std::byte* live_ = nullptr;
    std::size_t size_ = 0;
    std::vector<std::byte> kept_;
};

// A page that the processes of a run share.
struct Report {
    bool operated;  // operate() returned true
    bool wrong;
    Outcome outcome;
    char words[2000];

    static Report* create() {
        void* at = ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(at != MAP_FAILED);
        return static_cast<Report*>(at);
    }
};

// The survivor: one process for all runs of a situation, which attaches anew in each.
class SurvivorProcess {
 public:
    SurvivorProcess(Situation& situation, Report* report) : situation_(situation), report_(report) {
        CHECK(::pipe2(orders_, O_CLOEXEC) == 0 && ::pipe2(answers_, O_CLOEXEC) == 0);
        pid_ = ::fork();
        CHECK(pid_ >= 0);
        if (pid_ == 0) serve();
        ::close(orders_[0]);
        ::close(answers_[1]);
    }
    ~SurvivorProcess() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        ::close(orders_[1]);
        ::close(answers_[0]);
    }
    SurvivorProcess(const SurvivorProcess&) = delete;
    SurvivorProcess& operator=(const SurvivorProcess&) = delete;

    void attach() { order('a'); }
    Outcome account(bool returned) {
        order(returned ? 'r' : 'k');
        return report_->outcome;
    }

 private:
    void order(char what) {
        report_->wrong = false;
        CHECK(::write(orders_[1], &what, 1) == 1);
        pollfd ready{answers_[0], POLLIN, 0};
        char answer = 0;
        if (::poll(&ready, 1, test::patience_ms()) != 1) throw Wrong("the survivor never ended");
        if (::read(answers_[0], &answer, 1) != 1) throw Wrong("the survivor died");
        if (report_->wrong) throw Wrong(report_->words);
    }

    [[noreturn]] void serve() {
        die_with_parent();
        ::close(orders_[1]);
        ::close(answers_[0]);
        char what = 0;
        while (::read(orders_[0], &what, 1) == 1) {
            try {
                if (what == 'a')
                    situation_.attach();
                else
                    report_->outcome = situation_.account(what == 'r');
            } catch (const std::exception& error) {
                report_->wrong = true;
                std::snprintf(report_->words, sizeof report_->words, "%s", error.what());
            }
            if (::write(answers_[1], &what, 1) != 1) break;
        }
        ::_exit(0);
    }

    Situation& situation_;
    Report* report_;
    int orders_[2];
    int answers_[2];
    pid_t pid_ = -1;
};

// A participant that stops when it is where it shall be killed.
class ThirdProcess {
 public:
    explicit ThirdProcess(Situation& situation) : pid_(::fork()) {
        CHECK(pid_ >= 0);
        if (pid_ == 0) {
            die_with_parent();
            situation.be_third();
            ::raise(SIGSTOP);
            ::_exit(0);
        }
        CHECK(test::stopped(pid_));
    }
    ~ThirdProcess() { kill(); }
    ThirdProcess(const ThirdProcess&) = delete;
    ThirdProcess& operator=(const ThirdProcess&) = delete;

    void kill() {
        if (pid_ > 0) test::kill_and_reap(std::exchange(pid_, -1));
    }

 private:
    pid_t pid_;
};

// The instructions before which a process is killed: all, or at most `kills_max` of an operation, at equal distances.
struct Slice {
    std::size_t kills_max = 0;  // 0: all
    std::size_t seed = 0;       // chooses the first

    std::size_t stride(std::size_t instructions) const {
        return kills_max == 0 ? 1 : (instructions + kills_max) / kills_max;
    }
};

struct Counts {
    std::size_t instructions = 0;
    std::size_t kills = 0;
    std::size_t stepped = 0;  // kills that no breakpoint reached, so that all was stepped
    std::array<std::size_t, kOutcomes> outcomes{};

    Counts& operator+=(const Counts& other) {
        instructions += other.instructions;
        kills += other.kills;
        stepped += other.stepped;
        for (std::size_t i = 0; i < kOutcomes; ++i) outcomes[i] += other.outcomes[i];
        return *this;
    }
};

class Runner {
 public:
    Runner(Situation& situation, Survivor kind, Trace& trace, Report* report)
        : situation_(situation), kind_(kind), trace_(trace), report_(report) {
        test::in_child([&] { situation.prepare(); });
        for (const std::string& path : situation.files())
            files_.push_back(std::make_unique<KeptFile>(path));
        survivor_ = std::make_unique<SurvivorProcess>(situation, report);
    }

    // The instructions are counted first, without a kill; the run of the count ends with a kill behind the operation.
    Counts run(const Slice& slice) {
        record();
        Counts counts;
        counts.instructions = trace_.instructions();
        const std::size_t stride = slice.stride(counts.instructions);
        for (std::size_t at = slice.seed % stride; at < counts.instructions; at += stride)
            kill_before(at, counts);
        kill_before(counts.instructions, counts);  // it has returned
        return counts;
    }

 private:
    void record() {
        trace_.clear();
        Setting setting(*this);
        while (!setting.traced->at_end()) {
            trace_.add(setting.traced->address());
            setting.traced->step();
        }
        trace_.add(setting.traced->address());
        trace_.finish();
        if (!report_->operated) throw Wrong(here() + ": the operation fails without a kill");
        setting.end();
        Counts counts;
        judge(trace_.instructions(), true, counts);
    }

    void kill_before(std::size_t at, Counts& counts) {
        constexpr int kTries = 3;
        for (int tries = 0;; ++tries) {
            Setting setting(*this);
            const bool step = tries == kTries;
            const bool reached = step ? step_to(*setting.traced, at) : reach(*setting.traced, at);
            const bool returned = setting.traced->at_end();
            setting.end();
            Counts missed;  // a run that took another way was killed behind the operation
            judge(at, returned, reached ? counts : missed);
            counts.stepped += step;
            if (reached) break;
        }
    }

    // False: this run took another way, and ended.
    bool reach(Traced& traced, std::size_t goal) const {
        for (std::size_t at = 0; at < goal;) {
            const std::size_t next = trace_.next_stop(at, goal);
            if (next == at) {
                if (traced.at_end()) return false;
                traced.step();
                ++at;
            } else {
                if (!traced.run_to(trace_.address(next))) return false;
                at = next;
            }
        }
        return true;
    }

    static bool step_to(Traced& traced, std::size_t goal) {
        for (std::size_t at = 0; at < goal && !traced.at_end(); ++at) traced.step();
        return true;
    }

    void judge(std::size_t at, bool returned, Counts& counts) {
        try {
            const Outcome outcome = survivor_->account(returned);
            ++counts.outcomes[static_cast<std::size_t>(outcome)];
            ++counts.kills;
        } catch (const Wrong& wrong) {
            throw Wrong(here() + ", killed before instruction " + std::to_string(at) + " of " +
                        std::to_string(trace_.instructions()) + " (" + place(at) +
                        "): " + wrong.what());
        }
    }

    std::string here() const {
        return situation_.name() + ", " + kSurvivorNames[static_cast<std::size_t>(kind_)];
    }

    // For addr2line.
    std::string place(std::size_t at) const {
        Dl_info info{};
        const u64 address = trace_.address(at);
        if (::dladdr(reinterpret_cast<void*>(address), &info) == 0) return "in the kernel's page";
        char text[400];
        std::snprintf(
            text, sizeof text, "addr2line -Cife %s %#llx", info.dli_fname,
            static_cast<unsigned long long>(address - reinterpret_cast<u64>(info.dli_fbase)));
        return text;
    }

    // The processes of one run, at first up to the mark before the operation. Nothing of it is on the heap, see Trace.
    struct Setting {
        explicit Setting(Runner& runner) {
            Situation& situation = runner.situation_;
            situation.reset();
            for (const auto& file : runner.files_) file->write_back();
            if (runner.kind_ == Survivor::bystander) runner.survivor_->attach();
            if (situation.third() != Third::none) third.emplace(situation);
            runner.report_->operated = false;
            traced.emplace([&] {
                situation.ready();
                mark_begin();
                runner.report_->operated = situation.operate();
                mark_end();
            });
            if (situation.third() == Third::dies_before) third->kill();
        }
        void end() {
            traced.reset();
            third.reset();
        }

        std::optional<ThirdProcess> third;
        std::optional<Traced> traced;
    };

    Situation& situation_;
    Survivor kind_;
    Trace& trace_;
    Report* report_;
    std::vector<std::unique_ptr<KeptFile>> files_;
    std::unique_ptr<SurvivorProcess> survivor_;
};

}  // namespace holdfast::stepping
