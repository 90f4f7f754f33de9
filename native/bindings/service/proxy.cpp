// ServiceProxy: subscribe, take, read.
//
// Threads: a call runs under the GIL, except that it spins, sleeps and copies large samples without it.
#include <algorithm>
#include <array>

#include "bindings/base/arguments.hpp"
#include "bindings/service/objects.hpp"
#include "bindings/service/waiting.hpp"

namespace holdfast::bindings {

namespace {

bool parse_count(PyObject* given, const char* what, u64 least, u64 most, u32& out) {
    const Py_ssize_t value = PyNumber_AsSsize_t(given, nullptr);
    if (value == -1 && PyErr_Occurred()) return false;
    if (value >= static_cast<Py_ssize_t>(least) && value <= static_cast<Py_ssize_t>(most)) {
        out = static_cast<u32>(value);
        return true;
    }
    raise("Misuse", std::string(what) + " must be a number from " + std::to_string(least) + " to " +
                        std::to_string(most) + ", not " + std::to_string(value));
    return false;
}

// Waits for a thread that reads a sample of this element without the GIL. False: an exception is set.
bool wait_for_read(ServiceObject* self, u32 element) {
    while (self->elements[element].reading) {
        if (!let_others_run() || !usable(self)) return false;
    }
    return true;
}

bool is_subscribed(const ServiceObject* self, u32 element) {
    return self->proxy->subscribed(element) && !self->elements[element].leaving;
}

bool require_subscribed(const ServiceObject* self, u32 element) {
    if (is_subscribed(self, element)) [[likely]]
        return true;
    raise("Misuse", "this proxy has not subscribed to " + words_of(*self->hold, element) +
                        "; subscribe before");
    return false;
}

// ---- subscribe

bool may_subscribe(ServiceObject* self, u32 element) {
    if (!wait_for_read(self, element)) return false;
    if (!self->proxy->subscribed(element)) return true;
    const std::string where = words_of(*self->hold, element);
    if (self->elements[element].leaving)
        raise("Misuse", "this proxy has unsubscribed from " + where + ", but still holds " +
                            std::to_string(self->proxy->held(element)) +
                            " of its samples. Release them, then subscribe again");
    else
        raise("Misuse", "this proxy has subscribed to " + where +
                            " already; close that subscription before, or use it");
    return false;
}

PyObject* proxy_subscribe(PyObject* object, PyObject* const* args, Py_ssize_t count,
                          PyObject* kwnames) {
    ServiceObject* self = service_of(object);
    static const char* const names[] = {"element", "samples", "history"};
    PyObject* given[3];
    u32 element, samples, history = 0;
    if (!parse("subscribe", args, count, kwnames, names, 3, 2, given) ||
        !parse_element(self, given[0], "samples", element) ||
        !parse_count(given[1], "samples", 1, kSamplesMax, samples) ||
        (given[2] != nullptr && !parse_count(given[2], "history", 0, kSamplesMax, history)) ||
        !still_usable(self) || !may_subscribe(self, element))
        return nullptr;
    const Subscribing result = self->proxy->subscribe(element, samples);
    if (result != Subscribing::ok) {
        raise_subscribing(*self->proxy, element, samples, result);
        return nullptr;
    }
    const u64 last = self->proxy->last(element);
    // A tracer is handed what comes. To it, samples from before would be missed ones.
    if (!self->proxy->tracer()) self->proxy->rewind(element, last - std::min<u64>(last, history));
    Py_RETURN_NONE;
}

PyObject* proxy_subscribed(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    u32 element;
    if (!parse_element(self, given, "samples", element)) return nullptr;
    return PyBool_FromLong(is_subscribed(self, element));
}

PyObject* proxy_unsubscribe(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    u32 element;
    if (!parse_element(self, given, "samples", element) || !wait_for_read(self, element) ||
        !require_subscribed(self, element))
        return nullptr;
    self->elements[element].leaving = true;
    unsubscribe_if_done(self, element);
    Py_RETURN_NONE;
}

// ---- take

// The numbers of the samples of one take; few of them need no memory of their own.
class TakenList {
 public:
    explicit TakenList(u32 count) : data_(few_.data()) {
        if (count > few_.size()) {
            many_.resize(count);
            data_ = many_.data();
        }
    }
    TakenSample* data() { return data_; }

 private:
    std::array<TakenSample, 16> few_;
    std::vector<TakenSample> many_;
    TakenSample* data_;
};

bool below_limit(ServiceObject* self, u32 element) {
    ProxyHold& hold = *self->proxy;
    if (hold.held(element) < hold.granted(element)) [[likely]]
        return true;
    raise("Misuse", "this proxy holds " + std::to_string(hold.held(element)) + " samples of " +
                        words_of(hold, element) +
                        ", as many as its subscription allows. Release one (leave its `with`, "
                        "delete its views), or subscribe with a larger max_samples");
    return false;
}

class TakeCall {
 public:
    TakeCall(ServiceObject* self, u32 element, u32 count)
        : self_(self),
          hold_(*self->proxy),
          element_(element),
          count_(std::min(count, hold_.granted(element))),
          list_(count_) {}

