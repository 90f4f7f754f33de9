// The log and its rounds. See holdfast/log/log.hpp.
#include "bindings/log/log.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings/base/records.hpp"
#include "holdfast/base/file_header.hpp"
#include "holdfast/log/log.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

Record applied_record;

Bytes view_of(const nb::bytes& bytes) {
    return {reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()};
}

PyObject* describe(const Published& each, const u32* duplicates) {
    PyObject* known = Py_None;
    if (each.duplicates > 0) {
        known = PyList_New(each.duplicates);
        if (known == nullptr) return nullptr;
        for (u32 i = 0; i < each.duplicates; ++i)
            PyList_SET_ITEM(known, i, PyLong_FromUnsignedLong(duplicates[i]));
    } else {
        Py_INCREF(known);
    }
    return tuple_of(each.event, static_cast<u64>(each.code), each.ledger, each.entry, each.ordinal,
                    each.count, Steal{known});
}

nb::object describe(const Applied& applied) {
    Row row(applied_record);
    row.add(number(applied.first_d));
    row.add(number(applied.last_d));
    const u32* duplicates = applied.duplicates.data();
    row.add(list_of(applied.published, [&](const Published& each) {
        const u32* mine = duplicates;
        duplicates += each.duplicates;
        return describe(each, mine);
    }));
    row.add(list_of(applied.opened, [](const Opened& each) {
        return tuple_of(each.topic, each.ledger, each.first_ordinal);
    }));
    row.add(list_of(applied.tails, [](const Tail& each) {
        return tuple_of(each.topic, each.end_ordinal, each.ledger, each.first_ordinal, each.entries,
                        each.size, each.time);
    }));
    return row.take();
}

// A round for a writer without a thread. Its memory goes back to the log with it.
class RoundObject {
 public:
    RoundObject(std::shared_ptr<RoundQueue> queue, Round round)
        : queue_(std::move(queue)), round_(std::move(round)) {}
    RoundObject(RoundObject&&) = default;
    ~RoundObject() {
        if (queue_ == nullptr) return;
        queue_->discount(round_);
        queue_->give_back(round_);
    }

    u64 first_d() const { return round_.first_d(); }
    u64 last_d() const { return round_.last_d(); }
    u64 settled_d() const { return round_.settled_d(); }
    bool urgent() const { return round_.urgent(); }

    // The whole round, padded; nothing if it holds no frame.
    nb::bytes journal(u64 previous_d, u64 stable_view, u64 stable_index, u64 synced_d,
                      u64 salt) const {
        if (!round_.journaled()) return nb::bytes("", 0);
        const RoundHeader header =
            round_.header(previous_d, stable_view, stable_index, synced_d, salt);
        const u64 space = round_space(round_.journal_bytes());
        PyObject* out = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(space));
        if (out == nullptr) throw nb::python_error();
        char* at = PyBytes_AS_STRING(out);
        char* end = at + space;
        std::memcpy(at, &header, sizeof header);
        at += sizeof header;
        for (const auto& portion : round_.portions()) {
            for (const Chunk& chunk : portion->journal().chunks()) {
                std::memcpy(at, chunk.memory.get(), chunk.used);
                at += chunk.used;
            }
        }
        std::memset(at, 0, static_cast<std::size_t>(end - at));
        return nb::steal<nb::bytes>(out);
    }

    nb::list writes() const {
        nb::list out;
        for (const LedgerWrite& each : round_.writes()) {
            std::string data, index;
            data.reserve(each.size);
            index.reserve(each.count * sizeof(u64));
            for (std::size_t i = each.begin; i < each.end; ++i) {
                const LedgerRun& run = round_.runs()[i];
                data.append(reinterpret_cast<const char*>(run.data), run.size);
                index.append(reinterpret_cast<const char*>(run.index), run.count * sizeof(u64));
            }
            out.append(nb::make_tuple(each.ledger, each.offset, nb::bytes(data.data(), data.size()),
                                      each.index_offset(), nb::bytes(index.data(), index.size())));
        }
        return out;
    }

 private:
    std::shared_ptr<RoundQueue> queue_;
    Round round_;
};

nb::object next_event(LogObject& self) {
    const auto event = self.log.step();
    if (!event) return nb::none();
    PyObject* body = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(event->body.data()),
                                               static_cast<Py_ssize_t>(event->body.size()));
    if (body == nullptr) throw nb::python_error();
    PyObject* out = tuple_of(event->kind, event->version, Steal{body});
    if (out == nullptr) throw nb::python_error();
    return nb::steal(out);
}

