// Programs of the service model: lists of words, see model.hpp.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/service/state.hpp"

namespace model {

using namespace holdfast;

enum class ServiceAct : u8 {
    attach,
    send,
    lend,
    publish,
    give_back,
    run,
    wait_run,
    answer,
    subscribe,
    take,
    wait_take,
    release,
    unsubscribe,
    call,
    collect,
    wait_collect,
    withdraw,
    reap,
};

struct ServiceStep {
    ServiceAct act = ServiceAct::send;
    u32 count = 0;             // subscribe: samples; take: at most so many, 0: all that it may hold
    u32 id = 0;                // send, lend: of the content; call: of the request; from 1 on
    bool asks_kernel = false;  // withdraw
    bool persists = false;
    std::string name;

    bool takes() const { return act == ServiceAct::take || act == ServiceAct::wait_take; }
};

struct ServiceProgram {
    unsigned slot = 0;
    bool attaches = false;
    u32 granted = 0;  // samples of a subscription from the beginning
    std::vector<ServiceStep> steps;
};

// The first word says which participant it is.
inline ServiceProgram parse_service_program(const std::string& text, const ServiceSlots& slots,
                                            unsigned& next_slot, u32& contents, u32& calls) {
    ServiceProgram program;
    std::istringstream words(text);
    std::string word;
    words >> word;
    program.attaches = word[0] == '@';
    const char who = program.attaches ? word[1] : word[0];
    program.slot = who == 'P'   ? slots.provider()
                   : who == 'T' ? slots.tracer()
                                : static_cast<unsigned>(who - '0');
    if (!program.attaches && who == '-') program.slot = next_slot++;
    if (program.attaches) program.steps.push_back({.act = ServiceAct::attach, .name = word});
    while (words >> word) {
        ServiceStep step;
        step.name = word;
        step.persists = word.back() == '!';
        if (step.persists) word.pop_back();
        if (word.back() >= '0' && word.back() <= '9') {
            step.count = static_cast<u32>(word.back() - '0');
            word.pop_back();
        }
        if (word == "has") {
            program.granted = step.count;
            continue;
        }
        if (word == "send" || word == "lend") {
            step.act = word == "send" ? ServiceAct::send : ServiceAct::lend;
            step.id = ++contents;
        } else if (word == "publish") {
            step.act = ServiceAct::publish;
        } else if (word == "drop") {
            step.act = ServiceAct::give_back;
        } else if (word == "run" || word == "wrun") {
            step.act = word == "run" ? ServiceAct::run : ServiceAct::wait_run;
        } else if (word == "answer") {
            step.act = ServiceAct::answer;
        } else if (word == "sub") {
            step.act = ServiceAct::subscribe;
        } else if (word == "take" || word == "wtake") {
            step.act = word == "take" ? ServiceAct::take : ServiceAct::wait_take;
        } else if (word == "release") {
            step.act = ServiceAct::release;
        } else if (word == "unsub") {
            step.act = ServiceAct::unsubscribe;
        } else if (word == "call") {
            step.act = ServiceAct::call;
            step.id = ++calls;
        } else if (word == "collect" || word == "wcollect") {
            step.act = word == "collect" ? ServiceAct::collect : ServiceAct::wait_collect;
        } else if (word == "withdraw" || word == "forsake") {
            step.act = ServiceAct::withdraw;
            step.asks_kernel = word == "forsake";
        } else if (word == "reap") {
            step.act = ServiceAct::reap;
        } else {
            throw std::invalid_argument("unknown operation: " + word);
        }
        program.steps.push_back(std::move(step));
    }
    return program;
}

}  // namespace model
