// Batch and TopicMessage: what a consumer is handed, and each message of it, made when it is asked for.
#include "bindings/entry/delivery.hpp"

#include <datetime.h>
#include <nanobind/nanobind.h>

#include <new>

#include "bindings/base/errors.hpp"
#include "bindings/base/types.hpp"
#include "bindings/entry/convert.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

struct WalkObject {
    PyObject_HEAD BatchObject* batch;
    MessageWalk walk;
};

constexpr int kFreeMax = 256;
TopicMessageObject* free_messages[kFreeMax];
int free_count = 0;

PyTypeObject WalkType{};

TopicMessageObject* self_of(PyObject* object) {
    return reinterpret_cast<TopicMessageObject*>(object);
}
BatchObject* batch_of(PyObject* object) {
    return reinterpret_cast<BatchObject*>(object);
}

PyObject* new_message(BatchObject* batch, const MessagePlace& place) {
    TopicMessageObject* self;
    if (free_count > 0) {
        self = free_messages[--free_count];
        PyObject_Init(reinterpret_cast<PyObject*>(self), &TopicMessageType);
    } else {
        self = PyObject_New(TopicMessageObject, &TopicMessageType);
        if (self == nullptr) return nullptr;
    }
    self->batch = reinterpret_cast<BatchObject*>(Py_NewRef(batch));
    self->place = place;
    self->data = nullptr;
    return reinterpret_cast<PyObject*>(self);
}

void message_dealloc(PyObject* object) {
    auto* self = self_of(object);
    Py_XDECREF(self->data);
    Py_DECREF(self->batch);
    if (free_count < kFreeMax)
        free_messages[free_count++] = self;
    else
        PyObject_Free(self);
}

std::string_view entry_of(const TopicMessageObject* self) {
    return self->batch->handover.run().bytes(self->item().index);
}
std::string_view payload_of(const TopicMessageObject* self) {
    return entry_of(self).substr(self->place.payload_at, self->place.payload_size);
}
std::string_view metadata_of(const TopicMessageObject* self) {
    return entry_of(self).substr(self->place.metadata_at, self->place.metadata_size);
}

// The metadata of the whole entry; of one that is not sound, as good as it can be told.
EntryMetadata entry_metadata(const TopicMessageObject* self) {
    Entry entry;
    entry.metadata = {};
    const EntrySlot& slot = self->slot();
    if (slot.sound)
        read_metadata(entry_of(self).substr(kEntryHeader, slot.header - kEntryHeader),
                      entry.metadata);
    return entry.metadata;
}

// Returns the fields of the message itself, alone or in a batch.
MessageFields fields_of(const TopicMessageObject* self) {
    if (self->place.batch_index < 0) return entry_metadata(self);
    SingleMetadata single;
    read_single(metadata_of(self), single);
    if (!single.has_sequence) {
        single.sequence = static_cast<i64>(static_cast<u64>(entry_metadata(self).sequence) +
                                           static_cast<u64>(self->place.batch_index));
    }
    return single;
}

PyObject* message_data(PyObject* object, void*) {
    auto* self = self_of(object);
    if (self->data == nullptr) self->data = to_bytes(payload_of(self));
    return Py_XNewRef(self->data);
}

int message_getbuffer(PyObject* object, Py_buffer* view, int flags) {
    const std::string_view payload = payload_of(self_of(object));
    return PyBuffer_FillInfo(view, object, const_cast<char*>(payload.data()),
                             static_cast<Py_ssize_t>(payload.size()), 1, flags);
}

Py_ssize_t message_length(PyObject* object) {
    return static_cast<Py_ssize_t>(self_of(object)->place.payload_size);
}

PyObject* message_size(PyObject* object, void*) {
    return PyLong_FromSsize_t(message_length(object));
}

PyObject* message_ledger(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(self_of(object)->batch->handover.run().ledger());
}
PyObject* message_entry(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(self_of(object)->entry_number());
}
PyObject* message_batch_index(PyObject* object, void*) {
    return PyLong_FromLong(self_of(object)->place.batch_index);
}
PyObject* message_batch_size(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(self_of(object)->slot().messages);
}
PyObject* message_ordinal(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(self_of(object)->ordinal());
}

// holdfast.ids.MessageId, borrowed. It is filled in as a plain tuple: its own __new__ is Python code that would cost
// more than the rest of a message.
PyTypeObject* id_type() {
    static PyTypeObject* found = nullptr;
    if (found != nullptr) return found;
    PyObject* module = PyImport_ImportModule("holdfast.ids");
    if (module == nullptr) return nullptr;
    PyObject* type = PyObject_GetAttrString(module, "MessageId");
    Py_DECREF(module);
    if (type != nullptr &&
        (!PyType_Check(type) ||
         !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), &PyTuple_Type))) {
        PyErr_SetString(PyExc_TypeError, "MessageId must be a named tuple");
        Py_CLEAR(type);
    }
    found = reinterpret_cast<PyTypeObject*>(type);
    return found;
}

