// A space to explore: the programs of a few processes on one structure, and the rules of their exploration.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/runner.hpp"

namespace model {

struct Space {
    std::string kind;  // the structure
    std::string name;
    std::string about;
    std::vector<std::string> programs;
    std::vector<std::string> traits;
    int granules = 0;  // places of its ring
    Rules rules;
    u32 audit_every = 16;  // see Limits
    u32 progress_every = 16;
    bool slice = true;  // part of `make test`
    std::function<std::unique_ptr<Model>()> make;
};

}  // namespace model
