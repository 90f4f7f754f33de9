// The hot types, Queue, Message and Messages, as plain CPython types: what a user calls for every message goes through
// no layer but this one. Everything here only translates; what a queue does stands in native/holdfast.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <vector>

#include "bindings/base/errors.hpp"
#include "bindings/base/gil.hpp"
#include "bindings/base/types.hpp"
#include "holdfast/queue/attachment.hpp"

namespace holdfast::bindings {

struct QueueObject {
    PyObject_HEAD std::shared_ptr<QueueAttachment> attachment;
    std::vector<Delivered> spare;  // memory that a get borrows, see Got in queue.cpp
    u64 spin_ns;
    Py_ssize_t exports;  // views into the mapping that live
    Py_ssize_t busy;     // calls that have let go of the GIL
};

enum class Fate : u8 { held, settled, given_back };

// One message of get_many, or the only one of get.
struct Slot {
    Delivered delivered;
    Fate fate = Fate::held;
    Fate wish = Fate::held;  // what shall become of it when its last view is gone
    u32 exports = 0;
};

struct MessagesObject {
    PyObject_VAR_HEAD QueueObject* queue;
    Py_ssize_t count;
    Slot slots[1];
};

// A message of its own (batch null, `own` used) or one of a batch.
struct MessageObject {
    PyObject_HEAD vectorcallfunc call;  // see WithMethod in message.cpp
    QueueObject* queue;
    MessagesObject* batch;
    Slot* slot;
    Slot own;
};

// The caller makes sure that no thread settles the message or detaches meanwhile.
inline void copy_payload(const Delivered& from, void* to) {
    CopyWithoutGil()(from.size, [&] { copy_bytes(to, from.data, from.size); });
}

extern PyTypeObject QueueType, MessageType, MessagesType;

int ready_types();
int ready_message_types();

PyObject* message_new(QueueObject* queue, const Delivered& delivered);
PyObject* messages_new(QueueObject* queue, const std::vector<Delivered>& delivered);

// verdicts.cpp
// What a verdict other than ok means to the caller of `call`. `nowait`: it was told not to wait.
void raise_verdict(QueueAttachment& attachment, Verdict verdict, const char* call, double waited_s,
                   bool nowait);

void raise_unusable(const QueueAttachment& attachment);

// False with an exception set: detached, or the child of a fork.
inline bool usable(QueueObject* self) {
    if (self->attachment->usable()) [[likely]]
        return true;
    raise_unusable(*self->attachment);
    return false;
}

// The same, after asking the kernel: for the slow paths.
inline bool still_usable(QueueAttachment& attachment) {
    if (attachment.still_usable()) [[likely]]
        return true;
    raise_unusable(attachment);
    return false;
}

}  // namespace holdfast::bindings
