// Where a process can stand: a tree of local histories, interned.
//
// A node is a step's start (the root: process and local state) followed by the values observed since. It remembers the
// access that comes next. Moving on is one look-up of (node, observed value); only a pair that was never seen before
// runs the step's code. A retry loop that calls again() leads back to its root; a finished step leads to the root of
// the next one.
#pragma once

#include <unordered_map>
#include <vector>

#include "model/model.hpp"

namespace model {

class Nodes {
 public:
    struct Child {
        u32 node;
        bool completed;  // the step is over (and not merely begun anew)
    };

    explicit Nodes(Model& model) : model_(model), memory_(model.memory()) {
        children_.resize(std::size_t{1} << 12);
    }

    u32 root(int p, Local local);
    Child child(u32 node, u64 observed);

    const Access& access(u32 node) const { return nodes_[node].access; }
    u32 root_of(u32 node) const { return nodes_[node].root; }
    bool at_root(u32 node) const { return nodes_[node].root == node; }
    const Local& local(u32 node) const { return locals_[nodes_[nodes_[node].root].local]; }
    int process(u32 node) const { return nodes_[nodes_[node].root].process; }
    // The most accesses that an execution of a bounded step made; see Model::access_bound.
    int bounded_accesses() const { return bounded_accesses_; }
    std::size_t size() const { return nodes_.size(); }

 private:
    struct Node {
        Access access;
        u32 parent;
        u32 root;
        u32 local;  // of a root: index of its local state
        int process;
        u64 observed;
        int accesses;  // of this step, with the next one
    };
    struct Entry {
        u64 observed = 0;
        u32 node = kNone;
        u32 child = 0;  // bit 31: completed
    };
    static constexpr u32 kNone = 0xffffffffu;
    static constexpr u32 kCompleted = 0x80000000u;

    Child compute(u32 node, u64 observed);
    Entry& find(u32 node, u64 observed);
    void grow();
    void check_bound(u32 root, int accesses);
    [[noreturn]] void unbounded(u32 root, const std::string& text) const;

    Model& model_;
    ModelMemory& memory_;
    std::vector<Node> nodes_;
    std::vector<Local> locals_;
    std::unordered_map<std::string, u32> roots_;  // process and bytes of the local state
    std::vector<Entry> children_;
    std::size_t used_ = 0;
    std::vector<u64> history_;
    int bounded_accesses_ = 0;
};

}  // namespace model
