// ChannelSegment: creating, opening and looking at a channel. Nothing here takes a role or changes anything in it.
#include "bindings/channel/segment.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>

#include "bindings/channel/objects.hpp"
#include "holdfast/channel/check.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

void create(const std::string& directory, const std::string& name, u64 slots, u64 slot_size,
            u64 loans, u64 holds, bool overflow, u32 laps, u64 producers, u64 priorities, bool loop,
            const std::string& dtype, const std::string& shape, u32 mode, long group,
            u64 first_position) {
    if (!ChannelGeometry::valid(slots, loans, holds, slot_size))
        throw Error(Code::misuse,
                    "channel " + name + ": " + std::to_string(slots) + " slots of " +
                        std::to_string(slot_size) + " bytes, " + std::to_string(loans) +
                        " loans and " + std::to_string(holds) +
                        " holds are not possible. Use 1 to 65536 of each, at most 131072 together, "
                        "and 1 byte to 2 GiB");
    if (!ChannelPlan::valid(producers, priorities, loop))
        throw Error(Code::misuse,
                    "channel " + name + ": " + std::to_string(producers) + " producers and " +
                        std::to_string(priorities) + " priorities are not possible. " +
                        (loop ? "A loop has one of each"
                              : "Use 1 to " + std::to_string(kChannelProducersMax) +
                                    " producers and 1 to " + std::to_string(kChannelPrioritiesMax) +
                                    " priorities"));
    ChannelParams params{};
    if (dtype.size() >= sizeof params.dtype || shape.size() >= sizeof params.shape)
        throw Error(Code::misuse, "channel " + name + ": dtype " + dtype + " with shape " + shape +
                                      " is too long to be stored; use a simpler dtype");
    params.slot_size = slot_size;
    params.slots = static_cast<u32>(slots);
    params.loans = static_cast<u32>(loans);
    params.holds = static_cast<u32>(holds);
    params.overflow = overflow;
    params.laps = laps;
    params.producers = static_cast<u16>(producers);
    params.priorities = static_cast<u8>(priorities);
    params.loop = loop;
    std::memcpy(params.dtype, dtype.data(), dtype.size());
    std::memcpy(params.shape, shape.data(), shape.size());
    SegmentSpec spec;
    spec.directory = directory;
    spec.name = name;
    spec.mode = mode;
    spec.gid = group < 0 ? kSameGroup : static_cast<gid_t>(group);
    create_channel(spec, params, first_position);
}

nb::dict describe(const ChannelParams& params) {
    nb::dict out;
    out["slots"] = params.slots;
    out["slot_size"] = params.slot_size;
    out["loans"] = params.loans;
    out["holds"] = params.holds;
    out["overflow"] = params.overflow != 0;
    out["laps"] = params.laps;
    out["producers"] = params.producers;
    out["priorities"] = params.priorities;
    out["loop"] = params.loop != 0;
    out["dtype"] =
        nb::steal(PyUnicode_DecodeUTF8(params.dtype, std::strlen(params.dtype), "replace"));
    out["shape"] = nb::str(params.shape);
    return out;
}

nb::list describe_people(Segment& segment) {
    nb::list out;
    ParticipantEntry* entries =
        participant_table(segment, ChannelGeometry::participants_offset(), kChannelParticipants);
    for (u32 slot = 0; slot < kChannelParticipants; ++slot) {
        const ParticipantInfo info = describe_slot(segment, entries[slot], slot);
        nb::dict each, counts;
        bool any = false;
        for (std::size_t i = 0; i < std::size(kChannelCountNames); ++i) {
            const u64 value =
                std::atomic_ref<u64>(entries[slot].counts[i]).load(std::memory_order_relaxed);
            any |= value != 0;
            counts[kChannelCountNames[i]] = value;
        }
        each["slot"] = slot;
        each["active"] = info.active;
        each["alive"] = info.locked;
        each["pid"] = info.pid;
        each["joined_ms"] = info.joined_ms;
        each["counts"] = counts;
        if (info.active || info.locked || any) out.append(each);
    }
    return out;
}

nb::dict describe(const RingSurvey& ring) {
    nb::dict out;
    out["head"] = ring.head;
    out["end"] = ring.end;
    out["datums"] = ring.datums();
    return out;
}

