// Frame and parse_entry: what producers and the engine make, and what admission looks at.
#include "bindings/log/frame.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string_view.h>

#include <span>
#include <vector>

#include "bindings/base/errors.hpp"
#include "bindings/entry/convert.hpp"
#include "holdfast/entry/writer.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

nb::object checked(PyObject* object) {
    if (object == nullptr) throw nb::python_error();
    return nb::steal(object);
}

// The items of a list or tuple, in place; of any other sequence, of a list made from it. No Python code runs while they
// are used, so that no other code changes the list meanwhile.
class Items {
 public:
    explicit Items(nb::handle sequence, const char* complaint)
        : fast_(checked(PySequence_Fast(sequence.ptr(), complaint))) {}
    std::size_t size() const {
        return static_cast<std::size_t>(PySequence_Fast_GET_SIZE(fast_.ptr()));
    }
    PyObject* operator[](std::size_t i) const {
        return PySequence_Fast_GET_ITEM(fast_.ptr(), static_cast<Py_ssize_t>(i));
    }

 private:
    nb::object fast_;
};

// The bytes of many payloads, held until this object goes: bytes objects in place, others by their buffers.
class Payloads {
 public:
    explicit Payloads(const Items& items) {
        views_.reserve(items.size());
        for (std::size_t i = 0; i < items.size(); ++i) {
            PyObject* item = items[i];
            if (PyBytes_CheckExact(item)) [[likely]] {
                keep_.push_back(nb::borrow(item));
                add(view_of_bytes(item));
                continue;
            }
            buffers_.emplace_back();
            if (PyObject_GetBuffer(item, &buffers_.back(), PyBUF_SIMPLE) < 0) {
                buffers_.pop_back();
                release();
                throw nb::python_error();
            }
            const Py_buffer& buffer = buffers_.back();
            add({static_cast<const char*>(buffer.buf), static_cast<std::size_t>(buffer.len)});
        }
    }
    Payloads(const Payloads&) = delete;
    ~Payloads() { release(); }

    std::span<const std::string_view> views() const { return views_; }
    std::size_t bytes() const { return bytes_; }

 private:
    void add(std::string_view view) {
        views_.push_back(view);
        bytes_ += view.size();
    }
    void release() {
        for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
        buffers_.clear();
    }

    std::vector<std::string_view> views_;
    std::vector<nb::object> keep_;
    std::vector<Py_buffer> buffers_;
    std::size_t bytes_ = 0;
};

// A Python str as UTF-8; it lives as long as the str. Half of a surrogate pair cannot be written.
std::string_view utf8_of(nb::handle text, const char* what) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (bytes == nullptr) {
        PyErr_Clear();
        throw Error(Code::misuse, std::string(what) +
                                      " has half of a surrogate pair in it, which is not text; "
                                      "leave it out, or give a key as bytes");
    }
    return {bytes, static_cast<std::size_t>(size)};
}

// Where the key of a message comes from, and its owner while it is used.
struct Key {
    explicit Key(nb::handle given) {
        if (given.is_none()) return;
        has = true;
        if (PyUnicode_Check(given.ptr())) {
            text = utf8_of(given, "a key");
        } else if (PyBytes_Check(given.ptr())) {
            encoded = holdfast::base64(view_of_bytes(given.ptr()));
            text = encoded;
            bytes = true;
        } else {
            throw nb::type_error("a key is a str, bytes or None");
        }
    }
    std::string encoded;
    std::string_view text;
    bool has = false;
    bool bytes = false;
};

// The properties as views into Python's strings, which the list keeps.
class Properties {
 public:
    explicit Properties(nb::handle given) {
        if (given.is_none()) return;
        keep_ = checked(PyMapping_Items(given.ptr()));
        const Py_ssize_t count = PyList_GET_SIZE(keep_.ptr());
        for (Py_ssize_t i = 0; i < count; ++i) {
            auto pair = nb::cast<nb::tuple>(nb::handle(PyList_GET_ITEM(keep_.ptr(), i)));
            if (pair.size() != 2) throw nb::type_error("properties are pairs of str");
            views_.emplace_back(text(pair[0]), text(pair[1]));
        }
    }
    std::span<const std::pair<std::string_view, std::string_view>> views() const { return views_; }

