// Answers for Python: tuples of numbers, and records, which are tuples with names.
#pragma once

#include <nanobind/nanobind.h>

#include <initializer_list>
#include <vector>

#include "holdfast/base/types.hpp"

namespace holdfast::bindings {

// A new reference that its receiver takes over; null is passed on as a failure.
struct Steal {
    PyObject* object;
};

inline PyObject* number(u64 value) {
    return PyLong_FromUnsignedLongLong(value);
}

namespace detail {
inline PyObject* item(u64 value) {
    return number(value);
}
inline PyObject* item(Steal value) {
    return value.object;
}
}  // namespace detail

// Null with an exception set if there was no memory.
template <class... Items>
PyObject* tuple_of(Items... items) {
    PyObject* made[] = {detail::item(items)...};
    bool complete = true;
    for (PyObject* each : made) complete &= each != nullptr;
    PyObject* out = complete ? PyTuple_New(sizeof...(Items)) : nullptr;
    for (std::size_t i = 0; i < sizeof...(Items); ++i) {
        if (out != nullptr)
            PyTuple_SET_ITEM(out, static_cast<Py_ssize_t>(i), made[i]);
        else
            Py_XDECREF(made[i]);
    }
    return out;
}

template <class Rows, class Describe>
PyObject* list_of(const Rows& rows, Describe describe) {
    PyObject* out = PyList_New(static_cast<Py_ssize_t>(rows.size()));
    if (out == nullptr) return nullptr;
    Py_ssize_t i = 0;
    for (const auto& each : rows) {
        PyObject* row = describe(each);
        if (row == nullptr) {
            Py_DECREF(out);
            return nullptr;
        }
        PyList_SET_ITEM(out, i++, row);
    }
    return out;
}

// The type of a record, made when the module is.
struct Record {
    PyTypeObject* type = nullptr;

    void make(nanobind::module_& module, const char* name,
              std::initializer_list<const char*> fields) {
        // CPython keeps pointers to all of this for good.
        auto* list = new std::vector<PyStructSequence_Field>;
        for (const char* field : fields) list->push_back({field, nullptr});
        list->push_back({nullptr, nullptr});
        auto* words = new std::string(std::string("holdfast._core.") + name);
        PyStructSequence_Desc description{words->c_str(), nullptr, list->data(),
                                          static_cast<int>(fields.size())};
        type = PyStructSequence_NewType(&description);
        if (type == nullptr) throw nanobind::python_error();
        module.attr(name) = nanobind::borrow(reinterpret_cast<PyObject*>(type));
    }
};

// One record while it is filled, in the order of its fields.
class Row {
 public:
    explicit Row(const Record& record) : out_(PyStructSequence_New(record.type)) {
        if (out_ == nullptr) throw nanobind::python_error();
    }
    Row(const Row&) = delete;
    ~Row() { Py_XDECREF(out_); }

    void add(PyObject* value) {
        if (value == nullptr) throw nanobind::python_error();
        PyStructSequence_SET_ITEM(out_, next_++, value);
    }

    nanobind::object take() { return nanobind::steal(std::exchange(out_, nullptr)); }

 private:
    PyObject* out_;
    Py_ssize_t next_ = 0;
};

}  // namespace holdfast::bindings
