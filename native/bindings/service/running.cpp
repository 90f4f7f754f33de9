// ServiceProvider: run; and ServiceCall, the call that it runs.
//
// Threads: a call runs under the GIL, except that it spins, sleeps and copies large requests and responses without it.
#include "bindings/base/arguments.hpp"
#include "bindings/service/objects.hpp"
#include "bindings/service/waiting.hpp"

namespace holdfast::bindings {

PyTypeObject ServiceCallType{};

namespace {

constexpr u32 kDropped = 2;  // the status of a call that the program dropped without an answer

CallObject* call_of(PyObject* object) {
    return reinterpret_cast<CallObject*>(object);
}

RunningCall running(const CallObject* self) {
    RunningCall call;
    call.element = self->element;
    call.place = self->place;
    call.word = self->word;
    return call;
}

// Answers without bytes; for calls that never reach the program's answer.
void answer_dropped(ServiceObject* owner, const RunningCall& call) {
    if (owner->hold->usable()) owner->provider->answer(call, kDropped, 0);
}

PyObject* call_new(ServiceObject* owner, const RunningCall& taken) {
    const auto [from, size] = owner->provider->request(taken);
    PyObject* request = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
    CallObject* self = request == nullptr ? nullptr : PyObject_New(CallObject, &ServiceCallType);
    if (self == nullptr) {
        Py_XDECREF(request);
        answer_dropped(owner, taken);
        return nullptr;
    }
    self->owner = service_of(Py_NewRef(owner));
    self->request = request;
    self->word = taken.word;
    self->element = taken.element;
    self->place = taken.place;
    self->answered = false;
    const ServiceBusy busy(owner);
    const std::byte* data = from;
    CopyWithoutGil()(size,
                     [&, bytes = size] { copy_bytes(PyBytes_AS_STRING(request), data, bytes); });
    return reinterpret_cast<PyObject*>(self);
}

PyObject* provider_run(PyObject* object, PyObject* const* args, Py_ssize_t count,
                       PyObject* kwnames) {
    ServiceObject* self = service_of(object);
    static const char* const names[] = {"timeout"};
    PyObject* given[1];
    double timeout = -1;
    if (count != 0 || kwnames != nullptr) {
        if (!parse("run", args, count, kwnames, names, 1, 0, given)) return nullptr;
        if (given[0] != nullptr && !parse_timeout(given[0], timeout)) return nullptr;
    }
    if (!usable(self)) return nullptr;
    ProviderHold* hold = self->provider;
    RunningCall taken;
    const auto look = [hold] { return hold->looks_called(); };
    if (hold->take_call(taken) ||
        (timeout != 0 && comes_soon(self, look) && hold->take_call(taken))) [[likely]]
        return call_new(self, taken);
    const std::string nothing = "there is no call for service " + hold->name();
    if (timeout == 0) {
        raise_nothing(self, nothing, 0, true);
        return nullptr;
    }
    const TimeLimit time(timeout);
    const auto attempt = [&](bool) { return hold->take_call(taken) ? Tried::ok : Tried::blocked; };
    const auto late = [&](double waited_s) { raise_nothing(self, nothing, waited_s, false); };
    if (!wait_for(self, hold->provider_bell(), time, attempt, look, late)) return nullptr;
    return call_new(self, taken);
}

// ServiceCall

void call_dealloc(PyObject* object) {
    CallObject* self = call_of(object);
    if (!self->answered) answer_dropped(self->owner, running(self));
    Py_DECREF(self->request);
    Py_DECREF(self->owner);
    PyObject_Free(object);
}

struct Payload {
    const std::byte* data = nullptr;
    u64 size = 0;
};

bool parse_status(PyObject* given, u32& status) {
    const unsigned long long value = PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_TypeError)) return false;
    if (!PyErr_Occurred() && value <= 0xffffffffu) [[likely]] {
        status = static_cast<u32>(value);
        return true;
    }
    PyErr_Clear();
    PyErr_Format(error_class("Misuse"), "a status is a number from 0 to 2**32 - 1, not %R", given);
    return false;
}

bool unanswered(CallObject* self) {
    if (!self->answered) [[likely]]
        return true;
    raise("Misuse", "this call of " + words_of(*self->owner->hold, self->element) +
                        " was answered before; answer it once");
    return false;
}

PyObject* call_answer(PyObject* object, PyObject* const* args, Py_ssize_t count,
                      PyObject* kwnames) {
    CallObject* self = call_of(object);
    static const char* const names[] = {"status", "data"};
    PyObject* given[2];
    u32 status;
    if (!parse("answer", args, count, kwnames, names, 2, 1, given) ||
        !parse_status(given[0], status))
        return nullptr;
    Bytes bytes;
    Payload payload;
    if (given[1] != nullptr && !bytes.get(given[1], payload)) return nullptr;
    ServiceObject* owner = self->owner;
    if (!unanswered(self) || !usable(owner)) return nullptr;
    const u64 limit = owner->hold->plan().element(self->element).response_size;
    if (payload.size > limit) {
        raise_too_large(*owner->hold, self->element, "a response", payload.size, limit);
        return nullptr;
    }
    const RunningCall call = running(self);
    self->answered = true;  // no other thread answers it while this one copies
    if (payload.size < kLargeCopy) [[likely]]
        return PyBool_FromLong(owner->provider->answer(call, status, payload.data, payload.size));
    const ServiceBusy busy(owner);
    {
        const GilRelease release;
        copy_bytes(owner->provider->response_room(call), payload.data, payload.size);
    }
    return PyBool_FromLong(owner->hold->usable() &&
                           owner->provider->answer(call, status, payload.size));
}

PyObject* call_element(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(call_of(object)->element);
}
PyObject* call_request(PyObject* object, void*) {
    return Py_NewRef(call_of(object)->request);
}

PyMethodDef call_methods[] = {
    {"answer", method(fast<call_answer>), kFast,
     "answer(status, data=b\"\") -> bool: end the call; False: its caller does not wait any more."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef call_getset[] = {
    {"element", call_element, nullptr, "The number of its element.", nullptr},
    {"request", call_request, nullptr, "The bytes of the request.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

PyMethodDef running_methods[] = {
    {"run", method(fast<provider_run>), kFast,
     "run(timeout=None) -> ServiceCall: take the next call of any element."},
    {nullptr, nullptr, 0, nullptr}};

int ready_call_type() {
    PyTypeObject& type = ServiceCallType;
    immortalise(type);
    type.tp_name = "holdfast._core.ServiceCall";
    type.tp_doc = "A call that this provider runs, and answers once.";
    type.tp_basicsize = sizeof(CallObject);
    type.tp_dealloc = call_dealloc;
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    type.tp_methods = call_methods;
    type.tp_getset = call_getset;
    return PyType_Ready(&type);
}

}  // namespace holdfast::bindings
