// Queue: the calls that a user makes for every message, and the waiting around them.
//
// Threads: a call runs under the GIL, except for three steps that touch no state of this object. It copies a large
// payload, spins (which only reads shared words), and sleeps on a bell. `Busy` keeps other threads from detaching meanwhile.
#include <unistd.h>

#include <deque>

#include "bindings/base/arguments.hpp"
#include "bindings/queue/objects.hpp"
#include "bindings/queue/waiting.hpp"
#include "bindings/shm/waiting.hpp"

namespace holdfast::bindings {

namespace {

constexpr u32 kBatchMax = 65536;

bool too_large(QueueObject* self, u64 size) {
    const Geometry& geometry = self->attachment->geometry();
    if (size <= geometry.size_max()) [[likely]]
        return false;
    raise("Misuse", "a message of " + std::to_string(size) + " bytes is too large for queue " +
                        self->attachment->name() + ": it takes at most " +
                        std::to_string(geometry.size_max()) +
                        ". Create a queue of more than twice the message's size");
    return true;
}

bool put_payloads(QueueObject* self, const char* call, std::span<const Payload> payloads,
                  double timeout) {
    Busy busy(self);
    const auto attempt = [&](bool probe) {
        return self->attachment->put(payloads, probe, CopyWithoutGil());
    };
    return attempt(false) == Verdict::ok || wait_for(self, call, timeout, true, attempt);
}

PyObject* queue_put(PyObject* object, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    static const char* const names[] = {"data", "timeout"};
    PyObject* given[2] = {count > 0 ? args[0] : nullptr, nullptr};
    double timeout = -1;
    if (count != 1 || kwnames != nullptr) {
        if (!parse("put", args, count, kwnames, names, 2, 1, given)) return nullptr;
        if (given[1] != nullptr && !parse_timeout(given[1], timeout)) return nullptr;
    }
    if (!usable(self)) return nullptr;
    Bytes bytes;
    Payload payload;
    if (!bytes.get(given[0], payload) || too_large(self, payload.size)) return nullptr;
    if (bytes.held() && !usable(self)) return nullptr;  // `__buffer__` may have detached
    if (!put_payloads(self, "put", {&payload, 1}, timeout)) return nullptr;
    Py_RETURN_NONE;
}

// All of them at once where they fit into half the capacity together, else in as few extents as they fit into.
PyObject* put_list(QueueObject* self, PyObject* sequence, double timeout) {
    const Py_ssize_t total = PySequence_Fast_GET_SIZE(sequence);
    PyObject** items = PySequence_Fast_ITEMS(sequence);
    std::deque<Bytes> others;  // what is not exactly bytes; a Bytes must not move
    std::vector<Payload> payloads;
    payloads.reserve(static_cast<std::size_t>(total));
    for (Py_ssize_t i = 0; i < total; ++i) {
        PyObject* item = items[i];
        Payload payload;
        if (PyBytes_CheckExact(item)) [[likely]] {
            payload = {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(item)),
                       static_cast<u64>(PyBytes_GET_SIZE(item))};
        } else {
            if (!others.emplace_back().get(item, payload)) return nullptr;
        }
        if (too_large(self, payload.size)) return nullptr;
        payloads.push_back(payload);
    }
    std::size_t begin = 0;
    bool good = true;
    const u64 length_max = self->attachment->geometry().length_max();
    const u64 start = timeout > 0 ? monotonic_ns() : 0;
    while (good && begin < payloads.size()) {
        std::size_t end = begin;
        for (u64 length = 0; end < payloads.size(); ++end) {
            length += Geometry::blocks_granules(payloads[end].size);
            if (length > length_max) break;
        }
        double left =
            timeout > 0
                ? std::max(1e-9, timeout - static_cast<double>(monotonic_ns() - start) / 1e9)
                : timeout;
        good = usable(self) &&
               put_payloads(self, "put_many", {payloads.data() + begin, end - begin}, left);
        if (good) begin = end;
    }
    if (!good) {  // the exception tells how many were put before it
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyErr_NormalizeException(&type, &value, &traceback);
        PyObject* done = PyLong_FromSize_t(begin);
        if (value != nullptr && done != nullptr && PyObject_SetAttrString(value, "done", done) < 0)
            PyErr_Clear();
        Py_XDECREF(done);
        PyErr_Restore(type, value, traceback);
        return nullptr;
    }
    Py_RETURN_NONE;
}

PyObject* queue_put_many(PyObject* object, PyObject* const* args, Py_ssize_t count,
                         PyObject* kwnames) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    static const char* const names[] = {"messages", "timeout"};
    PyObject* given[2];
    double timeout = -1;
    if (!parse("put_many", args, count, kwnames, names, 2, 1, given)) return nullptr;
    if (given[1] != nullptr && !parse_timeout(given[1], timeout)) return nullptr;
    if (!usable(self)) return nullptr;
    // A copy of the list, so that no thread changes it while the GIL is released.
    PyObject* sequence =
        PyTuple_CheckExact(given[0]) ? Py_NewRef(given[0]) : PySequence_Tuple(given[0]);
    if (sequence == nullptr) return nullptr;
    PyObject* result = guarded([&] { return put_list(self, sequence, timeout); }, nullptr);
    Py_DECREF(sequence);
    return result;
}

