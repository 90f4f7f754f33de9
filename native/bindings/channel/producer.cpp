// ChannelProducer: push, loan, push_batch, cancel.
//
// Threads: a call runs under the GIL, except that it copies large data, spins and sleeps without it.
#include <algorithm>
#include <deque>

#include "bindings/base/arguments.hpp"
#include "bindings/channel/objects.hpp"
#include "bindings/channel/waiting.hpp"

namespace holdfast::bindings {

namespace {

// One datum of a push: bytes to be copied, or a loan that is filled already.
struct Source {
    const std::byte* data = nullptr;
    u64 size = 0;
    BufferObject* loan = nullptr;
};

// One push of one or several data, from the loan of its buffers to the result.
class PushCall {
 public:
    PushCall(RoleObject* self, const char* call, u32 priority, std::span<const Source> sources)
        : self_(self), hold_(*self->producer), call_(call), priority_(priority), sources_(sources) {
        for (const Source& each : sources) {
            needed_ += each.loan == nullptr;
            bytes_ += each.loan == nullptr ? each.size : 0;
        }
        own_.reserve(needed_);
        // No other thread may end or push them while this call waits or copies.
        for (const Source& each : sources)
            if (each.loan != nullptr) each.loan->stage = Stage::pushing;
    }
    PushCall(const PushCall&) = delete;
    ~PushCall() {
        for (const Source& each : sources_)
            if (each.loan != nullptr && each.loan->stage == Stage::pushing)
                each.loan->stage = Stage::held;
        if (!hold_.usable()) return;  // a callback closed it: all is the next producer's
        if (!pushed_)
            for (u32 index : own_) hold_.give_back(index);
        for (const DisplacedDatum& each : displaced_)
            if (each.buffer != Shelf::kNone) hold_.give_back(each.buffer);
    }

    // False: an exception is set, and nothing was pushed; or what was pushed met damage.
    bool run(double timeout) {
        const RoleBusy busy(self_);
        if (hold_.loans(priority_) + needed_ > hold_.params().loans) {
            raise_loan_limit(hold_, priority_, needed_);
            return false;
        }
        if (hold_.params().overflow != 0) timeout = 0;  // it never waits
        const auto attempt = [this] { return try_once(); };
        const auto fail = [this](Handover result, double waited_s, bool nowait) {
            if (no_buffer_ && result == Handover::full)
                raise_no_buffer(hold_, call_, waited_s, nowait);
            else
                raise_handover(hold_, result, call_, waited_s, nowait);
        };
        const Handover first = attempt();
        if (first == Handover::ok) [[likely]]
            return true;
        if (first == Handover::full && timeout != 0)
            return wait_for(self_, priority_, timeout, attempt, fail);
        fail(first, 0, true);
        return false;
    }

    u64 position(std::size_t i) const { return began_ + i; }
    u32 lane() const { return hold_.plan().lane_of(hold_.producer(), priority_); }
    // Also where the push then met damage.
    bool pushed() const { return pushed_; }

    // Returns the datum that the i-th one displaced; null without an exception if there is not one.
    PyObject* take_displaced(std::size_t i) {
        DisplacedDatum& each = displaced_[i];
        if (each.buffer == Shelf::kNone || !hold_.usable()) return nullptr;
        PyObject* object =
            buffer_new(&DisplacedType, self_, each.buffer, hold_.length(each.buffer));
        if (object == nullptr) return nullptr;
        reinterpret_cast<BufferObject*>(object)->position = each.position;
        each.buffer = Shelf::kNone;
        return object;
    }

 private:
    Handover try_once() {
        while (own_.size() < needed_) {
            u32 buffer;
            const Lending lent = hold_.lend(priority_, buffer);
            if (lent == Lending::corrupt) return Handover::corrupt;
            no_buffer_ = lent != Lending::ok;
            if (no_buffer_) return Handover::full;
            own_.push_back(buffer);
        }
        if (!filled_) fill();
        if (!hold_.usable()) return Handover::corrupt;
        began_ = hold_.tail(priority_);
        const Handover result = hold_.push(priority_, buffers_, displaced_);
        pushed_ = hold_.tail(priority_) != began_;
        return result;
    }

