// Columns and ColumnBatch: entries decoded into Arrow's layout, handed over through the PyCapsule interface.
#include "holdfast/arrow/columns.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/base/errors.hpp"
#include "bindings/base/gil.hpp"
#include "bindings/entry/convert.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

Column column_of(std::string_view name) {
    for (std::size_t i = 0; i < kColumnNames.size(); ++i)
        if (kColumnNames[i] == name) return static_cast<Column>(i);
    throw Error(Code::misuse, "there is no column " + std::string(name));
}

// A capsule that no importer took over releases its content.
template <class Exported>
void drop(PyObject* capsule) {
    auto* held = static_cast<Exported*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule)));
    if (held == nullptr) return PyErr_Clear();
    if (held->release != nullptr) held->release(held);
    delete held;
}

template <class Exported, class Fill>
nb::object capsule(const char* name, Fill fill) {
    auto made = std::make_unique<Exported>();
    made->release = nullptr;
    fill(made.get());
    PyObject* out = PyCapsule_New(made.get(), name, &drop<Exported>);
    if (out == nullptr) {
        made->release(made.get());
        throw nb::python_error();
    }
    made.release();
    return nb::steal(out);
}

// A batch of rows that can be imported any number of times; all imports share its buffers.
struct ColumnBatch {
    std::shared_ptr<ColumnData> data;

    nb::object schema() const {
        return capsule<ArrowSchema>(
            "arrow_schema", [&](ArrowSchema* out) { arrow_export::schema(data->node(), out); });
    }
    nb::tuple array(const nb::object&) const {
        return nb::make_tuple(schema(), capsule<ArrowArray>("arrow_array", [&](ArrowArray* out) {
                                  arrow_export::array(data->node(), data, out);
                              }));
    }
};

const char* name_of(Stop stop) {
    switch (stop) {
        case Stop::end:
            return "end";
        case Stop::full:
            return "full";
        case Stop::compressed:
            return "compressed";
        case Stop::chunk:
            return "chunk";
        case Stop::unsound:
            return "unsound";
    }
    return "";
}

nb::tuple take(ColumnDecoder& decoder, const EntryRun& run, std::size_t at) {
    Stop stop;
    {
        GilRelease release;
        stop = decoder.take(run, at);
    }
    return nb::make_tuple(at, name_of(stop));
}

// With its own sum: nothing is taken from an entry before. Whether its payload is a batch is seen when it is whole and open.
Entry entry_at(const EntryRun& run, std::size_t at, std::string_view bytes) {
    if (at >= run.count()) throw Error(Code::misuse, "the run has no entry at this index");
    Entry entry;
    EntryFault fault = read_frame(bytes, entry.metadata_bytes, entry.payload);
    if (fault == EntryFault::none && !sum_is_right(bytes)) fault = EntryFault::crc;
    if (fault == EntryFault::none) fault = read_metadata(entry.metadata_bytes, entry.metadata);
    if (fault != EntryFault::none)
        throw Error(Code::corrupt, "it is not a message: " + std::string(fault_name(fault)));
    return entry;
}

// The fields of an entry that are needed to get its messages: (compression, uncompressed size, uuid, chunk, chunks, payload).
nb::tuple packed(const EntryRun& run, std::size_t at) {
    const std::string_view bytes = at < run.count() ? run.bytes(at) : std::string_view();
    const Entry entry = entry_at(run, at, bytes);
    const EntryMetadata& found = entry.metadata;
    return nb::make_tuple(found.compression, found.uncompressed_size,
                          nb::bytes(found.uuid.data(), found.uuid.size()), found.chunk,
                          found.chunks, nb::bytes(entry.payload.data(), entry.payload.size()));
}

// The parts of chunked messages in a run: (place in the run, uuid, chunk, chunks).
nb::list chunks(const EntryRun& run) {
    nb::list out;
    for (std::size_t at = 0; at < run.count(); ++at) {
        std::string_view metadata, payload;
        if (read_frame(run.bytes(at), metadata, payload) != EntryFault::none) continue;
        EntryMetadata found;
        if (read_metadata(metadata, found) != EntryFault::none) continue;
        if (found.chunks > 1 && !found.encrypted && sum_is_right(run.bytes(at)))
            out.append(nb::make_tuple(at, nb::bytes(found.uuid.data(), found.uuid.size()),
                                      found.chunk, found.chunks));
    }
    return out;
}

