// The programs of the queue model: parsed from the words of a configuration.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "holdfast/base/types.hpp"

namespace model {

using namespace holdfast;

enum class Op : u8 {
    attach,
    put,
    get,
    settle,
    settle_all,
    back,
    close,
    recover,
    leave,
    wait_put,
    wait_get
};

struct Operation {
    Op op = Op::put;
    bool persists = false;      // until it succeeds
    bool probes = true;         // asks the kernel about those whom it waits for
    u32 wanted = 1;             // get
    std::vector<u32> granules;  // put: of each message
    u32 first_id = 0;           // put: the number of its first message
    std::string name;
};

struct Program {
    unsigned slot = 0;
    bool attaches = false;
    std::vector<Operation> operations;
};

// Numbers the messages through all programs, in the order in which each producer puts them.
inline Program parse_program(const std::string& text, unsigned slot, u32& next_id) {
    Program program{slot, false, {}};
    std::istringstream words(text);
    auto starts = [](const std::string& word, const char* prefix) {
        return word.rfind(prefix, 0) == 0;
    };
    auto digits = [](const std::string& word) {
        std::vector<u32> found;
        for (char c : word) {
            if (c >= '0' && c <= '9') found.push_back(static_cast<u32>(c - '0'));
        }
        return found;
    };
    for (std::string word; words >> word;) {
        Operation operation;
        operation.name = word;
        operation.persists = word.back() == '!';
        operation.probes = word.find('-') == std::string::npos;
        const std::vector<u32> numbers = digits(word);
        if (word[0] == '@') {
            program.slot = numbers.at(0);
            program.attaches = true;
            operation.op = Op::attach;
        } else if (starts(word, "put") || starts(word, "wput") || starts(word, "many")) {
            operation.op = starts(word, "wput") ? Op::wait_put : Op::put;
            operation.granules = numbers;
            if (starts(word, "many") && numbers.size() == 1)
                operation.granules.assign(numbers[0], 1);
            if (operation.granules.empty()) operation.granules = {1};
            operation.first_id = next_id;
            next_id += static_cast<u32>(operation.granules.size());
            operation.name += " #" + std::to_string(operation.first_id);
        } else if (starts(word, "get") || starts(word, "wget")) {
            operation.op = starts(word, "wget") ? Op::wait_get : Op::get;
            if (!numbers.empty()) operation.wanted = numbers[0];
        } else if (word == "settle") {
            operation.op = Op::settle;
        } else if (word == "all") {
            operation.op = Op::settle_all;
        } else if (word == "back") {
            operation.op = Op::back;
        } else if (word == "close") {
            operation.op = Op::close;
        } else if (word == "recover") {
            operation.op = Op::recover;
        } else if (word == "leave") {
            operation.op = Op::leave;
        } else {
            throw std::invalid_argument("unknown operation: " + word);
        }
        program.operations.push_back(std::move(operation));
    }
    return program;
}

}  // namespace model