    void fill() {
        buffers_.reserve(sources_.size());
        std::size_t next = 0;
        for (const Source& each : sources_)
            buffers_.push_back(each.loan != nullptr ? each.loan->number : own_[next++]);
        CopyWithoutGil()(bytes_, [&] {
            for (std::size_t i = 0; i < sources_.size(); ++i)
                if (sources_[i].loan == nullptr)
                    copy_bytes(hold_.room(buffers_[i]), sources_[i].data, sources_[i].size);
        });
        for (std::size_t i = 0; i < sources_.size(); ++i)
            hold_.set_length(buffers_[i], static_cast<u32>(sources_[i].size));
        filled_ = true;
    }

    RoleObject* self_;
    ProducerHold& hold_;
    const char* call_;
    u32 priority_;
    std::span<const Source> sources_;
    std::size_t needed_ = 0;
    u64 bytes_ = 0;
    u64 began_ = 0;
    std::vector<u32> own_;      // lent by this call
    std::vector<u32> buffers_;  // of all data, in order
    std::vector<DisplacedDatum> displaced_;
    bool filled_ = false, pushed_ = false, no_buffer_ = false;
};

// A loan that was pushed, without a result of its own.
void give_to_ring(BufferObject* loan) {
    hand_over(loan);
    loan->pushed = Py_NewRef(Py_None);
}

// The Pushed of the i-th datum, with what it displaced.
PyObject* result_of(RoleObject* self, PushCall& call, std::size_t i, bool with_displaced) {
    PyObject* pushed = pushed_new(self, call.lane(), call.position(i));
    if (pushed == nullptr || !with_displaced) return pushed;
    PyObject* displaced = call.take_displaced(i);
    if (displaced == nullptr && PyErr_Occurred()) {
        Py_DECREF(pushed);
        return nullptr;
    }
    reinterpret_cast<PushedObject*>(pushed)->displaced = displaced;
    return pushed;
}

bool fits(RoleObject* self, u64 size) {
    const ChannelParams& params = self->hold->params();
    if (size <= params.slot_size) [[likely]]
        return true;
    raise("Misuse", "a datum of " + std::to_string(size) + " bytes is too large for channel " +
                        self->hold->name() + ": its buffers have " +
                        std::to_string(params.slot_size) +
                        ". Create a channel with a larger slot_size");
    return false;
}

// False with an exception set. Without the argument, or with None: 0.
bool parse_priority(RoleObject* self, PyObject* given, u32& priority) {
    priority = 0;
    if (given == nullptr || given == Py_None) return true;
    if (PyBool_Check(given) || !PyIndex_Check(given)) {
        PyErr_Format(error_class("Misuse"), "priority must be a whole number, not %R", given);
        return false;
    }
    const Py_ssize_t value = PyNumber_AsSsize_t(given, nullptr);  // a larger one becomes the last
    if (value == -1 && PyErr_Occurred()) return false;
    const u32 priorities = self->hold->plan().priorities;
    if (value >= 0 && value < static_cast<Py_ssize_t>(priorities)) {
        priority = static_cast<u32>(value);
        return true;
    }
    const bool shown = value > PY_SSIZE_T_MIN && value < PY_SSIZE_T_MAX;
    raise("Misuse", "priority " + (shown ? std::to_string(value) : "of that size") +
                        " does not exist: channel " + self->hold->name() + " has " +
                        (priorities == 1 ? "only 0"
                                         : std::to_string(priorities) + ", from 0 to " +
                                               std::to_string(priorities - 1)) +
                        ". Create it with more `priorities`");
    return false;
}

bool given_priority(PyObject* given) {
    return given != nullptr && given != Py_None;
}

// A loan that can be pushed by `self`: no view of it is left.
bool pushable(RoleObject* self, BufferObject* loan) {
    const std::string& channel = self->hold->name();
    if (loan->role != self) {
        raise("Misuse", "this loan is of channel " + loan->role->hold->name() +
                            ", or of another producer; push it there");
        return false;
    }
    if (loan->stage == Stage::pushing) {
        raise_pushing(loan);
        return false;
    }
    if (loan->stage != Stage::held) {
        raise("Misuse", "this loan of channel " + channel + " was pushed or released before");
        return false;
    }
    if (loan->exports > 0) {
        raise("Misuse", "channel " + channel + ": " + std::to_string(loan->exports) +
                            " views or arrays of this loan are alive, so that nothing was pushed. "
                            "Delete them before the push; fill the buffer by `buffer[:] = …`");
        return false;
    }
    return true;
}

bool has_priority(RoleObject* self, BufferObject* loan, u32 wanted) {
    const u32 own = self->producer->priority_of(loan->number);
    if (wanted == own) [[likely]]
        return true;
    raise("Misuse",
          "this loan of channel " + self->hold->name() + " has priority " + std::to_string(own) +
              ", and not " + std::to_string(wanted) +
              ": each priority has its own buffers. Give loan() the priority of its push");
    return false;
}

PyObject* producer_push(PyObject* object, PyObject* const* args, Py_ssize_t count,
                        PyObject* kwnames) {
    RoleObject* self = role_of(object);
    static const char* const names[] = {"data", "timeout", "priority"};
    PyObject* given[3] = {count > 0 ? args[0] : nullptr, nullptr, nullptr};
    double timeout = -1;
    u32 priority = 0;
    if (count != 1 || kwnames != nullptr) {
        if (!parse("push", args, count, kwnames, names, 3, 1, given)) return nullptr;
        if (given[1] != nullptr && !parse_timeout(given[1], timeout)) return nullptr;
        if (!parse_priority(self, given[2], priority)) return nullptr;
    }
    if (!usable(self)) return nullptr;
    if (Py_IS_TYPE(given[0], &LoanType)) {
        auto* loan = reinterpret_cast<BufferObject*>(given[0]);
        if (!pushable(self, loan)) return nullptr;
        if (given_priority(given[2]) && !has_priority(self, loan, priority)) return nullptr;
        return push_loan(loan, "push", timeout);
    }
    Bytes bytes;
    Source source;
    if (!bytes.get(given[0], source)) return nullptr;
    if (bytes.held() && !usable(self)) return nullptr;  // `__buffer__` may have closed it
    if (!fits(self, source.size)) return nullptr;
    PushCall call(self, "push", priority, {&source, 1});
    return call.run(timeout) ? result_of(self, call, 0, true) : nullptr;
}

PyObject* batch_results(RoleObject* self, PushCall& call, std::size_t count, PyObject* callback) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(count));
    if (list == nullptr) return nullptr;
    PyObject *type = nullptr, *value = nullptr,
             *traceback = nullptr;  // of the first callback that failed
    for (std::size_t i = 0; i < count; ++i) {
        PyObject* pushed = result_of(self, call, i, callback == nullptr);
        if (pushed == nullptr) {
            Py_DECREF(list);
            Py_XDECREF(type);
            Py_XDECREF(value);
            Py_XDECREF(traceback);
            return nullptr;
        }
        PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), pushed);
        PyObject* displaced = callback == nullptr ? nullptr : call.take_displaced(i);
        if (displaced == nullptr && !PyErr_Occurred()) continue;
        // Without memory for the datum, its callback counts as one that failed.
        PyObject* answer =
            displaced == nullptr ? nullptr : PyObject_CallOneArg(callback, displaced);
        Py_XDECREF(displaced);
        Py_XDECREF(answer);
        if (answer == nullptr && type == nullptr)
            PyErr_Fetch(&type, &value, &traceback);
        else if (answer == nullptr)
            PyErr_WriteUnraisable(callback);
    }
    if (type == nullptr) return list;
    Py_DECREF(list);
    PyErr_Restore(type, value, traceback);
    return nullptr;
}