// Returns the uncompressed size of a block of LZ4, by its own lengths; -1: not a block of LZ4. The codec checks the rest.
i64 lz4_size(nb::bytes block) {
    const std::string_view bytes = view_of_bytes(block.ptr());
    std::size_t at = 0;
    u64 size = 0;
    const auto length = [&](u64 nibble) {  // 15: more bytes follow, up to one that is not 255
        u64 out = nibble;
        for (u8 more = 255; nibble == 15 && more == 255 && at < bytes.size();)
            out += more = static_cast<u8>(bytes[at++]);
        return out;
    };
    while (at < bytes.size()) {
        const u8 token = static_cast<u8>(bytes[at++]);
        const u64 literals = length(token >> 4);
        if (literals > bytes.size() - at) return -1;
        at += literals;
        size += literals;
        if (at == bytes.size()) return static_cast<i64>(size);  // the last sequence has no match
        if (bytes.size() - at < 2) return -1;
        at += 2;
        size += 4 + length(token & 15);
    }
    return -1;
}

RowFilter filter_of(const nb::object& min_us, const nb::object& max_us, const nb::object& keys) {
    RowFilter out;
    if (!min_us.is_none()) out.publish_min_us = nb::cast<i64>(min_us);
    if (!max_us.is_none()) out.publish_max_us = nb::cast<i64>(max_us);
    if (!keys.is_none()) {
        out.by_key = true;
        for (nb::handle each : keys)
            out.keys.emplace(view_of_bytes(nb::cast<nb::bytes>(each).ptr()));
    }
    return out;
}

void expand(ColumnDecoder& decoder, u64 ordinal, const nb::object& payload) {
    Py_buffer view;
    if (PyObject_GetBuffer(payload.ptr(), &view, PyBUF_SIMPLE) < 0) throw nb::python_error();
    try {
        decoder.expand(ordinal,
                       {static_cast<const char*>(view.buf), static_cast<std::size_t>(view.len)});
    } catch (...) {
        PyBuffer_Release(&view);
        throw;
    }
    PyBuffer_Release(&view);
}

}  // namespace

void bind_columns(nb::module_& module) {
    nb::class_<ColumnBatch>(module, "ColumnBatch")
        .def("__len__", [](const ColumnBatch& self) { return self.data->rows; })
        .def("__arrow_c_schema__", &ColumnBatch::schema)
        .def("__arrow_c_array__", &ColumnBatch::array,
             nb::arg("requested_schema").none() = nb::none());
    nb::class_<ColumnDecoder>(module, "Columns")
        .def(
            "__init__",
            [](ColumnDecoder* self, const std::vector<std::string>& names, const std::string& topic,
               i32 partition, std::size_t rows_max, std::size_t bytes_max, const nb::object& min_us,
               const nb::object& max_us, const nb::object& keys) {
                std::vector<Column> columns;
                for (const std::string& name : names) columns.push_back(column_of(name));
                constexpr std::size_t kMax = std::size_t{1} << 28;
                if (rows_max < 1 || rows_max > kMax || bytes_max < 1 || bytes_max > kMax)
                    throw Error(Code::misuse, "rows_max and bytes_max are 1 to 2^28");
                new (self) ColumnDecoder(std::move(columns), topic, partition,
                                         filter_of(min_us, max_us, keys), {rows_max, bytes_max});
            },
            nb::arg("names"), nb::arg("topic"), nb::arg("partition"),
            nb::arg("rows_max") = ColumnLimits{}.rows_max,
            nb::arg("bytes_max") = ColumnLimits{}.bytes_max,
            nb::arg("publish_min_us").none() = nb::none(),
            nb::arg("publish_max_us").none() = nb::none(), nb::arg("keys").none() = nb::none())
        .def("__len__", &ColumnDecoder::rows)
        .def("full", &ColumnDecoder::full)
        .def("take", &take, nb::arg("run"), nb::arg("at"))
        .def("expand", &expand, nb::arg("ordinal"), nb::arg("payload"))
        .def("fault", [](const ColumnDecoder& self) { return std::string(self.fault()); })
        .def(
            "corrupt",
            [](ColumnDecoder& self, u64 ledger, u64 entry, u64 ordinal, const std::string& words) {
                self.push_corrupt(ledger, entry, ordinal, words);
            },
            nb::arg("ledger"), nb::arg("entry"), nb::arg("ordinal"), nb::arg("words"))
        .def("finish", [](ColumnDecoder& self) { return ColumnBatch{self.finish()}; });
    module.def("packed_entry", &packed, nb::arg("run"), nb::arg("at"));
    module.def("lz4_size", &lz4_size, nb::arg("block"));
    module.def("chunks_in", &chunks, nb::arg("run"));
}

}  // namespace holdfast::bindings
