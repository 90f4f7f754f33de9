// Buffers in the hands of a program: ChannelItem, ChannelLoan and Displaced; and Pushed and Handle.
//
// The bytes are used in place through the buffer protocol. While a view of them lives, the buffer stays out of
// circulation. Its end is only noted, and comes with the release of the last view (C1).
#include "bindings/channel/objects.hpp"

namespace holdfast::bindings {

PyTypeObject ItemType{};
PyTypeObject LoanType{};
PyTypeObject DisplacedType{};
PyTypeObject PushedType{};
PyTypeObject HandleType{};

namespace {

BufferObject* buffer(PyObject* object) {
    return reinterpret_cast<BufferObject*>(object);
}

void end(BufferObject* self) {
    RoleObject* role = self->role;
    self->stage = Stage::gone;
    role->lent[self->number] = nullptr;
    if (role->producer != nullptr)
        role->producer->give_back(self->number);
    else
        role->consumer->release(self->number);
    leave_if_done(role);
}

const char* kind_of(BufferObject* self) {
    return Py_IS_TYPE(self, &ItemType)   ? "item"
           : Py_IS_TYPE(self, &LoanType) ? "loan"
                                         : "displaced datum";
}

bool still_held(BufferObject* self) {
    if (self->stage == Stage::held) [[likely]]
        return true;
    const std::string kind = kind_of(self);
    if (self->stage == Stage::pushing)
        raise_pushing(self);
    else if (self->pushed != nullptr)
        raise("Misuse", "this loan of channel " + self->role->hold->name() +
                            " was pushed, and its buffer is not the program's any more");
    else
        raise("Misuse", "this " + kind + " of channel " + self->role->hold->name() +
                            " was released, and its buffer may be another's. Copy the bytes "
                            "(bytes(" +
                            (kind == "item" ? "item" : "buffer") + ".data)) before");
    return false;
}

void buffer_dealloc(PyObject* object) {
    BufferObject* self = buffer(object);
    if (self->stage == Stage::held) end(self);
    Py_CLEAR(self->view);
    Py_CLEAR(self->pushed);
    Py_DECREF(self->role);
    PyObject_Free(object);
}

int buffer_getbuffer(PyObject* object, Py_buffer* view, int flags) {
    BufferObject* self = buffer(object);
    view->obj = nullptr;
    if (!still_held(self)) return -1;
    if (!self->role->hold->attached()) [[unlikely]] {
        raise_unusable(*self->role->hold);
        return -1;
    }
    const bool read_only = !Py_IS_TYPE(object, &LoanType);
    if (PyBuffer_FillInfo(view, object, self->role->hold->room(self->number), self->size, read_only,
                          flags) < 0)
        return -1;
    ++self->exports;
    ++self->role->exports;
    return 0;
}

void buffer_releasebuffer(PyObject* object, Py_buffer*) {
    BufferObject* self = buffer(object);
    --self->role->exports;
    if (--self->exports == 0 && self->stage == Stage::leaving) end(self);
}

PyObject* buffer_release(PyObject* object, PyObject*) {
    BufferObject* self = buffer(object);
    if (self->stage == Stage::pushing) {
        raise_pushing(self);
        return nullptr;
    }
    if (self->stage != Stage::held) {
        raise("Misuse", "this " + std::string(kind_of(self)) + " of channel " +
                            self->role->hold->name() + " was released before; release it once");
        return nullptr;
    }
    finish(self);
    Py_RETURN_NONE;
}

PyObject* buffer_enter(PyObject* object, PyObject*) {
    return still_held(buffer(object)) ? Py_NewRef(object) : nullptr;
}

PyObject* buffer_exit(PyObject* object, PyObject* const*, Py_ssize_t) {
    finish(buffer(object));
    Py_RETURN_NONE;
}

PyObject* buffer_data(PyObject* self, void*) {
    return PyMemoryView_FromObject(self);
}

PyObject* buffer_array(PyObject* object, void*) {
    BufferObject* self = buffer(object);
    if (!still_held(self)) return nullptr;
    if (self->role->as_array == nullptr) {
        raise("Misuse", "channel " + self->role->hold->name() +
                            " is not typed; create it with dtype and shape, or use "
                            "numpy.frombuffer(item.data, …)");
        return nullptr;
    }
    return PyObject_CallOneArg(self->role->as_array, object);
}

PyObject* buffer_position(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(buffer(self)->position);
}
PyObject* item_priority(PyObject* self, void*) {
    return PyLong_FromUnsignedLong(
        buffer(self)->role->hold->plan().priority_of(buffer(self)->lane));
}
PyObject* item_producer(PyObject* self, void*) {
    return PyLong_FromUnsignedLong(
        buffer(self)->role->hold->plan().producer_of(buffer(self)->lane));
}
PyObject* buffer_lost(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(buffer(self)->lost);
}
Py_ssize_t buffer_length(PyObject* self) {
    return buffer(self)->size;
}

PyObject* buffer_repr(PyObject* object) {
    static const char* stages[] = {"held", "being pushed", "released, views live", "released"};
    BufferObject* self = buffer(object);
    const char* stage = self->pushed != nullptr ? "pushed" : stages[static_cast<int>(self->stage)];
    return PyUnicode_FromFormat("<%s of %s size=%u %s>", Py_TYPE(object)->tp_name,
                                self->role->hold->name().c_str(), self->size, stage);
}

// Loans

PyObject* loan_enter(PyObject* object, PyObject*) {
    BufferObject* self = buffer(object);
    if (self->view != nullptr) {
        raise("Misuse", "this loan is in a `with` already");
        return nullptr;
    }
    self->view = PyMemoryView_FromObject(object);
    return Py_XNewRef(self->view);
}

// Ends the view of the `with`. Others may live: arrays made from it, slices.
void release_view(BufferObject* self) {
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

PyObject* loan_exit(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    BufferObject* self = buffer(object);
    release_view(self);
    const bool clean = count == 0 || args[0] == Py_None;
    if (clean && self->pushed == nullptr && !usable(self->role)) return nullptr;
    if (self->stage == Stage::pushing) {
        raise_pushing(self);
        return nullptr;
    }
    if (self->stage != Stage::held) Py_RETURN_NONE;  // pushed or given back inside
    if (!clean) {
        finish(self);
        Py_RETURN_NONE;
    }
    PyObject* pushed =
        guarded([&] { return push_loan(self, "loan", self->timeout); }, (PyObject*)nullptr);
    if (pushed == nullptr) {
        finish(self);
        return nullptr;
    }
    Py_DECREF(pushed);
    Py_RETURN_NONE;
}

PyObject* loan_pushed(PyObject* object, void*) {
    PyObject* pushed = buffer(object)->pushed;
    return Py_NewRef(pushed == nullptr ? Py_None : pushed);
}

// Pushed and Handle

void pushed_dealloc(PyObject* object) {
    Py_XDECREF(reinterpret_cast<PushedObject*>(object)->displaced);
    PyObject_Free(object);
}

PyObject* pushed_displaced(PyObject* object, void*) {
    PyObject* displaced = reinterpret_cast<PushedObject*>(object)->displaced;
    return Py_NewRef(displaced == nullptr ? Py_None : displaced);
}

PyObject* pushed_position(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(reinterpret_cast<PushedObject*>(object)->position);
}

PyObject* pushed_handle(PyObject* object, void*) {
    auto* self = reinterpret_cast<PushedObject*>(object);
    HandleObject* handle = PyObject_New(HandleObject, &HandleType);
    if (handle == nullptr) return nullptr;
    handle->identity = self->identity;
    handle->position = self->position;
    handle->lane = self->lane;
    return reinterpret_cast<PyObject*>(handle);
}

PyObject* pushed_repr(PyObject* object) {
    auto* self = reinterpret_cast<PushedObject*>(object);
    return PyUnicode_FromFormat("<holdfast.Pushed position=%llu%s>",
                                static_cast<unsigned long long>(self->position),
                                self->displaced == nullptr ? "" : " displaced");
}

PyObject* handle_position(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(reinterpret_cast<HandleObject*>(object)->position);
}

PyObject* handle_repr(PyObject* object) {
    return PyUnicode_FromFormat(
        "<holdfast.Handle position=%llu>",
        static_cast<unsigned long long>(reinterpret_cast<HandleObject*>(object)->position));
}

PyMethodDef view_methods[] = {{"release", buffer_release, METH_NOARGS,
                               "Give the buffer back; views keep it until they are gone."},
                              {"__enter__", buffer_enter, METH_NOARGS, nullptr},
                              {"__exit__", method(buffer_exit), METH_FASTCALL, nullptr},
                              {nullptr, nullptr, 0, nullptr}};

PyMethodDef loan_methods[] = {
    {"release", buffer_release, METH_NOARGS, "Give the buffer back without pushing it."},
    {"__enter__", loan_enter, METH_NOARGS, nullptr},
    {"__exit__", method(loan_exit), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

constexpr PyGetSetDef kData_ = {"data", buffer_data, nullptr,
                                "The bytes in place, as a memoryview; not after the release.",
                                nullptr};
constexpr PyGetSetDef kArray = {"array", buffer_array, nullptr,
                                "The bytes in place, as an array of the channel's dtype and shape.",
                                nullptr};
constexpr PyGetSetDef kPosition = {"position", buffer_position, nullptr,
                                   "The datum's position: a number that grows by one per datum.",
                                   nullptr};

PyGetSetDef item_getset[] = {
    kData_,
    kArray,
    kPosition,
    {"lost", buffer_lost, nullptr,
     "How many data of this producer and priority were overwritten since the last pop of one.",
     nullptr},
    {"priority", item_priority, nullptr, "The priority that it was pushed with.", nullptr},
    {"producer", item_producer, nullptr, "The number of its producer.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef loan_getset[] = {
    kData_,
    kArray,
    {"pushed", loan_pushed, nullptr, "The result of the push; None before it.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef displaced_getset[] = {
    kData_, kArray, kPosition, {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef pushed_getset[] = {
    {"displaced", pushed_displaced, nullptr,
     "The datum that had to leave a full ring, or None. Dropping it gives its buffer back.",
     nullptr},
    {"handle", pushed_handle, nullptr, "The name of this datum, for cancel().", nullptr},
    {"position", pushed_position, nullptr, "The datum's position.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyGetSetDef handle_getset[] = {
    {"position", handle_position, nullptr, "The datum's position.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyBufferProcs buffer_procs = {buffer_getbuffer, buffer_releasebuffer};
PySequenceMethods buffer_sequence{};

bool ready_record(PyTypeObject& type, const char* name, const char* doc, Py_ssize_t size,
                  destructor dealloc, reprfunc repr, PyGetSetDef* getset) {
    immortalise(type);
    type.tp_name = name;
    type.tp_basicsize = size;
    type.tp_dealloc = dealloc;
    type.tp_repr = repr;
    type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    type.tp_doc = doc;
    type.tp_getset = getset;
    return PyType_Ready(&type) == 0;
}

bool ready_buffer_type(PyTypeObject& type, const char* name, const char* doc, PyMethodDef* methods,
                       PyGetSetDef* getset) {
    type.tp_methods = methods;
    type.tp_as_buffer = &buffer_procs;
    type.tp_as_sequence = &buffer_sequence;
    return ready_record(type, name, doc, sizeof(BufferObject), buffer_dealloc, buffer_repr, getset);
}

void plain_dealloc(PyObject* object) {
    PyObject_Free(object);
}

}  // namespace

void finish(BufferObject* self) {
    if (self->stage != Stage::held) return;
    if (self->exports > 0)
        self->stage = Stage::leaving;
    else
        end(self);
}

void raise_pushing(BufferObject* loan) {
    raise("Misuse", "this loan of channel " + loan->role->hold->name() +
                        " is being pushed by another thread; wait for the end of its push");
}

void hand_over(BufferObject* self) {
    self->stage = Stage::gone;
    self->role->lent[self->number] = nullptr;
}

PyObject* buffer_new(PyTypeObject* type, RoleObject* role, u32 number, u32 size) {
    BufferObject* self = PyObject_New(BufferObject, type);
    if (self == nullptr) return nullptr;
    self->role = reinterpret_cast<RoleObject*>(Py_NewRef(role));
    self->view = self->pushed = nullptr;
    self->timeout = -1;
    self->position = self->lost = 0;
    self->number = number;
    self->lane = 0;
    self->size = size;
    self->exports = 0;
    self->stage = Stage::held;
    role->lent[number] = self;
    return reinterpret_cast<PyObject*>(self);
}

PyObject* pushed_new(RoleObject* role, u32 lane, u64 position) {
    PushedObject* self = PyObject_New(PushedObject, &PushedType);
    if (self == nullptr) return nullptr;
    self->displaced = nullptr;
    self->identity = role->hold->identity();
    self->position = position;
    self->lane = lane;
    return reinterpret_cast<PyObject*>(self);
}

int ready_buffer_types() {
    buffer_sequence.sq_length = buffer_length;
    const bool ready =
        ready_buffer_type(ItemType, "holdfast.Item",
                          "A datum that pop() took, in this process's hands until it is released.",
                          view_methods, item_getset) &&
        ready_buffer_type(LoanType, "holdfast.Loan",
                          "A buffer to be filled in place, and pushed when its `with` ends.",
                          loan_methods, loan_getset) &&
        ready_buffer_type(DisplacedType, "holdfast.Displaced",
                          "A datum that a push displaced; dropping it gives its buffer back.",
                          view_methods, displaced_getset) &&
        ready_record(PushedType, "holdfast.Pushed", "The result of a push.", sizeof(PushedObject),
                     pushed_dealloc, pushed_repr, pushed_getset) &&
        ready_record(HandleType, "holdfast.Handle", "The name of a datum, for cancel().",
                     sizeof(HandleObject), plain_dealloc, handle_repr, handle_getset);
    return ready ? 0 : -1;
}

}  // namespace holdfast::bindings
