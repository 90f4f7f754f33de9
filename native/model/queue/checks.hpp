// The invariants of the queue, checked from outside after every access (I1 to I6 of docs/guide/queue.md).
#pragma once

#include "holdfast/queue/check.hpp"
#include "model/queue/setting.hpp"

namespace model {

class QueueChecks {
 public:
    explicit QueueChecks(const QueueSetting& setting)
        : setting_(setting), geometry_(setting.geometry) {}

    void after(const Runner& runner, const State& before, const State& now, int p,
               const Access& access, bool completed) const {
        words(before, now, access.cell);
        if (access.kind == Kind::plain_write) writer(before, p, access);
        if (p == setting_.processes()) return;
        owners(runner, now);
        if (completed) {
            delivery(runner, before, now, p);
            end(runner, before, now, p);
        }
    }

    // I6, in a state without operations under way: a RETRY behind R is announced. Excepted are the dead whose own
    // announcement may be missing: one that died while giving back, and a recoverer, which takes a second death.
    void returns(const Runner& runner, const State& s) const {
        if (setting_.config.deliveries_max != 0) return;
        if (runner.rules().crashes - s.crashes_left > 1) return;
        for (int p = 0; p < setting_.processes(); ++p) {
            const Operation* last = setting_.operation(p, runner.local(s, p).as<Ghost>());
            if (!runner.alive(s, p) && last != nullptr && last->op == Op::back) return;
        }
        if (QueueSetting::value(s, setting_.made) != QueueSetting::value(s, setting_.scanned))
            return;
        const u64 read = unsealed(QueueSetting::value(s, setting_.read));
        u64 position = unsealed(QueueSetting::value(s, setting_.tail));
        while (position < read) {
            const u64 word = setting_.descriptor(s, position);
            if (Geometry::state(word) == Block::retry) {
                throw Violation(
                    "I6", text_of("a returned block at ", position, " that no process looks for"));
            }
            position += geometry_.length(word);
        }
    }

    // The stream is closed, and everything before its end is settled or skipped.
    bool at_end(const State& s) const {
        for (u64 position = unsealed(QueueSetting::value(s, setting_.tail));;) {
            const u64 word = setting_.descriptor(s, position);
            const Block state = Geometry::state(word);
            if (geometry_.tag(word, position) != Tag::current) return false;
            if (state == Block::end) return true;
            if (state != Block::done && state != Block::skip) return false;
            position += geometry_.length(word);
        }
    }

 private:
    // I1 to I3: tags and positions never go back, the end stays, and the chain of blocks is whole.
    void words(const State& before, const State& now, int cell) const {
        const u64 old = QueueSetting::value(before, cell), fresh = QueueSetting::value(now, cell);
        if (old == fresh) return;
        const std::string& name = setting_.world->info(cell).name;
        if (cell == setting_.head || cell == setting_.read || cell == setting_.tail) {
            if (unsealed(fresh) < unsealed(old)) throw Violation("I2", text_of(name, " went back"));
        } else if (cell < setting_.config.granules) {
            if (setting_.lap(fresh) < setting_.lap(old))
                throw Violation("I1", text_of("the tag of ", name, " decreased"));
            if (setting_.lap(old) != 0 && Geometry::state(old) == Block::end) {
                throw Violation("end", "the end of the stream was overwritten");
            }
        } else {
            return;
        }
        StateMemory memory(*setting_.world, now);
        QueueState<StateMemory> q(memory, geometry_, setting_.world->base(), 0, setting_.delivery(),
                                  kNoStallLimit);
        Survey found;
        const bool through = survey_once(q, found, [](u64, u64) {});
        if (!through) throw Violation("survey", "the chain of blocks is a lap ahead of the tail");
        if (!found.sound())
            throw Violation("survey", text_of(found.fault.what, " at ", found.fault.position));
    }