 private:
    static std::string_view text(nb::handle item) {
        if (!PyUnicode_Check(item.ptr())) throw nb::type_error("properties are pairs of str");
        return utf8_of(item, "a property");
    }

    nb::object keep_;
    std::vector<std::pair<std::string_view, std::string_view>> views_;
};

i64 to_i64(PyObject* number) {
    const long long value = PyLong_AsLongLong(number);
    if (value == -1 && PyErr_Occurred()) throw nb::python_error();
    return value;
}

// A number that a message can carry. A number below 0 or above `most` is the caller's mistake; the error names it.
u64 bounded(nb::handle given, const char* what, u64 most) {
    const nb::object index = checked(PyNumber_Index(given.ptr()));
    const u64 value = PyLong_AsUnsignedLongLong(index.ptr());
    const bool beyond = value == ~u64{0} && PyErr_Occurred() != nullptr;
    if (beyond) PyErr_Clear();
    if (beyond || value > most)
        throw Error(Code::misuse, std::string(what) + " must be 0 to " + std::to_string(most));
    return value;
}

// Memory in which a bytes object can stand: its header before the data, its end mark behind.
constexpr ByteMemory kBytesMemory{PyObject_Realloc, PyObject_Free, offsetof(PyBytesObject, ob_sval),
                                  1};

// Makes a bytes object of such memory, in place.
PyObject* bytes_in_place(void* base, std::size_t size) {
    PyObject* out = reinterpret_cast<PyObject*>(PyObject_InitVar(
        static_cast<PyVarObject*>(base), &PyBytes_Type, static_cast<Py_ssize_t>(size)));
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // only the field's name is
    reinterpret_cast<PyBytesObject*>(out)->ob_shash = -1;
#pragma GCC diagnostic pop
    PyBytes_AS_STRING(out)[size] = 0;
    return out;
}

// A frame writer whose large frames become bytes objects without a copy. When only this builder refers to one, its memory
// is used for later frames: a fresh megabyte from the system costs more than filling it.
class FrameBuilder {
 public:
    FrameBuilder() = default;
    FrameBuilder(const FrameBuilder&) = delete;
    ~FrameBuilder() {
        for (const Lent& each : lent_) Py_DECREF(each.bytes);
    }

    // To add to; it has memory, if some is free.
    FrameWriter& writer() {
        if (writer_.capacity() == 0) reuse();
        return writer_;
    }
    const FrameWriter& look() const { return writer_; }

    nb::object take(u64 time_ns) {
        const std::string_view frame = writer().finish(time_ns);
        if (frame.size() < kLendMin) {
            nb::object out = checked(to_bytes(frame));
            writer_.clear();
            return out;
        }
        lent_.reserve(lent_.size() + 1);
        const std::size_t size = frame.size(), capacity = writer_.capacity();
        nb::object out = nb::steal(bytes_in_place(writer_.release(), size));
        lend(out, capacity);
        return out;
    }

 private:
    static constexpr std::size_t kLendMin = std::size_t{32} << 10;  // below it a copy is cheaper
    static constexpr std::size_t kLentMax = 8;
    static constexpr std::size_t kLentBytesMax = 2 * kFrameSizeMax;

    struct Lent {
        PyObject* bytes;
        std::size_t capacity;
    };

    void lend(const nb::object& bytes, std::size_t capacity) {
        if (capacity > kLentBytesMax) return;
        lent_.push_back({bytes.inc_ref().ptr(), capacity});
        lent_bytes_ += capacity;
        while (lent_.size() > kLentMax || lent_bytes_ > kLentBytesMax) {
            Py_DECREF(lent_.front().bytes);
            lent_bytes_ -= lent_.front().capacity;
            lent_.erase(lent_.begin());
        }
    }

    void reuse() {
        for (auto each = lent_.begin(); each != lent_.end(); ++each) {
            if (Py_REFCNT(each->bytes) != 1) continue;  // it is still read
            writer_.adopt(each->bytes, each->capacity);
            lent_bytes_ -= each->capacity;
            lent_.erase(each);
            return;
        }
    }

