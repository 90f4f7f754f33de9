// Programs of the channel model: lists of words, see model.hpp.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/channel/roles.hpp"

namespace model {

using namespace holdfast;

enum class Act : u8 { attach, claim, leave, push, wait_push, cancel, pop, wait_pop, release, mend };

struct ChannelStep {
    Act act = Act::push;
    Role role = Role::producer;
    bool persists = false;
    bool keeps = false;  // leave: with a loan that the program looks at
    u32 count = 1;       // push
    u32 priority = 0;    // push
    u32 first_id = 0;    // push: the number of its first datum
    u32 producer = 0;    // claim: the number of the producer
    std::string name;

    bool pushes() const { return act == Act::push || act == Act::wait_push; }
    bool pops() const { return act == Act::pop || act == Act::wait_pop; }
};

struct ChannelProgram {
    unsigned slot = 0;
    bool attaches = false;
    std::vector<ChannelStep> steps;
};

inline ChannelProgram parse_channel_program(const std::string& text, unsigned slot, u32& next_id) {
    ChannelProgram program{slot, false, {}};
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        ChannelStep step;
        step.name = word;
        step.persists = word.back() == '!';
        if (step.persists) word.pop_back();
        if (const std::size_t at = word.find('@', 1); at != std::string::npos) {
            step.priority = static_cast<u32>(word[at + 1] - '0');
            word.resize(at);
        }
        if (word[0] == '@') {
            program.slot = static_cast<unsigned>(word[1] - '0');
            program.attaches = true;
            step.act = Act::attach;
        } else if (word == "push" || word == "wpush" || word.rfind("batch", 0) == 0) {
            step.act = word == "wpush" ? Act::wait_push : Act::push;
            step.count = word[0] == 'b' ? static_cast<u32>(word[5] - '0') : 1;
            step.first_id = next_id;
            next_id += step.count;
            step.name += " #" + std::to_string(step.first_id);
        } else if (word == "cancel") {
            step.act = Act::cancel;
        } else if (word == "pop") {
            step.act = Act::pop;
        } else if (word == "wpop") {
            step.act = Act::wait_pop;
        } else if (word == "release") {
            step.act = Act::release;
        } else if (word == "leave" || word == "keep") {
            step.act = Act::leave;
            step.keeps = word == "keep";
        } else if (word == "mend") {
            step.act = Act::mend;
        } else if (word == "producer" || word == "producer1" || word == "consumer") {
            step.act = Act::claim;
            step.role = word == "consumer" ? Role::consumer : Role::producer;
            step.producer = word == "producer1" ? 1 : 0;
        } else {
            throw std::invalid_argument("unknown operation: " + word);
        }
        program.steps.push_back(std::move(step));
    }
    return program;
}

}  // namespace model
