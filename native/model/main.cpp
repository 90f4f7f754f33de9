// The explorer's command line: `explore --help`.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "queue_model.hpp"
#include "toys.hpp"

namespace model {
namespace {

constexpr const char* kHelp =
    "explore: every interleaving of a few processes, with their deaths, on the queue's own code\n"
    "\n"
    "  explore [--slice]       the toys and the configurations that `make test` runs (the "
    "default)\n"
    "  explore --all           every configuration: long, and up to 12 GB\n"
    "  explore --toys          the toy structures alone: can the explorer see what it should?\n"
    "  explore --config NAME   this one; can be repeated\n"
    "  explore --list          the configurations and their programs\n"
    "\n"
    "  --json FILE             also write the results there\n"
    "  --jobs N                so many configurations at a time (default 1)\n"
    "  --states N              stop a configuration after so many states\n"
    "  --no-schedule           do not look for a shortest schedule that leads to a violation\n"
    "\n"
    "The exit status is 1 if anything was violated or a seeded bug was not seen.\n";

struct Options {
    bool all = false;
    bool toys_only = false;
    bool list = false;
    bool schedules = true;
    int jobs = 1;
    u64 states = ~u64{0};
    std::string json;
    std::set<std::string> names;
};

struct Result {
    std::string kind;  // toy or queue
    std::string name;
    std::string about;
    std::string expected;  // the check that a toy must fail
    int crashes = 0;
    std::vector<std::string> programs;
    int granules = 0;
    Report report;

    bool good() const {
        return report.check == expected && (report.exhausted || !expected.empty());
    }
};

std::string grouped(u64 number) {  // 1,234,567
    const std::string digits = std::to_string(number);
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i != 0 && (digits.size() - i) % 3 == 0) out += ',';
        out += digits[i];
    }
    return out;
}

Rules rules_of(const QueueConfig& config) {
    return {.crashes = config.crashes,
            .killable = config.killable,
            .spurious = config.spurious,
            .timeouts = config.timeouts,
            .whole_blocks = config.whole_blocks};
}

Result run_queue(const QueueConfig& config, const Options& options) {
    Result result{"queue",        config.name,     config.about,    "",
                  config.crashes, config.programs, config.granules, {}};
    Limits limits{.states = options.states,
                  .bytes = (config.slice ? std::size_t{3} : std::size_t{11}) << 30,
                  .audit_every = config.audit_every,
                  .progress_every = config.progress_every};
    result.report = explore(*make_queue_model(config), rules_of(config), limits);
    if (!result.report.check.empty() && options.schedules) {
        limits.states = std::min<u64>(limits.states, 4'000'000);
        limits.audit_every = limits.progress_every = 1;
        Report shortest = explore_shortest(*make_queue_model(config), rules_of(config), limits);
        if (!shortest.check.empty()) {
            result.report.check = shortest.check;
            result.report.violation = shortest.violation;
            result.report.schedule = shortest.schedule;
        }
    }
    return result;
}

Result run_toy(const Toy& toy) {
    Result result{"toy", toy.name, toy.about, toy.caught_by, toy.rules.crashes, {}, 0, {}};
    result.report = explore_shortest(*toy.make(), toy.rules, {});
    return result;
}

void print_header() {
    std::printf("%-22s %14s %14s %6s %10s %5s  %s\n", "configuration", "states", "transitions",
                "deaths", "audits", "solo", "seconds");
}

void print(const Result& result) {
    const Report& r = result.report;
    std::printf("%-22s %14s %14s %6d %10s %5d  %6.1f  ", result.name.c_str(),
                grouped(r.states).c_str(), grouped(r.transitions).c_str(), result.crashes,
                grouped(r.audits).c_str(), r.solo_steps, r.seconds);
    if (!result.expected.empty()) {
        std::printf(result.good() ? "seeded bug seen (%s)\n" : "SEEDED BUG NOT SEEN (%s)\n",
                    result.expected.c_str());
    } else if (r.check.empty()) {
        std::printf(r.exhausted ? "exhausted, clean\n" : "NOT EXHAUSTED\n");
    } else {
        std::printf("VIOLATED %s\n", r.violation.c_str());
        int number = 0;
        for (const std::string& line : r.schedule)
            std::printf("    %3d  %s\n", ++number, line.c_str());
    }
    std::fflush(stdout);
}

