// Looks at a whole queue without touching it: what it holds, and whether it can be what it says.
//
// The explorer calls this after every step, `Queue.check()` and `holdfast doctor` on real segments. On a queue that others
// are using, a survey may be overtaken; it then starts anew, and says so if it never got through.
#pragma once

#include "holdfast/queue/state.hpp"

namespace holdfast {

struct Survey {
    u64 head = 0, read = 0, tail = 0;
    u64 end = 0;          // where the chain of blocks ends: the true head
    bool closed = false;  // the chain ends in END
    bool overtaken = false;
    u64 blocks[8] = {};    // by State
    u64 granules[8] = {};  // by State
    Fault fault{};         // what is impossible, if anything

    bool sound() const { return fault.what == nullptr; }
};

// One attempt. `visit(position, word)` sees every block from the tail on. False: overtaken.
template <class Memory, class Visit>
bool survey_once(QueueState<Memory>& q, Survey& survey, Visit&& visit) {
    survey = {};
    const Geometry& geometry = q.geometry;
    auto fault = [&](const char* what, u64 position, u64 value) {
        survey.fault = {what, position, value};
        return true;
    };
    // T first: what is read later can only have moved on.
    for (auto [word, out] : {std::pair{q.words.tail, &survey.tail},
                             {q.words.read, &survey.read},
                             {q.words.head, &survey.head}})
        if (!q.load_position(word, *out))
            return fault(q.fault.what, q.fault.position, q.fault.value);
    bool met_read = false, met_head = survey.head < survey.tail;
    u64 position = survey.tail;
    for (;;) {
        const LoadedBlock block = q.load_block({q.words.tail, survey.tail}, position);
        survey.end = position;
        if (block.look == Look::moved) return false;
        if (block.look == Look::corrupt)
            return fault(q.fault.what, q.fault.position, q.fault.value);
        met_read |= position == survey.read;
        met_head |= position == survey.head;
        if (block.look == Look::nothing) break;
        if (block.state == State::end) {
            survey.closed = true;
            break;
        }
        if (block.end() - survey.tail > geometry.granules()) {
            u64 tail;
            if (q.load_position(q.words.tail, tail) && tail != survey.tail) return false;
            return fault("more blocks than the ring holds (I2)", position, block.word);
        }
        if (position < survey.read && block.awaits_first_taker())
            return fault("a block that was never taken, before the read position (I7)", position,
                         block.word);
        ++survey.blocks[static_cast<u32>(block.state)];
        survey.granules[static_cast<u32>(block.state)] += block.length;
        visit(position, block.word);
        position = block.end();
    }
    u64 tail;
    if (!q.load_position(q.words.tail, tail))
        return fault(q.fault.what, q.fault.position, q.fault.value);
    if (survey.read < survey.tail)
        return fault("read position before the tail (I2)", survey.read, survey.tail);
    bool moved = tail != survey.tail;
    if (!met_read)
        return moved ? false : fault("read position between blocks (I3)", survey.read, survey.end);
    if (!met_head)
        return moved ? false : fault("head between blocks (I3)", survey.head, survey.end);
    return true;
}

// `begin()` is called before each attempt: what `visit` saw in an earlier one is void.
template <class Memory, class Begin, class Visit>
Survey survey(QueueState<Memory>& q, Begin&& begin, Visit&& visit) {
    Survey result;
    for (int attempt = 0; attempt < 64; ++attempt) {
        begin();
        if (survey_once(q, result, visit)) return result;
    }
    result.overtaken = true;
    return result;
}

}  // namespace holdfast
