// ServiceProxy: call.
//
// Threads: a call runs under the GIL, except that it spins, sleeps and copies large requests and responses without it.
#include "bindings/base/arguments.hpp"
#include "bindings/service/objects.hpp"
#include "bindings/service/waiting.hpp"

namespace holdfast::bindings {

namespace {

// How a call ended; see ServiceProxy.call in _core.pyi.
enum class Outcome : long {
    answered = 0,
    late_unexecuted = 1,
    late_running = 2,
    absent = 3,  // no provider, not executed
    died = 4,    // the provider died while it ran
    no_place = 5,
};

struct Payload {
    const std::byte* data = nullptr;
    u64 size = 0;
};

PyObject* outcome(Outcome outcome, u32 status = 0, PyObject* response = nullptr) {
    PyObject* out = PyTuple_New(3);
    PyObject* first = PyLong_FromLong(static_cast<long>(outcome));
    PyObject* second = PyLong_FromUnsignedLong(status);
    if (response == nullptr) response = Py_NewRef(Py_None);
    if (out == nullptr || first == nullptr || second == nullptr) {
        Py_XDECREF(out);
        Py_XDECREF(first);
        Py_XDECREF(second);
        Py_DECREF(response);
        return nullptr;
    }
    PyTuple_SET_ITEM(out, 0, first);
    PyTuple_SET_ITEM(out, 1, second);
    PyTuple_SET_ITEM(out, 2, response);
    return out;
}

// One call, from its place to its response. Left early, it is withdrawn.
class Calling {
 public:
    Calling(ServiceObject* self, u32 element, double timeout)
        : self_(self),
          hold_(*self->proxy),
          element_(element),
          timeout_(timeout),
          time_(timeout),
          busy_(self) {}
    ~Calling() {
        if (!claimed_ || !hold_.usable()) return;
        bool dead = false;
        if (!submitted_)
            collect(CallState::claimed);
        else if (hold_.withdraw(element_, ticket_, dead) == Withdrawn::done)
            collect(CallState::done);
    }
    Calling(const Calling&) = delete;

    PyObject* run(const Payload& request) {
        if (!claim()) return PyErr_Occurred() ? nullptr : outcome(end_);
        CopyWithoutGil()(request.size, [&] {
            copy_bytes(hold_.request_room(element_, ticket_), request.data, request.size);
        });
        if (request.size >= kLargeCopy && !usable(self_)) return nullptr;
        submitted_ = hold_.submit(element_, ticket_, request.size);
        if (!submitted_) return damaged();
        return await() ? response() : PyErr_Occurred() ? nullptr : outcome(end_);
    }

 private:
    bool claim() {
        claimed_ = hold_.try_claim(element_, ticket_);
        if (claimed_) [[likely]]
            return true;
        const auto attempt = [this](bool probe) {
            if (probe ? hold_.claim(element_, ticket_) : hold_.try_claim(element_, ticket_))
                return Tried::ok;
            if (probe && hold_.used_up(element_)) {
                raise("HoldfastError", words_of(hold_, element_) +
                                           " has used up its 55 bits of call numbers; end all "
                                           "processes of the service, and offer it anew");
                return Tried::failed;
            }
            if (!probe || hold_.offered()) return Tried::blocked;
            end_ = Outcome::absent;
            return Tried::failed;
        };
        claimed_ = wait_for(
            self_, hold_.bell(element_), time_, attempt,
            [this] { return hold_.looks_claimable(element_); },
            [this](double) { end_ = Outcome::no_place; });
        return claimed_;
    }

    // True: the response is there. False: `end_`, or an exception.
    bool await() {
        const auto look = [this] {
            const CallLook found = hold_.look(element_, ticket_);
            return found != CallLook::waiting && found != CallLook::running;
        };
        if (timeout_ != 0 && comes_soon(self_, look)) {
            const Tried first = attempt(false);
            if (first != Tried::blocked) return first == Tried::ok;
        }
        return wait_for(
                   self_, hold_.bell(element_), time_,
                   [this](bool probe) { return attempt(probe); }, look,
                   [this](double) { give_up(false); }) ||
               done_;
    }

    Tried attempt(bool probe) {
        switch (hold_.look(element_, ticket_)) {
            case CallLook::done:
                return Tried::ok;
            case CallLook::failed:
                collect(CallState::failed);
                end_ = Outcome::died;
                return Tried::failed;
            case CallLook::gone:
                claimed_ = false;
                damaged();
                return Tried::failed;
            case CallLook::waiting:
            case CallLook::running:
                break;
        }
        if (!probe || hold_.offered()) return Tried::blocked;
        give_up(true);
        return done_ ? Tried::ok : Tried::failed;
    }

    // The time is over, or the provider is dead or stops.
    void give_up(bool dead) {
        bool proven = dead;
        switch (hold_.withdraw(element_, ticket_, proven)) {
            case Withdrawn::done:
                done_ = true;
                return;
            case Withdrawn::unexecuted:
                end_ = dead ? Outcome::absent : Outcome::late_unexecuted;
                break;
            case Withdrawn::running:
                end_ = dead ? Outcome::died : Outcome::late_running;
                break;
        }
        claimed_ = false;
    }

    void collect(CallState from) {
        hold_.collect(element_, ticket_, from);
        claimed_ = false;
    }

    PyObject* response() {
        u32 status = 0;
        const auto [from, size] = hold_.response(element_, ticket_, status);
        PyObject* bytes = PyBytes_FromStringAndSize(nullptr, size);
        if (bytes == nullptr) return nullptr;
        const std::byte* data = from;
        CopyWithoutGil()(
            size, [&, length = size] { copy_bytes(PyBytes_AS_STRING(bytes), data, length); });
        collect(CallState::done);
        return outcome(Outcome::answered, status, bytes);
    }

    PyObject* damaged() {
        if (still_usable(self_))
            raise("Corrupt", "the call of " + words_of(hold_, element_) + " at place " +
                                 std::to_string(ticket_.place) +
                                 " was overwritten, which no participant does. Run `holdfast "
                                 "service doctor " +
                                 hold_.name() + "`");
        return nullptr;
    }

    ServiceObject* self_;
    ProxyHold& hold_;
    u32 element_;
    double timeout_;
    const TimeLimit time_;
    const ServiceBusy busy_;  // ends after the destructor's withdrawal
    CallTicket ticket_;
    Outcome end_ = Outcome::absent;
    bool claimed_ = false;
    bool submitted_ = false;
    bool done_ = false;
};

PyObject* proxy_call(PyObject* object, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
    ServiceObject* self = service_of(object);
    static const char* const names[] = {"element", "request", "timeout"};
    PyObject* given[3];
    u32 element;
    double timeout = -1;
    if (!parse("call", args, count, kwnames, names, 3, 2, given) ||
        !parse_element(self, given[0], "calls", element) ||
        (given[2] != nullptr && !parse_timeout(given[2], timeout)))
        return nullptr;
    Bytes bytes;
    Payload request;
    if (!bytes.get(given[1], request) || !usable(self)) return nullptr;
    const u64 limit = self->hold->plan().element(element).request_size;
    if (request.size > limit) {
        raise_too_large(*self->hold, element, "a request", request.size, limit);
        return nullptr;
    }
    Calling call(self, element, timeout);
    return call.run(request);
}

}  // namespace

PyMethodDef calling_methods[] = {
    {"call", method(fast<proxy_call>), kFast,
     "call(element, request, timeout=None) -> (outcome, status, response)"},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace holdfast::bindings
