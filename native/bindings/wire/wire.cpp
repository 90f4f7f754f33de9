// The wire protocol's hot paths: what a connection receives, and the receipts and messages that it sends.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <vector>

#include "bindings/base/records.hpp"
#include "bindings/entry/convert.hpp"
#include "bindings/entry/delivery.hpp"
#include "bindings/log/frame.hpp"
#include "holdfast/wire/reader.hpp"
#include "holdfast/wire/writer.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

nb::object checked(PyObject* object) {
    if (object == nullptr) throw nb::python_error();
    return nb::steal(object);
}

// The bytes of any buffer, held while this lives.
class Given {
 public:
    explicit Given(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) < 0) throw nb::python_error();
    }
    Given(const Given&) = delete;
    ~Given() { PyBuffer_Release(&buffer_); }
    std::string_view view() const {
        return {static_cast<const char*>(buffer_.buf), static_cast<std::size_t>(buffer_.len)};
    }

 private:
    Py_buffer buffer_;
};

PyObject* to_int(const std::vector<u64>& words) {
    return _PyLong_FromByteArray(reinterpret_cast<const unsigned char*>(words.data()),
                                 words.size() * 8, 1, 0);
}

// -- what arrives ----------------------------------------------------------------------------------

PyObject* item_of(WireItem&& item) {
    const u64 kind = static_cast<u64>(item.kind);
    switch (item.kind) {
        case WireKind::command:
            return tuple_of(kind, item.id, Steal{to_bytes(item.bytes)});
        case WireKind::sends: {
            const std::string_view sent(reinterpret_cast<const char*>(item.sent.data()),
                                        item.sent.size() * sizeof(SentEntry));
            return tuple_of(kind, item.id, u64{item.sent.size()}, item.messages, item.size,
                            Steal{to_bytes(sent)});
        }
        case WireKind::refused:
            return tuple_of(kind, item.id, item.number, static_cast<u64>(item.fault));
        case WireKind::acks: {
            PyObject* request = item.has_request ? number(item.number) : PyLong_FromLong(-1);
            return tuple_of(kind, item.id, u64{item.cumulative},
                            Steal{nb::cast(std::move(item.ids)).release().ptr()}, Steal{request},
                            Steal{PyBool_FromLong(item.transaction)});
        }
        case WireKind::flow:
            return tuple_of(kind, item.id, item.number);
        case WireKind::passed: {
            const std::string_view sent(reinterpret_cast<const char*>(item.sent.data()),
                                        item.sent.size() * sizeof(SentEntry));
            PyObject* entries = list_of(item.passed, [](const PassedEntry& each) {
                return tuple_of(each.messages, Steal{to_bytes(each.bytes)});
            });
            return tuple_of(kind, item.id, item.messages, item.size, Steal{to_bytes(sent)},
                            Steal{entries});
        }
        case WireKind::broken:
            break;
    }
    return tuple_of(kind, Steal{to_text(item.bytes)});
}

nb::object feed(WireReader& reader, nb::handle data, nb::handle frame, u64 commands_max,
                u64 items_max) {
    std::vector<WireItem> items;
    {
        FrameWriter& writer = writer_of(frame);
        const Given given(data);
        items = reader.feed(given.view(), writer, commands_max, items_max);
    }
    PyObject* out = PyList_New(static_cast<Py_ssize_t>(items.size()));
    if (out == nullptr) throw nb::python_error();
    for (std::size_t i = 0; i < items.size(); ++i) {
        PyObject* item = item_of(std::move(items[i]));
        if (item == nullptr) {
            Py_DECREF(out);
            throw nb::python_error();
        }
        PyList_SET_ITEM(out, static_cast<Py_ssize_t>(i), item);
    }
    return nb::steal(out);
}

// -- ids that are acknowledged ---------------------------------------------------------------------

nb::object ids_ranges(const AckIds& ids) {
    return checked(list_of(
        ids.runs(), [](const IdRun& each) { return tuple_of(each.ledger, each.first, each.end); }));
}

nb::object ids_parts(const AckIds& ids) {
    return checked(list_of(ids.parts(), [](const IdPart& each) {
        return tuple_of(each.ledger, each.entry, u64{each.batch_size}, Steal{to_int(each.open)});
    }));
}

nb::object ids_ledgers(const AckIds& ids) {
    return checked(list_of(ids.ledgers(), [](u64 ledger) { return number(ledger); }));
}

