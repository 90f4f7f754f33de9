// Samples in the hands of a program: ServiceSample, which a proxy took, and ServiceLoan, which a provider fills.
//
// The bytes are used in place through the buffer protocol. While a view of them lives, the sample stays held. Its end is
// only noted, and comes with the release of the last view (V2).
#include <algorithm>

#include "bindings/base/arguments.hpp"
#include "bindings/service/objects.hpp"

namespace holdfast::bindings {

PyTypeObject ServiceSampleType{};
PyTypeObject ServiceLoanType{};

namespace {

SampleObject* sample(PyObject* object) {
    return reinterpret_cast<SampleObject*>(object);
}

bool is_loan(const SampleObject* self) {
    return self->owner->provider != nullptr;
}

// The program has it no more.
void forget(SampleObject* self) {
    ServiceObject* owner = self->owner;
    self->stage = SampleStage::gone;
    std::erase(owner->elements[self->element].held, self);
    --owner->lent;
}

void end(SampleObject* self) {
    ServiceObject* owner = self->owner;
    forget(self);
    if (is_loan(self)) {
        owner->provider->give_back(self->element, self->number);
    } else {
        owner->proxy->release(self->element, self->number);
        unsubscribe_if_done(owner, self->element);
    }
    leave_if_done(owner);
}

bool still_held(SampleObject* self) {
    if (self->stage == SampleStage::held) [[likely]]
        return true;
    const std::string where = words_of(*self->owner->hold, self->element);
    if (!is_loan(self))
        raise("Misuse", "this sample of " + where +
                            " was released, and the provider may have replaced its bytes. Copy "
                            "them (bytes(sample.data)) before");
    else if (self->sequence != 0)
        raise("Misuse", "this loan of " + where +
                            " was published, and its bytes are not the program's any more");
    else
        raise("Misuse", "this loan of " + where + " was released; lend another one");
    return false;
}

void sample_dealloc(PyObject* object) {
    SampleObject* self = sample(object);
    if (self->weak != nullptr) PyObject_ClearWeakRefs(object);
    if (self->stage == SampleStage::held) end(self);
    Py_CLEAR(self->view);
    Py_DECREF(self->owner);
    PyObject_Free(object);
}

int sample_getbuffer(PyObject* object, Py_buffer* view, int flags) {
    SampleObject* self = sample(object);
    view->obj = nullptr;
    if (!still_held(self)) return -1;
    if (!self->owner->hold->usable()) [[unlikely]] {
        raise_unusable(self->owner);
        return -1;
    }
    if (PyBuffer_FillInfo(view, object, self->data, self->size, !is_loan(self), flags) < 0)
        return -1;
    ++self->exports;
    return 0;
}

void sample_releasebuffer(PyObject* object, Py_buffer*) {
    unexport(sample(object));
}

PyObject* sample_release(PyObject* object, PyObject*) {
    SampleObject* self = sample(object);
    if (self->stage != SampleStage::held) {
        raise("Misuse", std::string("this ") + (is_loan(self) ? "loan" : "sample") + " of " +
                            words_of(*self->owner->hold, self->element) + " was " +
                            (self->sequence != 0 && is_loan(self) ? "published" : "released") +
                            " before; release it once");
        return nullptr;
    }
    finish(self);
    Py_RETURN_NONE;
}

PyObject* sample_enter(PyObject* object, PyObject*) {
    return still_held(sample(object)) ? Py_NewRef(object) : nullptr;
}
PyObject* sample_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
    finish(sample(object));
    Py_RETURN_NONE;
}

PyObject* sample_data(PyObject* self, void*) {
    return PyMemoryView_FromObject(self);
}

PyObject* sample_array(PyObject* object, void*) {
    SampleObject* self = sample(object);
    if (!still_held(self)) return nullptr;
    PyObject* list = self->owner->as_array;
    PyObject* call = list != nullptr && self->element < static_cast<u64>(PyList_GET_SIZE(list))
                         ? PyList_GET_ITEM(list, self->element)
                         : Py_None;
    if (call == Py_None) {
        raise("Misuse", words_of(*self->owner->hold, self->element) +
                            " is not declared as an array; use numpy.frombuffer(sample.data, …)");
        return nullptr;
    }
    Py_INCREF(call);  // the list may change meanwhile
    PyObject* array = PyObject_CallOneArg(call, object);
    Py_DECREF(call);
    return array;
}

PyObject* sample_sequence(PyObject* object, void*) {
    SampleObject* self = sample(object);
    if (is_loan(self) && self->sequence == 0) Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(self->sequence);
}
PyObject* sample_missed(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(sample(object)->missed);
}
PyObject* sample_element(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(sample(object)->element);
}

Py_ssize_t sample_length(PyObject* object) {
    return sample(object)->size;
}
PyObject* sample_item(PyObject* object, PyObject* key) {
    PyObject* view = PyMemoryView_FromObject(object);
    PyObject* item = view == nullptr ? nullptr : PyObject_GetItem(view, key);
    Py_XDECREF(view);
    return item;
}
int sample_set_item(PyObject* object, PyObject* key, PyObject* value) {
    PyObject* view = PyMemoryView_FromObject(object);
    if (view == nullptr) return -1;
    const int result =
        value == nullptr ? PyObject_DelItem(view, key) : PyObject_SetItem(view, key, value);
    Py_DECREF(view);
    return result;
}

PyObject* sample_repr(PyObject* object) {
    static const char* stages[] = {"held", "released, views live", "released"};
    SampleObject* self = sample(object);
    return guarded(
        [&] {
            const bool published = is_loan(self) && self->sequence != 0;
            return PyUnicode_FromFormat(
                "<%s of %s size=%u sequence=%llu %s>", Py_TYPE(object)->tp_name,
                words_of(*self->owner->hold, self->element).c_str(), self->size,
                static_cast<unsigned long long>(self->sequence),
                published ? "published" : stages[static_cast<int>(self->stage)]);
        },
        static_cast<PyObject*>(nullptr));
}

// Loans

PyObject* loan_enter(PyObject* object, PyObject*) {
    SampleObject* self = sample(object);
    if (self->view != nullptr) {
        raise("Misuse", "this loan is in a `with` already");
        return nullptr;
    }
    self->view = PyMemoryView_FromObject(object);
    return Py_XNewRef(self->view);
}

// Ends the view of the `with`. Others may live: arrays made from it, slices.
void release_view(SampleObject* self) {
    if (self->view == nullptr) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject* view = std::exchange(self->view, nullptr);
    PyObject* result = PyObject_CallMethod(view, "release", nullptr);
    if (result == nullptr) PyErr_Clear();  // an array has it: counted by `exports`
    Py_XDECREF(result);
    Py_DECREF(view);
    PyErr_Restore(type, value, traceback);
}

PyObject* loan_publish(PyObject* object, PyObject*) {
    SampleObject* self = sample(object);
    if (!still_held(self)) return nullptr;
    const u64 number = publish_loan(self);
    return number == 0 ? nullptr : PyLong_FromUnsignedLongLong(number);
}

PyObject* loan_exit(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    SampleObject* self = sample(object);
    release_view(self);
    const bool clean = count == 0 || args[0] == Py_None;
    if (clean && self->sequence == 0 && !usable(self->owner)) return nullptr;
    if (self->stage != SampleStage::held) Py_RETURN_NONE;  // published or released inside
    const bool published = clean && guarded([&] { return publish_loan(self); }, u64{0}) != 0;
    if (!published) finish(self);
    if (clean && !published) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef sample_methods[] = {{"release", plain<sample_release>, METH_NOARGS,
                                 "Release the sample; views keep it until they are gone."},
                                {"__enter__", plain<sample_enter>, METH_NOARGS, nullptr},
                                {"__exit__", method(sample_exit), METH_FASTCALL, nullptr},
                                {nullptr, nullptr, 0, nullptr}};

PyMethodDef loan_methods[] = {
    {"publish", plain<loan_publish>, METH_NOARGS,
     "Publish the sample and return its sequence number; no view of it may live."},
    {"release", plain<sample_release>, METH_NOARGS, "Give the sample back without publishing it."},
    {"__enter__", loan_enter, METH_NOARGS, nullptr},
    {"__exit__", method(loan_exit), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

constexpr PyGetSetDef kSampleData = {"data", sample_data, nullptr,
                                     "The bytes in place, as a memoryview; not after the release.",
                                     nullptr};
constexpr PyGetSetDef kSampleArray = {"array", sample_array, nullptr,
                                      "The bytes in place, as the element's array.", nullptr};
constexpr PyGetSetDef kSampleElement = {"element", sample_element, nullptr,
                                        "The number of its element.", nullptr};

PyGetSetDef sample_getset[] = {
    kSampleData,
    kSampleArray,
    kSampleElement,
    {"sequence", sample_sequence, nullptr, "The number of its publication.", nullptr},
    {"missed", sample_missed, nullptr,
     "How many samples were published between the one taken before and this one.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef loan_getset[] = {kSampleData,
                             kSampleArray,
                             kSampleElement,
                             {"sequence", sample_sequence, nullptr,
                              "The number of its publication; None before it.", nullptr},
                             {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyBufferProcs sample_buffer = {sample_getbuffer, sample_releasebuffer};
PyMappingMethods sample_mapping = {sample_length, sample_item, nullptr};
PyMappingMethods loan_mapping = {sample_length, sample_item, sample_set_item};
PySequenceMethods sample_sequence_methods{};

bool ready_one(PyTypeObject& type, const char* name, const char* doc, PyMethodDef* methods,
               PyGetSetDef* getset, PyMappingMethods* mapping) {
    immortalise(type);
    type.tp_name = name;
    type.tp_doc = doc;
    type.tp_basicsize = sizeof(SampleObject);
    type.tp_weaklistoffset = offsetof(SampleObject, weak);
    type.tp_dealloc = sample_dealloc;
    type.tp_repr = sample_repr;
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    type.tp_methods = methods;
    type.tp_getset = getset;
    type.tp_as_buffer = &sample_buffer;
    type.tp_as_mapping = mapping;
    type.tp_as_sequence = &sample_sequence_methods;
    return PyType_Ready(&type) == 0;
}

}  // namespace

void finish(SampleObject* self) {
    if (self->stage != SampleStage::held) return;
    if (self->exports > 0)
        self->stage = SampleStage::leaving;
    else
        end(self);
}

void unexport(SampleObject* self) {
    if (--self->exports == 0 && self->stage == SampleStage::leaving) end(self);
}

u64 publish_loan(SampleObject* loan) {
    ServiceObject* owner = loan->owner;
    if (!usable(owner)) return 0;
    if (loan->exports > 0) {
        raise("Misuse", words_of(*owner->hold, loan->element) + ": " +
                            std::to_string(loan->exports) +
                            " views or arrays of this loan are alive, so that nothing was "
                            "published. Delete them before; fill the loan by `buffer[:] = …`");
        return 0;
    }
    const u64 number = owner->provider->publish(loan->element, loan->number, loan->size);
    if (number == 0) {
        raise("HoldfastError", words_of(*owner->hold, loan->element) +
                                   " has used up its sequence numbers; remove the service");
        return 0;
    }
    loan->sequence = number;
    forget(loan);
    return number;
}

PyObject* sample_new(PyTypeObject* type, ServiceObject* owner, u32 element, u32 number,
                     std::byte* data, u32 size) {
    owner->elements[element].held.reserve(owner->elements[element].held.size() + 1);
    SampleObject* self = PyObject_New(SampleObject, type);
    if (self == nullptr) return nullptr;
    self->owner = service_of(Py_NewRef(owner));
    self->weak = nullptr;
    self->view = nullptr;
    self->data = data;
    self->sequence = self->missed = 0;
    self->element = element;
    self->number = number;
    self->size = size;
    self->exports = 0;
    self->stage = SampleStage::held;
    owner->elements[element].held.push_back(self);
    ++owner->lent;
    return reinterpret_cast<PyObject*>(self);
}

int ready_sample_types() {
    sample_sequence_methods.sq_length = sample_length;
    const bool ready =
        ready_one(ServiceSampleType, "holdfast.Sample",
                  "A sample that this process holds until it is released.", sample_methods,
                  sample_getset, &sample_mapping) &&
        ready_one(ServiceLoanType, "holdfast.SampleLoan",
                  "A sample to be filled in place, and published when its `with` ends.",
                  loan_methods, loan_getset, &loan_mapping);
    return ready ? 0 : -1;
}

}  // namespace holdfast::bindings