// Looks again at the loans of a batch: the conversion of another item may have used them. None is there twice.
bool pushable_once(RoleObject* self, std::span<const Source> sources) {
    std::vector<BufferObject*> loans;
    for (const Source& each : sources) {
        if (each.loan == nullptr) continue;
        if (!pushable(self, each.loan)) return false;
        loans.push_back(each.loan);
    }
    std::ranges::sort(loans);
    if (std::ranges::adjacent_find(loans) == loans.end()) return true;
    raise("Misuse", "a loan is in this batch twice; push it once");
    return false;
}

// The priority of a batch: as given, or that of its first loan.
bool batch_priority(RoleObject* self, PyObject* tuple, PyObject* given, u32& priority) {
    if (!parse_priority(self, given, priority)) return false;
    for (Py_ssize_t i = 0; !given_priority(given) && i < PyTuple_GET_SIZE(tuple); ++i) {
        auto* loan = reinterpret_cast<BufferObject*>(PyTuple_GET_ITEM(tuple, i));
        if (!Py_IS_TYPE(loan, &LoanType) || loan->role != self) continue;
        priority = self->producer->priority_of(loan->number);
        break;
    }
    return true;
}

PyObject* push_tuple(RoleObject* self, PyObject* tuple, PyObject* callback, double timeout,
                     PyObject* wanted) {
    u32 priority;
    if (!batch_priority(self, tuple, wanted, priority)) return nullptr;
    const std::size_t total = static_cast<std::size_t>(PyTuple_GET_SIZE(tuple));
    if (total == 0) return PyList_New(0);
    if (total > self->hold->params().slots) {
        raise("Misuse", "a batch of " + std::to_string(total) + " is too large for channel " +
                            self->hold->name() + ", which has " +
                            std::to_string(self->hold->params().slots) +
                            " slots: all of a batch is visible at once. Push smaller batches");
        return nullptr;
    }
    std::deque<Bytes> others;  // what is not exactly bytes; a Bytes must not move
    std::vector<Source> sources(total);
    for (std::size_t i = 0; i < total; ++i) {
        PyObject* item = PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i));
        Source& source = sources[i];
        if (Py_IS_TYPE(item, &LoanType)) {
            source.loan = reinterpret_cast<BufferObject*>(item);
            source.size = source.loan->size;
            if (!pushable(self, source.loan) || !has_priority(self, source.loan, priority))
                return nullptr;
        } else if (!others.emplace_back().get(item, source) || !fits(self, source.size)) {
            return nullptr;
        }
    }
    if (!usable(self) || !pushable_once(self, sources)) return nullptr;
    PushCall call(self, "push_batch", priority, sources);
    const bool good = call.run(timeout);
    for (const Source& each : sources)
        if (each.loan != nullptr && call.pushed()) give_to_ring(each.loan);
    return !good ? nullptr : batch_results(self, call, total, callback);
}

