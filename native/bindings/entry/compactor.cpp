// The compactor for Python: runs of entries go in, entries that survive come out.
#include "holdfast/entry/compactor.hpp"

#include <nanobind/nanobind.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/base/errors.hpp"
#include "bindings/base/gil.hpp"
#include "bindings/entry/convert.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

void make(Compactor* self, std::size_t memory_bytes, bool keep_keyless, nb::bytes key) {
    const std::string_view bytes = view_of_bytes(key.ptr());
    if (bytes.size() != sizeof(SipKey))
        throw Error(Code::misuse, "the key of a compactor has " + std::to_string(bytes.size()) +
                                      " bytes; use 16 random ones");
    Compactor::Options options{memory_bytes, keep_keyless, {}};
    std::memcpy(&options.key, bytes.data(), bytes.size());
    new (self) Compactor(options);
}

// Views into the caller's objects, which it holds until the call returns.
std::vector<std::pair<std::size_t, std::string_view>> to_opened(nb::list given) {
    std::vector<std::pair<std::size_t, std::string_view>> out;
    out.reserve(nb::len(given));
    for (nb::handle each : given) {
        const nb::tuple pair = nb::cast<nb::tuple>(each);
        const nb::bytes payload = nb::cast<nb::bytes>(pair[1]);
        out.emplace_back(nb::cast<std::size_t>(pair[0]), view_of_bytes(payload.ptr()));
    }
    return out;
}

nb::list packed_batches(const EntryRun& run) {
    nb::list out;
    each_packed(run,
                [&](std::size_t place, const EntryMetadata& metadata, std::string_view payload) {
                    PyObject* bytes = to_bytes(payload);
                    if (bytes == nullptr) throw nb::python_error();
                    out.append(nb::make_tuple(place, metadata.compression,
                                              metadata.uncompressed_size, nb::steal(bytes)));
                });
    return out;
}

void note(Compactor& self, const EntryRun& run, nb::list given) {
    const auto opened = to_opened(given);
    GilRelease release;
    self.note(run, opened);
}

nb::list take(Compactor& self, const EntryRun& run, nb::list given) {
    const auto opened = to_opened(given);
    std::vector<std::pair<u64, std::string>> found;
    {
        GilRelease release;
        self.take(run, opened, [&](u64 ordinal, std::string_view bytes) {
            found.emplace_back(ordinal, std::string(bytes));
        });
    }
    nb::list out;
    for (const auto& [ordinal, bytes] : found) {
        PyObject* entry = to_bytes(bytes);
        if (entry == nullptr) throw nb::python_error();
        out.append(nb::make_tuple(ordinal, nb::steal(entry)));
    }
    return out;
}

nb::object compressed_entry(nb::bytes entry, u32 compression, nb::bytes payload) {
    const std::string made =
        compressed(view_of_bytes(entry.ptr()), compression, view_of_bytes(payload.ptr()));
    PyObject* bytes = to_bytes(made);
    if (bytes == nullptr) throw nb::python_error();
    return nb::steal(bytes);
}

}  // namespace

void bind_compactor(nb::module_& module) {
    module.def("packed_batches", &packed_batches, nb::arg("entries"));
    module.def("compressed_entry", &compressed_entry, nb::arg("entry"), nb::arg("compression"),
               nb::arg("payload"));
    nb::class_<Compactor>(module, "Compactor")
        .def("__init__", &make, nb::arg("memory_bytes"), nb::arg("keep_keyless"), nb::arg("key"))
        .def("note", &note, nb::arg("entries"), nb::arg("opened"))
        .def("end_pass", &Compactor::end_pass)
        .def("take", &take, nb::arg("entries"), nb::arg("opened"))
        .def("finish", &Compactor::finish)
        .def_prop_ro("read", &Compactor::read)
        .def_prop_ro("kept", &Compactor::kept)
        .def_prop_ro("passes", &Compactor::passes)
        .def_prop_ro("memory", &Compactor::memory);
}

}  // namespace holdfast::bindings
