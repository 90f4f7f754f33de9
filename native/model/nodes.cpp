#include "model/nodes.hpp"

#include <algorithm>
#include <bit>

namespace model {

namespace {
// A fence is not an access to anything.
int counts(const Access& access) {
    return access.kind != Kind::finished && access.kind != Kind::fence ? 1 : 0;
}
}  // namespace

u32 Nodes::root(int p, Local local) {
    for (int turns = 0;; ++turns) {  // steps without any shared access are done on the spot
        if (turns > 1000) throw std::logic_error("a program that never touches shared state again");
        std::string key(reinterpret_cast<const char*>(local.bytes.data()), Local::kSize);
        key.push_back(static_cast<char>(p));
        auto [found, added] = roots_.try_emplace(key, static_cast<u32>(nodes_.size()));
        if (!added) return found->second;
        const u32 id = found->second;
        Local after = local;
        history_.clear();
        memory_.replay(history_);
        Access access;
        bool over = false;
        try {
            over = !model_.step(p, after, memory_);
            access.kind = Kind::finished;
        } catch (const ModelMemory::Pending& pending) {
            access = pending.access;
            over = true;
        }
        if (!over) {
            roots_.erase(key);
            local = after;
            continue;
        }
        nodes_.push_back({access, id, id, static_cast<u32>(locals_.size()), p, 0, counts(access)});
        locals_.push_back(local);
        check_bound(id, counts(access));
        return id;
    }
}

Nodes::Child Nodes::child(u32 node, u64 observed) {
    Entry* entry = &find(node, observed);
    if (entry->node == kNone) {
        Child child = compute(node, observed);
        if (++used_ * 2 > children_.size()) grow();
        entry = &find(node, observed);
        *entry = {observed, node, child.node | (child.completed ? kCompleted : 0)};
    }
    return {entry->child & ~kCompleted, (entry->child & kCompleted) != 0};
}

Nodes::Child Nodes::compute(u32 node, u64 observed) {
    const u32 root_id = nodes_[node].root;
    const int p = nodes_[root_id].process;
    history_.assign(1, observed);
    for (u32 at = node; at != root_id; at = nodes_[at].parent)
        history_.push_back(nodes_[at].observed);
    std::reverse(history_.begin(), history_.end());
    Local after = locals_[nodes_[root_id].local];
    memory_.replay(history_);
    try {
        model_.step(p, after, memory_);
    } catch (const ModelMemory::Pending& pending) {
        const int accesses = nodes_[node].accesses + counts(pending.access);
        check_bound(root_id, accesses);
        nodes_.push_back({pending.access, node, root_id, 0, p, observed, accesses});
        return {static_cast<u32>(nodes_.size() - 1), false};
    } catch (const ModelMemory::Restart&) {
        if (model_.access_bound(p, local(root_id)) != 0)
            unbounded(root_id, "begins anew, after another process got on");
        return {root_id, false};
    }
    return {root(p, after), true};
}

void Nodes::check_bound(u32 root, int accesses) {
    const int bound = model_.access_bound(process(root), local(root));
    if (bound == 0) return;
    if (accesses > bound) unbounded(root, text_of("makes more than ", bound, " accesses"));
    bounded_accesses_ = std::max(bounded_accesses_, accesses);
}

void Nodes::unbounded(u32 root, const std::string& text) const {
    const int p = process(root);
    throw Violation("bound", text_of("p", p, " [", model_.step_name(p, local(root)), "] ", text));
}

Nodes::Entry& Nodes::find(u32 node, u64 observed) {
    std::size_t at = scramble(observed + u64{node} * 0x9E3779B97F4A7C15u) & (children_.size() - 1);
    while (children_[at].node != kNone &&
           !(children_[at].node == node && children_[at].observed == observed)) {
        at = (at + 1) & (children_.size() - 1);
    }
    return children_[at];
}

void Nodes::grow() {
    std::vector<Entry> old(children_.size() * 2);
    old.swap(children_);
    for (const Entry& entry : old) {
        if (entry.node != kNone) find(entry.node, entry.observed) = entry;
    }
}

}  // namespace model
