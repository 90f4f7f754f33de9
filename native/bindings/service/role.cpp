// The common part of ServiceProvider and ServiceProxy: their life, and how a program waits for them.
#include <unistd.h>

#include "bindings/base/arguments.hpp"
#include "bindings/base/gil.hpp"
#include "bindings/service/objects.hpp"
#include "bindings/shm/waiting.hpp"

namespace holdfast::bindings {

PyTypeObject ServiceProviderType{};
PyTypeObject ServiceProxyType{};
PyTypeObject ServiceBellType{};

namespace {

// False with an exception set: there is no hold, since __init__ has not run.
bool initialised(const ServiceObject* self) {
    if (self->hold != nullptr) [[likely]]
        return true;
    raise_unusable(self);
    return false;
}

template <auto Get>
PyObject* get(PyObject* object, void*) {
    ServiceObject* self = service_of(object);
    if (!initialised(self)) return nullptr;
    return guarded([&]() -> PyObject* { return Get(self); }, nullptr);
}

PyObject* name_of(ServiceObject* self) {
    return PyUnicode_FromString(self->hold->name().c_str());
}
PyObject* slot_of(ServiceObject* self) {
    return PyLong_FromUnsignedLong(self->hold->slot());
}
PyObject* attached_of(ServiceObject* self) {
    return PyBool_FromLong(!self->closed && self->hold->usable());
}
PyObject* epoch_of(ServiceObject* self) {
    return PyLong_FromUnsignedLongLong(self->hold->epoch());
}
PyObject* has_name_of(ServiceObject* self) {
    return PyBool_FromLong(self->hold->has_name());
}
PyObject* elements_of(ServiceObject* self) {
    return element_tuples(self->hold->plan());
}
PyObject* offered_of(ServiceObject* self) {
    return usable(self) ? PyBool_FromLong(self->hold->offered()) : nullptr;
}
PyObject* provided_of(ServiceObject* self) {
    return PyBool_FromLong(self->hold->provided());
}
PyObject* provider_pid_of(ServiceObject* self) {
    return PyLong_FromUnsignedLong(self->hold->provider_pid());
}
PyObject* reused_of(ServiceObject* self) {
    return PyBool_FromLong(self->provider->reused());
}
PyObject* tracer_of(ServiceObject* self) {
    return PyBool_FromLong(self->proxy->tracer());
}

PyObject* get_spin(PyObject* object, void*) {
    return PyFloat_FromDouble(static_cast<double>(service_of(object)->spin_ns) / 1e9);
}
int set_spin(PyObject* object, PyObject* value, void*) {
    const double seconds = value == nullptr ? -1 : PyFloat_AsDouble(value);
    if (seconds == -1 && PyErr_Occurred()) return -1;
    if (!(seconds >= 0 && seconds <= 10)) {
        raise("Misuse", "spin is a time in seconds, from 0 (sleep at once) to 10");
        return -1;
    }
    service_of(object)->spin_ns = static_cast<u64>(seconds * 1e9);
    return 0;
}
PyObject* get_as_array(PyObject* object, void*) {
    PyObject* list = service_of(object)->as_array;
    return Py_NewRef(list == nullptr ? Py_None : list);
}
int set_as_array(PyObject* object, PyObject* value, void*) {
    ServiceObject* self = service_of(object);
    if (!initialised(self)) return -1;
    if (value == nullptr || !PyList_Check(value) ||
        PyList_GET_SIZE(value) != static_cast<Py_ssize_t>(self->elements.size())) {
        raise("Misuse", "_as_array is a list with a function or None for each element");
        return -1;
    }
    Py_XSETREF(self->as_array, Py_NewRef(value));
    return 0;
}

void adopt(ServiceObject* self, std::shared_ptr<ServiceHold> hold) {
    self->elements.resize(hold->plan().count());
    self->hold = std::move(hold);
    self->spin_ns = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 50'000 : 0;
}

bool not_yet_initialised(ServiceObject* self) {
    if (self->hold == nullptr) return true;
    raise("Misuse", "service " + self->hold->name() + ": __init__ was called before");
    return false;
}

int provider_init(PyObject* object, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"directory",   "name",  "application",    "elements",
                                  "mode",        "group", "first_sequence", "first_call",
                                  "first_epoch", nullptr};
    ServiceObject* self = service_of(object);
    const char *directory, *name, *application;
    PyObject* elements;
    unsigned mode;
    long group;
    unsigned long long sequence = 0, call = 0, epoch = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "sssOIl|KKK", const_cast<char**>(names),
                                     &directory, &name, &application, &elements, &mode, &group,
                                     &sequence, &call, &epoch) ||
        !not_yet_initialised(self))
        return -1;
    return guarded(
        [&] {
            OfferSpec spec;
            if (!parse_elements(elements, spec.elements)) return -1;
            spec.directory = directory;
            spec.name = name;
            spec.application = application;
            spec.mode = mode;
            spec.gid = group < 0 ? kSameGroup : static_cast<gid_t>(group);
            spec.age = {sequence, call, epoch};
            std::shared_ptr<ProviderHold> hold;
            {
                const GilRelease release;
                hold = ProviderHold::offer(spec);
            }
            if (!not_yet_initialised(self)) return -1;  // by another thread meanwhile
            self->provider = hold.get();
            adopt(self, std::move(hold));
            return 0;
        },
        -1);
}

