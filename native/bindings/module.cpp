// The extension module: its functions, its types, and how the core's errors become Python's.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/base/gil.hpp"
#include "bindings/queue/objects.hpp"

namespace nb = nanobind;

void bind_reference(nb::module_& module);

namespace holdfast::bindings {

void bind_blocks(nb::module_& module);
void bind_inspect(nb::module_& module);
void bind_log(nb::module_& module);
void bind_writer(nb::module_& module);
void bind_frame(nb::module_& module);
void bind_entries(nb::module_& module);
void bind_columns(nb::module_& module);
void bind_publication(nb::module_& module);
void bind_dispatch(nb::module_& module);
void bind_wire(nb::module_& module);

namespace {

void create_queue(const std::string& directory, const std::string& name, u64 capacity,
                  u32 participants, bool at_most_once, u32 max_deliveries,
                  const std::string& dead_letter, u32 stall_limit_ms, bool full_checksum, u32 mode,
                  long group, u64 first_position) {
    QueueParams params{};
    params.granules =
        std::bit_ceil(std::max<u64>(4, capacity / kGranule + (capacity % kGranule != 0 ? 1 : 0)));
    params.participants = participants;
    params.delivery = at_most_once ? Delivery::at_most_once : Delivery::at_least_once;
    params.max_deliveries = max_deliveries;
    params.stall_limit_ms = stall_limit_ms == 0 ? kNoStallLimit : stall_limit_ms;
    params.full_checksum = full_checksum;
    if (!Geometry::valid(params.granules, participants))
        throw Error(Code::misuse,
                    "queue " + name + ": a capacity of " + std::to_string(capacity) +
                        " bytes with " + std::to_string(participants) +
                        " participants is not possible; use 256 bytes to 256 GiB and 1 to 1023");
    if (!dead_letter.empty() && !valid_name(dead_letter))
        throw Error(Code::misuse, "queue " + name + ": \"" + dead_letter +
                                      "\" is no name for a dead-letter queue");
    std::memcpy(params.dead_letter, dead_letter.c_str(), dead_letter.size());
    SegmentSpec spec;
    spec.directory = directory;
    spec.name = name;
    spec.mode = mode;
    spec.gid = group < 0 ? kSameGroup : static_cast<gid_t>(group);
    QueueAttachment::create(spec, params, first_position);
}

nb::list list_segments(const std::string& directory) {
    nb::list out;
    for (const SegmentInfo& each : Segment::list(directory))
        out.append(
            nb::make_tuple(nb::str(kind_name(each.kind).data()), each.name, each.path, each.size));
    return out;
}

Point point_of(const std::string& name) {
    const auto found = point_by_name(name);
    if (!found) throw Error(Code::misuse, "there is no point named " + name);
    return *found;
}

// A thread that holds the GIL releases it while it stands at a point, so that the others go on.
void stand_without_gil(Point point) {
    if (!PyGILState_Check()) return detail::stand_still(point);
    GilRelease release;
    detail::stand_still(point);
}

void arm_point(const std::string& point, const std::string& action, u64 countdown) {
    const Point found = point_of(point);
    PointAction what = PointAction::kill;
    if (action == "stop")
        what = PointAction::stop;
    else if (action == "exit")
        what = PointAction::exit;
    else if (action == "fork")
        what = PointAction::fork;
    else if (action == "stand")
        what = PointAction::stand;
    else if (action != "kill")
        throw Error(Code::misuse,
                    "an armed point can kill, stop, exit, fork or stand, not " + action);
    arm(found, what, countdown);
}

nb::list points() {
    nb::list out;
    for (std::size_t i = 0; i < static_cast<std::size_t>(kFirstLogPoint); ++i)
        out.append(nb::str(kPointNames[i].data(), kPointNames[i].size()));
    return out;
}

// Wakes the thread that waits for several queues when the set of them changes.
class Alarm {
 public:
    void ring() {
        std::atomic_ref<u32>(word_).fetch_add(1, std::memory_order_seq_cst);  // pairs with: hear
        futex_wake_all(&word_);
    }
    u32 hear() {
        return std::atomic_ref<u32>(word_).load(std::memory_order_seq_cst);
    }  // pairs with: ring
    const u32* word() const { return &word_; }