// The messages that one call gets. They belong to that call alone: any call may release the GIL, and another thread's get
// runs meanwhile. A call releases it to wait, to copy a large dead letter, and in a destructor that an allocation runs.
// The queue object lends the memory, so that a get allocates nothing.
class Got {
 public:
    explicit Got(QueueObject* queue) : queue_(queue) { messages_.swap(queue->spare); }
    Got(const Got&) = delete;
    ~Got() {
        messages_.clear();
        if (messages_.capacity() > queue_->spare.capacity()) messages_.swap(queue_->spare);
    }
    std::vector<Delivered>& all() { return messages_; }
    const Delivered& first() const { return messages_.front(); }

 private:
    QueueObject* queue_;
    std::vector<Delivered> messages_;
};

// Fills `got` with at least one message.
bool get_some(QueueObject* self, Got& got, const char* call, u32 wanted, double timeout) {
    Busy busy(self);
    const auto attempt = [&](bool probe) {
        return self->attachment->get(got.all(), wanted, probe, CopyWithoutGil());
    };
    if (attempt(false) == Verdict::ok) [[likely]]
        return true;
    if (self->attachment->message_damaged()) {
        raise_verdict(*self->attachment, Verdict::corrupt, call, 0, true);
        return false;
    }
    return wait_for(self, call, timeout, false, attempt);
}

bool parse_get(const char* call, PyObject* const* args, Py_ssize_t count, PyObject* kwnames,
               double& timeout) {
    static const char* const names[] = {"timeout"};
    PyObject* given[1];
    if (!parse(call, args, count, kwnames, names, 1, 0, given)) return false;
    return given[0] == nullptr || parse_timeout(given[0], timeout);
}

PyObject* queue_get(PyObject* object, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    double timeout = -1;
    if ((count != 0 || kwnames != nullptr) && !parse_get("get", args, count, kwnames, timeout))
        return nullptr;
    Got got(self);
    if (!usable(self) || !get_some(self, got, "get", 1, timeout)) return nullptr;
    PyObject* message = message_new(self, got.first());
    if (message == nullptr) self->attachment->put_aside(got.first().taken);
    return message;
}

void copy_and_settle(QueueObject* self, const Delivered& got, void* to) {
    const Busy busy(self);
    copy_payload(got, to);
    self->attachment->settle(got.taken);
    self->attachment->announce_space();
}

PyObject* queue_get_bytes(PyObject* object, PyObject* const* args, Py_ssize_t count,
                          PyObject* kwnames) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    double timeout = -1;
    if (!parse_get("get_bytes", args, count, kwnames, timeout)) return nullptr;
    Got some(self);
    if (!usable(self) || !get_some(self, some, "get_bytes", 1, timeout)) return nullptr;
    const Delivered& got = some.first();
    PyObject* copy = PyBytes_FromStringAndSize(nullptr, got.size);
    if (copy == nullptr) {
        self->attachment->put_aside(got.taken);
        return nullptr;
    }
    copy_and_settle(self, got, PyBytes_AS_STRING(copy));
    return copy;
}

