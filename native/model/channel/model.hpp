// The channel under the explorer: small programs of pushes and pops, and what must be true of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/space.hpp"

namespace model {

// One space to explore. A program is a list of words, one per operation:
//
//   push, batch2      push one datum, two at once; in a channel that does not overflow one attempt, with ! until it is in
//   cancel            withdraw the datum that this process pushed last
//   pop               one attempt to take a datum and to read it; with ! until there is one
//   wpop              wait for a datum: listen to the bell, look, sleep
//   wpush             the same for a push: wait for a free slot
//   leave             give up the role; buffers that were popped are kept
//   keep              the same for a producer, with a loan that it keeps
//   release           give back the oldest buffer held, in a loop by the way back; nothing held: nothing happens
//   mend              ask the kernel about the holders of buffers, and take back those of the dead
//   producer, producer1, consumer   claim this role until the process has it, and recover what the last holder left
//   push@1            push with priority 1; wpush and batch2 likewise
//   @0                (first word) a fresh process that attaches in slot 0 when the kernel has released it
//
// The first processes have the producers' roles at the beginning, and the next one the consumer's.
struct ChannelConfig {
    std::string name = {};
    std::string about = {};
    int slots = 1;
    int loans = 1;
    int holds = 1;
    bool overflow = true;
    int producers = 1;  // at most two lanes in all
    int priorities = 1;
    bool loop = false;
    std::vector<std::string> programs = {};
    int crashes = 0;
    unsigned killable = ~0u;  // bit p: process p may die
    bool spurious = false;
    bool timeouts = false;
    StoreBuffers store_buffers = StoreBuffers::none;
    bool old_values = false;
    int laps = 64;          // a pop that is overtaken more often gives up
    u64 first = 0;          // where the positions begin; 0: where those of a new channel do
    int before = 0;         // pushes of process 0 that are over when the exploration begins
    int before_second = 0;  // the same in the second lane
    int returned = 0;   // in a loop, before these: datums that were pushed, popped and sent back
    int pop_bound = 0;  // a pop makes at most so many accesses; 0: not asked
    u32 audit_every = 1;
    u32 progress_every = 4;
    bool slice = true;  // part of `make test`
};

std::unique_ptr<Model> make_channel_model(const ChannelConfig& config);

// The configurations of several lanes and of loops.
const std::vector<ChannelConfig>& lane_configs();

std::vector<Space> channel_spaces();

}  // namespace model
