// TopicView and TopicViewReader: what a broker tells of a topic to processes that read its files.
#include "holdfast/log/publication.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/base/errors.hpp"
#include "bindings/base/gil.hpp"
#include "bindings/entry/convert.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

Incarnation incarnation_of(const nb::bytes& bytes) {
    return to_incarnation(view_of_bytes(bytes.ptr()));
}

ViewState state_of(const std::string& name) {
    if (name == "live") return ViewState::live;
    if (name == "closed") return ViewState::closed;
    if (name == "gone") return ViewState::gone;
    throw Error(Code::misuse, "a topic is live, closed or gone, not " + name);
}

const char* name_of(ViewState state) {
    return state == ViewState::live ? "live" : state == ViewState::closed ? "closed" : "gone";
}

nb::tuple read(const TopicViewReader& reader) {
    const ViewedTopic seen = reader.read();
    char bytes[sizeof(Incarnation)];
    std::memcpy(bytes, &seen.incarnation, sizeof bytes);
    return nb::make_tuple(nb::bytes(bytes, sizeof bytes), seen.first, seen.visible, seen.table,
                          name_of(seen.state));
}

}  // namespace

void bind_publication(nb::module_& module) {
    nb::class_<TopicView>(module, "TopicView")
        .def(
            "__init__",
            [](TopicView* self, const std::string& path, u64 topic, const nb::bytes& directory) {
                new (self) TopicView(path, topic, incarnation_of(directory));
            },
            nb::arg("path"), nb::arg("topic"), nb::arg("directory"))
        .def(
            "publish",
            [](TopicView& view, const nb::bytes& incarnation, u64 first, u64 visible, u64 table,
               const std::string& state) {
                view.publish({incarnation_of(incarnation), first, visible, table, state_of(state)});
            },
            nb::arg("incarnation"), nb::arg("first"), nb::arg("visible"), nb::arg("table"),
            nb::arg("state") = "live")
        .def("sync", &TopicView::sync, nb::call_guard<GilRelease>());
    nb::class_<TopicViewReader>(module, "TopicViewReader")
        .def(
            "__init__",
            [](TopicViewReader* self, const std::string& path, u64 topic,
               const nb::bytes& directory) {
                new (self) TopicViewReader(path, topic, incarnation_of(directory));
            },
            nb::arg("path"), nb::arg("topic"), nb::arg("directory"))
        .def("read", &read)
        .def("moved", &TopicViewReader::moved);
}

}  // namespace holdfast::bindings
