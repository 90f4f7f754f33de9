// A service under the explorer: small programs of a provider, proxies and a tracer, and what must be true of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/space.hpp"

namespace model {

// One space to explore: one element. A program is a list of words. The first one names the participant:
//
//   P, T, 0, 1, ...   the provider, the tracer, the proxy in slot 0, 1, ...; it is there from the beginning
//   @P, @T, @0, ...   a fresh process that attaches when the kernel has released the slot; it repairs what it finds
//   has2              (second word) this proxy or tracer begins with a subscription of two samples, and has taken none
//
// of the provider:
//   send              lend a sample, fill it, publish it
//   lend, publish, drop   the parts; `publish` and `drop` are about the sample lent last
//   run, answer       take a call and read its request; write the response of the call that was taken
//   wrun              wait for a call: listen to the bell, look, sleep
// of proxies and the tracer:
//   sub1, sub2        subscribe with so many samples; one attempt
//   take, take1       take and read the samples that are new, at most what the subscription allows; at most one
//   wtake             wait for a sample: listen to the bell, look, sleep
//   release           release the oldest sample held; none held: nothing happens
//   unsub             release all, and unsubscribe
//   call              claim a place, write the request, submit it; no place is free: nothing happens
//   collect           look for the response; if it is there, read it and free the place. With ! until it is there
//   wcollect          wait for the response
//   withdraw          give up the call
//   forsake           the same, after the kernel was asked whether the provider is dead
//   reap              ask the kernel about all proxies and the tracer, and clear what the dead left
struct ServiceConfig {
    std::string name = {};
    std::string about = {};
    int proxies = 1;
    int samples = 4;  // 0: a method
    int loans = 1;
    int max_subscribers = 2;
    int calls = 0;
    std::vector<std::string> programs = {};
    int crashes = 0;
    unsigned killable = ~0u;  // bit p: process p may die
    bool spurious = false;
    bool timeouts = false;
    StoreBuffers store_buffers = StoreBuffers::none;
    bool old_values = false;
    u64 first = 1;       // the first sequence number; with another than 1, `before` is not 0
    u64 first_call = 0;  // the number of the call that each place had last
    int before = 0;      // publications that are over when the exploration begins
    int tries = 2;       // of a subscriber that others are in the way of
    u32 audit_every = 4;
    u32 progress_every = 16;
    bool slice = true;  // part of `make test`
};

std::unique_ptr<Model> make_service_model(const ServiceConfig& config);

std::vector<Space> service_spaces();

}  // namespace model
