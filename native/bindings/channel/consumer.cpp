// ChannelConsumer: pop.
//
// Threads: a call runs under the GIL, except that it spins and sleeps without it.
#include "bindings/base/arguments.hpp"
#include "bindings/channel/objects.hpp"
#include "bindings/channel/waiting.hpp"

namespace holdfast::bindings {

namespace {

bool below_limit(RoleObject* self) {
    ConsumerHold& hold = *self->consumer;
    if (!hold.at_limit()) [[likely]]
        return true;
    raise("Misuse", "the consumer of channel " + hold.name() + " holds " +
                        std::to_string(hold.held()) +
                        " items, as many as the channel's `holds` allows. Release one (leave its "
                        "`with`, delete its views), or create the channel with more `holds`");
    return false;
}

// Looks for some three microseconds. A datum that comes this soon is not worth a release of the GIL.
bool comes_soon(RoleObject* self) {
    constexpr int kLooks = 100;
    const ConsumerHold& hold = *self->consumer;
    for (int looks = 0; looks < kLooks && self->spin_ns != 0; ++looks) {
        if (!hold.looks_empty(hold.heads())) return true;
        relax();
    }
    return false;
}

bool pop_one(RoleObject* self, double timeout, PoppedDatum& out) {
    const RoleBusy busy(self);
    const auto attempt = [&] {
        // Other threads may have popped while this one waited.
        return self->consumer->at_limit() ? Handover::full : self->consumer->pop(out);
    };
    const auto fail = [&](Handover result, double waited_s, bool nowait) {
        if (result == Handover::full)
            below_limit(self);
        else
            raise_handover(*self->hold, result, "pop", waited_s, nowait);
    };
    Handover first = attempt();
    if (first == Handover::empty && timeout != 0 && comes_soon(self)) first = attempt();
    if (first == Handover::ok) [[likely]]
        return true;
    const bool blocked = first == Handover::empty || first == Handover::starved;
    if (blocked && timeout != 0) return wait_for(self, 0, timeout, attempt, fail);
    fail(first, 0, true);
    return false;
}

PyObject* consumer_pop(PyObject* object, PyObject* const* args, Py_ssize_t count,
                       PyObject* kwnames) {
    RoleObject* self = role_of(object);
    static const char* const names[] = {"timeout"};
    PyObject* given[1];
    double timeout = -1;
    if (count != 0 || kwnames != nullptr) {
        if (!parse("pop", args, count, kwnames, names, 1, 0, given)) return nullptr;
        if (given[0] != nullptr && !parse_timeout(given[0], timeout)) return nullptr;
    }
    if (!usable(self) || !below_limit(self)) return nullptr;
    PoppedDatum popped;
    if (!pop_one(self, timeout, popped)) return nullptr;
    PyObject* object_of_it = buffer_new(&ItemType, self, popped.buffer, popped.size);
    if (object_of_it == nullptr) {
        self->consumer->release(popped.buffer);
        return nullptr;
    }
    auto* item = reinterpret_cast<BufferObject*>(object_of_it);
    item->position = popped.position;
    item->lost = popped.lost;
    item->lane = popped.lane;
    return object_of_it;
}

PyObject* consumer_empty(PyObject* object, void*) {
    RoleObject* self = role_of(object);
    if (!usable(self)) return nullptr;
    return PyBool_FromLong(self->consumer->looks_empty(self->consumer->heads()));
}

PyObject* consumer_behind(PyObject* object, void*) {
    RoleObject* self = role_of(object);
    return usable(self) ? PyLong_FromUnsignedLongLong(self->consumer->behind()) : nullptr;
}

PyObject* consumer_held(PyObject* object, void*) {
    return PyLong_FromUnsignedLong(role_of(object)->consumer->held());
}

}  // namespace

PyMethodDef consumer_methods[] = {
    {"pop", method(fast<consumer_pop>), kFast,
     "pop(timeout=None) -> Item: take the oldest datum of the highest priority."},
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef consumer_getset[] = {
    {"empty", consumer_empty, nullptr, "True: a pop would find nothing.", nullptr},
    {"behind", consumer_behind, nullptr,
     "How many data were pushed since the last pop, from one look that a push may overtake.",
     nullptr},
    {"held", consumer_held, nullptr, "Items that the program has, those with live views included.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace holdfast::bindings
