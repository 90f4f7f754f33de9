// The common part of ChannelProducer and ChannelConsumer: their life, and how a program waits for them.
#include <nanobind/nanobind.h>
#include <unistd.h>

#include "bindings/base/arguments.hpp"
#include "bindings/channel/objects.hpp"
#include "bindings/channel/segment.hpp"
#include "bindings/shm/waiting.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

PyTypeObject ProducerType{};
PyTypeObject ConsumerType{};

namespace {

PyObject* role_listen(PyObject* object, PyObject*) {
    RoleObject* self = role_of(object);
    if (!usable(self)) return nullptr;
    return PyLong_FromUnsignedLong(self->hold->listen());
}

PyObject* role_enter(PyObject* object, PyObject*) {
    return usable(role_of(object)) ? Py_NewRef(object) : nullptr;
}

PyObject* role_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
    return role_close(self, nullptr);
}

PyObject* role_name_(PyObject* object, void*) {
    return PyUnicode_FromString(role_of(object)->hold->name().c_str());
}
PyObject* role_slot(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(role_of(object)->hold->slot());
}
PyObject* role_attached(PyObject* object, void*) {
    return PyBool_FromLong(role_of(object)->hold->usable());
}
PyObject* role_spin(PyObject* object, void*) {
    return PyFloat_FromDouble(static_cast<double>(role_of(object)->spin_ns) / 1e9);
}
int role_set_spin(PyObject* object, PyObject* value, void*) {
    const double seconds = value == nullptr ? -1 : PyFloat_AsDouble(value);
    if (seconds == -1 && PyErr_Occurred()) return -1;
    if (!(seconds >= 0 && seconds <= 10)) {
        raise("Misuse", "spin is a time in seconds, from 0 (sleep at once) to 10");
        return -1;
    }
    role_of(object)->spin_ns = static_cast<u64>(seconds * 1e9);
    return 0;
}
PyObject* role_as_array(PyObject* object, void*) {
    PyObject* call = role_of(object)->as_array;
    return Py_NewRef(call == nullptr ? Py_None : call);
}
int role_set_as_array(PyObject* object, PyObject* value, void*) {
    Py_XSETREF(role_of(object)->as_array, Py_XNewRef(value));
    return 0;
}

Bell bell_of_role(PyObject* object, bool) {
    const std::shared_ptr<ChannelHold>& hold = role_of(object)->hold;
    return {hold, hold->bell()};
}

template <class Hold>
PyObject* role_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* given;
    unsigned number = ChannelHold::kAnyProducer;
    if (!PyArg_ParseTuple(args, "O|I", &given, &number)) return nullptr;
    return guarded(
        [&]() -> PyObject* {
            ChannelSegment* channel = nullptr;
            if (!nb::try_cast(nb::handle(given), channel) || channel == nullptr) {
                PyErr_SetString(PyExc_TypeError, "a role needs a ChannelSegment");
                return nullptr;
            }
            // First the role: an object without one is never seen.
            std::shared_ptr<Hold> hold;
            if constexpr (std::is_same_v<Hold, ProducerHold>)
                hold = std::make_shared<Hold>(*channel->segment, number);
            else
                hold = std::make_shared<Hold>(*channel->segment);
            PyObject* object = type->tp_alloc(type, 0);
            if (object == nullptr) {
                hold->resign();
                hold->leave();
                return nullptr;
            }
            RoleObject* self = role_of(object);
            if constexpr (std::is_same_v<Hold, ProducerHold>)
                self->producer = hold.get();
            else
                self->consumer = hold.get();
            const u32 buffers = hold->buffers();
            new (&self->hold) std::shared_ptr<ChannelHold>(std::move(hold));
            new (&self->lent) std::vector<BufferObject*>(buffers);
            self->spin_ns = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 50'000 : 0;
            return object;
        },
        static_cast<PyObject*>(nullptr));
}

void role_dealloc(PyObject* object) {
    RoleObject* self = role_of(object);
    self->hold->resign();  // a buffer that the program has would keep this object
    self->hold->leave();
    self->hold.~shared_ptr();
    self->lent.~vector();
    Py_CLEAR(self->as_array);
    Py_TYPE(object)->tp_free(object);
}

PyGetSetDef role_getset[] = {
    {"name", role_name_, nullptr, "The channel's name.", nullptr},
    {"slot", role_slot, nullptr, "This attachment's slot.", nullptr},
    {"attached", role_attached, nullptr, "False after close() and in a forked child.", nullptr},
    {"spin", role_spin, role_set_spin, "Seconds to spin before a waiting call sleeps.", nullptr},
    {"_as_array", role_as_array, role_set_as_array, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMethodDef role_methods[] = {
    {"close", plain<role_close>, METH_NOARGS, "Give up the role and detach."},
    {"_listen", plain<role_listen>, METH_O, nullptr},
    {"__enter__", role_enter, METH_NOARGS, nullptr},
    {"__exit__", method(role_exit), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

bool ready_role(PyTypeObject& type, const char* name, newfunc make, PyMethodDef* methods,
                PyGetSetDef* getset) {
    immortalise(type);
    type.tp_name = name;
    type.tp_basicsize = sizeof(RoleObject);
    type.tp_new = make;
    type.tp_dealloc = role_dealloc;
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
    type.tp_methods = role_methods;
    type.tp_getset = role_getset;
    if (PyType_Ready(&type) < 0) return false;
    for (PyMethodDef* each = methods; each->ml_name != nullptr; ++each) {
        PyObject* made = PyDescr_NewMethod(&type, each);
        if (made == nullptr || PyDict_SetItemString(type.tp_dict, each->ml_name, made) < 0)
            return false;
        Py_DECREF(made);
    }
    for (PyGetSetDef* each = getset; each->name != nullptr; ++each) {
        PyObject* made = PyDescr_NewGetSet(&type, each);
        if (made == nullptr || PyDict_SetItemString(type.tp_dict, each->name, made) < 0)
            return false;
        Py_DECREF(made);
    }
    PyType_Modified(&type);
    register_waitable(&type, &bell_of_role);
    return true;
}

}  // namespace

void leave_if_done(RoleObject* role) {
    if (role->hold->resigned() && role->exports == 0) role->hold->leave();
}

// Buffers that the program still looks at stay out of circulation: their owner is this slot, which stays, too.
PyObject* role_close(PyObject* object, PyObject*) {
    RoleObject* self = role_of(object);
    ChannelHold& hold = *self->hold;
    if (!hold.still_usable()) Py_RETURN_NONE;
    if (self->busy > 0) {
        raise("Misuse", "the " + std::string(role_name(hold.role())) + " of channel " +
                            hold.name() + " is in use by " + std::to_string(self->busy) +
                            " other threads; let them finish, then close it");
        return nullptr;
    }
    for (BufferObject* each : self->lent) {
        if (each == nullptr) continue;
        if (each->exports > 0 && self->producer != nullptr) self->producer->keep(each->number);
        finish(each);
    }
    hold.resign();
    leave_if_done(self);
    Py_RETURN_NONE;
}

int ready_channel_types() {
    if (ready_buffer_types() < 0) return -1;
    const bool ready = ready_role(ProducerType, "holdfast._core.ChannelProducer",
                                  &role_new<ProducerHold>, producer_methods, producer_getset) &&
                       ready_role(ConsumerType, "holdfast._core.ChannelConsumer",
                                  &role_new<ConsumerHold>, consumer_methods, consumer_getset);
    return ready ? 0 : -1;
}

}  // namespace holdfast::bindings