PyObject* queue_get_into(PyObject* object, PyObject* const* args, Py_ssize_t count,
                         PyObject* kwnames) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    static const char* const names[] = {"buffer", "timeout"};
    PyObject* given[2];
    double timeout = -1;
    if (!parse("get_into", args, count, kwnames, names, 2, 1, given)) return nullptr;
    if (given[1] != nullptr && !parse_timeout(given[1], timeout)) return nullptr;
    Py_buffer view;
    if (PyObject_GetBuffer(given[0], &view, PyBUF_WRITABLE) < 0) return nullptr;
    PyObject* result = nullptr;
    Got some(self);
    if (usable(self) && get_some(self, some, "get_into", 1, timeout)) {
        const Delivered& got = some.first();
        if (got.size <= static_cast<u64>(view.len)) {
            copy_and_settle(self, got, view.buf);
            result = PyLong_FromUnsignedLong(got.size);
        } else {
            self->attachment->put_aside(got.taken);
            raise("Misuse", "the message has " + std::to_string(got.size) +
                                " bytes and the buffer " + std::to_string(view.len) +
                                "; the message stays in the queue: use a larger buffer");
        }
    }
    PyBuffer_Release(&view);
    return result;
}

PyObject* queue_get_many(PyObject* object, PyObject* const* args, Py_ssize_t count,
                         PyObject* kwnames) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    static const char* const names[] = {"count", "timeout"};
    PyObject* given[2];
    double timeout = -1;
    if (!parse("get_many", args, count, kwnames, names, 2, 1, given)) return nullptr;
    if (given[1] != nullptr && !parse_timeout(given[1], timeout)) return nullptr;
    const Py_ssize_t wanted = PyNumber_AsSsize_t(given[0], nullptr);  // at most all that there are
    if (wanted == -1 && PyErr_Occurred()) return nullptr;
    if (wanted < 1) {
        raise("Misuse", "get_many needs a count of at least 1");
        return nullptr;
    }
    if (!usable(self)) return nullptr;
    Got got(self);
    if (!get_some(self, got, "get_many", static_cast<u32>(std::min<Py_ssize_t>(wanted, kBatchMax)),
                  timeout))
        return nullptr;
    PyObject* messages = messages_new(self, got.all());
    if (messages == nullptr)
        for (const Delivered& each : got.all()) self->attachment->put_aside(each.taken);
    return messages;
}

PyObject* queue_close(PyObject* object, PyObject*) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    if (!usable(self)) return nullptr;
    Verdict verdict;
    while ((verdict = self->attachment->close()) == Verdict::contended)
        if (PyErr_CheckSignals() < 0 || !usable(self)) return nullptr;
    if (verdict != Verdict::ok) {
        raise_verdict(*self->attachment, verdict, "close", 0, true);
        return nullptr;
    }
    Py_RETURN_NONE;
}

// Takes and settles the messages that wait now. Messages that other participants hold stay theirs.
PyObject* queue_purge(PyObject* object, PyObject*) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    if (!usable(self)) return nullptr;
    Busy busy(self);
    u64 purged = 0;
    for (;;) {
        std::vector<Delivered> batch;
        Verdict verdict = self->attachment->get(batch, 1024, true, CopyWithoutGil());
        if (verdict == Verdict::corrupt && self->attachment->message_damaged()) {
            ++purged;
            continue;
        }
        if (verdict == Verdict::corrupt) {
            raise_verdict(*self->attachment, verdict, "purge", 0, true);
            return nullptr;
        }
        if (verdict == Verdict::contended) {
            if (PyErr_CheckSignals() < 0) return nullptr;
            continue;
        }
        if (verdict != Verdict::ok) return PyLong_FromUnsignedLongLong(purged);
        for (const Delivered& each : batch) self->attachment->settle(each.taken);
        self->attachment->announce_space();
        purged += batch.size();
        if (PyErr_CheckSignals() < 0) return nullptr;
    }
}

