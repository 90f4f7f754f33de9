// The hot types of a service as plain CPython types: provider and proxy, samples, loans, calls and bells.
// Everything here only translates; what a service does stands in native/holdfast/service.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <memory>
#include <vector>

#include "bindings/base/errors.hpp"
#include "bindings/base/types.hpp"
#include "holdfast/service/holds.hpp"

namespace holdfast::bindings {

struct SampleObject;

// The program's share of one element.
struct ElementState {
    std::vector<SampleObject*> held;  // samples of a proxy, loans of a provider
    u32 sending = 0;                  // sends that copy without the GIL
    bool reading = false;             // a read copies without the GIL
    bool leaving = false;             // unsubscribed; its end waits for the last sample
};

// ServiceProvider or ServiceProxy: one of the two pointers is set.
struct ServiceObject {
    PyObject_HEAD std::shared_ptr<ServiceHold> hold;  // null before __init__
    ProviderHold* provider;
    ProxyHold* proxy;
    std::vector<ElementState> elements;
    PyObject* as_array;  // a list with a function or None for each element, or null
    u64 spin_ns;
    Py_ssize_t lent;     // samples or loans in the hands of the program
    Py_ssize_t busy;     // calls that need the slot and have let go of the GIL
    Py_ssize_t waiting;  // calls that wait
    bool closed;
};

inline ServiceObject* service_of(PyObject* object) {
    return reinterpret_cast<ServiceObject*>(object);
}

enum class SampleStage : u8 {
    held,
    leaving,  // its end waits for the last view
    gone,
};

// ServiceSample or ServiceLoan: a sample in the hands of the program.
struct SampleObject {
    PyObject_HEAD ServiceObject* owner;
    PyObject* weak;  // the weak references to it
    PyObject* view;  // of a loan in its `with`
    std::byte* data;
    u64 sequence;  // of a loan: 0 before its publication
    u64 missed;
    u32 element;
    u32 number;  // of the sample
    u32 size;
    u32 exports;
    SampleStage stage;
};

// ServiceCall: a call that the provider runs.
struct CallObject {
    PyObject_HEAD ServiceObject* owner;
    PyObject* request;
    u64 word;
    u32 element;
    u32 place;
    bool answered;
};

// ServiceBell: what the waiter waits for.
struct BellObject {
    PyObject_HEAD ServiceObject* owner;
    u32* word;
};

extern PyTypeObject ServiceProviderType, ServiceProxyType, ServiceSampleType, ServiceLoanType,
    ServiceCallType, ServiceBellType;

// role.cpp
int ready_service_types();
// The slot is given up when it is closed and nothing needs it any more.
void leave_if_done(ServiceObject* self);
// False with an exception set. `what`: "samples" or "calls", which the element must have.
bool parse_element(ServiceObject* self, PyObject* given, const char* what, u32& element);
PyObject* bell_new(ServiceObject* owner, u32* word);

// elements.cpp
PyObject* element_tuples(const ServicePlan& plan);
bool parse_elements(PyObject* list, std::vector<ElementSpec>& out);

// samples.cpp
int ready_sample_types();
PyObject* sample_new(PyTypeObject* type, ServiceObject* owner, u32 element, u32 number,
                     std::byte* data, u32 size);
// Ends the program's hold on a sample, now or with its last view.
void finish(SampleObject* self);
// A view of it is gone.
void unexport(SampleObject* self);

// provider.cpp, running.cpp, proxy.cpp, calling.cpp
extern PyMethodDef provider_methods[], running_methods[], proxy_methods[], calling_methods[];
int ready_call_type();
// Publishes a loan that no view looks at. 0: an exception is set.
u64 publish_loan(SampleObject* loan);
// After the last sample of an element was released.
void unsubscribe_if_done(ServiceObject* self, u32 element);

// segment.cpp
PyObject* inspect_hold(const ServiceHold& hold);

// verdicts.cpp
std::string words_of(const ServiceHold& hold, u32 element);
void raise_unusable(const ServiceObject* self);
void raise_nothing(const ServiceObject* self, const std::string& what, double waited_s,
                   bool nowait);
void raise_subscribing(ProxyHold& hold, u32 element, u32 samples, Subscribing result);
void raise_loan_limit(ProviderHold& hold, u32 element);
void raise_no_sample(ProviderHold& hold, u32 element);
void raise_too_large(const ServiceHold& hold, u32 element, const char* what, u64 size, u64 limit);

// False with an exception set: closed, the child of a fork, or never initialised.
inline bool usable(const ServiceObject* self) {
    if (self->hold != nullptr && !self->closed && self->hold->usable()) [[likely]]
        return true;
    raise_unusable(self);
    return false;
}
// The same, after asking the kernel: for the slow paths.
inline bool still_usable(const ServiceObject* self) {
    if (self->hold != nullptr && !self->closed && self->hold->still_usable()) [[likely]]
        return true;
    raise_unusable(self);
    return false;
}

// Marks a stretch in which the GIL may be released and the slot is needed: a close by another thread waits for its end.
class ServiceBusy {
 public:
    explicit ServiceBusy(ServiceObject* self) : self_(self) { ++self_->busy; }
    ~ServiceBusy() {
        --self_->busy;
        leave_if_done(self_);
    }
    ServiceBusy(const ServiceBusy&) = delete;

 private:
    ServiceObject* self_;
};

}  // namespace holdfast::bindings
