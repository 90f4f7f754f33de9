// The extension module: its functions, its types, and how the core's errors become Python's.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/base/gil.hpp"
#include "bindings/log/store_points.hpp"
#include "bindings/queue/objects.hpp"
#include "holdfast/channel/ring.hpp"
#include "holdfast/log/writer_ledgers.hpp"
#include "holdfast/service/holds.hpp"

namespace nb = nanobind;

void bind_reference(nb::module_& module);

namespace holdfast::bindings {

void bind_blocks(nb::module_& module);
void bind_channel(nb::module_& module);
void bind_channel_reference(nb::module_& module);
void bind_inspect(nb::module_& module);
void bind_log(nb::module_& module);
void bind_writer(nb::module_& module);
void bind_frame(nb::module_& module);
void bind_entries(nb::module_& module);
void bind_columns(nb::module_& module);
void bind_compactor(nb::module_& module);
void bind_publication(nb::module_& module);
void bind_dispatch(nb::module_& module);
void bind_service(nb::module_& module);
void bind_waiting(nb::module_& module);
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
                                      "\" is not a valid name for a dead-letter queue");
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

// Every structure that has named points.
constexpr auto find_point =
    &point_by_name<QueuePoint, ChannelPoint, RecoverPoint, AttachPoint, SegmentPoint, BlockPoint,
                   WriterPoint, StorePoint, SamplePoint, LogPoint, CallPoint, NoticePoint,
                   MarkerPoint, OfferPoint>;

Point point_of(const std::string& name) {
    const auto found = find_point(name);
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

// Those of a queue and of what it stands on.
nb::list points() {
    nb::list out;
    each_point<QueuePoint, RecoverPoint, AttachPoint, SegmentPoint, BlockPoint>(
        [&](Point point) { out.append(nb::str(point.name().data(), point.name().size())); });
    return out;
}

// Those of a channel alone.
nb::list channel_points() {
    nb::list out;
    each_point<ChannelPoint>(
        [&](Point point) { out.append(nb::str(point.name().data(), point.name().size())); });
    return out;
}

// Those of a service alone.
nb::list service_points() {
    nb::list out;
    each_point<SamplePoint, LogPoint, CallPoint, NoticePoint, MarkerPoint, OfferPoint>(
        [&](Point point) { out.append(nb::str(point.name().data(), point.name().size())); });
    return out;
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
    module.def("channel_points", &channel_points);
    module.def("service_points", &service_points);
    bind_waiting(module);
    bind_blocks(module);
    bind_channel(module);
    bind_inspect(module);
    bind_log(module);
    bind_writer(module);
    bind_frame(module);
    bind_entries(module);
    bind_columns(module);
    bind_compactor(module);
    bind_publication(module);
    bind_dispatch(module);
    bind_service(module);
    bind_wire(module);
    bind_reference(module);
    bind_channel_reference(module);
}