    FrameWriter writer_{kBytesMemory};
    std::vector<Lent> lent_;  // the oldest first
    std::size_t lent_bytes_ = 0;
};

void frame_event(FrameBuilder& frame, u8 kind, u8 version, nb::bytes body) {
    frame.writer().event(kind, version, view_of_bytes(body.ptr()));
}

void frame_publish(FrameBuilder& frame, u64 topic, u64 session, u64 epoch,
                   std::string_view producer, nb::handle entries) {
    const Items items(entries, "entries is a sequence of (sequence, span, bytes)");
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
        PyObject* item = items[i];
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 3 ||
            !PyLong_Check(PyTuple_GET_ITEM(item, 0)) || !PyLong_Check(PyTuple_GET_ITEM(item, 1)) ||
            !PyBytes_Check(PyTuple_GET_ITEM(item, 2)))
            throw nb::type_error("an entry to publish is a tuple (sequence, span, bytes)");
        bytes += view_of_bytes(PyTuple_GET_ITEM(item, 2)).size();
    }
    FrameWriter::Publish publish(frame.writer(), topic, session, epoch, producer, items.size(),
                                 bytes);
    for (std::size_t i = 0; i < items.size(); ++i) {
        PyObject* item = items[i];
        const i64 span = to_i64(PyTuple_GET_ITEM(item, 1));
        publish.entry(to_i64(PyTuple_GET_ITEM(item, 0)), span < 0 ? 0 : static_cast<u64>(span),
                      view_of_bytes(PyTuple_GET_ITEM(item, 2)));
    }
    publish.keep();
}

// The messages of a caller, checked, and held while entries are built of them.
class Given {
 public:
    Given(std::string_view producer, nb::handle sequence, nb::handle payloads,
          nb::handle publish_time_ms, nb::handle key, nb::handle ordering_key,
          nb::handle properties, nb::handle event_time_ms, nb::handle batch,
          nb::handle deliver_at_ms)
        : key_(key),
          properties_(properties),
          payloads_(Items(payloads, "payloads is a sequence of bytes-like objects")),
          sequence_(static_cast<i64>(bounded(sequence, "the sequence", kMost))),
          batch_(bounded(batch, "the number of messages of a batch", kEntryMessagesMax)) {
        if (batch_ == 0)
            throw Error(Code::misuse, "a batch has 1 to " + std::to_string(kEntryMessagesMax) +
                                          " messages, not 0");
        const std::size_t count = payloads_.views().size();
        if (count > kMost - static_cast<u64>(sequence_))
            throw Error(Code::misuse, "the sequence " + std::to_string(sequence_) +
                                          " is not possible for " + std::to_string(count) +
                                          " messages; sequences are 0 to 2^63-2");
        if (!ordering_key.is_none() && !PyBytes_Check(ordering_key.ptr()))
            throw nb::type_error("an ordering key is bytes or None");
        shape_.producer = producer;
        shape_.publish_time_ms = bounded(publish_time_ms, "the publish time in ms", ~u64{0});
        shape_.event_time_ms = bounded(event_time_ms, "the event time in ms", ~u64{0});
        shape_.deliver_at_ms =
            static_cast<i64>(bounded(deliver_at_ms, "the delivery time in ms", kMost));
        shape_.key = key_.text;
        shape_.has_key = key_.has;
        shape_.key_base64 = key_.bytes;
        shape_.has_ordering_key = !ordering_key.is_none();
        if (shape_.has_ordering_key) shape_.ordering_key = view_of_bytes(ordering_key.ptr());
        shape_.properties = properties_.views();
    }

    const MessageShape& shape() const { return shape_; }
    std::size_t bytes() const { return payloads_.bytes(); }
    std::size_t entries() const { return (payloads_.views().size() + batch_ - 1) / batch_; }