nb::dict describe(const ChannelSurvey& survey) {
    nb::dict out;
    out["overtaken"] = survey.overtaken;
    nb::list producers, lanes;
    for (const u32 producer : survey.producers) producers.append(producer);
    for (const RingSurvey& lane : survey.lanes) lanes.append(describe(lane));
    out["producers"] = producers;
    out["consumer"] = survey.consumer;
    out["lanes"] = lanes;
    const BufferCounts counts = survey.count();
    out["in_ring"] = counts.in_ring;
    out["returning"] = counts.returning;
    out["held"] = counts.held;
    if (survey.back) out["back"] = describe(*survey.back);
    return out;
}

void describe_segment(nb::dict& out, nb::list& faults, Segment& segment) {
    const SegmentHeader& header = segment.header();
    out["path"] = segment.path();
    out["size"] = segment.size();
    out["version"] = header.version;
    out["created_ns"] = header.created_ns;
    out["creator_pid"] = header.creator_pid;
    out["this_boot"] = header.boot_id == this_boot();
    if (header.version != kChannelVersion || header.fingerprint != channel_fingerprint()) {
        faults.append("it was made by another version of holdfast; this one cannot read further");
        return;
    }
    ChannelParams params;
    try {
        params = channel_params(segment);
    } catch (const Error& error) {
        faults.append(nb::str(error.what()));
        return;
    }
    const ChannelSurvey survey = survey_channel(segment.base(), plan_of(params));
    for (const std::string& fault : survey.faults) faults.append(nb::str(fault.c_str()));
    out["params"] = describe(params);
    out["people"] = describe_people(segment);
    out["channel"] = describe(survey);
}

nb::dict inspect(const std::string& directory, const std::string& name) {
    Inspection inspection = Segment::inspect(directory, kChannelKind, name);
    nb::dict out;
    nb::list faults;
    for (const std::string& fault : inspection.faults) faults.append(nb::str(fault.c_str()));
    out["faults"] = faults;
    if (inspection.segment) describe_segment(out, faults, *inspection.segment);
    return out;
}

nb::dict inspect_open(ChannelSegment& self) {
    if (self.segment->forked()) self.segment = self.segment->map_again();
    nb::dict out;
    nb::list faults;
    out["faults"] = faults;
    describe_segment(out, faults, *self.segment);
    return out;
}

}  // namespace

void bind_channel(nb::module_& module) {
    if (ready_channel_types() < 0) throw nb::python_error();
    const std::array<std::pair<const char*, PyTypeObject*>, 7> types = {{
        {"ChannelProducer", &ProducerType},
        {"ChannelConsumer", &ConsumerType},
        {"Item", &ItemType},
        {"Loan", &LoanType},
        {"Displaced", &DisplacedType},
        {"Pushed", &PushedType},
        {"Handle", &HandleType},
    }};
    for (const auto& [name, type] : types)
        module.attr(name) = nb::borrow(reinterpret_cast<PyObject*>(type));
    nb::class_<ChannelSegment>(module, "ChannelSegment")
        .def(
            "__init__",
            [](ChannelSegment* self, const std::string& directory, const std::string& name,
               bool adopt) { new (self) ChannelSegment{open_channel(directory, name, adopt)}; },
            nb::arg("directory"), nb::arg("name"), nb::arg("adopt") = false)
        .def("inspect", &inspect_open)
        .def_prop_ro("params", [](const ChannelSegment& self) {
            return describe(channel_params(*self.segment));
        });
    module.def("create_channel", &create, nb::arg("directory"), nb::arg("name"), nb::arg("slots"),
               nb::arg("slot_size"), nb::arg("loans"), nb::arg("holds"), nb::arg("overflow"),
               nb::arg("laps"), nb::arg("producers"), nb::arg("priorities"), nb::arg("loop"),
               nb::arg("dtype"), nb::arg("shape"), nb::arg("mode"), nb::arg("group"),
               nb::arg("first_position") = 0);
    module.def("unlink_channel", [](const std::string& directory, const std::string& name) {
        Segment::unlink(directory, kChannelKind, name);
    });
    module.def("inspect_channel", &inspect, nb::arg("directory"), nb::arg("name"));
}

}  // namespace holdfast::bindings