// Topic, code, the new entries, and the indexes of the duplicates.
nb::tuple judge(LogObject& self) {
    const Judged judged = self.log.judge();
    nb::list fresh;
    for (const Bytes& entry : judged.fresh)
        fresh.append(nb::bytes(reinterpret_cast<const char*>(entry.data()), entry.size()));
    return nb::make_tuple(judged.topic, static_cast<u64>(judged.code), fresh, judged.duplicates);
}

nb::tuple append(LogObject& self, u64 topic, const nb::sequence& entries) {
    std::vector<nb::bytes> keep;
    std::vector<Bytes> views;
    for (nb::handle each : entries) {
        if (!PyBytes_Check(each.ptr())) throw nb::type_error("entries are bytes");
        keep.push_back(nb::borrow<nb::bytes>(each));
        views.push_back(view_of(keep.back()));
    }
    const Place place = self.log.append(topic, views);
    return nb::make_tuple(place.ledger, place.entry, place.ordinal);
}

nb::bytes ledger_header(u32 kind, u64 ledger, const nb::bytes& incarnation) {
    if (kind != static_cast<u32>(FileKind::ledger_data) &&
        kind != static_cast<u32>(FileKind::ledger_index))
        throw Error(Code::misuse, "a ledger's file is of kind 2 (data) or 3 (index), not " +
                                      std::to_string(kind));
    const FileHeader header =
        make_file_header(static_cast<FileKind>(kind), ledger, incarnation_of(incarnation));
    return nb::bytes(reinterpret_cast<const char*>(&header), sizeof header);
}

void bind_rounds(nb::module_& module) {
    nb::class_<RoundObject>(module, "Round")
        .def_prop_ro("first_d", &RoundObject::first_d)
        .def_prop_ro("last_d", &RoundObject::last_d)
        .def_prop_ro("settled_d", &RoundObject::settled_d)
        .def_prop_ro("urgent", &RoundObject::urgent)
        .def("journal", &RoundObject::journal, nb::arg("previous_d"), nb::arg("stable_view"),
             nb::arg("stable_index"), nb::arg("synced_d"), nb::arg("salt"))
        .def_prop_ro("writes", &RoundObject::writes);
}

void bind_topics(nb::class_<LogObject>& type) {
    type.def(
            "add_topic",
            [](LogObject& self, u64 topic, u64 next_ordinal, bool deduplicate) {
                self.log.topics().add(topic, next_ordinal, deduplicate);
            },
            nb::arg("topic"), nb::arg("next_ordinal") = 0, nb::arg("deduplicate") = false)
        .def(
            "remove_topic", [](LogObject& self, u64 topic) { self.log.topics().remove(topic); },
            nb::arg("topic"))
        .def(
            "set_topic",
            [](LogObject& self, u64 topic_id, std::optional<bool> deduplicate,
               std::optional<bool> closed, std::optional<bool> routed) {
                Topic& topic = self.log.topics().get(topic_id);
                if (deduplicate) self.log.topics().set_deduplicate(topic, *deduplicate);
                if (closed) topic.closed = *closed;
                if (routed) topic.routed = *routed;
            },
            nb::arg("topic"), nb::kw_only(), nb::arg("deduplicate") = nb::none(),
            nb::arg("closed") = nb::none(), nb::arg("routed") = nb::none())
        .def(
            "tail",
            [](LogObject& self, u64 topic_id) {
                const Topic& topic = self.log.topics().get(topic_id);
                return nb::make_tuple(topic.next_ordinal, topic.ledger, topic.first_ordinal,
                                      topic.entries, topic.size);
            },
            nb::arg("topic"))
        .def(
            "counts",
            [](LogObject& self, u64 topic_id) {
                const Traffic& traffic = self.log.topics().get(topic_id).traffic;
                nb::list sizes;
                for (u64 each : traffic.sizes) sizes.append(each);
                return nb::make_tuple(traffic.bytes, nb::tuple(sizes));
            },
            nb::arg("topic"))
        .def(
            "open_ledger",
            [](LogObject& self, u64 topic, u64 ledger, u64 first_ordinal, u64 entries, u64 size) {
                self.log.open_ledger(topic, ledger, first_ordinal, entries, size);
            },
            nb::arg("topic"), nb::arg("ledger"), nb::arg("first_ordinal"), nb::arg("entries"),
            nb::arg("size"))
        .def(
            "seal_ledger", [](LogObject& self, u64 topic) { self.log.seal_ledger(topic); },
            nb::arg("topic"));
}