    // False: an exception is set.
    bool run(double timeout) {
        Tried first = attempt();
        const u64 last = hold_.last(element_);
        const auto look = [this, last] { return !hold_.looks_empty(element_, last); };
        if (first == Tried::blocked && timeout != 0 && comes_soon(self_, look)) first = attempt();
        if (first == Tried::ok) [[likely]]
            return true;
        if (first == Tried::failed) return false;
        if (timeout == 0 && first == Tried::blocked) {
            late(0, true);
            return false;
        }
        const TimeLimit time(timeout);
        return wait_for(
            self_, hold_.bell(element_), time, [this](bool) { return attempt(); }, look,
            [&](double waited_s) { late(waited_s, timeout == 0); });
    }

    // The samples, the oldest first.
    PyObject* result() {
        // A new list may start a collection, and so code of the program, which may close or unsubscribe.
        const ServiceBusy busy(self_);
        PyObject* list = PyList_New(taken_);
        u32 made = 0;
        u64 missed_in_all = 0;
        for (; list != nullptr && made < taken_; ++made) {
            const TakenSample& each = list_.data()[made];
            PyObject* object = guarded(
                [&] {
                    return sample_new(&ServiceSampleType, self_, element_, each.sample,
                                      const_cast<std::byte*>(hold_.bytes(element_, each.sample)),
                                      hold_.length(element_, each.sample));
                },
                static_cast<PyObject*>(nullptr));
            if (object == nullptr) break;
            auto* sample = reinterpret_cast<SampleObject*>(object);
            sample->sequence = each.sequence;
            sample->missed = each.sequence - before_ - 1;
            missed_in_all += sample->missed;
            before_ = each.sequence;
            PyList_SET_ITEM(list, made, object);
        }
        hold_.count_missed(missed_in_all);
        if (made == taken_) return list;
        for (u32 i = made; i < taken_; ++i) hold_.release(element_, list_.data()[i].sample);
        unsubscribe_if_done(self_, element_);
        Py_XDECREF(list);  // and with it those that were made
        return nullptr;
    }

 private:
    Tried attempt() {
        if (!require_subscribed(self_, element_) || !below_limit(self_, element_))
            return Tried::failed;
        if (self_->elements[element_].reading) return Tried::again;
        before_ = hold_.last(element_);
        switch (hold_.take(element_, count_, list_.data(), taken_)) {
            case Taking::ok:
                break;
            case Taking::empty:
                return Tried::blocked;
            case Taking::overtaken:
                return Tried::again;
            case Taking::corrupt:
                raise("Corrupt", hold_.fault_words());
                return Tried::failed;
        }
        u32 one = 1;  // the tracer takes one at a time
        while (hold_.tracer() && taken_ < count_ && one == 1) {
            hold_.take(element_, 1, list_.data() + taken_, one);
            taken_ += one;
        }
        return Tried::ok;
    }

    void late(double waited_s, bool nowait) {
        raise_nothing(self_, "there is no new sample of " + words_of(hold_, element_), waited_s,
                      nowait);
    }

    ServiceObject* self_;
    ProxyHold& hold_;
    u32 element_;
    u32 count_;
    TakenList list_;
    u32 taken_ = 0;
    u64 before_ = 0;
};

PyObject* proxy_take(PyObject* object, PyObject* const* args, Py_ssize_t count, PyObject* kwnames) {
    ServiceObject* self = service_of(object);
    static const char* const names[] = {"element", "count", "timeout"};
    PyObject* given[3];
    u32 element, wanted;
    double timeout = -1;
    if (!parse("take", args, count, kwnames, names, 3, 2, given) ||
        !parse_element(self, given[0], "samples", element) ||
        !parse_count(given[1], "count", 1, kSamplesMax, wanted) ||
        (given[2] != nullptr && !parse_timeout(given[2], timeout)) || !usable(self) ||
        !require_subscribed(self, element))
        return nullptr;
    TakeCall call(self, element, wanted);
    return call.run(timeout) ? call.result() : nullptr;
}

// ---- read

// Excludes other threads from an element while a read may release the GIL.
class Reading {
 public:
    Reading(ServiceObject* self, u32 element) : busy_(self), self_(self), element_(element) {
        self_->elements[element_].reading = true;
    }
    ~Reading() {
        self_->elements[element_].reading = false;
        unsubscribe_if_done(self_, element_);
    }
    Reading(const Reading&) = delete;

