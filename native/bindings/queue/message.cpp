// Message and Messages: what get and get_many return.
//
// This process owns a message until it is settled or given back. Its bytes are read in place through the buffer protocol.
// While a view of them lives, settling and giving back are only noted; the release of the last view does them (I4).
#include "bindings/queue/objects.hpp"

namespace holdfast::bindings {

namespace {

constexpr int kFreeMax = 64;
MessageObject* free_messages[kFreeMax];
int free_count = 0;

// Does what was wished. False with an exception set: the block was not ours any more.
bool finish(QueueObject* queue, Slot& slot, Fate wish, bool announce = true) {
    if (slot.fate != Fate::held || slot.wish != Fate::held)
        return true;  // the first decision stands
    if (slot.exports > 0) {
        slot.wish = wish;
        return true;
    }
    slot.fate = wish;
    QueueAttachment& attachment = *queue->attachment;
    if (!attachment.usable())
        return true;  // detach() gave it back; in a forked child it never was ours
    bool ours = wish == Fate::settled ? attachment.settle(slot.delivered.taken)
                                      : attachment.give_back(slot.delivered.taken);
    if (wish == Fate::settled && announce) attachment.announce_space();
    if (ours) [[likely]]
        return true;
    if (!still_usable(attachment)) return false;
    raise("Corrupt", "queue " + attachment.name() + ": the block at position " +
                         std::to_string(slot.delivered.taken.position) +
                         " is held by this process, and another process overwrote its state");
    return false;
}

PyObject* message_call(PyObject* object, PyObject* const* args, std::size_t flags, PyObject*);

void pin(QueueObject* queue, Slot& slot) {
    ++slot.exports;
    ++queue->exports;
}

void unpin(QueueObject* queue, Slot& slot) {
    --queue->exports;
    if (--slot.exports == 0 && slot.wish != Fate::held &&
        !finish(queue, slot, std::exchange(slot.wish, Fate::held)))
        PyErr_WriteUnraisable(reinterpret_cast<PyObject*>(queue));
}

// A copy of a large payload lets other threads run; they shall not settle it meanwhile.
class Pin {
 public:
    Pin(QueueObject* queue, Slot& slot) : queue_(queue), slot_(slot) { pin(queue, slot); }
    ~Pin() { unpin(queue_, slot_); }
    Pin(const Pin&) = delete;