    // Calls use(sequence, messages, bound of the entry's size, write) for each entry to be made.
    template <class Use>
    void each(const EntryWriter& writer, Use use) const {
        const auto all = payloads_.views();
        for (std::size_t i = 0; i < all.size(); i += batch_) {
            const auto group = all.subspan(i, std::min(batch_, all.size() - i));
            std::size_t bytes = 0;
            for (const std::string_view payload : group) bytes += payload.size();
            const i64 number = sequence_ + static_cast<i64>(i);
            use(number, group.size(), writer.size_bound(group.size(), bytes), [&](ByteBuffer& out) {
                return batch_ == 1 ? writer.add(out, number, group[0])
                                   : writer.add_batch(out, number, group);
            });
        }
    }

 private:
    static constexpr u64 kMost = ~u64{0} >> 1;

    Key key_;
    Properties properties_;
    Payloads payloads_;
    i64 sequence_;
    std::size_t batch_;
    MessageShape shape_;
};

std::size_t frame_publish_messages(FrameBuilder& frame, u64 topic, u64 session, u64 epoch,
                                   std::string_view producer, nb::handle sequence,
                                   nb::handle payloads, nb::handle publish_time_ms, nb::handle key,
                                   nb::handle ordering_key, nb::handle properties,
                                   nb::handle event_time_ms, nb::handle batch,
                                   nb::handle deliver_at_ms) {
    const Given given(producer, sequence, payloads, publish_time_ms, key, ordering_key, properties,
                      event_time_ms, batch, deliver_at_ms);
    const EntryWriter writer(given.shape());
    FrameWriter::Publish publish(frame.writer(), topic, session, epoch, producer, given.entries(),
                                 given.bytes() + given.entries() * writer.size_bound(0, 0));
    given.each(writer, [&](i64 number, std::size_t span, std::size_t bound, auto write) {
        publish.entry(number, span, bound, write);
    });
    publish.keep();
    return given.entries();
}

nb::list encode_messages(nb::handle payloads, std::string_view producer, nb::handle sequence,
                         nb::handle publish_time_ms, nb::handle key, nb::handle ordering_key,
                         nb::handle properties, nb::handle event_time_ms, nb::handle batch,
                         nb::handle deliver_at_ms) {
    const Given given(producer, sequence, payloads, publish_time_ms, key, ordering_key, properties,
                      event_time_ms, batch, deliver_at_ms);
    const EntryWriter writer(given.shape());
    nb::list out;
    ByteBuffer entry;
    given.each(writer, [&](i64, std::size_t, std::size_t bound, auto write) {
        require_entry_size(bound);
        entry.cut(0);
        write(entry);
        out.append(checked(to_bytes(entry.view())));
    });
    return out;
}

// An entry's metadata, read as it is asked for.
struct EntryInfo {
    nb::bytes bytes;  // what the views point into
    Entry entry;
};

EntryInfo parse_entry(nb::bytes bytes) {
    EntryInfo out{bytes, {}};
    const EntryFault fault = check_entry(view_of_bytes(bytes.ptr()), out.entry);
    if (fault != EntryFault::none)
        throw Error(Code::corrupt, "this entry of " + std::to_string(bytes.size()) +
                                       " bytes is not sound: " + std::string(fault_name(fault)));
    return out;
}

template <class Get>
auto text_of(Get get) {
    return [get](const EntryInfo& info) { return checked(to_text(get(info.entry.metadata))); };
}
template <class Member>
auto number_of(Member EntryMetadata::* member) {
    return [member](const EntryInfo& info) { return info.entry.metadata.*member; };
}
template <class Member>
auto field_of(Member MessageFields::* member) {
    return [member](const EntryInfo& info) { return info.entry.metadata.*member; };
}