PyObject* message_id(PyObject* object, void*) {
    PyTypeObject* type = id_type();
    if (type == nullptr) return nullptr;
    PyObject* id = type->tp_alloc(type, 3);
    if (id == nullptr) return nullptr;
    PyTuple_SET_ITEM(id, 0, message_ledger(object, nullptr));
    PyTuple_SET_ITEM(id, 1, message_entry(object, nullptr));
    PyTuple_SET_ITEM(id, 2, message_batch_index(object, nullptr));
    if (PyErr_Occurred()) Py_CLEAR(id);
    return id;
}

PyObject* message_key(PyObject* object, void*) {
    return to_key(fields_of(self_of(object)));
}
PyObject* message_ordering_key(PyObject* object, void*) {
    return to_ordering_key(fields_of(self_of(object)));
}
PyObject* message_properties(PyObject* object, void*) {
    auto* self = self_of(object);
    return to_properties(metadata_of(self), self->place.batch_index < 0 ? metadata_field::properties
                                                                        : single_field::properties);
}
PyObject* message_producer(PyObject* object, void*) {
    return to_text(entry_metadata(self_of(object)).producer);
}
PyObject* message_sequence(PyObject* object, void*) {
    return PyLong_FromLongLong(fields_of(self_of(object)).sequence);
}
PyObject* message_publish_time_ms(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(entry_metadata(self_of(object)).publish_time_ms);
}
PyObject* message_event_time_ms(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(fields_of(self_of(object)).event_time_ms);
}

// None beyond the last year that Python knows: any number may come from outside.
PyObject* to_datetime(u64 ms) {
    constexpr u64 kDay = 86'400'000;
    constexpr u64 kEnd = 253'402'300'800'000;  // the year 10000
    if (ms >= kEnd) Py_RETURN_NONE;
    // Days since 0000-03-01, in years that end with February: so that leap days come last (Hinnant).
    const u64 days = ms / kDay + 719'468;
    const u64 era = days / 146'097, in_era = days % 146'097;
    const u64 year = (in_era - in_era / 1460 + in_era / 36'524 - in_era / 146'096) / 365;
    const u64 in_year = in_era - (365 * year + year / 4 - year / 100);
    const u64 month = (5 * in_year + 2) / 153;
    const u64 day = in_year - (153 * month + 2) / 5 + 1;
    const u64 civil_month = month < 10 ? month + 3 : month - 9;
    const u64 civil_year = year + era * 400 + (civil_month <= 2 ? 1 : 0);
    const int time = static_cast<int>(ms % kDay);
    return PyDateTimeAPI->DateTime_FromDateAndTime(
        static_cast<int>(civil_year), static_cast<int>(civil_month), static_cast<int>(day),
        time / 3'600'000, time / 60'000 % 60, time / 1000 % 60, time % 1000 * 1000,
        PyDateTime_TimeZone_UTC, PyDateTimeAPI->DateTimeType);
}

PyObject* message_publish_time(PyObject* object, void*) {
    return to_datetime(entry_metadata(self_of(object)).publish_time_ms);
}
PyObject* message_event_time(PyObject* object, void*) {
    const u64 ms = fields_of(self_of(object)).event_time_ms;
    if (ms == 0) Py_RETURN_NONE;
    return to_datetime(ms);
}
PyObject* message_log_time(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(self_of(object)->slot().time);
}
PyObject* message_redeliveries(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(self_of(object)->item().redeliveries);
}
PyObject* message_reset_number(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(self_of(object)->batch->handover.reset_number());
}
PyObject* message_topic(PyObject* object, void*) {
    return Py_NewRef(self_of(object)->batch->topic);
}
PyObject* message_null_value(PyObject* object, void*) {
    return PyBool_FromLong(fields_of(self_of(object)).null_value);
}
PyObject* message_compression(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(entry_metadata(self_of(object)).compression);
}
PyObject* message_encrypted(PyObject* object, void*) {
    return PyBool_FromLong(entry_metadata(self_of(object)).encrypted);
}
PyObject* message_sound(PyObject* object, void*) {
    return PyBool_FromLong(self_of(object)->slot().sound);
}

