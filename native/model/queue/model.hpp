// The queue under the explorer: small programs of puts and gets, and what must be true of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/space.hpp"

namespace model {

// One space to explore. A program is a list of words, one per operation:
//
//   put, put2        one attempt to put a message of 1, 2 granules; with ! until it is put (or closed, or fenced)
//   many2, many3     put_many of 2, 3 messages of one granule; many12: of 1 and 2 granules
//   get, get2        one attempt to take up to 1, 2 messages and to read them; with ! until there is one (or the end)
//   settle, back     settle, give back the oldest message held; nothing held: nothing happens
//   all              settle everything held
//   wput, wget       wait for room, for a message: listen to the bell, look, sleep
//   close            end of stream
//   recover          ask the kernel about everybody, and recover the dead
//   leave            (last word) go properly: the slot becomes free
//   @0               (first word) a fresh process that attaches in slot 0 when the kernel has released it
//
// A get asks the kernel about the processes that it waits for, a put about the process in its way. With - (get-!) they do
// not, as in production while spinning.
struct QueueConfig {
    std::string name = {};
    std::string about = {};
    int granules = 4;
    std::vector<std::string> programs = {};
    int crashes = 0;
    unsigned killable = ~0u;  // bit p: process p may die
    bool at_most_once = false;
    bool fencing = false;    // a stall limit of 0: whoever waits for a living writer fences it
    int deliveries_max = 0;  // 0: nothing is left aside
    bool spurious = false;
    bool timeouts = false;
    bool whole_blocks = false;  // a block is written in one access, not granule by granule
    bool caches_tail =
        false;  // a process keeps the tail that it saw for its next put, as it does in production
    StoreBuffers store_buffers = StoreBuffers::none;
    bool old_values = false;  // loads may see overwritten values
    // Old age. A queue that has gone round so often that something is about to wrap, or has:
    u64 first = 0;  // where its positions begin; 0: where those of a new queue do
    u64 stale_laps =
        0;  // every mark is so many laps old, and says something else than the blocks of now will
    u64 returns = 0;  // made so far, and scanned
    u32 bells = 0;    // what both bells show
    u32 audit_every = 16;
    u32 progress_every = 16;
    bool slice = true;  // part of `make test`
};

std::unique_ptr<Model> make_queue_model(const QueueConfig& config);

std::vector<Space> queue_spaces();

}  // namespace model