void bind_producers(nb::class_<LogObject>& type) {
    type.def(
            "open_session",
            [](LogObject& self, u64 session, u64 topic, std::string_view producer, u64 epoch) {
                return self.log.topics().open_session(session, topic, producer, epoch);
            },
            nb::arg("session"), nb::arg("topic"), nb::arg("producer"), nb::arg("epoch"))
        .def(
            "close_session",
            [](LogObject& self, u64 session) {
                self.log.topics().close_session(session, self.log.time());
            },
            nb::arg("session"))
        .def(
            "sequences",
            [](LogObject& self, u64 topic) {
                return TopicTable::sequences(self.log.topics().get(topic));
            },
            nb::arg("topic"))
        .def(
            "set_sequence",
            [](LogObject& self, u64 topic, std::string_view producer, std::int64_t sequence,
               u64 time) {
                Producer& known = self.log.topics().get(topic).producer(producer);
                known.last = sequence;
                known.time = time;
            },
            nb::arg("topic"), nb::arg("producer"), nb::arg("sequence"), nb::arg("time") = 0)
        .def(
            "sequence_times",
            [](LogObject& self, u64 topic) {
                return TopicTable::sequence_times(self.log.topics().get(topic));
            },
            nb::arg("topic"))
        .def(
            "forget_older",
            [](LogObject& self, u64 topic, u64 time) {
                return TopicTable::forget_older(self.log.topics().get(topic), time);
            },
            nb::arg("topic"), nb::arg("time"))
        .def(
            "forget_sequence",
            [](LogObject& self, u64 topic, std::string_view producer) {
                return TopicTable::forget_sequence(self.log.topics().get(topic), producer);
            },
            nb::arg("topic"), nb::arg("producer"));
}

void bind_frames(nb::class_<LogObject>& type) {
    type.def(
            "begin",
            [](LogObject& self, nb::bytes frame, u64 view, u64 index, bool redo) {
                self.log.begin(view_of(frame), view, index, redo);
                self.frame = std::move(frame);
            },
            nb::arg("frame"), nb::arg("view"), nb::arg("index"), nb::arg("redo") = false)
        .def("step", &next_event)
        .def("judge", &judge)
        .def("take", [](LogObject& self) { self.log.take(); })
        .def("accept", [](LogObject& self) { return self.log.accept(); })
        .def("append", &append, nb::arg("topic"), nb::arg("entries"))
        .def(
            "set_time", [](LogObject& self, u64 time) { self.log.set_time(time); }, nb::arg("time"))
        .def(
            "adopt",
            [](LogObject& self, u64 topic, u64 source) {
                const Adopted out = self.log.adopt(topic, source);
                return nb::make_tuple(out.ledger, out.first_ordinal, out.entries, out.size);
            },
            nb::arg("topic"), nb::arg("source"))
        .def(
            "finish",
            [](LogObject& self, bool urgent) {
                const Applied& applied = self.log.finish(urgent);
                self.frame.reset();
                return describe(applied);
            },
            nb::arg("urgent") = true)
        .def("take_round", [](LogObject& self) -> std::optional<RoundObject> {
            self.log.queue()->require_here();
            Round round = self.log.queue()->take();
            if (round.empty()) return std::nullopt;
            return RoundObject(self.log.queue(), std::move(round));
        });
}

}  // namespace

Incarnation incarnation_of(const nb::bytes& bytes) {
    Incarnation out;
    if (bytes.size() != sizeof out)
        throw Error(Code::misuse,
                    "an incarnation has 16 bytes, not " + std::to_string(bytes.size()));
    std::memcpy(&out, bytes.c_str(), sizeof out);
    return out;
}

void bind_log(nb::module_& module) {
    applied_record.make(module, "Applied", {"first_d", "last_d", "published", "opened", "tails"});
    bind_rounds(module);
    nb::class_<LogObject> type(module, "Log");
    type.def(nb::init<u64, u64, u64>(), nb::arg("next_d") = 1, nb::arg("next_ledger") = 1,
             nb::arg("time") = 0)
        .def_prop_ro("next_d", [](LogObject& self) { return self.log.next_d(); })
        .def_prop_rw(
            "next_ledger", [](LogObject& self) { return self.log.next_ledger; },
            [](LogObject& self, u64 value) { self.log.next_ledger = value; })
        .def_prop_ro("time", [](LogObject& self) { return self.log.time(); })
        .def_prop_ro("pending_bytes", [](LogObject& self) { return self.log.pending_bytes(); });
    bind_topics(type);
    bind_producers(type);
    bind_frames(type);
    module.def("ledger_header", &ledger_header, nb::arg("kind"), nb::arg("ledger"),
               nb::arg("incarnation"));
}

}  // namespace holdfast::bindings
