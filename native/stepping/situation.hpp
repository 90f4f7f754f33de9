// The form in which a structure is plugged into the stepping: one situation per kind of operation.
//
// Each method says in which process it runs. All processes are forks of one controller, in which only constructors ran.
#pragma once

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace holdfast::stepping {

// How far the killed operation was, as the survivor found it.
enum class Outcome {
    not_begun,  // without effect
    recovered,  // in the middle of it: the survivor repaired something
    done,       // with its whole effect
};
inline constexpr const char* kOutcomeNames[] = {"not begun", "recovered", "done"};
inline constexpr std::size_t kOutcomes = 3;

// A process that repairs what the killed one left.
enum class Survivor {
    newcomer,   // it attaches after the kill
    bystander,  // it was attached before, and meets the dead one's blocks
};
inline constexpr const char* kSurvivorNames[] = {"newcomer", "bystander"};

// A third participant beside the traced process and the survivor.
enum class Third {
    none,
    dies_before,  // it is killed just before the operation begins
    dies_after,   // it is killed after the traced process
};

// The survivor found something that the structure does not allow.
struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Situation {
 public:
    virtual ~Situation() = default;

    virtual std::string name() const = 0;
    virtual Third third() const { return Third::none; }
    virtual bool has_bystander() const { return true; }

    // In a child of its own, once: creates the structure, with what it holds before the operation.
    virtual void prepare() {}
    // In the controller: the files whose bytes after prepare() are written back before every run.
    virtual std::vector<std::string> files() const { return {}; }
    // In the controller, before every run; without allocation, so that all runs have the same heap.
    virtual void reset() {}

    // In the controller, after the last run: removes what is left in the file system.
    virtual void clean() {}

    // In the third participant: attaches, and does that in the middle of which it is killed.
    virtual void be_third() {}

    // In the traced process, before the mark.
    virtual void ready() {}
    // In the traced process: the operation. False: it did not do what it must without a kill.
    virtual bool operate() = 0;

    // In the survivor: before the operation if it is a bystander, else after the kill.
    virtual void attach() {}
    // In the survivor: recovers by the public operations, and compares. `returned`: the kill came after the operation.
    // Afterwards nothing of this run is left in this process. Throws Wrong.
    virtual Outcome account(bool returned) = 0;
};

}  // namespace holdfast::stepping