    // I4: bytes are written only into a block that is RESERVED for, or was FENCED while written by, the writer.
    void writer(const State& before, int p, const Access& access) const {
        const u64 first = static_cast<u64>(access.cell - setting_.first_granule);
        for (u64 granule = first; granule < first + access.count; ++granule) {
            bool allowed = false;
            for (u64 i = 0; i <= granule; ++i) {
                const u64 word = setting_.descriptor(before, i);
                const Block state = Geometry::state(word);
                allowed |= (state == Block::reserved || state == Block::fenced) &&
                           Geometry::owner(word) == setting_.slot(p) &&
                           i + geometry_.length(word) > granule;
            }
            if (!allowed)
                throw Violation("I4",
                                text_of("ring[", granule,
                                        "] is written by a process that has not reserved it"));
        }
    }

    // I5: a message that a living process holds is TAKEN by that process alone.
    void owners(const Runner& runner, const State& s) const {
        for (int p = 0; p < setting_.processes(); ++p) {
            if (!runner.alive(s, p)) continue;
            const u32 node = s.process[static_cast<std::size_t>(p)].node;
            const Ghost ghost = runner.nodes().local(node).as<Ghost>();
            const bool begun = !runner.nodes().at_root(node);
            for (int i = 0; i < ghost.held_count; ++i) {
                if (i == 0 && begun && setting_.releasing(p, ghost)) continue;
                const Taken taken = setting_.taken_of(ghost.at(i), setting_.slot(p));
                const u64 word = setting_.descriptor(s, taken.position);
                if (word == taken.word) continue;
                throw Violation("I5", text_of("p", p, " holds the block at ", taken.position,
                                              ", which is ", setting_.descriptor_text(word)));
            }
        }
    }

    // A step of p is complete: was something delivered, and could it be?
    void delivery(const Runner& runner, const State& before, const State& now, int p) const {
        const Ghost old = runner.local(before, p).as<Ghost>();
        const Ghost fresh = runner.local(now, p).as<Ghost>();
        if (old.delivered == fresh.delivered) return;
        int which = 0;
        while (old.at(which).known) ++which;
        const u32 redelivered = old.at(which).id, id = fresh.at(which).id;
        u32 earlier = old.deliveries(id);
        for (int q = 0; q < setting_.processes(); ++q) {
            if (q != p) earlier += runner.local(now, q).as<Ghost>().deliveries(id);
        }
        if (earlier > redelivered) {
            throw Violation("count", text_of("message #", id, " was delivered ", earlier,
                                             " times before, its count says ", redelivered));
        }
        // Each death may have ended a delivery that the dead one had not read yet; nothing else is counted.
        const u32 deaths = static_cast<u32>(runner.rules().crashes - now.crashes_left);
        if (redelivered > earlier + deaths) {
            throw Violation("count", text_of("message #", id, " was delivered ", earlier,
                                             " times before, its count says ", redelivered,
                                             " after ", deaths, " deaths"));
        }
        if (setting_.config.at_most_once && earlier > 0) {
            throw Violation("at-most-once",
                            text_of("message #", id, " is delivered a second time"));
        }
    }

    // A get that looked at the living and the dead said "closed": nothing can come any more, except what it holds itself.
    void end(const Runner& runner, const State& before, const State& now, int p) const {
        if (runner.local(before, p).as<Ghost>().saw_end ||
            !runner.local(now, p).as<Ghost>().saw_end)
            return;
        for (u64 position = unsealed(QueueSetting::value(now, setting_.tail));;) {
            const u64 word = setting_.descriptor(now, position);
            const Block state = Geometry::state(word);
            if (geometry_.tag(word, position) != Tag::current || state == Block::end) return;
            const bool mine = state == Block::taken && Geometry::owner(word) == setting_.slot(p);
            if (!mine && state != Block::done && state != Block::skip && state != Block::fenced) {
                throw Violation("end",
                                text_of("a get said that the stream is over, but the block at ",
                                        position, " is ", setting_.descriptor_text(word)));
            }
            position += geometry_.length(word);
        }
    }

    const QueueSetting& setting_;
    const Geometry& geometry_;
};

}  // namespace model