PyObject* message_repr(PyObject* object) {
    auto* self = self_of(object);
    const auto ledger = static_cast<unsigned long long>(self->batch->handover.run().ledger());
    const auto entry = static_cast<unsigned long long>(self->entry_number());
    if (self->place.batch_index < 0)
        return PyUnicode_FromFormat("<holdfast.TopicMessage %llu:%llu of %u bytes>", ledger, entry,
                                    self->place.payload_size);
    return PyUnicode_FromFormat("<holdfast.TopicMessage %llu:%llu:%d of %u bytes>", ledger, entry,
                                self->place.batch_index, self->place.payload_size);
}

PyGetSetDef message_getset[] = {
    {"data", message_data, nullptr, "The payload, as bytes. memoryview(message) does not copy it.",
     nullptr},
    {"size", message_size, nullptr, "The size of the payload, in bytes.", nullptr},
    {"id", message_id, nullptr, "Its id: ledger:entry, or ledger:entry:index in a batch.", nullptr},
    {"ledger", message_ledger, nullptr, "Its ledger's id.", nullptr},
    {"entry", message_entry, nullptr, "Its entry's number in the ledger.", nullptr},
    {"batch_index", message_batch_index, nullptr, "Its index in its batch; -1 outside one.",
     nullptr},
    {"batch_size", message_batch_size, nullptr, "How many messages its entry has.", nullptr},
    {"ordinal", message_ordinal, nullptr, "The position of its entry in the topic.", nullptr},
    {"key", message_key, nullptr, "Text, or bytes where the producer gave bytes; else None.",
     nullptr},
    {"ordering_key", message_ordering_key, nullptr, "Bytes or None.", nullptr},
    {"properties", message_properties, nullptr, "A new dict of text at each call.", nullptr},
    {"producer", message_producer, nullptr, "The producer's name.", nullptr},
    {"sequence", message_sequence, nullptr, "Its sequence at its producer.", nullptr},
    {"publish_time", message_publish_time, nullptr, "When the producer sent it: datetime, UTC.",
     nullptr},
    {"publish_time_ms", message_publish_time_ms, nullptr, "The same, in ms since the epoch.",
     nullptr},
    {"event_time", message_event_time, nullptr,
     "The time that the producer set: datetime, UTC; else None.", nullptr},
    {"event_time_ms", message_event_time_ms, nullptr, "The same, in ms since the epoch; else 0.",
     nullptr},
    {"log_time", message_log_time, nullptr,
     "When the broker stored it (log time), in ns since the epoch.", nullptr},
    {"redelivery_count", message_redeliveries, nullptr, "How often it was delivered before.",
     nullptr},
    {"reset_number", message_reset_number, nullptr,
     "The subscription's reset number when it was delivered.", nullptr},
    {"topic", message_topic, nullptr, "The topic's name.", nullptr},
    {"null_value", message_null_value, nullptr, "The producer sent no value at all.", nullptr},
    {"compression", message_compression, nullptr,
     "How the payload is still compressed: 0 not, 1 LZ4, 2 ZLIB, 3 ZSTD, 4 SNAPPY.", nullptr},
    {"encrypted", message_encrypted, nullptr, "The payload is encrypted.", nullptr},
    {"sound", message_sound, nullptr,
     "Whether the entry has a known format. If not, `data` is the whole entry.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyBufferProcs message_buffer = {message_getbuffer, nullptr};
PySequenceMethods message_sequence_methods{};

// The bits of a Python int, as words; false with an exception set.
bool to_words(PyObject* number, std::vector<u64>& out) {
    out.clear();
    if (number == Py_None) return true;
    if (!PyLong_Check(number)) {
        PyErr_SetString(PyExc_TypeError, "a mask of open messages is an int or None");
        return false;
    }
    const std::size_t bits = _PyLong_NumBits(number);
    if (bits == static_cast<std::size_t>(-1) && PyErr_Occurred()) return false;
    out.resize(bits / 64 + 1);  // at least one word: an empty mask means all
    return _PyLong_AsByteArray(reinterpret_cast<PyLongObject*>(number),
                               reinterpret_cast<unsigned char*>(out.data()), out.size() * 8, 1,
                               0) == 0;
}

// An optional sequence that must be as long as the indices are.
struct Column {
    Column(PyObject* given, Py_ssize_t count, const char* name) {
        if (given == nullptr || given == Py_None) return;
        items = PySequence_Fast(given, "a column of a Batch is a sequence");
        if (items == nullptr) throw nb::python_error();
        if (PySequence_Fast_GET_SIZE(items) != count) {
            Py_CLEAR(items);
            throw Error(Code::misuse, std::string("Batch: ") + name +
                                          " must be as long as the indices, " +
                                          std::to_string(count));
        }
    }
    Column(const Column&) = delete;
    ~Column() { Py_XDECREF(items); }
    PyObject* at(Py_ssize_t i) const {
        return items == nullptr ? Py_None : PySequence_Fast_GET_ITEM(items, i);
    }
    u32 number(Py_ssize_t i, u32 missing) const {
        if (items == nullptr) return missing;
        const unsigned long value = PyLong_AsUnsignedLong(at(i));
        if (PyErr_Occurred()) throw nb::python_error();
        return static_cast<u32>(std::min<unsigned long>(value, 0xffffffff));
    }
    PyObject* items = nullptr;
};

PyObject* batch_make(PyTypeObject*, PyObject* args, PyObject* kwargs) {
    static const char* names[] = {"entries", "indices", "redeliveries", "reset_number",
                                  "open",    "topic",   nullptr};
    PyObject *entries, *indices = nullptr, *redeliveries = nullptr, *open = nullptr,
                       *topic = nullptr;
    unsigned long long reset_number = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOKOO:Batch", const_cast<char**>(names),
                                     &entries, &indices, &redeliveries, &reset_number, &open,
                                     &topic))
        return nullptr;
    return guarded(
        [&]() -> PyObject* {
            const EntryRun* run = nullptr;
            if (!nb::try_cast(nb::handle(entries), run) || run == nullptr) {
                PyErr_SetString(PyExc_TypeError, "Batch: entries is an Entries");
                return nullptr;
            }
            Handover handover(*run, reset_number);
            Py_ssize_t count = static_cast<Py_ssize_t>(run->count());
            if (indices != nullptr && indices != Py_None) {
                count = PySequence_Size(indices);
                if (count < 0) return nullptr;
            }
            try {
                const Column which(indices, count, "indices");
                const Column times(redeliveries, count, "redeliveries");
                const Column masks(open, count, "open");
                std::vector<u64> words;
                handover.reserve(static_cast<std::size_t>(count));
                for (Py_ssize_t i = 0; i < count; ++i) {
                    if (!to_words(masks.at(i), words)) return nullptr;
                    handover.add(which.number(i, static_cast<u32>(i)), times.number(i, 0), words);
                }
            } catch (nb::python_error& error) {
                error.restore();
                return nullptr;
            }
            return batch_new(std::move(handover), topic);
        },
        nullptr);
}

