// The types that a consumer holds, Batch and TopicMessage, as plain CPython types: a user's loop over messages goes
// through no layer but this one.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "holdfast/entry/handover.hpp"

namespace holdfast::bindings {

struct BatchObject {
    PyObject_HEAD Handover handover;
    PyObject* topic;
};

struct TopicMessageObject {
    PyObject_HEAD BatchObject* batch;
    MessagePlace place;
    PyObject* data;  // made when it is first asked for

    const HandoverItem& item() const { return batch->handover.items()[place.item]; }
    const EntrySlot& slot() const { return batch->handover.run().slot(item().index); }
    u64 ordinal() const { return batch->handover.ordinal(item()); }
    u64 entry_number() const { return batch->handover.run().first_entry() + item().index; }
};

extern PyTypeObject BatchType, TopicMessageType;

int ready_delivery_types();

// A new Batch; null with an exception set. `topic` is borrowed and may be null: None. It must not refer to the batch.
PyObject* batch_new(Handover&& handover, PyObject* topic);

}  // namespace holdfast::bindings