PyObject* queue_recover(PyObject* object, PyObject*) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    if (!usable(self)) return nullptr;
    Recovered sum = self->attachment->recover_all();
    if (!still_usable(*self->attachment)) return nullptr;
    return Py_BuildValue("{s:I,s:I,s:I}", "skipped", sum.skipped, "handed_on", sum.handed_on,
                         "released", sum.released);
}

PyObject* queue_detach(PyObject* object, PyObject*) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    if (!self->attachment->usable()) Py_RETURN_NONE;
    if (self->exports > 0) {
        raise("Misuse", "queue " + self->attachment->name() + ": " + std::to_string(self->exports) +
                            " views of message data are alive; release them (leave their `with`, "
                            "delete them) and "
                            "detach again");
        return nullptr;
    }
    if (self->busy > 0) {
        raise("Misuse", "queue " + self->attachment->name() + " is in use by " +
                            std::to_string(self->busy) +
                            " other threads; let them finish, then detach");
        return nullptr;
    }
    self->attachment->detach();
    Py_RETURN_NONE;
}

PyObject* queue_listen(PyObject* object, PyObject* putting) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    if (!usable(self)) return nullptr;
    int which = PyObject_IsTrue(putting);
    if (which < 0) return nullptr;
    return PyLong_FromUnsignedLong(which ? self->attachment->listen_space()
                                         : self->attachment->listen_data());
}

PyObject* queue_enter(PyObject* self, PyObject*) {
    return Py_NewRef(self);
}
PyObject* queue_exit(PyObject* self, PyObject* const*, Py_ssize_t) {
    return queue_detach(self, nullptr);
}

// Life and attributes

PyObject* queue_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
    static const char* names[] = {"directory", "name", "adopt", nullptr};
    const char *directory, *name;
    int adopt = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "ss|p", const_cast<char**>(names), &directory,
                                     &name, &adopt))
        return nullptr;
    // First the attachment: an object without one is never seen, not even by a subclass's __del__.
    std::shared_ptr<QueueAttachment> attachment =
        guarded([&] { return std::make_shared<QueueAttachment>(directory, name, adopt != 0); },
                std::shared_ptr<QueueAttachment>());
    if (!attachment) return nullptr;
    PyObject* object = type->tp_alloc(type, 0);
    if (object == nullptr) {
        attachment->detach();
        return nullptr;
    }
    auto* self = reinterpret_cast<QueueObject*>(object);
    new (&self->attachment) std::shared_ptr<QueueAttachment>(std::move(attachment));
    new (&self->spare) std::vector<Delivered>();
    self->spin_ns = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? 50'000 : 0;
    return object;
}

void queue_dealloc(PyObject* object) {
    auto* self = reinterpret_cast<QueueObject*>(object);
    self->attachment->detach();
    self->attachment.~shared_ptr();
    self->spare.~vector();
    Py_TYPE(object)->tp_free(object);
}

PyObject* queue_name(PyObject* object, void*) {
    return PyUnicode_FromString(reinterpret_cast<QueueObject*>(object)->attachment->name().c_str());
}
PyObject* queue_directory(PyObject* object, void*) {
    return PyUnicode_FromString(
        reinterpret_cast<QueueObject*>(object)->attachment->directory().c_str());
}
PyObject* queue_message_size_max(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(
        reinterpret_cast<QueueObject*>(object)->attachment->geometry().size_max());
}
PyObject* queue_slot(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(
        reinterpret_cast<QueueObject*>(object)->attachment->participant().slot());
}
PyObject* queue_usable(PyObject* object, void*) {
    return PyBool_FromLong(reinterpret_cast<QueueObject*>(object)->attachment->usable());
}
PyObject* queue_dead_letter_blocked(PyObject* object, void*) {
    return PyBool_FromLong(
        reinterpret_cast<QueueObject*>(object)->attachment->dead_letter_blocked());
}
PyObject* queue_put_end(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(
        reinterpret_cast<QueueObject*>(object)->attachment->put_end());
}
PyObject* queue_spin(PyObject* object, void*) {
    return PyFloat_FromDouble(static_cast<double>(reinterpret_cast<QueueObject*>(object)->spin_ns) /
                              1e9);
}
int queue_set_spin(PyObject* object, PyObject* value, void*) {
    double seconds = value == nullptr ? -1 : PyFloat_AsDouble(value);
    if (seconds == -1 && PyErr_Occurred()) return -1;
    if (!(seconds >= 0 && seconds <= 10)) {
        raise("Misuse", "spin is a time in seconds, from 0 (sleep at once) to 10");
        return -1;
    }
    reinterpret_cast<QueueObject*>(object)->spin_ns = static_cast<u64>(seconds * 1e9);
    return 0;
}

