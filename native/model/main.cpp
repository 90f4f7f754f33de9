// The explorer's command line: `explore --help`.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "model/channel/model.hpp"
#include "model/queue/model.hpp"
#include "model/report.hpp"
#include "model/service/model.hpp"
#include "model/text.hpp"

namespace model {
namespace {

constexpr const char* kHelp =
    "explore: every interleaving of a few processes, with their deaths, on the structures' own "
    "code\n"
    "\n"
    "  explore [--slice]       the toys and the spaces that `make test` explores (the default)\n"
    "  explore --all           every space: long, and up to 12 GB\n"
    "  explore --toys          the toy structures alone: can the explorer see what it should?\n"
    "  explore --config NAME   this space; can be repeated\n"
    "  explore --list          the spaces and their programs\n"
    "\n"
    "  --also NAME=STATES      this space too, but only its first STATES states; can be repeated\n"
    "  --json FILE             also write the results there\n"
    "  --jobs N                spaces explored at a time (default 1)\n"
    "  --states N              stop a space after N states\n"
    "  --no-schedule           do not look for a shortest schedule that leads to a violation\n"
    "\n"
    "The exit status is 1 if anything was violated, not exhausted, or a seeded bug was not seen.\n";

struct Options {
    bool all = false;
    bool toys_only = false;
    bool list = false;
    bool schedules = true;
    int jobs = 1;
    u64 states = ~u64{0};
    std::string json;
    std::set<std::string> names;
    std::map<std::string, u64> also;  // spaces that were violated once, and after how many states
};

// Every structure's spaces.
const std::vector<Space>& spaces() {
    static const std::vector<Space> all = [] {
        std::vector<Space> found = queue_spaces();
        for (Space& space : channel_spaces()) found.push_back(std::move(space));
        for (Space& space : service_spaces()) found.push_back(std::move(space));
        return found;
    }();
    return all;
}

struct Job {
    const Space* space;
    u64 states;
    bool partial = false;
};

Result run_space(const Job& job, const Options& options) {
    constexpr u64 kShortestStatesMax = 2'000'000;
    const Space& space = *job.space;
    Result result(space);
    result.partial = job.partial;
    Limits limits{.states = job.states,
                  .bytes = (space.slice ? std::size_t{3} : std::size_t{11}) << 30,
                  .audit_every = space.audit_every,
                  .progress_every = space.progress_every};
    result.report = explore(*space.make(), space.rules, limits);
    result.found_after = result.report.states;
    if (result.report.check.empty() || !options.schedules) return result;
    limits.states = std::min(limits.states, kShortestStatesMax);
    limits.audit_every = limits.progress_every = 1;
    Report shortest = explore_shortest(*space.make(), space.rules, limits);
    if (!shortest.check.empty()) result.report = std::move(shortest);
    return result;
}

Result run_toy(const Toy& toy) {
    Result result(toy);
    try {
        result.report = explore_shortest(*toy.make(), toy.rules, {});
    } catch (const Violation& refused) {  // its world was refused
        result.report.check = refused.check;
        result.report.violation = refused.what();
    }
    return result;
}

const Space& space_named(const std::string& name) {
    for (const Space& space : spaces()) {
        if (space.name == name) return space;
    }
    throw std::invalid_argument(text_of("no space ", name, "; --list names them"));
}

std::vector<Job> chosen(const Options& options) {
    std::vector<Job> found;
    for (const Space& space : spaces()) {
        const bool wanted = options.names.empty()
                                ? (space.slice || options.all) && !options.toys_only
                                : options.names.count(space.name) != 0;
        if (wanted) found.push_back({&space, options.states});
    }
    if (!options.names.empty() && found.size() != options.names.size()) {
        throw std::invalid_argument("no such space; --list names them");
    }
    for (const auto& [name, states] : options.also) {
        const Space* space = &space_named(name);
        const bool there = std::any_of(found.begin(), found.end(),
                                       [&](const Job& job) { return job.space == space; });
        if (!there) found.push_back({space, states, true});
    }
    return found;
}

int run(const Options& options) {
    const std::vector<Job> jobs = chosen(options);
    std::vector<Result> results;
    print_header();
    if (options.names.empty()) {
        for (const Toy& toy : toys()) {
            results.push_back(run_toy(toy));
            print(results.back());
        }
    }
    std::mutex printing;
    std::atomic<std::size_t> next = 0;
    auto work = [&] {
        for (std::size_t i; (i = next++) < jobs.size();) {
            Result result = run_space(jobs[i], options);
            std::lock_guard guard(printing);
            print(result);
            results.push_back(std::move(result));
        }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < options.jobs; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    print_sum(results);
    if (!options.json.empty()) write_json(options.json, results);
    return std::all_of(results.begin(), results.end(),
                       [](const Result& result) { return result.good(); })
               ? 0
               : 1;
}

// False: there is nothing to run.
bool parse(int count, char** words, Options& options) {
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        auto value = [&] {
            if (++i == count) throw std::invalid_argument(text_of(word, " needs a value"));
            return std::string(words[i]);
        };
        if (word == "--help" || word == "-h") {
            std::fputs(kHelp, stdout);
            return false;
        }
        if (word == "--slice") {
            options.all = false;
        } else if (word == "--all") {
            options.all = true;
        } else if (word == "--toys") {
            options.toys_only = true;
        } else if (word == "--list") {
            options.list = true;
        } else if (word == "--no-schedule") {
            options.schedules = false;
        } else if (word == "--config") {
            options.names.insert(value());
        } else if (word == "--also") {
            const std::string given = value();
            const std::size_t at = given.find('=');
            if (at == std::string::npos) throw std::invalid_argument("--also wants NAME=STATES");
            options.also[given.substr(0, at)] = std::stoull(given.substr(at + 1));
        } else if (word == "--json") {
            options.json = value();
        } else if (word == "--jobs") {
            options.jobs = std::stoi(value());
        } else if (word == "--states") {
            options.states = std::stoull(value());
        } else {
            throw std::invalid_argument(text_of("unknown option ", word, "; --help names them"));
        }
    }
    if (options.list) print_list(spaces());
    return !options.list;
}

}  // namespace
}  // namespace model

int main(int count, char** words) {
    try {
        model::Options options;
        return model::parse(count, words, options) ? model::run(options) : 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "explore: %s\n", error.what());
        return 2;
    }
}
