// Toy structures, sound ones and ones with a seeded bug, that show what the explorer can see.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/explorer.hpp"

namespace model {

struct Toy {
    std::string name;
    std::string about;
    std::string caught_by;  // the check that must fail; empty: it is sound
    Rules rules;
    std::function<std::unique_ptr<Model>()> make;
};

const std::vector<Toy>& toys();

// Those of weak memory; toys() has them, too.
std::vector<Toy> buffer_toys();
std::vector<Toy> old_value_toys();

}  // namespace model