void batch_dealloc(PyObject* object) {
    auto* self = batch_of(object);
    self->handover.~Handover();
    Py_DECREF(self->topic);
    PyObject_Free(self);
}

Py_ssize_t batch_length(PyObject* object) {
    return static_cast<Py_ssize_t>(batch_of(object)->handover.messages());
}

PyObject* batch_item(PyObject* object, Py_ssize_t index) {
    auto* self = batch_of(object);
    if (index < 0 || index >= batch_length(object)) {
        PyErr_SetString(PyExc_IndexError, "a Batch has no such message");
        return nullptr;
    }
    MessageWalk walk(self->handover);
    if (self->handover.plain()) {
        walk.skip_entries(static_cast<u32>(index));
        index = 0;
    }
    auto place = walk.next();
    while (place && index-- > 0) place = walk.next();
    if (place) [[likely]]
        return new_message(self, *place);
    raise("Corrupt", "a batch ends before its last message");
    return nullptr;
}

PyObject* batch_iter(PyObject* object) {
    auto* self = PyObject_New(WalkObject, &WalkType);
    if (self == nullptr) return nullptr;
    self->batch = batch_of(Py_NewRef(object));
    new (&self->walk) MessageWalk(self->batch->handover);
    return reinterpret_cast<PyObject*>(self);
}

void walk_dealloc(PyObject* object) {
    Py_DECREF(reinterpret_cast<WalkObject*>(object)->batch);
    PyObject_Free(object);
}

PyObject* walk_next(PyObject* object) {
    auto* self = reinterpret_cast<WalkObject*>(object);
    const auto place = self->walk.next();
    return place ? new_message(self->batch, *place) : nullptr;
}

PyObject* batch_entries(PyObject* object, void*) {
    return guarded(
        [&]() -> PyObject* {
            return nb::cast(EntryRun(batch_of(object)->handover.run())).release().ptr();
        },
        nullptr);
}
PyObject* batch_permits(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(batch_of(object)->handover.permits());
}
PyObject* batch_size(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(batch_of(object)->handover.bytes());
}
PyObject* batch_reset_number(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(batch_of(object)->handover.reset_number());
}
PyObject* batch_topic(PyObject* object, void*) {
    return Py_NewRef(batch_of(object)->topic);
}

