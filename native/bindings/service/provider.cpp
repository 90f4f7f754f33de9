// ServiceProvider: send, loan, newest, sequence, and notices of dead processes.
//
// Threads: a call runs under the GIL, except that it copies large samples without it.
#include "bindings/base/arguments.hpp"
#include "bindings/base/records.hpp"
#include "bindings/service/objects.hpp"
#include "bindings/service/waiting.hpp"

namespace holdfast::bindings {

namespace {

struct Payload {
    const std::byte* data = nullptr;
    u64 size = 0;
};

bool fits(ServiceObject* self, u32 element, u64 size) {
    const u64 limit = self->hold->plan().element(element).size;
    if (size <= limit) [[likely]]
        return true;
    raise_too_large(*self->hold, element, "a sample", size, limit);
    return false;
}

// A sample to fill; kNone: an exception is set. It waits for threads that copy a sample of this element without the GIL. A
// loan that a send has is soon free again. A sample that a read copies must not be lent.
u32 lend(ServiceObject* self, u32 element) {
    ElementState& state = self->elements[element];
    const u32 limit = self->hold->plan().element(element).loans;
    while (state.reading || (state.sending > 0 && self->provider->loans(element) >= limit))
        [[unlikely]] {
        if (!let_others_run() || !usable(self)) return SampleOrder::kNone;
    }
    if (self->provider->loans(element) >= limit) {
        raise_loan_limit(*self->provider, element);
        return SampleOrder::kNone;
    }
    const u32 number = self->provider->lend(element);
    if (number == SampleOrder::kNone) raise_no_sample(*self->provider, element);
    return number;
}

// Publishes a copy. 0: an exception is set.
u64 send_copy(ServiceObject* self, u32 element, const Payload& payload) {
    const u32 number = lend(self, element);
    if (number == SampleOrder::kNone) return 0;
    std::byte* room = self->provider->room(element, number);
    if (payload.size < kLargeCopy) [[likely]] {
        copy_bytes(room, payload.data, payload.size);
    } else {
        const ServiceBusy busy(self);
        ++self->elements[element].sending;
        {
            const GilRelease release;
            copy_bytes(room, payload.data, payload.size);
        }
        --self->elements[element].sending;
        if (!usable(self)) {
            self->provider->give_back(element, number);
            return 0;
        }
    }
    const u64 sequence = self->provider->publish(element, number, static_cast<u32>(payload.size));
    if (sequence != 0) [[likely]]
        return sequence;
    self->provider->give_back(element, number);
    raise("HoldfastError",
          words_of(*self->hold, element) + " has used up its sequence numbers; remove the service");
    return 0;
}

PyObject* provider_send(PyObject* object, PyObject* const* args, Py_ssize_t count,
                        PyObject* kwnames) {
    ServiceObject* self = service_of(object);
    static const char* const names[] = {"element", "data"};
    PyObject* given[2];
    u32 element;
    if (!parse("send", args, count, kwnames, names, 2, 2, given) ||
        !parse_element(self, given[0], "samples", element))
        return nullptr;
    Bytes bytes;
    Payload payload;
    if (!bytes.get(given[1], payload)) return nullptr;
    if (bytes.held() && !usable(self)) return nullptr;  // `__buffer__` may have closed it
    if (!fits(self, element, payload.size)) return nullptr;
    const u64 sequence = send_copy(self, element, payload);
    return sequence == 0 ? nullptr : PyLong_FromUnsignedLongLong(sequence);
}

PyObject* provider_loan(PyObject* object, PyObject* const* args, Py_ssize_t count,
                        PyObject* kwnames) {
    ServiceObject* self = service_of(object);
    static const char* const names[] = {"element", "size"};
    PyObject* given[2];
    u32 element;
    if (!parse("loan", args, count, kwnames, names, 2, 1, given) ||
        !parse_element(self, given[0], "samples", element))
        return nullptr;
    u64 size = self->hold->plan().element(element).size;
    if (given[1] != nullptr && given[1] != Py_None) {
        const Py_ssize_t wanted = PyNumber_AsSsize_t(given[1], nullptr);
        if (wanted == -1 && PyErr_Occurred()) return nullptr;
        if (wanted < 0) {
            raise("Misuse", "a loan has at least 0 bytes, not " + std::to_string(wanted));
            return nullptr;
        }
        size = static_cast<u64>(wanted);
    }
    if (!usable(self) || !fits(self, element, size)) return nullptr;
    const u32 number = lend(self, element);
    if (number == SampleOrder::kNone) return nullptr;
    PyObject* loan = guarded(
        [&] {
            return sample_new(&ServiceLoanType, self, element, number,
                              self->provider->room(element, number), static_cast<u32>(size));
        },
        static_cast<PyObject*>(nullptr));
    if (loan == nullptr) self->provider->give_back(element, number);
    return loan;
}

PyObject* provider_newest(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    u32 element;
    if (!parse_element(self, given, "samples", element)) return nullptr;
    while (self->elements[element].reading) {
        if (!let_others_run() || !usable(self)) return nullptr;
    }
    const u32 number = self->provider->newest(element);
    if (number == SampleOrder::kNone) Py_RETURN_NONE;
    const u64 size = self->provider->length(element, number);
    PyObject* out = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size));
    if (out == nullptr) return nullptr;
    const ServiceBusy busy(self);
    self->elements[element].reading = true;  // until then it is not lent again
    CopyWithoutGil()(size, [&] {
        copy_bytes(PyBytes_AS_STRING(out), self->provider->room(element, number), size);
    });
    self->elements[element].reading = false;
    return out;
}

