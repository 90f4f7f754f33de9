// The dispatcher's tables for Python, and the one pass over a list of messages that are acknowledged.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <limits>
#include <map>

#include "bindings/base/errors.hpp"
#include "bindings/entry/delivery.hpp"
#include "holdfast/dispatch/tables.hpp"
#include "holdfast/entry/key.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

using Pairs = std::vector<std::pair<u64, u64>>;

std::vector<Run> to_runs(const Pairs& pairs) {
    std::vector<Run> runs;
    runs.reserve(pairs.size());
    for (const auto& [first, end] : pairs) runs.push_back({first, end});
    return runs;
}

nb::list from_runs(const std::vector<Run>& runs) {
    nb::list out;
    for (const Run& run : runs) out.append(nb::make_tuple(run.first, run.end));
    return out;
}

// The messages of a batch that are still open, from an int.
struct OpenMask {
    u64 ordinal;
    std::vector<u64> words;

    u32 count() const {
        u32 total = 0;
        for (const u64 word : words) total += static_cast<u32>(std::popcount(word));
        return total;
    }
};

std::vector<u64> to_words(PyObject* number) {
    const std::size_t bits = _PyLong_NumBits(number);
    if (bits == static_cast<std::size_t>(-1) && PyErr_Occurred()) throw nb::python_error();
    std::vector<u64> words(bits / 64 + 1);
    if (_PyLong_AsByteArray(reinterpret_cast<PyLongObject*>(number),
                            reinterpret_cast<unsigned char*>(words.data()), words.size() * 8, 1,
                            0) < 0)
        throw nb::python_error();
    return words;
}

std::vector<OpenMask> to_masks(const nb::dict& open) {
    std::vector<OpenMask> masks;
    for (const auto& [ordinal, mask] : open) {
        if (!PyLong_Check(mask.ptr())) throw nb::type_error("a mask of open messages is an int");
        masks.push_back({nb::cast<u64>(ordinal), to_words(mask.ptr())});
    }
    std::sort(masks.begin(), masks.end(),
              [](const OpenMask& a, const OpenMask& b) { return a.ordinal < b.ordinal; });
    return masks;
}

struct TimesOfRun {
    const EntryRun& entries;
    i64 now_ms;
    i64 at_ms(u32 i) const { return entries.deliver_at_ms(i); }
    ChunkPart part(u32 i) const { return entries.part(i); }
};

// One run to whom it belongs: [(consumer, Batch)].
nb::list hand(Dispatch& table, const EntryRun& entries, const Pairs& acked, const nb::dict& open,
              const nb::object& asked, u64 now_ns, u64 reset_number, const nb::object& topic,
              i64 now_ms) {
    const std::vector<Run> skip = to_runs(acked);
    const std::vector<OpenMask> masks = to_masks(open);
    std::vector<LeftOfBatch> left;
    for (const OpenMask& mask : masks) left.push_back({mask.ordinal, mask.count()});
    std::vector<Run> only;
    if (!asked.is_none()) only = to_runs(nb::cast<Pairs>(asked));
    const u64 first = entries.first_ordinal();
    const auto handed = table.hand(
        first, static_cast<u32>(entries.count()), [&](u32 i) { return entries.messages(i); },
        [&](u32 i) { return sticky_hash(entries.bytes(i)); }, skip, left,
        asked.is_none() ? nullptr : &only, now_ns, TimesOfRun{entries, now_ms});
    nb::list out;
    for (const Handed& each : handed) {
        Handover handover(entries, reset_number);
        handover.reserve(each.indices.size());
        std::size_t mask = 0;
        for (std::size_t i = 0; i < each.indices.size(); ++i) {
            const u64 ordinal = first + each.indices[i];
            while (mask < masks.size() && masks[mask].ordinal < ordinal) ++mask;
            if (mask < masks.size() && masks[mask].ordinal == ordinal)
                handover.add(each.indices[i], each.counts[i], masks[mask].words);
            else
                handover.add(each.indices[i], each.counts[i]);
        }
        PyObject* batch = batch_new(std::move(handover), topic.ptr());
        if (batch == nullptr) throw nb::python_error();
        out.append(nb::make_tuple(each.consumer, nb::steal(batch)));
    }
    return out;
}

nb::tuple consumer(const Dispatch& table, u64 id) {
    const DispatchConsumer& each = table.consumer(id);
    return nb::make_tuple(id, each.permits, each.pending.entries, each.pending.messages,
                          each.delivered_entries, each.delivered_messages, each.redelivered_entries,
                          each.paused);
}