nb::object ids_ordinals(const AckIds& ids, const nb::dict& places) {
    std::vector<LedgerPlace> sorted;
    sorted.reserve(places.size());
    for (const auto& [ledger, place] : places) {
        const auto pair = nb::cast<nb::tuple>(place);
        if (pair.size() != 2) throw nb::type_error("a ledger's extent is (first ordinal, entries)");
        sorted.push_back({nb::cast<u64>(ledger), nb::cast<u64>(pair[0]), nb::cast<u64>(pair[1])});
    }
    std::sort(sorted.begin(), sorted.end(),
              [](const LedgerPlace& a, const LedgerPlace& b) { return a.ledger < b.ledger; });
    return checked(list_of(ids.ordinals(sorted),
                           [](const auto& each) { return tuple_of(each.first, each.second); }));
}

// -- what is sent ----------------------------------------------------------------------------------

std::vector<u64> to_indexes(nb::handle sequence) {
    std::vector<u64> out;
    if (PyTuple_CheckExact(sequence.ptr()) && PyTuple_GET_SIZE(sequence.ptr()) == 0) return out;
    for (nb::handle each : sequence) out.push_back(nb::cast<u64>(each));
    return out;
}

nb::object receipts(u64 producer, nb::bytes sequences, u64 ledger, u64 first_entry,
                    nb::handle duplicates) {
    const std::string_view bytes = view_of_bytes(sequences.ptr());
    if (bytes.size() % sizeof(SentEntry) != 0)
        throw Error(Code::misuse, "the sequences are not bytes that WireReader.feed returned");
    std::vector<SentEntry> sent(bytes.size() / sizeof(SentEntry));
    if (!sent.empty()) std::memcpy(sent.data(), bytes.data(), bytes.size());
    ByteBuffer out;
    encode_receipts(out, producer, sent, ledger, first_entry, to_indexes(duplicates));
    return checked(to_bytes(out.view()));
}

nb::object deliveries(u64 consumer, nb::handle batch, std::optional<u64> epoch,
                      std::optional<u32> partition) {
    if (!Py_IS_TYPE(batch.ptr(), &BatchType)) throw nb::type_error("deliveries are a Batch");
    const auto* object = reinterpret_cast<const BatchObject*>(batch.ptr());
    const Deliveries encoder(object->handover, consumer, epoch, partition);
    nb::object out =
        checked(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(encoder.size())));
    encoder.write(reinterpret_cast<u8*>(PyBytes_AS_STRING(out.ptr())));
    return out;
}

nb::object framed(nb::handle body) {
    const Given given(body);
    ByteBuffer out;
    frame_command(out, given.view());
    return checked(to_bytes(out.view()));
}

}  // namespace

void bind_wire(nb::module_& module) {
    nb::class_<AckIds>(module, "AckIds")
        .def("__len__", &AckIds::count)
        .def_prop_ro("ranges", &ids_ranges)
        .def_prop_ro("parts", &ids_parts)
        .def_prop_ro("ledgers", &ids_ledgers)
        .def("ordinals", &ids_ordinals, nb::arg("places"));
    nb::class_<WireReader>(module, "WireReader")
        .def(nb::init<u64>(), nb::arg("frame_max") = kWireFrameMax)
        .def("set_producer", &WireReader::set_producer, nb::arg("producer_id"), nb::arg("topic"),
             nb::arg("session"), nb::arg("epoch"), nb::arg("name"), nb::arg("delay_max_ms") = 0,
             nb::arg("entry_bytes_max") = 0)
        .def("set_passing_producer", &WireReader::set_passing_producer, nb::arg("producer_id"))
        .def("drop_producer", &WireReader::drop_producer, nb::arg("producer_id"))
        .def("feed", &feed, nb::arg("data"), nb::arg("frame"),
             nb::arg("commands_max") = WireReader::kAll, nb::arg("items_max") = WireReader::kAll)
        .def_prop_rw("frame_max", &WireReader::frame_max, &WireReader::set_frame_max)
        .def_prop_ro("pending", &WireReader::pending)
        .def_prop_ro("stalled", &WireReader::stalled)
        .def_prop_ro("broken", &WireReader::broken);
    module.def("encode_receipts", &receipts, nb::arg("producer_id"), nb::arg("sequences"),
               nb::arg("ledger"), nb::arg("first_entry"), nb::arg("duplicates") = nb::tuple());
    module.def("encode_deliveries", &deliveries, nb::arg("consumer_id"), nb::arg("batch"),
               nb::arg("consumer_epoch") = nb::none(), nb::arg("partition") = nb::none());
    module.def("frame_command", &framed, nb::arg("body"));
}

}  // namespace holdfast::bindings