std::string quoted(const std::string& text) {
    std::string out(1, '"');
    for (char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    out += '"';
    return out;
}

std::string list_of(const std::vector<std::string>& texts) {
    std::string out = "[";
    for (const std::string& text : texts) out += (out.size() > 1 ? ", " : "") + quoted(text);
    return out + "]";
}

void write_json(const std::string& path, const std::vector<Result>& results) {
    std::ofstream out(path);
    out << "[\n";
    for (std::size_t i = 0; i < results.size(); ++i) {
        const Result& x = results[i];
        const Report& r = x.report;
        out << "  {\"kind\": " << quoted(x.kind) << ", \"name\": " << quoted(x.name)
            << ", \"about\": " << quoted(x.about) << ", \"granules\": " << x.granules
            << ", \"programs\": " << list_of(x.programs) << ", \"crashes\": " << x.crashes
            << ", \"states\": " << r.states << ", \"transitions\": " << r.transitions
            << ", \"terminal\": " << r.terminal << ", \"audits\": " << r.audits
            << ", \"solo_runs\": " << r.solo_runs << ", \"solo_steps\": " << r.solo_steps
            << ", \"depth\": " << r.depth << ", \"exhausted\": " << (r.exhausted ? "true" : "false")
            << ", \"good\": " << (x.good() ? "true" : "false") << ", \"seconds\": " << r.seconds
            << ", \"expected\": " << quoted(x.expected) << ", \"check\": " << quoted(r.check)
            << ", \"violation\": " << quoted(r.violation)
            << ", \"schedule\": " << list_of(r.schedule) << "}"
            << (i + 1 < results.size() ? "," : "") << "\n";
    }
    out << "]\n";
    if (!out) throw std::runtime_error("cannot write " + path);
}

void print_list() {
    for (const QueueConfig& config : queue_configs()) {
        std::printf("%-22s %s%s\n", config.name.c_str(), config.slice ? "" : "(--all only) ",
                    config.about.c_str());
        std::printf("    %d granules, %d deaths%s%s%s\n", config.granules, config.crashes,
                    config.at_most_once ? ", at most once" : "", config.fencing ? ", fencing" : "",
                    config.spurious ? ", spurious wake-ups" : "");
        for (const std::string& program : config.programs)
            std::printf("    | %s\n", program.c_str());
    }
}

int run(const Options& options) {
    if (options.list) {
        print_list();
        return 0;
    }
    std::vector<const QueueConfig*> chosen;
    for (const QueueConfig& config : queue_configs()) {
        const bool wanted = options.names.empty()
                                ? (config.slice || options.all) && !options.toys_only
                                : options.names.count(config.name) != 0;
        if (wanted) chosen.push_back(&config);
    }
    if (!options.names.empty() && chosen.size() != options.names.size()) {
        throw std::invalid_argument("no such configuration; --list names them");
    }
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
        for (std::size_t i; (i = next++) < chosen.size();) {
            Result result = run_queue(*chosen[i], options);
            std::lock_guard guard(printing);
            print(result);
            results.push_back(std::move(result));
        }
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < options.jobs; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();

    u64 states = 0, transitions = 0;
    std::size_t bad = 0;
    int solo_steps = 0;
    for (const Result& result : results) {
        states += result.report.states;
        transitions += result.report.transitions;
        bad += !result.good();
        if (result.kind == "queue") solo_steps = std::max(solo_steps, result.report.solo_steps);
    }
    std::printf(
        "%zu spaces, %s states, %s transitions; a survivor alone needs at most %d accesses; %s\n",
        results.size(), grouped(states).c_str(), grouped(transitions).c_str(), solo_steps,
        bad == 0 ? "all as expected" : (std::to_string(bad) + " NOT AS EXPECTED").c_str());
    if (!options.json.empty()) write_json(options.json, results);
    return bad == 0 ? 0 : 1;
}

int parse_and_run(int count, char** words) {
    Options options;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        auto value = [&] {
            if (++i == count) throw std::invalid_argument(word + " needs a value");
            return std::string(words[i]);
        };
        if (word == "--help" || word == "-h") {
            std::fputs(kHelp, stdout);
            return 0;
        }
        if (word == "--slice") continue;
        if (word == "--all")
            options.all = true;
        else if (word == "--toys")
            options.toys_only = true;
        else if (word == "--list")
            options.list = true;
        else if (word == "--no-schedule")
            options.schedules = false;
        else if (word == "--config")
            options.names.insert(value());
        else if (word == "--json")
            options.json = value();
        else if (word == "--jobs")
            options.jobs = std::stoi(value());
        else if (word == "--states")
            options.states = std::stoull(value());
        else
            throw std::invalid_argument("unknown option " + word + "; --help names them");
    }
    return run(options);
}

}  // namespace
}  // namespace model

int main(int count, char** words) {
    try {
        return model::parse_and_run(count, words);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "explore: %s\n", error.what());
        return 2;
    }
}