nb::list consumers(const Dispatch& table) {
    nb::list out;
    for (const u64 id : table.ids()) out.append(consumer(table, id));
    return out;
}

// -- acknowledged messages -------------------------------------------------------------------------

// Of a batch that is acknowledged message by message.
struct Part {
    u32 size = 0;
    std::vector<u64> acked;
};

class AckGroups {
 public:
    explicit AckGroups(u64 reset_number) : reset_number_(reset_number) {}

    void add(const TopicMessageObject* message) {
        if (message->batch->handover.reset_number() != reset_number_) {
            ++outdated_;
            return;
        }
        const u64 ordinal = message->ordinal();
        const auto index = message->place.batch_index;
        const u32 size = message->slot().messages;
        if (index < 0 || size < 2) {
            whole_.push_back(ordinal);
            return;
        }
        Part& part = parts_[ordinal];
        part.size = size;
        part.acked.resize(size / 64 + 1);
        part.acked[static_cast<u32>(index) / 64] |= u64{1} << (static_cast<u32>(index) % 64);
    }

    void add(const BatchObject* batch) {
        const Handover& handover = batch->handover;
        const bool old = handover.reset_number() != reset_number_;
        for (const HandoverItem& item : handover.items()) {
            if (old)
                ++outdated_;
            else
                whole_.push_back(handover.ordinal(item));
        }
    }

    nb::tuple answer() {
        nb::list parts;
        for (const auto& [ordinal, part] : parts_) {
            u32 acked = 0;
            for (const u64 word : part.acked) acked += static_cast<u32>(std::popcount(word));
            if (acked == part.size) {
                whole_.push_back(ordinal);
                continue;
            }
            PyObject* mask =
                _PyLong_FromByteArray(reinterpret_cast<const unsigned char*>(part.acked.data()),
                                      part.acked.size() * 8, 1, 0);
            if (mask == nullptr) throw nb::python_error();
            parts.append(nb::make_tuple(ordinal, part.size, nb::steal(mask)));
        }
        if (!std::is_sorted(whole_.begin(), whole_.end())) std::sort(whole_.begin(), whole_.end());
        std::vector<Run> runs;
        for (const u64 ordinal : whole_) {
            if (!runs.empty() && runs.back().end >= ordinal)
                runs.back().end = std::max(runs.back().end, ordinal + 1);
            else
                runs.push_back({ordinal, ordinal + 1});
        }
        return nb::make_tuple(from_runs(runs), parts, outdated_);
    }

 private:
    u64 reset_number_;
    std::vector<u64> whole_;
    std::map<u64, Part> parts_;
    u64 outdated_ = 0;
};

// (ranges of whole entries, [(ordinal, batch size, mask of what is acknowledged)], messages of another reset number)
nb::tuple group_acks(const nb::object& messages, u64 reset_number) {
    AckGroups groups(reset_number);
    if (Py_IS_TYPE(messages.ptr(), &BatchType)) {
        groups.add(reinterpret_cast<BatchObject*>(messages.ptr()));
        return groups.answer();
    }
    PyObject* items =
        PySequence_Fast(messages.ptr(), "ack needs a Batch or a sequence of messages");
    if (items == nullptr) throw nb::python_error();
    const nb::object keep = nb::steal(items);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items); ++i) {
        PyObject* item = PySequence_Fast_GET_ITEM(items, i);
        if (!Py_IS_TYPE(item, &TopicMessageType))
            throw nb::type_error("only messages of a topic can be acknowledged");
        groups.add(reinterpret_cast<TopicMessageObject*>(item));
    }
    return groups.answer();
}

void bind_giving_back(nb::class_<Dispatch>& table) {
    table.def("redeliver_all", [](Dispatch& self, u64 id) { return self.redeliver_all(id); })
        .def("redeliver",
             [](Dispatch& self, u64 id, const std::vector<u64>& ordinals) {
                 return self.redeliver(id, ordinals);
             })
        .def("nack",
             [](Dispatch& self, u64 id, const std::vector<u64>& ordinals, u64 first_ns,
                double factor, u64 most_ns, u64 now_ns) {
                 return self.nack(id, ordinals, {first_ns, factor, most_ns}, now_ns);
             })
        .def("expire", &Dispatch::expire)
        .def("oldest_ns", &Dispatch::oldest_ns)
        .def("take_due", &Dispatch::take_due)
        .def_prop_ro("next_due", &Dispatch::next_due)
        .def("take_scheduled", &Dispatch::take_scheduled, nb::arg(), nb::arg() = ~u64{0})
        .def_prop_ro("next_scheduled", &Dispatch::next_scheduled)
        .def("take_replay",
             [](Dispatch& self, u64 count_max, u64 gap_max) {
                 return from_runs(self.take_replay(count_max, gap_max));
             })
        .def("put_back", [](Dispatch& self, const Pairs& runs) { self.put_back(to_runs(runs)); })
        .def("come_back", [](Dispatch& self, const Pairs& runs) { self.come_back(to_runs(runs)); });
}