void bind_entry_info(nb::module_& module) {
    nb::class_<EntryInfo>(module, "EntryInfo")
        .def_prop_ro("producer", text_of([](const EntryMetadata& m) { return m.producer; }))
        .def_prop_ro("sequence", field_of(&MessageFields::sequence))
        .def_prop_ro("highest_sequence", number_of(&EntryMetadata::highest_sequence))
        .def_prop_ro("publish_time_ms", number_of(&EntryMetadata::publish_time_ms))
        .def_prop_ro("event_time_ms", field_of(&MessageFields::event_time_ms))
        .def_prop_ro("deliver_at_ms", number_of(&EntryMetadata::deliver_at_ms))
        .def_prop_ro("key",
                     [](const EntryInfo& info) { return checked(to_key(info.entry.metadata)); })
        .def_prop_ro(
            "ordering_key",
            [](const EntryInfo& info) { return checked(to_ordering_key(info.entry.metadata)); })
        .def_prop_ro("properties",
                     [](const EntryInfo& info) {
                         return checked(
                             to_properties(info.entry.metadata_bytes, metadata_field::properties));
                     })
        .def_prop_ro("messages", number_of(&EntryMetadata::messages))
        .def_prop_ro("batch", number_of(&EntryMetadata::batch))
        .def_prop_ro("compression", number_of(&EntryMetadata::compression))
        .def_prop_ro("uncompressed_size", number_of(&EntryMetadata::uncompressed_size))
        .def_prop_ro("encrypted", number_of(&EntryMetadata::encrypted))
        .def_prop_ro("schema_version",
                     [](const EntryInfo& info) {
                         return checked(to_bytes(info.entry.metadata.schema_version));
                     })
        .def_prop_ro("replicated_from",
                     text_of([](const EntryMetadata& m) { return m.replicated_from; }))
        .def_prop_ro("marker", number_of(&EntryMetadata::marker))
        .def_prop_ro("null_value", field_of(&MessageFields::null_value))
        .def_prop_ro("transaction",
                     [](const EntryInfo& info) -> nb::object {
                         const EntryMetadata& m = info.entry.metadata;
                         if (!m.has_transaction) return nb::none();
                         return nb::make_tuple(m.transaction_most, m.transaction_least);
                     })
        .def_prop_ro("uuid", text_of([](const EntryMetadata& m) { return m.uuid; }))
        .def_prop_ro("chunk", number_of(&EntryMetadata::chunk))
        .def_prop_ro("chunks", number_of(&EntryMetadata::chunks))
        .def_prop_ro("chunked_size", number_of(&EntryMetadata::chunked_size))
        .def_prop_ro("payload",
                     [](const EntryInfo& info) { return checked(to_bytes(info.entry.payload)); });
    module.def("parse_entry", &parse_entry, nb::arg("entry"));
}

}  // namespace

FrameWriter& writer_of(nb::handle frame) {
    return nb::cast<FrameBuilder&>(frame).writer();
}

void bind_frame(nb::module_& module) {
    nb::class_<FrameBuilder>(module, "Frame")
        .def(nb::init<>())
        .def("event", &frame_event, nb::arg("kind"), nb::arg("version"), nb::arg("body"))
        .def("publish", &frame_publish, nb::arg("topic"), nb::arg("session"), nb::arg("epoch"),
             nb::arg("producer"), nb::arg("entries"))
        .def("publish_messages", &frame_publish_messages, nb::arg("topic"), nb::arg("session"),
             nb::arg("epoch"), nb::arg("producer"), nb::arg("sequence"), nb::arg("payloads"),
             nb::arg("publish_time_ms"), nb::kw_only(), nb::arg("key").none() = nb::none(),
             nb::arg("ordering_key").none() = nb::none(), nb::arg("properties").none() = nb::none(),
             nb::arg("event_time_ms") = 0, nb::arg("batch") = 1, nb::arg("deliver_at_ms") = 0)
        .def("take", &FrameBuilder::take, nb::arg("time_ns"))
        .def_prop_ro("count", [](const FrameBuilder& frame) { return frame.look().count(); })
        .def_prop_ro("size", [](const FrameBuilder& frame) { return frame.look().size(); });
    module.def("encode_messages", &encode_messages, nb::arg("payloads"), nb::arg("producer"),
               nb::arg("sequence"), nb::arg("publish_time_ms"), nb::kw_only(),
               nb::arg("key").none() = nb::none(), nb::arg("ordering_key").none() = nb::none(),
               nb::arg("properties").none() = nb::none(), nb::arg("event_time_ms") = 0,
               nb::arg("batch") = 1, nb::arg("deliver_at_ms") = 0);
    bind_entry_info(module);
}

}  // namespace holdfast::bindings
