// Kills a process before every machine instruction of an operation, for one operation of each kind.
//
//   stepping [--kills N] [--seed S] [--only NAME] [--list] [--toys]
//
// --kills: at most so many kills of each operation, at equal distances; --seed chooses the first. Without it: all.
// --toys: the structures that test the stepping itself.
// Status 77 and a reason: processes cannot be traced here.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "stepping/channel_kinds.hpp"
#include "stepping/queue_kinds.hpp"
#include "stepping/runner.hpp"
#include "stepping/service_kinds.hpp"
#include "stepping/toys.hpp"

using namespace holdfast;
using namespace holdfast::stepping;

struct Options {
    Slice slice;
    std::string only;
    bool list = false;
    bool toys = false;
};

static Options parse(int count, char** words) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        const char* value = i + 1 < count ? words[i + 1] : nullptr;
        if (word == "--list" || word == "--toys") {
            (word == "--list" ? options.list : options.toys) = true;
            continue;
        }
        if (value == nullptr) {
            std::fprintf(stderr, "stepping: %s needs a value, or is not an option\n", words[i]);
            std::exit(2);
        }
        ++i;
        if (word == "--kills")
            options.slice.kills_max = std::strtoull(value, nullptr, 10);
        else if (word == "--seed")
            options.slice.seed = std::strtoull(value, nullptr, 10);
        else if (word == "--only")
            options.only = value;
        else {
            std::fprintf(stderr, "stepping: %s is not an option\n", words[i - 1]);
            std::exit(2);
        }
    }
    return options;
}

static double seconds_now() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

static void print(const std::string& name, const Counts& counts, double seconds) {
    std::printf("%-58s %6zu instructions %6zu kills:", name.c_str(), counts.instructions,
                counts.kills);
    for (std::size_t i = 0; i < kOutcomes; ++i)
        std::printf("%s %zu %s", i == 0 ? "" : ",", counts.outcomes[i], kOutcomeNames[i]);
    std::printf("; %.2f s\n", seconds);
    std::fflush(stdout);
}

// Both survivors of one situation.
static Counts run(Situation& situation, const Slice& slice, Trace& trace, Report* report) {
    Counts sum;
    for (const Survivor kind : {Survivor::newcomer, Survivor::bystander}) {
        if (kind == Survivor::bystander && !situation.has_bystander()) continue;
        const double start = seconds_now();
        const Counts counts = Runner(situation, kind, trace, report).run(slice);
        sum += counts;
        print(situation.name() + ", " + kSurvivorNames[static_cast<std::size_t>(kind)], counts,
              seconds_now() - start);
    }
    return sum;
}

static int run(const std::vector<std::unique_ptr<Situation>>& situations, const Slice& slice) {
    Trace trace;
    Report* report = Report::create();
    Counts all;
    const double start = seconds_now();
    for (const auto& situation : situations) {
        int status = 0;
        try {
            all += run(*situation, slice, trace, report);
        } catch (const NotPermitted& error) {
            std::printf("skipped: %s\n", error.what());
            status = 77;
        } catch (const std::exception& error) {
            std::fprintf(stderr, "%s\n", error.what());
            status = 1;
        }
        situation->clean();
        if (status != 0) return status;
    }
    print(std::to_string(situations.size()) + " operations, seed " + std::to_string(slice.seed) +
              ", stepped " + std::to_string(all.stepped),
          all, seconds_now() - start);
    return 0;
}

// The situations of every structure that is plugged in.
static std::vector<std::unique_ptr<Situation>> structures(const QueueWorld& world,
                                                          const std::string& name) {
    auto all = queue_situations(world, name);
    for (auto& each : channel_situations(world.directory, name)) all.push_back(std::move(each));
    for (auto& each : service_situations(world.directory, name)) all.push_back(std::move(each));
    return all;
}

int main(int count, char** words) {
    const Options options = parse(count, words);
    const QueueWorld world;
    const std::string name = "stepping-" + std::to_string(::getpid());
    auto situations = options.toys ? toy_situations(world.path(name)) : structures(world, name);
    if (!options.only.empty())
        std::erase_if(situations, [&](const auto& each) { return each->name() != options.only; });
    if (situations.empty()) {
        std::fprintf(stderr, "stepping: no operation has this name; see --list\n");
        return 2;
    }
    if (!options.list) return run(situations, options.slice);
    for (const auto& each : situations) std::puts(each->name().c_str());
}