PyObject* producer_push_batch(PyObject* object, PyObject* const* args, Py_ssize_t count,
                              PyObject* kwnames) {
    RoleObject* self = role_of(object);
    static const char* const names[] = {"items", "on_displaced", "timeout", "priority"};
    PyObject* given[4];
    double timeout = -1;
    if (!parse("push_batch", args, count, kwnames, names, 4, 1, given)) return nullptr;
    if (given[2] != nullptr && !parse_timeout(given[2], timeout)) return nullptr;
    if (given[1] == Py_None) given[1] = nullptr;
    if (given[1] != nullptr && !PyCallable_Check(given[1])) {
        PyErr_Format(PyExc_TypeError, "on_displaced must be a function, not %R", given[1]);
        return nullptr;
    }
    if (!usable(self)) return nullptr;
    // A copy of the list, so that no thread changes it while the GIL is released.
    PyObject* tuple = PySequence_Tuple(given[0]);
    if (tuple == nullptr) return nullptr;
    PyObject* result = guarded([&] { return push_tuple(self, tuple, given[1], timeout, given[3]); },
                               static_cast<PyObject*>(nullptr));
    Py_DECREF(tuple);
    return result;
}

PyObject* producer_loan(PyObject* object, PyObject* const* args, Py_ssize_t count,
                        PyObject* kwnames) {
    RoleObject* self = role_of(object);
    static const char* const names[] = {"size", "timeout", "priority"};
    PyObject* given[3];
    double timeout = -1;
    if (!parse("loan", args, count, kwnames, names, 3, 0, given)) return nullptr;
    if (given[1] != nullptr && !parse_timeout(given[1], timeout)) return nullptr;
    u64 size = self->hold->params().slot_size;
    if (given[0] != nullptr && given[0] != Py_None) {
        const Py_ssize_t wanted = PyNumber_AsSsize_t(given[0], nullptr);
        if (wanted == -1 && PyErr_Occurred()) return nullptr;
        if (wanted < 0) {
            raise("Misuse", "a loan has at least 0 bytes, not " + std::to_string(wanted));
            return nullptr;
        }
        size = static_cast<u64>(wanted);
    }
    u32 priority, number;
    if (!parse_priority(self, given[2], priority) || !usable(self) || !fits(self, size))
        return nullptr;
    switch (self->producer->lend(priority, number)) {
        case Lending::limit:
            raise_loan_limit(*self->producer, priority, 1);
            return nullptr;
        case Lending::corrupt:
            raise_handover(*self->producer, Handover::corrupt, "loan", 0, true);
            return nullptr;
        case Lending::none:
            raise_no_buffer(*self->producer, "loan", 0, true);
            return nullptr;
        case Lending::ok:
            break;
    }
    PyObject* loan = buffer_new(&LoanType, self, number, static_cast<u32>(size));
    if (loan == nullptr)
        self->producer->give_back(number);
    else
        reinterpret_cast<BufferObject*>(loan)->timeout = timeout;
    return loan;
}