int proxy_init(PyObject* object, PyObject* args, PyObject* keywords) {
    static const char* names[] = {"directory", "name", "application", "tracer", nullptr};
    ServiceObject* self = service_of(object);
    const char *directory, *name, *application;
    int tracer = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "sss|p", const_cast<char**>(names), &directory,
                                     &name, &application, &tracer) ||
        !not_yet_initialised(self))
        return -1;
    return guarded(
        [&] {
            const std::string where = directory, what = name, who = application;
            std::shared_ptr<ProxyHold> hold;
            {
                const GilRelease release;
                hold = ProxyHold::connect(where, what, who, tracer != 0);
            }
            if (self->hold != nullptr) hold->leave();
            if (!not_yet_initialised(self)) return -1;  // by another thread meanwhile
            self->proxy = hold.get();
            adopt(self, std::move(hold));
            return 0;
        },
        -1);
}

PyObject* service_new(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* object = type->tp_alloc(type, 0);
    if (object == nullptr) return nullptr;
    ServiceObject* self = service_of(object);
    new (&self->hold) std::shared_ptr<ServiceHold>();
    new (&self->elements) std::vector<ElementState>();
    return object;
}

void service_dealloc(PyObject* object) {
    ServiceObject* self = service_of(object);
    self->closed = true;  // no sample is lent: it would keep this object
    leave_if_done(self);
    self->hold.~shared_ptr();
    self->elements.~vector();
    Py_CLEAR(self->as_array);
    Py_TYPE(object)->tp_free(object);
}

// Samples that the program still has stay as they are; the slot stays with them until the last view is gone.
PyObject* service_close(PyObject* object, PyObject*) {
    ServiceObject* self = service_of(object);
    if (self->hold == nullptr || self->closed) Py_RETURN_NONE;
    self->closed = true;
    self->hold->still_usable();
    if (self->provider != nullptr) {
        for (ElementState& each : self->elements) {
            const std::vector<SampleObject*> loans = each.held;
            for (SampleObject* loan : loans) finish(loan);
        }
    }
    if (self->lent > 0 || self->busy > 0 || self->waiting > 0) {
        if (self->provider != nullptr) self->provider->resign();
        self->hold->wake_all();
    }
    leave_if_done(self);
    Py_RETURN_NONE;
}

PyObject* service_reap(PyObject* object, PyObject*) {
    ServiceObject* self = service_of(object);
    if (!still_usable(self)) return nullptr;
    return PyLong_FromUnsignedLong(self->hold->reap_all());
}

PyObject* service_inspect(PyObject* object, PyObject*) {
    ServiceObject* self = service_of(object);
    return still_usable(self) ? inspect_hold(*self->hold) : nullptr;
}

PyObject* service_enter(PyObject* object, PyObject*) {
    return usable(service_of(object)) ? Py_NewRef(object) : nullptr;
}
PyObject* service_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
    return guarded([&] { return service_close(object, nullptr); }, nullptr);
}