Bell bell_of_queue(PyObject* object, bool putting) {
    const std::shared_ptr<QueueAttachment>& attachment =
        reinterpret_cast<QueueObject*>(object)->attachment;
    return {attachment, putting ? attachment->space_bell() : attachment->data_bell()};
}

PyMethodDef queue_methods[] = {
    {"put", method(fast<queue_put>), kFast, "put(data, timeout=None): add a message."},
    {"put_many", method(fast<queue_put_many>), kFast,
     "put_many(messages, timeout=None): add messages, all at once."},
    {"get", method(fast<queue_get>), kFast, "get(timeout=None) -> Message"},
    {"get_bytes", method(fast<queue_get_bytes>), kFast,
     "get_bytes(timeout=None) -> bytes: a copy, settled at once."},
    {"get_into", method(fast<queue_get_into>), kFast,
     "get_into(buffer, timeout=None) -> int: the size, settled at once."},
    {"get_many", method(fast<queue_get_many>), kFast,
     "get_many(count, timeout=None) -> Messages: at least one."},
    {"close", plain<queue_close>, METH_NOARGS,
     "Close the queue: puts raise Closed, and gets do so after the last message."},
    {"purge", plain<queue_purge>, METH_NOARGS,
     "Settle the messages that wait, without delivery; return their number."},
    {"detach", plain<queue_detach>, METH_NOARGS,
     "Detach this process; messages that it holds are delivered again."},
    {"_recover", plain<queue_recover>, METH_NOARGS, nullptr},
    {"_listen", plain<queue_listen>, METH_O, nullptr},
    {"__enter__", queue_enter, METH_NOARGS, nullptr},
    {"__exit__", method(queue_exit), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef queue_getset[] = {
    {"name", queue_name, nullptr, "The queue's name.", nullptr},
    {"directory", queue_directory, nullptr, "The path of its segment.", nullptr},
    {"message_size_max", queue_message_size_max, nullptr, "The largest message, in bytes.",
     nullptr},
    {"slot", queue_slot, nullptr, "This attachment's slot.", nullptr},
    {"attached", queue_usable, nullptr, "False after detach() and in a forked child.", nullptr},
    {"spin", queue_spin, queue_set_spin, "Seconds to spin before a waiting call sleeps.", nullptr},
    {"_put_end", queue_put_end, nullptr, nullptr, nullptr},
    {"_dead_letter_blocked", queue_dead_letter_blocked, nullptr, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

PyTypeObject QueueType{};

int ready_types() {
    register_waitable(&QueueType, &bell_of_queue);
    immortalise(QueueType);
    QueueType.tp_name = "holdfast._core.Queue";
    QueueType.tp_basicsize = sizeof(QueueObject);
    QueueType.tp_new = queue_new;
    QueueType.tp_dealloc = queue_dealloc;
    QueueType.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
    QueueType.tp_doc = "An attachment to a queue segment; holdfast.Queue is the class to use.";
    QueueType.tp_methods = queue_methods;
    QueueType.tp_getset = queue_getset;
    return PyType_Ready(&QueueType) < 0 ? -1 : ready_message_types();
}

}  // namespace holdfast::bindings
