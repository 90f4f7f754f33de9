// Reports of what was found, for people (a table with schedules) and for programs (JSON).
#pragma once

#include <string>
#include <vector>

#include "model/explorer.hpp"
#include "model/space.hpp"
#include "model/toys.hpp"

namespace model {

struct Result {
    std::string kind;  // toy, or the structure
    std::string name;
    std::string about;
    std::string expected;  // the check that a toy must fail
    int crashes = 0;
    int granules = 0;
    std::vector<std::string> programs;
    std::vector<std::string> traits;
    bool partial = false;  // only the first states of it were asked for
    u64 found_after = 0;   // states, depth first
    Report report;

    explicit Result(const Space& space);
    explicit Result(const Toy& toy);

    bool good() const {
        return report.check == expected && (report.exhausted || partial || !expected.empty());
    }
};

void print_header();
void print(const Result& result);
void print_sum(const std::vector<Result>& results);
void print_list(const std::vector<Space>& spaces);
void write_json(const std::string& path, const std::vector<Result>& results);

}  // namespace model