PyMethodDef service_methods[] = {
    {"close", plain<service_close>, METH_NOARGS,
     "Leave the service; what the program looks at stays until its last view is gone."},
    {"reap", plain<service_reap>, METH_NOARGS,
     "Clear what dead processes left; return how many there were."},
    {"inspect", plain<service_inspect>, METH_NOARGS, "Look at the instance, as inspect_service()."},
    {"__enter__", service_enter, METH_NOARGS, nullptr},
    {"__exit__", method(service_exit), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

#define SERVICE_COMMON_GETSET                                                                      \
    {"name", get<name_of>, nullptr, "The instance's name.", nullptr},                              \
        {"slot", get<slot_of>, nullptr, "This participant's slot.", nullptr},                      \
        {"attached", get<attached_of>, nullptr, "False after close() and in a forked child.",      \
         nullptr},                                                                                 \
        {"epoch", get<epoch_of>, nullptr, "How often the instance was offered.", nullptr},         \
        {"has_name", get<has_name_of>, nullptr, "The name still leads to this segment.", nullptr}, \
        {"elements", get<elements_of>, nullptr, "The elements, as tuples.", nullptr},              \
        {"spin", get_spin, set_spin, "Seconds to spin before a waiting call sleeps.", nullptr}, {  \
        "_as_array", get_as_array, set_as_array, nullptr, nullptr                                  \
    }

PyGetSetDef provider_getset[] = {SERVICE_COMMON_GETSET,
                                 {"reused", get<reused_of>, nullptr,
                                  "True: proxies of an earlier offer use the segment.", nullptr},
                                 {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef proxy_getset[] = {
    SERVICE_COMMON_GETSET,
    {"tracer", get<tracer_of>, nullptr, "True: the provider hands it every sample.", nullptr},
    {"offered", get<offered_of>, nullptr, "True: a living provider offers the instance.", nullptr},
    {"provided", get<provided_of>, nullptr,
     "A provider has begun and not said that it ends; it may be dead.", nullptr},
    {"provider_pid", get<provider_pid_of>, nullptr, "The pid of the provider, or of the last one.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

bool add_methods(PyTypeObject& type, PyMethodDef* methods) {
    for (PyMethodDef* each = methods; each->ml_name != nullptr; ++each) {
        PyObject* made = PyDescr_NewMethod(&type, each);
        if (made == nullptr || PyDict_SetItemString(type.tp_dict, each->ml_name, made) < 0)
            return false;
        Py_DECREF(made);
    }
    PyType_Modified(&type);
    return true;
}

bool ready_role(PyTypeObject& type, const char* name, const char* doc, initproc init,
                PyGetSetDef* getset) {
    immortalise(type);
    type.tp_name = name;
    type.tp_doc = doc;
    type.tp_basicsize = sizeof(ServiceObject);
    type.tp_new = service_new;
    type.tp_init = init;
    type.tp_dealloc = service_dealloc;
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
    type.tp_methods = service_methods;
    type.tp_getset = getset;
    return PyType_Ready(&type) == 0;
}

// Bells

void bell_dealloc(PyObject* object) {
    Py_DECREF(reinterpret_cast<BellObject*>(object)->owner);
    PyObject_Free(object);
}

PyObject* bell_listen(PyObject* object, PyObject*) {
    auto* self = reinterpret_cast<BellObject*>(object);
    if (!usable(self->owner)) return nullptr;
    return PyLong_FromUnsignedLong(self->owner->hold->listen(self->word));
}

Bell find_bell(PyObject* object, bool) {
    auto* self = reinterpret_cast<BellObject*>(object);
    return {self->owner->hold, self->word};
}

PyMethodDef bell_methods[] = {{"_listen", plain<bell_listen>, METH_O, nullptr},
                              {nullptr, nullptr, 0, nullptr}};

bool ready_bell() {
    PyTypeObject& type = ServiceBellType;
    immortalise(type);
    type.tp_name = "holdfast._core.ServiceBell";
    type.tp_doc = "A bell for the waiter: of samples and responses of an element, or of calls.";
    type.tp_basicsize = sizeof(BellObject);
    type.tp_dealloc = bell_dealloc;
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    type.tp_methods = bell_methods;
    if (PyType_Ready(&type) < 0) return false;
    register_waitable(&type, &find_bell);
    return true;
}

}  // namespace

PyObject* bell_new(ServiceObject* owner, u32* word) {
    BellObject* self = PyObject_New(BellObject, &ServiceBellType);
    if (self == nullptr) return nullptr;
    self->owner = service_of(Py_NewRef(owner));
    self->word = word;
    return reinterpret_cast<PyObject*>(self);
}

void leave_if_done(ServiceObject* self) {
    if (!self->closed || self->lent > 0 || self->busy > 0 || self->hold == nullptr) return;
    try {
        if (self->provider != nullptr) {
            self->provider->stop();
        } else if (self->hold->usable()) {
            for (u32 element = 0; element < self->elements.size(); ++element)
                self->proxy->unsubscribe(element);
            self->proxy->leave();
        }
    } catch (const std::exception&) {
        // No memory for a path: the process's end releases the rest.
    }
}

bool parse_element(ServiceObject* self, PyObject* given, const char* what, u32& element) {
    const Py_ssize_t value = PyNumber_AsSsize_t(given, nullptr);
    if (value == -1 && PyErr_Occurred()) return false;
    if (!usable(self)) return false;  // `__index__` may have closed it
    const ServicePlan& plan = self->hold->plan();
    if (value < 0 || value >= static_cast<Py_ssize_t>(plan.count())) {
        raise("Misuse", "element " + std::to_string(value) + " does not exist: service " +
                            self->hold->name() + " has " + std::to_string(plan.count()) +
                            ", from 0");
        return false;
    }
    element = static_cast<u32>(value);
    const ElementSpec& spec = plan.element(element);
    if ((*what == 's' ? spec.samples : spec.calls) != 0) [[likely]]
        return true;
    raise("Misuse", words_of(*self->hold, element) + " has no " + what +
                        "; use an element that is declared with them");
    return false;
}

int ready_service_types() {
    const bool ready =
        ready_role(ServiceProviderType, "holdfast._core.ServiceProvider",
                   "A service instance that this process offers.", provider_init,
                   provider_getset) &&
        ready_role(ServiceProxyType, "holdfast._core.ServiceProxy",
                   "A service instance that this process uses.", proxy_init, proxy_getset) &&
        add_methods(ServiceProviderType, provider_methods) &&
        add_methods(ServiceProviderType, running_methods) &&
        add_methods(ServiceProxyType, proxy_methods) &&
        add_methods(ServiceProxyType, calling_methods) && ready_bell() &&
        ready_sample_types() == 0 && ready_call_type() == 0;
    return ready ? 0 : -1;
}

}  // namespace holdfast::bindings
