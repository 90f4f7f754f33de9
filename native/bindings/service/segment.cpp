// Listing, looking at and removing services. Nothing here takes a slot.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <array>

#include "bindings/service/objects.hpp"
#include "holdfast/service/check.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

void bind_watch(nb::module_& module);

namespace {

nb::object text(std::string_view words) {
    return nb::steal(
        PyUnicode_DecodeUTF8(words.data(), static_cast<Py_ssize_t>(words.size()), "replace"));
}

ParticipantInfo info_of(const Segment& segment, const ServicePlan& plan, u32 slot) {
    return describe_slot(
        segment, participant_table(segment, plan.participants_offset(), plan.slots().count())[slot],
        slot);
}

// ---- list

nb::list list_services(const std::string& directory) {
    nb::list out;
    for (const SegmentInfo& each : Segment::list(directory)) {
        if (each.kind != kServiceKind) continue;
        ParticipantInfo provider{};
        try {
            const Inspection seen = Segment::inspect(directory, kServiceKind, each.name);
            if (seen.segment && seen.faults.empty()) {
                const ServicePlan plan = service_plan(*seen.segment);
                provider = info_of(*seen.segment, plan, plan.slots().provider());
            }
        } catch (const Error&) {  // removed meanwhile, damaged, or not ours to read
        }
        const bool offered = provider.active && provider.locked;
        out.append(nb::make_tuple(each.name, offered, offered ? provider.pid : 0));
    }
    return out;
}

// The pid of the living provider of an instance; 0 without one. Damage is an error.
u32 provider_of(const std::string& directory, const std::string& name) {
    const Inspection seen = Segment::inspect(directory, kServiceKind, name);
    if (seen.segment && from_another_boot(seen.segment->header())) return 0;
    if (!seen.segment || !seen.faults.empty())
        throw Error(Code::corrupt, "service " + name + " cannot be used: " + seen.faults.front());
    const SegmentHeader& header = seen.segment->header();
    if (header.version != kServiceVersion || header.fingerprint != service_fingerprint())
        throw Error(Code::layout_mismatch,
                    "service " + name + " was made by another version of holdfast");
    const ServicePlan plan = service_plan(*seen.segment);
    const ParticipantInfo provider = info_of(*seen.segment, plan, plan.slots().provider());
    return provider.active && provider.locked ? provider.pid : 0;
}

// ---- inspect

const char* role_of(const ServiceSlots& slots, u32 slot) {
    return slot == slots.provider() ? "provider" : slot == slots.tracer() ? "tracer" : "proxy";
}

nb::list describe_people(const Segment& segment, const ServicePlan& plan) {
    nb::list out;
    ParticipantEntry* entries =
        participant_table(segment, plan.participants_offset(), plan.slots().count());
    const auto* identities =
        reinterpret_cast<const IdentityEntry*>(segment.base() + plan.identities_offset());
    for (u32 slot = 0; slot < plan.slots().count(); ++slot) {
        const ParticipantInfo info = describe_slot(segment, entries[slot], slot);
        nb::dict each, counts;
        bool any = false;
        for (std::size_t i = 0; i < std::size(kServiceCountNames); ++i) {
            const u64 value =
                std::atomic_ref<u64>(entries[slot].counts[i]).load(std::memory_order_relaxed);
            any |= value != 0;
            counts[kServiceCountNames[i]] = value;
        }
        const char* application = identities[slot].application;
        each["slot"] = slot;
        each["role"] = role_of(plan.slots(), slot);
        each["active"] = info.active;
        each["alive"] = info.locked;
        each["pid"] = info.pid;
        each["since"] = info.since_ticks;
        each["application"] = text({application, ::strnlen(application, sizeof(IdentityEntry))});
        each["joined_ms"] = info.joined_ms;
        each["counts"] = counts;
        if (info.active || info.locked || any) out.append(each);
    }
    return out;
}

nb::list describe_samples(const ElementSurvey& seen, const ServiceSlots& slots) {
    nb::list out;
    for (const SampleLook& sample : seen.samples) {
        nb::dict each;
        nb::list holders;
        for (u32 slot = 0; slot < slots.provider(); ++slot)
            if ((sample.word & ServiceSlots::bit(slot)) != 0) holders.append(slot);
        each["sequence"] = sample.sequence;
        each["length"] = sample.length;
        each["writing"] = (sample.word & slots.writing()) != 0;
        each["holders"] = holders;
        out.append(each);
    }
    return out;
}

nb::list describe_logs(const ElementSurvey& seen) {
    nb::list out;
    for (u32 slot = 0; slot < seen.logs.size(); ++slot) {
        const u32 word = seen.logs[slot];
        if (word == 0) continue;
        nb::dict each;
        each["slot"] = slot;
        each["state"] = log_state(word) == kLogActive   ? "active"
                        : log_state(word) == kLogAsking ? "asking"
                                                        : "damaged";
        each["samples"] = log_samples(word);
        out.append(each);
    }
    return out;
}

nb::list describe_calls(const ElementSurvey& seen) {
    static constexpr std::array<const char*, 8> kStates = {
        "idle", "claimed", "call", "running", "done", "failed", "abandoned", "damaged"};
    nb::list out;
    for (const ServiceCallLook& call : seen.calls) {
        nb::dict each;
        each["state"] = kStates[static_cast<std::size_t>(call_state(call.word))];
        each["owner"] = call_owner(call.word);
        each["number"] = call_number(call.word);
        out.append(each);
    }
    return out;
}

void describe_segment(nb::dict& out, nb::list& faults, const Segment& segment) {
    const SegmentHeader& header = segment.header();
    out["path"] = segment.path();
    out["size"] = segment.size();
    out["version"] = header.version;
    out["created_ns"] = header.created_ns;
    out["creator_pid"] = header.creator_pid;
    out["this_boot"] = header.boot_id == this_boot();
    if (header.version != kServiceVersion || header.fingerprint != service_fingerprint()) {
        faults.append("it was made by another version of holdfast; this one cannot read further");
        return;
    }
    ServicePlan plan;
    try {
        plan = service_plan(segment);
    } catch (const Error& error) {
        faults.append(nb::str(error.what()));
        return;
    }
    const ServiceSurvey survey = survey_service(segment.base(), plan);
    for (const std::string& fault : survey.faults) faults.append(nb::str(fault.c_str()));
    nb::dict params;
    params["elements"] = nb::steal(element_tuples(plan));
    out["params"] = params;
    out["people"] = describe_people(segment, plan);
    const ParticipantInfo provider = info_of(segment, plan, plan.slots().provider());
    out["offered"] = provider.active && provider.locked;
    out["provider_pid"] = provider.pid;
    out["epoch"] = survey.epoch;
    out["overtaken"] = survey.overtaken;
    nb::list elements, notices;
    for (u32 element = 0; element < plan.count(); ++element) {
        const ElementSurvey& seen = survey.elements[element];
        nb::dict each;
        each["name"] = text(plan.element(element).name_text());
        each["kind"] = plan.element(element).kind;
        each["size"] = plan.element(element).size;
        each["max_subscribers"] = plan.element(element).max_subscribers;
        each["published"] = seen.published;
        each["samples"] = describe_samples(seen, plan.slots());
        each["logs"] = describe_logs(seen);
        each["calls"] = describe_calls(seen);
        elements.append(each);
    }
    for (const Notice& each : survey.notices)
        notices.append(nb::make_tuple(each.place, each.pid, each.since, text(each.application)));
    out["elements"] = elements;
    out["notices"] = notices;
}

nb::dict inspect_service(const std::string& directory, const std::string& name) {
    const Inspection inspection = Segment::inspect(directory, kServiceKind, name);
    nb::dict out;
    nb::list faults;
    for (const std::string& fault : inspection.faults) faults.append(nb::str(fault.c_str()));
    out["faults"] = faults;
    if (inspection.segment) describe_segment(out, faults, *inspection.segment);
    return out;
}

// ---- remove

bool remove_service(const std::string& directory, const std::string& name) {
    const std::string path = Segment::path_of(directory, kServiceKind, name);
    struct stat status{};
    if (valid_name(name) && ::lstat(path.c_str(), &status) != 0 && errno == ENOENT &&
        ::lstat(existence_path(directory, name).c_str(), &status) != 0)
        throw Error(Code::not_found, "there is no service " + name + " (" + path +
                                         "); `holdfast service ls` lists all");
    HeldLock existence = hold_existence(directory, name, 0600, kSameGroup);
    if (!existence) return false;
    const bool removed = remove_unused(directory, name);
    remove_existence(existence, directory, name);
    return removed;
}

}  // namespace

PyObject* inspect_hold(const ServiceHold& hold) {
    nb::dict out;
    nb::list faults;
    out["faults"] = faults;
    describe_segment(out, faults, *hold.segment());
    return out.release().ptr();
}

void bind_service(nb::module_& module) {
    if (ready_service_types() < 0) throw nb::python_error();
    const std::array<std::pair<const char*, PyTypeObject*>, 6> types = {{
        {"ServiceProvider", &ServiceProviderType},
        {"ServiceProxy", &ServiceProxyType},
        {"ServiceSample", &ServiceSampleType},
        {"ServiceLoan", &ServiceLoanType},
        {"ServiceCall", &ServiceCallType},
        {"ServiceBell", &ServiceBellType},
    }};
    for (const auto& [name, type] : types)
        module.attr(name) = nb::borrow(reinterpret_cast<PyObject*>(type));
    module.def("list_services", &list_services, nb::arg("directory"));
    module.def("provider_of", &provider_of, nb::arg("directory"), nb::arg("name"));
    module.def("inspect_service", &inspect_service, nb::arg("directory"), nb::arg("name"));
    module.def("remove_service", &remove_service, nb::arg("directory"), nb::arg("name"));
    bind_watch(module);
}

}  // namespace holdfast::bindings
