// Alarm and wait_any: one thread sleeps for several structures with bells.
#include "bindings/shm/waiting.hpp"

#include <nanobind/nanobind.h>

#include <vector>

#include "bindings/base/gil.hpp"
#include "holdfast/shm/waiting.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

struct Waitable {
    PyTypeObject* type;
    FindBell find;
};
std::vector<Waitable> waitables;

Bell bell_of(PyObject* object, bool putting) {
    for (const Waitable& each : waitables)
        if (PyObject_TypeCheck(object, each.type)) return each.find(object, putting);
    throw nb::type_error("wait_any needs objects with bells, such as queues");
}

// Sleeps until one of the bells rings. `heard`: [(object, putting, value from object._listen(putting))].
bool wait_for_any(const Alarm& alarm, u32 alarm_heard, const nb::list& heard, double seconds) {
    std::vector<FutexWord> bells;
    std::vector<std::shared_ptr<void>> keep;
    for (nb::handle each : heard) {
        auto item = nb::cast<nb::tuple>(each);
        Bell bell = bell_of(nb::object(item[0]).ptr(), nb::cast<bool>(item[1]));
        bells.push_back({bell.word, nb::cast<u32>(item[2])});
        keep.push_back(std::move(bell.keep));
    }
    const GilRelease release;
    return wait_any(alarm, alarm_heard, bells, static_cast<u64>(seconds * 1e9));
}

}  // namespace

void register_waitable(PyTypeObject* type, FindBell find) {
    waitables.push_back({type, find});
}

void bind_waiting(nb::module_& module) {
    nb::class_<Alarm>(module, "Alarm")
        .def(nb::init<>())
        .def("ring", &Alarm::ring)
        .def("hear", &Alarm::hear);
    module.def("wait_any", &wait_for_any);
}

}  // namespace holdfast::bindings