 private:
    u32 word_ = 0;
};

// Sleeps until one of the bells rings. `heard`: [(queue, putting, value from queue._listen)].
bool wait_any(const Alarm& alarm, u32 alarm_heard, const nb::list& heard, double seconds) {
    std::vector<FutexWord> words{{alarm.word(), alarm_heard}};
    std::vector<std::shared_ptr<QueueAttachment>> keep;
    for (nb::handle each : heard) {
        auto item = nb::cast<nb::tuple>(each);
        if (!PyObject_TypeCheck(item[0].ptr(), &QueueType))
            throw nb::type_error("wait_any needs queues");
        auto* queue = reinterpret_cast<QueueObject*>(nb::object(item[0]).ptr());
        if (words.size() == kFutexWordsMax)
            break;  // the others are looked at when the time is over
        keep.push_back(queue->attachment);
        const u32* bell = nb::cast<bool>(item[1]) ? queue->attachment->space_bell()
                                                  : queue->attachment->data_bell();
        words.push_back({bell, nb::cast<u32>(item[2])});
    }
    const u64 ns = static_cast<u64>(seconds * 1e9);
    GilRelease release;
    Wait result = futex_waitv(words, ns).result;
    // Kernels before 5.16: a short sleep on the alarm stands in.
    if (result == Wait::unsupported)
        result = futex_wait(alarm.word(), alarm_heard, std::min<u64>(ns, 1'000'000));
    return result != Wait::timed_out;
}

void copy_without_gil(void* to, const void* from, std::size_t size) {
    GilRelease release;
    std::memcpy(to, from, size);
}

}  // namespace
}  // namespace holdfast::bindings

NB_MODULE(_core, module) {
    using namespace holdfast;
    using namespace holdfast::bindings;
    nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
        try {
            std::rethrow_exception(pointer);
        } catch (const Error& error) {
            raise(error);
        }
    });
    nb::set_leak_warnings(
        false);  // the waiter's daemon thread holds an Alarm until the process ends
    if (ready_types() < 0) throw nb::python_error();
    module.attr("Queue") = nb::borrow(reinterpret_cast<PyObject*>(&QueueType));
    module.attr("Message") = nb::borrow(reinterpret_cast<PyObject*>(&MessageType));
    module.attr("Messages") = nb::borrow(reinterpret_cast<PyObject*>(&MessagesType));
    large_copy = &copy_without_gil;

    module.def("create_queue", &create_queue, nb::arg("directory"), nb::arg("name"),
               nb::arg("capacity"), nb::arg("participants"), nb::arg("at_most_once"),
               nb::arg("max_deliveries"), nb::arg("dead_letter"), nb::arg("stall_limit_ms"),
               nb::arg("full_checksum"), nb::arg("mode"), nb::arg("group"),
               nb::arg("first_position") = 0);
    module.def("unlink_queue", [](const std::string& directory, const std::string& name) {
        Segment::unlink(directory, kQueueKind, name);
    });
    module.def("list_segments", &list_segments);
    module.def("default_directory", &default_directory);
    module.def("arm", &arm_point, nb::arg("point"), nb::arg("action") = "kill",
               nb::arg("countdown") = 1);
    module.def("disarm", &disarm);
    detail::stand_at = &stand_without_gil;
    module.def("is_standing",
               [](const std::string& point) { return is_standing(point_of(point)); });
    module.def("go_on", [](const std::string& point) { go_on(point_of(point)); });
    module.def("points", &points);
    nb::class_<Alarm>(module, "Alarm")
        .def(nb::init<>())
        .def("ring", &Alarm::ring)
        .def("hear", &Alarm::hear);
    module.def("wait_any", &wait_any);
    bind_blocks(module);
    bind_inspect(module);
    bind_log(module);
    bind_writer(module);
    bind_frame(module);
    bind_entries(module);
    bind_columns(module);
    bind_publication(module);
    bind_dispatch(module);
    bind_wire(module);
    bind_reference(module);
}
