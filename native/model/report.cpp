#include "model/report.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "model/text.hpp"

namespace model {

namespace {

std::string grouped(u64 number) {  // 1,234,567
    const std::string digits = std::to_string(number);
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i != 0 && (digits.size() - i) % 3 == 0) out += ',';
        out += digits[i];
    }
    return out;
}

// ---- JSON

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
    std::string out(1, '[');
    for (const std::string& text : texts) {
        if (out.size() > 1) out += ", ";
        out += quoted(text);
    }
    out += ']';
    return out;
}

const char* yes_no(bool value) {
    return value ? "true" : "false";
}

}  // namespace

Result::Result(const Space& space)
    : kind(space.kind),
      name(space.name),
      about(space.about),
      crashes(space.rules.crashes),
      granules(space.granules),
      programs(space.programs),
      traits(space.traits) {}

Result::Result(const Toy& toy)
    : kind("toy"),
      name(toy.name),
      about(toy.about),
      expected(toy.caught_by),
      crashes(toy.rules.crashes) {}

void print_header() {
    std::printf("%-23s %13s %13s %6s %10s %5s %7s\n", "space", "states", "transitions", "deaths",
                "audits", "solo", "seconds");
}

void print(const Result& result) {
    const Report& r = result.report;
    std::printf("%-23s %13s %13s %6d %10s %5d %7.1f  ", result.name.c_str(),
                grouped(r.states).c_str(), grouped(r.transitions).c_str(), result.crashes,
                grouped(r.audits).c_str(), r.solo_steps, r.seconds);
    if (!result.expected.empty()) {
        std::printf("%s (%s)\n", result.good() ? "seeded bug seen" : "SEEDED BUG NOT SEEN",
                    result.expected.c_str());
    } else if (r.check.empty()) {
        const char* rest = result.partial ? "clean as far as asked" : "clean so far, NOT EXHAUSTED";
        std::printf("%s\n", r.exhausted ? "exhausted, clean" : rest);
    } else {
        std::printf("VIOLATED %s\n", r.violation.c_str());
        int number = 0;
        for (const std::string& line : r.schedule)
            std::printf("    %3d  %s\n", ++number, line.c_str());
    }
    std::fflush(stdout);
}

void print_sum(const std::vector<Result>& results) {
    u64 states = 0, transitions = 0;
    std::size_t bad = 0;
    int solo_steps = 0;
    for (const Result& result : results) {
        states += result.report.states;
        transitions += result.report.transitions;
        bad += !result.good();
        if (result.kind != "toy") solo_steps = std::max(solo_steps, result.report.solo_steps);
    }
    const std::string verdict = bad == 0 ? "all as expected" : text_of(bad, " NOT AS EXPECTED");
    std::printf(
        "%zu spaces, %s states, %s transitions; a survivor alone needs at most %d accesses; %s\n",
        results.size(), grouped(states).c_str(), grouped(transitions).c_str(), solo_steps,
        verdict.c_str());
}

void print_list(const std::vector<Space>& spaces) {
    for (const Space& space : spaces) {
        std::printf("%-23s %s%s\n", space.name.c_str(), space.slice ? "" : "(--all only) ",
                    space.about.c_str());
        std::printf("    %d granules, %d deaths", space.granules, space.rules.crashes);
        for (const std::string& trait : space.traits) std::printf(", %s", trait.c_str());
        std::printf("\n");
        for (const std::string& program : space.programs)
            std::printf("    | %s\n", program.c_str());
    }
}

void write_json(const std::string& path, const std::vector<Result>& results) {
    std::ofstream out(path);
    out << "[";
    const char* separator = "\n";
    for (const Result& x : results) {
        const Report& r = x.report;
        out << separator << "  {\"kind\": " << quoted(x.kind) << ", \"name\": " << quoted(x.name)
            << ", \"about\": " << quoted(x.about) << ", \"granules\": " << x.granules
            << ", \"programs\": " << list_of(x.programs) << ", \"traits\": " << list_of(x.traits)
            << ", \"crashes\": " << x.crashes << ", \"states\": " << r.states
            << ", \"transitions\": " << r.transitions << ", \"terminal\": " << r.terminal
            << ", \"audits\": " << r.audits << ", \"solo_runs\": " << r.solo_runs
            << ", \"solo_steps\": " << r.solo_steps
            << ", \"bounded_accesses\": " << r.bounded_accesses << ", \"buffered\": " << r.buffered
            << ", \"depth\": " << r.depth << ", \"exhausted\": " << yes_no(r.exhausted)
            << ", \"good\": " << yes_no(x.good()) << ", \"partial\": " << yes_no(x.partial)
            << ", \"found_after\": " << x.found_after << ", \"seconds\": " << r.seconds
            << ", \"expected\": " << quoted(x.expected) << ", \"check\": " << quoted(r.check)
            << ", \"violation\": " << quoted(r.violation)
            << ", \"schedule\": " << list_of(r.schedule) << "}";
        separator = ",\n";
    }
    out << "\n]\n";
    out.flush();
    if (!out) throw std::runtime_error(text_of("cannot write ", path));
}

}  // namespace model