// [(first ordinal, end)], neighbours joined.
PyObject* batch_ranges(PyObject* object, PyObject*) {
    const Handover& handover = batch_of(object)->handover;
    PyObject* out = PyList_New(0);
    const auto items = handover.items();
    for (std::size_t i = 0; out != nullptr && i < items.size();) {
        const u64 first = handover.ordinal(items[i]);
        u64 end = first + 1;
        for (++i; i < items.size() && handover.ordinal(items[i]) == end; ++i) ++end;
        PyObject* pair = Py_BuildValue("(KK)", static_cast<unsigned long long>(first),
                                       static_cast<unsigned long long>(end));
        if (pair == nullptr || PyList_Append(out, pair) < 0) Py_CLEAR(out);
        Py_XDECREF(pair);
    }
    return out;
}

PyObject* batch_repr(PyObject* object) {
    const Handover& handover = batch_of(object)->handover;
    return PyUnicode_FromFormat("<holdfast.Batch of %llu messages in %zd entries of ledger %llu>",
                                static_cast<unsigned long long>(handover.messages()),
                                static_cast<Py_ssize_t>(handover.items().size()),
                                static_cast<unsigned long long>(handover.run().ledger()));
}

PyGetSetDef batch_getset[] = {
    {"entries", batch_entries, nullptr, "The run of entries that holds its messages.", nullptr},
    {"permits", batch_permits, nullptr, "How many messages it counts for.", nullptr},
    {"size", batch_size, nullptr, "Bytes of its entries.", nullptr},
    {"reset_number", batch_reset_number, nullptr,
     "The subscription's reset number when it was delivered.", nullptr},
    {"topic", batch_topic, nullptr, "The topic's name.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef batch_methods[] = {
    {"ranges", batch_ranges, METH_NOARGS, "Its entries' ordinals, as [(first, end)]."},
    {nullptr, nullptr, 0, nullptr}};

PySequenceMethods batch_sequence{};

}  // namespace

PyTypeObject BatchType{};
PyTypeObject TopicMessageType{};

int ready_delivery_types() {
    PyDateTime_IMPORT;
    if (PyDateTimeAPI == nullptr) return -1;
    for (PyTypeObject* type : {&BatchType, &TopicMessageType, &WalkType}) immortalise(*type);
    TopicMessageType.tp_name = "holdfast.TopicMessage";
    TopicMessageType.tp_basicsize = sizeof(TopicMessageObject);
    TopicMessageType.tp_dealloc = message_dealloc;
    TopicMessageType.tp_repr = message_repr;
    TopicMessageType.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    TopicMessageType.tp_doc = "One message of a topic, as a consumer or reader gets it.";
    TopicMessageType.tp_getset = message_getset;
    TopicMessageType.tp_as_buffer = &message_buffer;
    message_sequence_methods.sq_length = message_length;
    TopicMessageType.tp_as_sequence = &message_sequence_methods;
    BatchType.tp_name = "holdfast.Batch";
    BatchType.tp_basicsize = sizeof(BatchObject);
    BatchType.tp_new = batch_make;
    BatchType.tp_dealloc = batch_dealloc;
    BatchType.tp_repr = batch_repr;
    BatchType.tp_flags = Py_TPFLAGS_DEFAULT;
    BatchType.tp_doc = "Messages that one dispatch delivers to one consumer.";
    BatchType.tp_iter = batch_iter;
    BatchType.tp_getset = batch_getset;
    BatchType.tp_methods = batch_methods;
    batch_sequence.sq_length = batch_length;
    batch_sequence.sq_item = batch_item;
    BatchType.tp_as_sequence = &batch_sequence;
    WalkType.tp_name = "holdfast._core.BatchIterator";
    WalkType.tp_basicsize = sizeof(WalkObject);
    WalkType.tp_dealloc = walk_dealloc;
    WalkType.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    WalkType.tp_iter = PyObject_SelfIter;
    WalkType.tp_iternext = walk_next;
    if (PyType_Ready(&BatchType) < 0 || PyType_Ready(&TopicMessageType) < 0 ||
        PyType_Ready(&WalkType) < 0)
        return -1;
    return 0;
}

PyObject* batch_new(Handover&& handover, PyObject* topic) {
    auto* self = PyObject_New(BatchObject, &BatchType);
    if (self == nullptr) return nullptr;
    new (&self->handover) Handover(std::move(handover));
    self->topic = Py_NewRef(topic == nullptr ? Py_None : topic);
    return reinterpret_cast<PyObject*>(self);
}

}  // namespace holdfast::bindings