void bind_positions(nb::class_<Dispatch>& table) {
    table.def("release", &Dispatch::release)
        .def("release_many",
             [](Dispatch& self, const Pairs& ranges) {
                 u64 released = 0;
                 for (const auto& [first, end] : ranges) released += self.release(first, end);
                 return released;
             })
        .def("shrink", &Dispatch::shrink)
        .def("rewind", &Dispatch::rewind)
        .def("reset", &Dispatch::reset)
        .def_prop_rw("position", &Dispatch::position, &Dispatch::set_position)
        .def("set_halted", &Dispatch::set_halted)
        .def("expect",
             [](Dispatch& self, u64 first, u64 end) { self.undelivered().insert(first, end); })
        .def("undelivered",
             [](const Dispatch& self, u64 at) { return self.undelivered().contains(at); })
        .def("undelivered_ranges",
             [](const Dispatch& self) { return from_runs(self.undelivered().list()); })
        .def("keep_undelivered",
             [](Dispatch& self, const Pairs& ranges) { self.undelivered().keep(to_runs(ranges)); })
        .def("delivered_of", [](const Dispatch& self, const Pairs& ranges) {
            std::vector<Run> kept;
            const u64 filtered = self.undelivered().without(to_runs(ranges), kept);
            return nb::make_tuple(from_runs(kept), filtered);
        });
}

void bind_looking(nb::class_<Dispatch>& table) {
    table.def("consumers", &consumers)
        .def("consumer", &consumer)
        .def_prop_ro("active", &Dispatch::active)
        .def_prop_ro("wanted", &Dispatch::wanted)
        .def_prop_ro("wanted_entries", &Dispatch::wanted_entries)
        .def_prop_ro("pending_entries", &Dispatch::pending_entries)
        .def_prop_ro("delayed_entries", &Dispatch::delayed_entries)
        .def_prop_ro("scheduled_entries",
                     [](const Dispatch& self) { return self.schedule().size(); })
        .def_prop_ro("scheduled_bytes",
                     [](const Dispatch& self) { return self.schedule().memory(); })
        .def_prop_ro("counted_entries", &Dispatch::counted_entries)
        .def_prop_ro("counts_risen", &Dispatch::counts_risen)
        .def_prop_ro("filtered_entries", &Dispatch::filtered_entries)
        .def_prop_ro("replay_entries", &Dispatch::replay_entries)
        .def_prop_ro("to_replay", &Dispatch::to_replay)
        .def_prop_ro("replay_first", &Dispatch::replay_first)
        .def_prop_ro("undelivered_entries",
                     [](const Dispatch& self) { return self.undelivered().size(); })
        .def("held", [](const Dispatch& self) { return from_runs(self.held()); })
        .def("counts", &Dispatch::counts)
        .def_prop_ro("reach", &Dispatch::reach)
        .def("next_free", &Dispatch::next_free)
        .def("is_scheduled",
             [](const Dispatch& self, u64 ordinal) { return self.schedule().contains(ordinal); })
        .def("count_of", &Dispatch::count_of)
        .def("set_count", &Dispatch::set_count)
        .def("holder_of", &Dispatch::holder_of)
        .def("check", &Dispatch::check);
}

// -- keys --------------------------------------------------------------------------------------------

using Ranges = std::vector<std::tuple<u32, u32, u32>>;

nb::list split(const std::vector<std::string>& names) {
    nb::list out;
    for (const KeyRange& each : split_keys(names))
        out.append(nb::make_tuple(each.first, each.last, each.seat));
    return out;
}

// `seats`: of each consumer its id here (0: it is elsewhere) and whether it may have permits.
void assign(Dispatch& table, const Ranges& given, const std::vector<std::pair<u64, bool>>& seated) {
    std::vector<KeyRange> ranges;
    for (const auto& [first, last, seat] : given) ranges.push_back({first, last, seat});
    std::vector<KeySeat> seats;
    for (const auto& [consumer, open] : seated) {
        seats.emplace_back();
        seats.back().consumer = consumer;
        seats.back().open = open;
    }
    table.assign(std::move(ranges), std::move(seats));
}

