// The hot types of a channel as plain CPython types: its two roles, and the buffers that they hand to a program.
// Everything here only translates; what a channel does stands in native/holdfast/channel.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <vector>

#include "bindings/base/errors.hpp"
#include "bindings/base/types.hpp"
#include "holdfast/channel/attachment.hpp"

namespace holdfast::bindings {

struct BufferObject;

// ChannelProducer or ChannelConsumer: one of the two pointers is set.
struct RoleObject {
    PyObject_HEAD std::shared_ptr<ChannelHold> hold;
    ProducerHold* producer;
    ConsumerHold* consumer;
    std::vector<BufferObject*> lent;  // by buffer, what the program has
    PyObject* as_array;               // of a typed channel: called with a buffer for its array
    u64 spin_ns;
    Py_ssize_t exports;  // views into the mapping that live
    Py_ssize_t busy;     // calls that have let go of the GIL
};

inline RoleObject* role_of(PyObject* object) {
    return reinterpret_cast<RoleObject*>(object);
}

enum class Stage : u8 {
    held,
    pushing,  // a push of it is under way, perhaps without the GIL
    leaving,  // its end waits for the last view
    gone,
};

// ChannelItem, ChannelLoan or Displaced: a buffer in the hands of the program.
struct BufferObject {
    PyObject_HEAD RoleObject* role;
    PyObject* view;    // of a loan in its `with`
    PyObject* pushed;  // of a loan that was pushed
    double timeout;    // of a loan's push
    u64 position;
    u64 lost;
    u32 number;  // of the buffer, see ChannelHold
    u32 lane;    // of an item
    u32 size;
    u32 exports;
    Stage stage;
};

// The result of a push.
struct PushedObject {
    PyObject_HEAD PyObject* displaced;
    u64 identity;
    u64 position;
    u32 lane;
};

// The name of a datum that was pushed, for cancel().
struct HandleObject {
    PyObject_HEAD u64 identity;
    u64 position;
    u32 lane;
};

extern PyTypeObject ProducerType, ConsumerType, ItemType, LoanType, DisplacedType, PushedType,
    HandleType;

int ready_channel_types();
int ready_buffer_types();

// buffers.cpp
PyObject* buffer_new(PyTypeObject* type, RoleObject* role, u32 number, u32 size);
PyObject* pushed_new(RoleObject* role, u32 lane, u64 position);
// Ends the program's hold on a buffer, now or with its last view.
void finish(BufferObject* self);
// The buffer was pushed: it is the ring's.
void hand_over(BufferObject* self);
void raise_pushing(BufferObject* loan);

// producer.cpp
PyObject* push_loan(BufferObject* loan, const char* call, double timeout);

extern PyMethodDef producer_methods[];
extern PyGetSetDef producer_getset[];

// consumer.cpp
extern PyMethodDef consumer_methods[];
extern PyGetSetDef consumer_getset[];

// role.cpp
PyObject* role_close(PyObject* object, PyObject*);
void leave_if_done(RoleObject* role);

// verdicts.cpp
void raise_handover(ChannelHold& hold, Handover result, const char* call, double waited_s,
                    bool nowait);
void raise_unusable(const ChannelHold& hold);
void raise_loan_limit(ProducerHold& hold, u32 priority, std::size_t wanted);
void raise_no_buffer(ProducerHold& hold, const char* call, double waited_s, bool nowait);

// False with an exception set: closed, or the child of a fork.
inline bool usable(RoleObject* self) {
    if (self->hold->usable()) [[likely]]
        return true;
    raise_unusable(*self->hold);
    return false;
}
// The same, after asking the kernel: for the slow paths.
inline bool still_usable(ChannelHold& hold) {
    if (hold.still_usable()) [[likely]]
        return true;
    raise_unusable(hold);
    return false;
}

// Marks a stretch in which the GIL may be released, so that no thread closes the role meanwhile.
class RoleBusy {
 public:
    explicit RoleBusy(RoleObject* role) : role_(role) { ++role_->busy; }
    ~RoleBusy() { --role_->busy; }
    RoleBusy(const RoleBusy&) = delete;

 private:
    RoleObject* role_;
};

}  // namespace holdfast::bindings
