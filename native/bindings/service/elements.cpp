// The elements of a service as tuples.
#include <limits>

#include "bindings/base/records.hpp"
#include "bindings/service/objects.hpp"

namespace holdfast::bindings {

namespace {

// False with an exception set.
bool text_into(PyObject* given, const char* what, char* to, std::size_t room) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_Check(given) ? PyUnicode_AsUTF8AndSize(given, &size) : nullptr;
    if (text == nullptr) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "the %s of an element must be str, not %R", what, given);
        return false;
    }
    if (static_cast<std::size_t>(size) >= room) {
        raise("Misuse", std::string("the ") + what + " of an element may have at most " +
                            std::to_string(room - 1) + " bytes in UTF-8, not " +
                            std::to_string(size) + "; shorten it");
        return false;
    }
    std::memcpy(to, text, static_cast<std::size_t>(size));
    return true;
}

template <class Number>
bool number_into(PyObject* given, const char* what, Number& to) {
    const unsigned long long value = PyLong_AsUnsignedLongLong(given);
    if (value == ~0ull && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    if (PyErr_Occurred() || value > std::numeric_limits<Number>::max()) {
        PyErr_Clear();
        PyErr_Format(error_class("Misuse"), "%s of an element cannot be %R", what, given);
        return false;
    }
    to = static_cast<Number>(value);
    return true;
}

bool parse_one(PyObject* tuple, ElementSpec& out) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != 10) {
        PyErr_Format(PyExc_TypeError, "an element is a tuple of 10, not %R", tuple);
        return false;
    }
    const auto item = [&](int i) { return PyTuple_GET_ITEM(tuple, i); };
    return text_into(item(0), "name", out.name, sizeof out.name) &&
           number_into(item(1), "kind", out.kind) && number_into(item(2), "samples", out.samples) &&
           number_into(item(3), "loans", out.loans) &&
           number_into(item(4), "max_subscribers", out.max_subscribers) &&
           number_into(item(5), "calls", out.calls) && number_into(item(6), "size", out.size) &&
           number_into(item(7), "request_size", out.request_size) &&
           number_into(item(8), "response_size", out.response_size) &&
           text_into(item(9), "description", out.about, sizeof out.about);
}

PyObject* text_of(std::string_view text) {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

}  // namespace

bool parse_elements(PyObject* list, std::vector<ElementSpec>& out) {
    if (!PyList_Check(list)) {
        PyErr_Format(PyExc_TypeError, "elements must be a list of tuples, not %R", list);
        return false;
    }
    out.clear();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
        if (!parse_one(PyList_GET_ITEM(list, i), out.emplace_back())) return false;
    }
    return true;
}

PyObject* element_tuples(const ServicePlan& plan) {
    return list_of(plan.elements(), [](const ElementSpec& each) {
        return tuple_of(Steal{text_of(each.name_text())}, u64{each.kind}, u64{each.samples},
                        u64{each.loans}, u64{each.max_subscribers}, u64{each.calls}, each.size,
                        each.request_size, each.response_size, Steal{text_of(each.about_text())});
    });
}

}  // namespace holdfast::bindings