PyObject* producer_cancel(PyObject* object, PyObject* given) {
    RoleObject* self = role_of(object);
    if (!usable(self)) return nullptr;
    if (!Py_IS_TYPE(given, &HandleType)) {
        PyErr_Format(PyExc_TypeError, "cancel() needs the `handle` of a push, not %R", given);
        return nullptr;
    }
    auto* handle = reinterpret_cast<HandleObject*>(given);
    if (handle->identity != self->hold->identity()) {
        raise("Misuse", "this handle is of another channel than " + self->hold->name() +
                            "; cancel it with that channel's producer");
        return nullptr;
    }
    const ChannelPlan& plan = self->hold->plan();
    const u32 producer = plan.producer_of(handle->lane);
    if (producer != self->hold->producer()) {
        raise("Misuse", "this handle is of producer " + std::to_string(producer) + " of channel " +
                            self->hold->name() + ", and this one is " +
                            std::to_string(self->hold->producer()) +
                            "; cancel it with the producer that pushed it");
        return nullptr;
    }
    return PyBool_FromLong(
        self->producer->cancel(plan.priority_of(handle->lane), handle->position));
}

PyObject* producer_full(PyObject* object, void*) {
    RoleObject* self = role_of(object);
    return usable(self) ? PyBool_FromLong(self->producer->full(0)) : nullptr;
}

PyObject* producer_number(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(role_of(object)->producer->producer());
}

PyObject* producer_loans(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(role_of(object)->producer->loans());
}

}  // namespace

PyObject* push_loan(BufferObject* loan, const char* call_name, double timeout) {
    RoleObject* self = loan->role;
    if (!usable(self) || !pushable(self, loan)) return nullptr;
    const Source source{nullptr, loan->size, loan};
    PushCall call(self, call_name, self->producer->priority_of(loan->number), {&source, 1});
    if (!call.run(timeout)) {
        if (call.pushed()) give_to_ring(loan);
        return nullptr;
    }
    hand_over(loan);
    loan->pushed = result_of(self, call, 0, true);
    return Py_XNewRef(loan->pushed);
}

PyMethodDef producer_methods[] = {
    {"push", method(fast<producer_push>), kFast,
     "push(data, timeout=None, priority=None) -> Pushed: push a copy of bytes, or a loan."},
    {"push_batch", method(fast<producer_push_batch>), kFast,
     "push_batch(items, on_displaced=None, timeout=None, priority=None) -> list[Pushed]: push all "
     "at once."},
    {"loan", method(fast<producer_loan>), kFast,
     "loan(size=None, timeout=None, priority=0) -> Loan: lend a buffer that is pushed when its "
     "`with` ends."},
    {"cancel", plain<producer_cancel>, METH_O,
     "cancel(handle) -> bool: withdraw a datum that the consumer has not taken."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef producer_getset[] = {
    {"number", producer_number, nullptr, "Which of the channel's producers this is, from 0.",
     nullptr},
    {"full", producer_full, nullptr,
     "True: the next push with priority 0 displaces a datum, or waits.", nullptr},
    {"loans", producer_loans, nullptr, "Buffers that the program has: loans and displaced data.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace holdfast::bindings
