// Entries, LedgerFiles and parse_run: runs of entries and where they are read from.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/base/errors.hpp"
#include "bindings/base/gil.hpp"
#include "bindings/entry/convert.hpp"
#include "bindings/entry/delivery.hpp"
#include "holdfast/log/ledger_read.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

// Reads that copy at least this much let other threads run.
constexpr std::size_t kLetGo = std::size_t{64} << 10;

std::size_t index_in(const EntryRun& run, Py_ssize_t i) {
    const auto count = static_cast<Py_ssize_t>(run.count());
    if (i < -count || i >= count) throw nb::index_error("Entries: there is no such entry");
    return static_cast<std::size_t>(i < 0 ? i + count : i);
}

nb::object entry_bytes(const EntryRun& run, Py_ssize_t i) {
    PyObject* bytes = to_bytes(run.bytes(index_in(run, i)));
    if (bytes == nullptr) throw nb::python_error();
    return nb::steal(bytes);
}

nb::object read(LedgerFiles& files, u64 ledger, u64 first_ordinal, u64 entry, std::size_t count_max,
                std::size_t size_max, bool wait, u32 generation, u64 label, bool unread) {
    const ReadRequest request{{ledger, generation},
                              label,
                              first_ordinal,
                              entry,
                              count_max,
                              size_max,
                              wait ? ReadFrom::disk : ReadFrom::memory,
                              unread};
    std::optional<EntryRun> run;
    if (wait || size_max >= kLetGo) {
        GilRelease release;
        run = files.read(request);
    } else {
        run = files.read(request);
    }
    if (!run) return nb::none();
    return nb::cast(std::move(*run));
}

// Ordinals from a sequence of ints, or from bytes: 8 for each, little-endian.
std::vector<u64> to_ordinals(nb::handle given) {
    std::vector<u64> out;
    if (PyBytes_Check(given.ptr())) {
        const std::string_view bytes = view_of_bytes(given.ptr());
        if (bytes.size() % sizeof(u64) != 0)
            throw Error(Code::misuse,
                        "ordinals of " + std::to_string(bytes.size()) + " bytes: each one has 8");
        out.resize(bytes.size() / sizeof(u64));
        if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
        return out;
    }
    out.reserve(nb::len(given));
    for (nb::handle each : given)
        if (!nb::try_cast(each, out.emplace_back()))
            throw nb::type_error("an ordinal is an int from 0 to 2^64 - 1");
    return out;
}

EntryRun spread(const EntryRun& run, nb::handle ordinals, u64 ledger, u64 first_entry,
                u64 first_ordinal, std::size_t count) {
    return run.spread(to_ordinals(ordinals), ledger, first_entry, first_ordinal, count);
}

// The batches with messages that are compacted out: (place in the run, mask of the others).
nb::list open_masks(const EntryRun& run) {
    nb::list out;
    for (std::size_t i = 0; i < run.count(); ++i) {
        if (!run.slot(i).thinned) continue;
        const std::vector<u64> words = run.open_mask(i);
        PyObject* mask = _PyLong_FromByteArray(reinterpret_cast<const unsigned char*>(words.data()),
                                               words.size() * 8, 1, 0);
        if (mask == nullptr) throw nb::python_error();
        out.append(nb::make_tuple(i, nb::steal(mask)));
    }
    return out;
}

u64 time_of(LedgerFiles& files, u64 ledger, u64 entry, u32 generation) {
    GilRelease release;
    return files.read({{ledger, generation}, 0, 0, entry, 1, kLetGo, ReadFrom::disk})->time(0);
}

EntryRun run_of_bytes(u64 ledger, u64 first_ordinal, u64 entry, nb::bytes index, nb::bytes data) {
    return parse_run(ledger, first_ordinal, entry, view_of_bytes(index.ptr()),
                     view_of_bytes(data.ptr()));
}

}  // namespace

void bind_entries(nb::module_& module) {
    if (ready_delivery_types() < 0) throw nb::python_error();
    module.attr("Batch") = nb::borrow(reinterpret_cast<PyObject*>(&BatchType));
    module.attr("TopicMessage") = nb::borrow(reinterpret_cast<PyObject*>(&TopicMessageType));
    nb::class_<EntryRun>(module, "Entries")
        .def("__len__", &EntryRun::count)
        .def_prop_ro("ledger", &EntryRun::ledger)
        .def_prop_ro("first_entry", &EntryRun::first_entry)
        .def_prop_ro("first_ordinal", &EntryRun::first_ordinal)
        .def_prop_ro("end_ordinal", &EntryRun::end_ordinal)
        .def_prop_ro("size", &EntryRun::size)
        .def_prop_ro("space", &EntryRun::space)
        .def("entry", &entry_bytes, nb::arg("i"))
        .def(
            "time", [](const EntryRun& run, Py_ssize_t i) { return run.time(index_in(run, i)); },
            nb::arg("i"))
        .def(
            "messages",
            [](const EntryRun& run, Py_ssize_t i) { return run.messages(index_in(run, i)); },
            nb::arg("i"))
        .def("slice", &EntryRun::slice, nb::arg("start"),
             nb::arg("stop") = std::numeric_limits<std::size_t>::max())
        .def("spread", &spread, nb::arg("ordinals"), nb::arg("ledger"), nb::arg("first_entry"),
             nb::arg("first_ordinal"), nb::arg("count"))
        .def("open_masks", &open_masks);
    nb::class_<LedgerFiles>(module, "LedgerFiles")
        .def(
            "__init__",
            [](LedgerFiles* self, const std::string& directory, nb::bytes incarnation,
               std::size_t open_max) {
                new (self) LedgerFiles(directory, to_incarnation(view_of_bytes(incarnation.ptr())),
                                       std::max<std::size_t>(1, open_max));
            },
            nb::arg("directory"), nb::arg("incarnation"),
            nb::arg("open_max") = LedgerFiles::kOpenMax)
        .def("read", &read, nb::arg("ledger"), nb::arg("first_ordinal"), nb::arg("entry"),
             nb::arg("count_max"), nb::arg("size_max"), nb::arg("wait"), nb::arg("generation") = 0,
             nb::arg("label") = 0, nb::arg("unread") = false)
        .def("time", &time_of, nb::arg("ledger"), nb::arg("entry"), nb::arg("generation") = 0)
        .def("forget", &LedgerFiles::forget, nb::arg("ledger"))
        .def("forget_all", &LedgerFiles::forget_all)
        .def("take_notes", &LedgerFiles::take_notes)
        .def_prop_ro("open_files", &LedgerFiles::open_files);
    module.def("parse_run", &run_of_bytes, nb::arg("ledger"), nb::arg("first_ordinal"),
               nb::arg("entry"), nb::arg("index"), nb::arg("data"));
}

}  // namespace holdfast::bindings