PyObject* provider_sequence(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    u32 element;
    if (!parse_element(self, given, "samples", element)) return nullptr;
    return PyLong_FromUnsignedLongLong(self->hold->elements()[element].samples.newest());
}

PyObject* provider_notices(PyObject* object, PyObject*) {
    ServiceObject* self = service_of(object);
    if (!usable(self)) return nullptr;
    std::vector<Notice> found;
    Notice each;
    for (u32 from = 0; self->provider->next_notice(from, each); from = each.place + 1)
        found.push_back(each);
    return list_of(found, [](const Notice& notice) {
        return tuple_of(u64{notice.place}, notice.pid, notice.since,
                        Steal{PyUnicode_DecodeUTF8(
                            notice.application.data(),
                            static_cast<Py_ssize_t>(notice.application.size()), "replace")});
    });
}

PyObject* provider_notice_taken(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    const Py_ssize_t place = PyNumber_AsSsize_t(given, nullptr);
    if (place == -1 && PyErr_Occurred()) return nullptr;
    if (!usable(self)) return nullptr;
    if (place < 0 || place >= static_cast<Py_ssize_t>(kNotices)) {
        raise("Misuse", "service " + self->hold->name() + ": there is no notice at place " +
                            std::to_string(place) + "; use one that notices() returned");
        return nullptr;
    }
    Notice notice;
    notice.place = static_cast<u32>(place);
    self->provider->notice_taken(notice);
    Py_RETURN_NONE;
}

PyObject* provider_bell(PyObject* object, PyObject*) {
    ServiceObject* self = service_of(object);
    return usable(self) ? bell_new(self, self->hold->provider_bell()) : nullptr;
}

}  // namespace

PyMethodDef provider_methods[] = {
    {"send", method(fast<provider_send>), kFast,
     "send(element, data) -> int: publish a copy and return its sequence number."},
    {"loan", method(fast<provider_loan>), kFast,
     "loan(element, size=None) -> ServiceLoan: lend a sample to fill in place."},
    {"newest", plain<provider_newest>, METH_O,
     "newest(element) -> bytes | None: copy the newest sample."},
    {"sequence", plain<provider_sequence>, METH_O,
     "sequence(element) -> int: the number of the newest sample; 0 before the first."},
    {"notices", plain<provider_notices>, METH_NOARGS,
     "notices() -> list of (place, pid, since, application): processes that died."},
    {"notice_taken", plain<provider_notice_taken>, METH_O, "notice_taken(place): forget a notice."},
    {"bell", plain<provider_bell>, METH_NOARGS, "bell() -> ServiceBell: of calls and notices."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace holdfast::bindings