 private:
    QueueObject* queue_;
    Slot& slot_;
};

MessageObject* message_alloc() {
    MessageObject* self;
    if (free_count > 0) {
        self = free_messages[--free_count];
        PyObject_Init(reinterpret_cast<PyObject*>(self), &MessageType);
    } else {
        self = PyObject_New(MessageObject, &MessageType);
        if (self == nullptr) return nullptr;
    }
    self->call = &message_call;
    return self;
}

// A message that is deleted while held is given back, with a warning: else it would stay held until detach.
void drop(QueueObject* queue, Slot& slot, const char* what) {
    if (slot.fate != Fate::held || slot.wish != Fate::held || !queue->attachment->usable()) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (PyErr_ResourceWarning(nullptr, 1,
                              "%s at position %llu was neither settled nor given back; it is given "
                              "back now. Use `with "
                              "queue.get() as message:`",
                              what,
                              static_cast<unsigned long long>(slot.delivered.taken.position)) < 0)
        PyErr_WriteUnraisable(nullptr);
    if (!finish(queue, slot, Fate::given_back)) PyErr_WriteUnraisable(nullptr);
    PyErr_Restore(type, value, traceback);
}

void message_dealloc(PyObject* object) {
    auto* self = reinterpret_cast<MessageObject*>(object);
    if (self->batch == nullptr) {
        if (self->own.fate == Fate::held) [[unlikely]]
            drop(self->queue, self->own, "a message");
    } else {
        Py_DECREF(self->batch);
    }
    Py_DECREF(self->queue);
    if (free_count < kFreeMax)
        free_messages[free_count++] = self;
    else
        PyObject_Free(self);
}

int message_getbuffer(PyObject* object, Py_buffer* view, int flags) {
    auto* self = reinterpret_cast<MessageObject*>(object);
    Slot& slot = *self->slot;
    if (slot.fate != Fate::held || slot.wish != Fate::held || !self->queue->attachment->segment())
        [[unlikely]] {
        view->obj = nullptr;
        raise("Misuse",
              "this message was settled or given back, and its bytes may be overwritten. Copy "
              "them (bytes(message.data)) before");
        return -1;
    }
    if (!self->queue->attachment->usable()) [[unlikely]] {
        view->obj = nullptr;
        usable(self->queue);
        return -1;
    }
    if (PyBuffer_FillInfo(view, object, const_cast<std::byte*>(slot.delivered.data),
                          slot.delivered.size, 1, flags) < 0)
        return -1;
    pin(self->queue, slot);
    return 0;
}

void message_releasebuffer(PyObject* object, Py_buffer*) {
    auto* self = reinterpret_cast<MessageObject*>(object);
    unpin(self->queue, *self->slot);
}

PyObject* message_exit(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    auto* self = reinterpret_cast<MessageObject*>(object);
    bool clean = count < 1 || args[0] == Py_None;
    if (!finish(self->queue, *self->slot, clean ? Fate::settled : Fate::given_back)) return nullptr;
    Py_RETURN_NONE;
}

// `with` makes two bound methods for every message, which costs more than taking the message does. So `__enter__` and
// `__exit__` are both a descriptor that returns the message itself. A call of the message without arguments then enters
// it, a call with the three parts of an exception leaves it.
PyObject* message_call(PyObject* object, PyObject* const* args, std::size_t flags,
                       PyObject* names) {
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (names == nullptr && count == 0) return Py_NewRef(object);
    if (names == nullptr && count == 3) return message_exit(object, args, count);
    PyErr_SetString(PyExc_TypeError, "a holdfast.Message cannot be called");
    return nullptr;
}

PyObject* with_method_get(PyObject* descriptor, PyObject* object, PyObject*) {
    return Py_NewRef(object == nullptr ? descriptor : object);
}

// `type(message).__exit__(message, …)`, as contextlib.ExitStack does it.
PyObject* with_method_call(PyObject*, PyObject* args, PyObject*) {
    Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (count < 1 || !Py_IS_TYPE(PyTuple_GET_ITEM(args, 0), &MessageType)) {
        PyErr_SetString(PyExc_TypeError, "this method needs a holdfast.Message");
        return nullptr;
    }
    PyObject** items = reinterpret_cast<PyTupleObject*>(args)->ob_item;
    return message_call(items[0], items + 1, static_cast<std::size_t>(count - 1), nullptr);
}

PyTypeObject WithMethod{};

PyObject* message_settle(PyObject* object, PyObject*) {
    auto* self = reinterpret_cast<MessageObject*>(object);
    if (!finish(self->queue, *self->slot, Fate::settled)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* message_give_back(PyObject* object, PyObject*) {
    auto* self = reinterpret_cast<MessageObject*>(object);
    if (!finish(self->queue, *self->slot, Fate::given_back)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* message_data(PyObject* self, void*) {
    return PyMemoryView_FromObject(self);
}

const Delivered& delivered_of(PyObject* self) {
    return reinterpret_cast<MessageObject*>(self)->slot->delivered;
}

PyObject* message_redelivered(PyObject* self, void*) {
    return PyLong_FromUnsignedLong(delivered_of(self).taken.redelivered);
}
PyObject* message_time(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(delivered_of(self).time);
}
PyObject* message_position(PyObject* self, void*) {
    return PyLong_FromUnsignedLongLong(delivered_of(self).taken.position);
}
Py_ssize_t message_length(PyObject* self) {
    return delivered_of(self).size;
}

PyObject* message_repr(PyObject* self) {
    static const char* fates[] = {"held", "settled", "given back"};
    const Delivered& delivered = delivered_of(self);
    return PyUnicode_FromFormat(
        "<holdfast.Message position=%llu size=%u redelivered=%u %s>",
        static_cast<unsigned long long>(delivered.taken.position), delivered.size,
        delivered.taken.redelivered,
        fates[static_cast<int>(reinterpret_cast<MessageObject*>(self)->slot->fate)]);
}

// Messages

void messages_dealloc(PyObject* object) {
    auto* self = reinterpret_cast<MessagesObject*>(object);
    for (Py_ssize_t i = 0; i < self->count; ++i)
        if (self->slots[i].fate == Fate::held)
            drop(self->queue, self->slots[i], "a message of a batch");
    Py_DECREF(self->queue);
    PyObject_Free(object);
}

bool finish_all(MessagesObject* self, Fate wish) {
    bool ours = true;
    for (Py_ssize_t i = 0; i < self->count; ++i)
        ours &= finish(self->queue, self->slots[i], wish, false);
    if (wish == Fate::settled && self->queue->attachment->usable())
        self->queue->attachment->announce_space();
    return ours;
}

PyObject* messages_exit(PyObject* object, PyObject* const* args, Py_ssize_t count) {
    bool clean = count < 1 || args[0] == Py_None;
    if (!finish_all(reinterpret_cast<MessagesObject*>(object),
                    clean ? Fate::settled : Fate::given_back))
        return nullptr;
    Py_RETURN_NONE;
}

PyObject* messages_settle(PyObject* object, PyObject*) {
    if (!finish_all(reinterpret_cast<MessagesObject*>(object), Fate::settled)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* messages_give_back(PyObject* object, PyObject*) {
    if (!finish_all(reinterpret_cast<MessagesObject*>(object), Fate::given_back)) return nullptr;
    Py_RETURN_NONE;
}

PyObject* messages_tobytes(PyObject* object, PyObject*) {
    auto* self = reinterpret_cast<MessagesObject*>(object);
    PyObject* list = PyList_New(self->count);
    if (list == nullptr) return nullptr;
    if (!usable(self->queue)) {  // after the allocation: a finaliser that it runs may detach
        Py_DECREF(list);
        return nullptr;
    }
    for (Py_ssize_t i = 0; i < self->count; ++i) {
        Slot& slot = self->slots[i];
        if (slot.fate != Fate::held) [[unlikely]] {
            raise("Misuse", "message " + std::to_string(i) +
                                " of this batch was settled or given back already");
            Py_DECREF(list);
            return nullptr;
        }
        PyObject* copy = PyBytes_FromStringAndSize(nullptr, slot.delivered.size);
        if (copy == nullptr) {
            Py_DECREF(list);
            return nullptr;
        }
        Pin pin(self->queue, slot);
        copy_payload(slot.delivered, PyBytes_AS_STRING(copy));
        PyList_SET_ITEM(list, i, copy);
    }
    return list;
}

PyObject* messages_enter(PyObject* self, PyObject*) {
    return Py_NewRef(self);
}

Py_ssize_t messages_length(PyObject* self) {
    return reinterpret_cast<MessagesObject*>(self)->count;
}

PyObject* messages_item(PyObject* object, Py_ssize_t index) {
    auto* self = reinterpret_cast<MessagesObject*>(object);
    if (index < 0 || index >= self->count) {
        PyErr_SetString(PyExc_IndexError, "message index out of range");
        return nullptr;
    }
    MessageObject* message = message_alloc();
    if (message == nullptr) return nullptr;
    message->queue = reinterpret_cast<QueueObject*>(Py_NewRef(self->queue));
    message->batch = reinterpret_cast<MessagesObject*>(Py_NewRef(object));
    message->slot = &self->slots[index];
    return reinterpret_cast<PyObject*>(message);
}

PyObject* messages_repr(PyObject* object) {
    return PyUnicode_FromFormat("<holdfast.Messages count=%zd>",
                                reinterpret_cast<MessagesObject*>(object)->count);
}

PyMethodDef message_methods[] = {
    {"settle", message_settle, METH_NOARGS, "Settle the message: it is not delivered again."},
    {"give_back", message_give_back, METH_NOARGS,
     "Give the message back: it is delivered again, marked as redelivered."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef message_getset[] = {
    {"data", message_data, nullptr,
     "The payload in place: a read-only memoryview, valid until the message is settled.", nullptr},
    {"redelivered", message_redelivered, nullptr,
     "How often it was delivered before without being settled.", nullptr},
    {"time", message_time, nullptr, "When it was put, in nanoseconds since the epoch.", nullptr},
    {"position", message_position, nullptr,
     "Its position in the queue, in 64-byte granules since creation.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyBufferProcs message_buffer = {message_getbuffer, message_releasebuffer};
PySequenceMethods message_sequence{};

PyMethodDef messages_methods[] = {
    {"__enter__", messages_enter, METH_NOARGS, nullptr},
    {"__exit__", method(messages_exit), METH_FASTCALL, nullptr},
    {"settle", messages_settle, METH_NOARGS, "Settle all messages that are still held."},
    {"give_back", messages_give_back, METH_NOARGS, "Give back all messages that are still held."},
    {"tobytes", messages_tobytes, METH_NOARGS,
     "Copies of all payloads, as a list of bytes, in one call."},
    {nullptr, nullptr, 0, nullptr}};

PySequenceMethods messages_sequence{};

}  // namespace

PyTypeObject MessageType{};
PyTypeObject MessagesType{};

int ready_message_types() {
    immortalise(MessageType);
    immortalise(MessagesType);
    MessageType.tp_name = "holdfast.Message";
    MessageType.tp_basicsize = sizeof(MessageObject);
    MessageType.tp_dealloc = message_dealloc;
    MessageType.tp_repr = message_repr;
    MessageType.tp_flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL;
    MessageType.tp_doc = "One message, in this process's hands until it is settled or given back.";
    MessageType.tp_methods = message_methods;
    MessageType.tp_getset = message_getset;
    MessageType.tp_as_buffer = &message_buffer;
    message_sequence.sq_length = message_length;
    MessageType.tp_as_sequence = &message_sequence;
    MessagesType.tp_name = "holdfast.Messages";
    MessagesType.tp_basicsize = offsetof(MessagesObject, slots);
    MessagesType.tp_itemsize = sizeof(Slot);
    MessagesType.tp_dealloc = messages_dealloc;
    MessagesType.tp_repr = messages_repr;
    MessagesType.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    MessagesType.tp_doc = "A batch of messages, settled together when its `with` block ends.";
    MessagesType.tp_methods = messages_methods;
    messages_sequence.sq_length = messages_length;
    messages_sequence.sq_item = messages_item;
    MessagesType.tp_as_sequence = &messages_sequence;
    MessageType.tp_vectorcall_offset = offsetof(MessageObject, call);
    MessageType.tp_call = PyVectorcall_Call;
    immortalise(WithMethod);
    WithMethod.tp_name = "holdfast._core.WithMethod";
    WithMethod.tp_basicsize = sizeof(PyObject);
    WithMethod.tp_descr_get = with_method_get;
    WithMethod.tp_call = with_method_call;
    WithMethod.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION;
    if (PyType_Ready(&WithMethod) < 0 || PyType_Ready(&MessageType) < 0 ||
        PyType_Ready(&MessagesType) < 0)
        return -1;
    PyObject* with_method = PyObject_New(PyObject, &WithMethod);
    if (with_method == nullptr) return -1;
    int failed = PyDict_SetItemString(MessageType.tp_dict, "__enter__", with_method) |
                 PyDict_SetItemString(MessageType.tp_dict, "__exit__", with_method);
    Py_DECREF(with_method);
    PyType_Modified(&MessageType);
    return failed;
}

PyObject* message_new(QueueObject* queue, const Delivered& delivered) {
    MessageObject* self = message_alloc();
    if (self == nullptr) return nullptr;
    self->queue = reinterpret_cast<QueueObject*>(Py_NewRef(queue));
    self->batch = nullptr;
    self->own = Slot{delivered};
    self->slot = &self->own;
    return reinterpret_cast<PyObject*>(self);
}

PyObject* messages_new(QueueObject* queue, const std::vector<Delivered>& delivered) {
    auto* self =
        PyObject_NewVar(MessagesObject, &MessagesType, static_cast<Py_ssize_t>(delivered.size()));
    if (self == nullptr) return nullptr;
    self->queue = reinterpret_cast<QueueObject*>(Py_NewRef(queue));
    self->count = static_cast<Py_ssize_t>(delivered.size());
    for (std::size_t i = 0; i < delivered.size(); ++i) self->slots[i] = Slot{delivered[i]};
    return reinterpret_cast<PyObject*>(self);
}

}  // namespace holdfast::bindings