// Hashes of the entries that consumers hold or that wait for their time, as `held` lists them.
nb::bytes held_hashes(const Dispatch& table) {
    std::string out;
    const KeyTable* keys = table.keys();
    if (keys != nullptr)
        for (const Run& run : table.held())
            for (u64 ordinal = run.first; ordinal < run.end; ++ordinal) {
                const u32 hash = keys->hash_of(ordinal);
                out += static_cast<char>(hash & 0xff);
                out += static_cast<char>(hash >> 8);
            }
    return nb::bytes(out.data(), out.size());
}

// (hash, entries, how often others waited, id of the holder, seat that waits)
nb::list draining(const Dispatch& table) {
    nb::list out;
    if (table.keys() == nullptr) return out;
    for (const Draining& each : table.keys()->draining()) {
        const nb::object seat =
            each.seat == kNoNode ? nb::object(nb::none()) : nb::object(nb::int_(each.seat));
        out.append(
            nb::make_tuple(each.hash, each.entries, each.blocked, table.id_in(each.holder), seat));
    }
    return out;
}

// Of the seats elsewhere that may have permits: the indexes of those for which entries are ready.
nb::list due_elsewhere(const Dispatch& table) {
    nb::list out;
    if (table.keys() == nullptr) return out;
    const std::vector<KeySeat>& seats = table.keys()->seats();
    for (std::size_t i = 0; i < seats.size(); ++i)
        if (seats[i].slot == kNoNode && seats[i].open && !seats[i].ready.empty()) out.append(i);
    return out;
}

void bind_keys(nb::class_<Dispatch>& table) {
    table.def_prop_ro("keyed", [](const Dispatch& self) { return self.keys() != nullptr; })
        .def("set_keyed", &Dispatch::set_keyed)
        .def("assign", &assign)
        .def("draining", &draining)
        .def("drained", [](const Dispatch& self, u64 id) { return self.consumer(id).drained; })
        .def("held_hashes", &held_hashes)
        .def("may_take", &Dispatch::may_take_of)
        .def("set_away",
             [](Dispatch& self, const Pairs& ranges, const nb::bytes& hashes) {
                 self.set_away(to_runs(ranges),
                               {reinterpret_cast<const u8*>(hashes.c_str()), hashes.size()});
             })
        .def("due_elsewhere", &due_elsewhere)
        .def_prop_ro("ahead_left", &Dispatch::ahead_left)
        .def("set_ahead_max", &Dispatch::set_ahead_max);
}

}  // namespace

void bind_dispatch(nb::module_& module) {
    nb::class_<Dispatch> table(module, "Dispatch");
    table
        .def(
            "__init__",
            [](Dispatch* self, u32 turn_entries) {
                new (self) Dispatch(DispatchMode::shared, turn_entries);
            },
            nb::arg("turn_entries") = 20)
        .def_prop_rw(
            "single", [](const Dispatch& self) { return self.mode() == DispatchMode::single; },
            [](Dispatch& self, bool single) {
                self.set_mode(single ? DispatchMode::single : DispatchMode::shared);
            })
        .def_prop_rw("unacked_max", &Dispatch::unacked_max, &Dispatch::set_unacked_max)
        .def_prop_rw("held_max", &Dispatch::held_max, &Dispatch::set_held_max)
        .def_prop_ro("held_messages", &Dispatch::held_messages)
        .def("add", &Dispatch::add)
        .def("remove", &Dispatch::remove, nb::arg("consumer"), nb::arg("counted") = true)
        .def("flow", &Dispatch::flow)
        .def("grant", &Dispatch::grant)
        .def("forgive", &Dispatch::forgive)
        .def("pause", &Dispatch::pause)
        .def("hand", &hand, nb::arg("entries"), nb::arg("acked"), nb::arg("open"),
             nb::arg("asked").none(), nb::arg("now_ns"), nb::arg("reset_number"),
             nb::arg("topic").none(), nb::arg("now_ms") = std::numeric_limits<i64>::max());
    bind_giving_back(table);
    bind_positions(table);
    bind_looking(table);
    bind_keys(table);
    module.def("split_keys", &split);
    module.def("key_hash", [](const nb::bytes& key) {
        return key_hash(std::string_view(key.c_str(), key.size()));
    });
    module.def("group_acks", &group_acks, nb::arg("messages"), nb::arg("reset_number"));
}

}  // namespace holdfast::bindings