 private:
    const ServiceBusy busy_;
    ServiceObject* self_;
    u32 element_;
};

// Copies a sample that this proxy holds.
PyObject* copy_of(ServiceObject* self, u32 element, u32 sample) {
    const u32 size = self->proxy->length(element, sample);
    PyObject* out = PyBytes_FromStringAndSize(nullptr, size);
    if (out == nullptr) return nullptr;
    CopyWithoutGil()(size, [&] {
        copy_bytes(PyBytes_AS_STRING(out), self->proxy->bytes(element, sample), size);
    });
    return out;
}

// The proxy has subscribed, or does so for this read.
PyObject* read_newest(ServiceObject* self, u32 element) {
    ProxyHold& hold = *self->proxy;
    while (true) {
        const u64 newest = hold.newest(element);
        for (SampleObject* each : self->elements[element].held) {
            if (each->sequence != newest) continue;
            ++each->exports;  // no other thread releases it meanwhile
            Py_INCREF(each);
            PyObject* out = copy_of(self, element, each->number);
            unexport(each);
            Py_DECREF(each);
            return out;
        }
        TakenSample taken;
        switch (hold.peek(element, taken)) {
            case Taking::ok: {
                PyObject* out = copy_of(self, element, taken.sample);
                hold.let_go(element, taken.sample);
                return out;
            }
            case Taking::empty:
                Py_RETURN_NONE;
            case Taking::corrupt:
                raise("Corrupt", hold.fault_words());
                return nullptr;
            case Taking::overtaken:
                if (!let_others_run() || !usable(self)) return nullptr;
        }
    }
}

PyObject* read_subscribing(ServiceObject* self, u32 element) {
    constexpr int kTries = 50;
    ProxyHold& hold = *self->proxy;
    for (int tries = 1;; ++tries) {
        const Subscribing result = hold.subscribe(element, 0);
        if (result == Subscribing::ok) break;
        if (tries == kTries) {
            raise_subscribing(hold, element, 0, result);
            return nullptr;
        }
        if (!let_others_run() || !usable(self)) return nullptr;
    }
    PyObject* out = read_newest(self, element);
    hold.unsubscribe(element);
    return out;
}

PyObject* proxy_read(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    u32 element;
    if (!parse_element(self, given, "samples", element) || !wait_for_read(self, element))
        return nullptr;
    ProxyHold& hold = *self->proxy;
    if (hold.newest(element) == 0) Py_RETURN_NONE;
    const Reading reading(self, element);
    if (!hold.subscribed(element)) return read_subscribing(self, element);
    if (!hold.tracer()) return read_newest(self, element);
    raise("Misuse", "the tracer has subscribed to " + words_of(hold, element) +
                        ", and takes its samples; read it with a proxy");
    return nullptr;
}

// ---- the rest

PyObject* proxy_newest(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    u32 element;
    if (!parse_element(self, given, "samples", element)) return nullptr;
    return PyLong_FromUnsignedLongLong(self->proxy->newest(element));
}

PyObject* proxy_held(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    u32 element;
    if (!parse_element(self, given, "samples", element)) return nullptr;
    return PyLong_FromUnsignedLong(self->proxy->held(element));
}

PyObject* proxy_bell(PyObject* object, PyObject* given) {
    ServiceObject* self = service_of(object);
    const Py_ssize_t element = PyNumber_AsSsize_t(given, nullptr);
    if (element == -1 && PyErr_Occurred()) return nullptr;
    if (!usable(self)) return nullptr;
    if (element < 0 || element >= static_cast<Py_ssize_t>(self->elements.size())) {
        raise("Misuse",
              "service " + self->hold->name() + " has no element " + std::to_string(element));
        return nullptr;
    }
    return bell_new(self, self->hold->bell(static_cast<u32>(element)));
}

}  // namespace

void unsubscribe_if_done(ServiceObject* self, u32 element) {
    ElementState& state = self->elements[element];
    if (!state.leaving || state.reading || self->proxy->held(element) != 0) return;
    state.leaving = false;
    self->proxy->unsubscribe(element);
}

PyMethodDef proxy_methods[] = {
    {"subscribe", method(fast<proxy_subscribe>), kFast,
     "subscribe(element, samples, history=0): take samples, and hold at most so many at once."},
    {"subscribed", plain<proxy_subscribed>, METH_O, "subscribed(element) -> bool"},
    {"unsubscribe", plain<proxy_unsubscribe>, METH_O,
     "unsubscribe(element): end a subscription when its last sample is released."},
    {"take", method(fast<proxy_take>), kFast,
     "take(element, count, timeout=None) -> list[ServiceSample]: the newest, the oldest first."},
    {"read", plain<proxy_read>, METH_O, "read(element) -> bytes | None: copy the newest sample."},
    {"newest", plain<proxy_newest>, METH_O,
     "newest(element) -> int: the number of the newest sample; 0 before the first."},
    {"held", plain<proxy_held>, METH_O, "held(element) -> int: samples that the program has."},
    {"bell", plain<proxy_bell>, METH_O,
     "bell(element) -> ServiceBell: of its samples and responses."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace holdfast::bindings
