// The parameters of a service instance: its elements, written once and judged before they are believed.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/crc32c.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/service/layout.hpp"
#include "holdfast/shm/segment.hpp"

namespace holdfast {

struct ServiceParams {
    u32 elements;
    u32 table_crc;  // of the table of elements, which does not fit into the header
};

// Two builds understand each other's instances if and only if their fingerprints are equal.
inline u64 service_fingerprint() {
    u64 hash = 1469598103934665603u;
    const auto add = [&](u64 part) {
        hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    };
    ElementSpec event{}, method{};
    event.kind = static_cast<u32>(ElementKind::field);
    event.samples = 9;
    event.size = 100;
    event.calls = 3;
    event.request_size = event.response_size = 100;
    method.kind = static_cast<u32>(ElementKind::method);
    method.calls = 5;
    const ServicePlan plan({event, method});
    for (u64 part : {u64{kServiceVersion}, u64{kServiceProxies}, u64{kNotices}, plan.size(),
                     plan.data_offset(), plan.participants_offset(), plan.identities_offset(),
                     plan.notices_offset(), plan.provider_bell_offset(), plan.epoch_offset()})
        add(part);
    std::byte* const base = nullptr;
    const ElementWords words = plan.words(base, 0);
    const auto at = [&](const void* word) { add(reinterpret_cast<u64>(word)); };
    at(words.bell());
    at(words.log(1));
    at(words.word(1));
    at(words.call(1));
    at(words.request_length(1));
    at(words.request(1));
    at(words.published());
    at(words.sequence(1));
    at(words.index(1));
    at(words.length(1));
    at(words.buffer(1));
    at(words.response_status(1));
    at(words.response(1));
    for (u64 part : {offsetof(ElementSpec, samples), offsetof(ElementSpec, size),
                     offsetof(ElementSpec, about), sizeof(ElementSpec), sizeof(ParticipantEntry),
                     sizeof(NoticeEntry), sizeof(IdentityEntry)})
        add(part);
    add(call_word(CallState::abandoned, 3, 5));
    add(log_word(kLogActive, 7));
    return hash;
}

inline u32 table_crc(const std::vector<ElementSpec>& elements) {
    return crc32c(0, reinterpret_cast<const std::byte*>(elements.data()),
                  elements.size() * sizeof(ElementSpec));
}

// The fault of these elements, in words; empty: they are sound.
inline std::string fault_of(const std::vector<ElementSpec>& elements) {
    if (elements.empty() || elements.size() > kElementsMax)
        return "a service has 1 to " + std::to_string(kElementsMax) + " elements, not " +
               std::to_string(elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
        const ElementSpec& each = elements[i];
        const std::string name(each.name_text());
        if (!valid_name(name) || each.name[sizeof each.name - 1] != '\0')
            return "the name of element " + std::to_string(i) + " is not valid";
        if (each.about[sizeof each.about - 1] != '\0')
            return "the description of element " + name + " is too long";
        if (!valid_element(each)) return "the sizes of element " + name + " are not possible";
        for (std::size_t k = 0; k < i; ++k)
            if (elements[k].name_text() == each.name_text())
                return "two elements have the name " + name;
    }
    const u64 size = ServicePlan(elements).size();
    if (size > kSegmentSizeMax) return "all samples together are larger than 1 TiB";
    return "";
}

// Reads the elements from a segment whose header was judged. Throws Corrupt.
inline ServicePlan service_plan(const Segment& segment) {
    ServiceParams params;
    std::memcpy(&params, segment.header().params.data(), sizeof params);
    std::vector<ElementSpec> elements(std::min(params.elements, kElementsMax));
    const u64 bytes = elements.size() * sizeof(ElementSpec);
    std::string fault = "its parameters are not possible";
    if (params.elements <= kElementsMax &&
        ServicePlan::elements_offset() + bytes <= segment.size()) {
        std::memcpy(elements.data(), segment.base() + ServicePlan::elements_offset(), bytes);
        fault = table_crc(elements) != params.table_crc ? "its table of elements is damaged"
                                                        : fault_of(elements);
        if (fault.empty()) {
            ServicePlan plan(std::move(elements));
            if (plan.size() <= segment.size()) return plan;
            fault = "it is smaller than its elements";
        }
    }
    throw Error(Code::corrupt, segment.path() + ": " + fault +
                                   "; stop all processes that use it, then remove it with "
                                   "`holdfast service rm`");
}

// Numbers that a new instance begins with, for tests of their ends.
struct ServiceAge {
    u64 sequence = 0;  // of each newest sample, which has no bytes; 0: there is not one
    u64 call = 0;      // of the last call at each place
    u64 epoch = 0;
};

// Writes the age of an instance into the zeros of a new segment.
inline void make_old(std::byte* base, const ServicePlan& plan, const ServiceAge& age) {
    std::memcpy(base + plan.epoch_offset(), &age.epoch, sizeof age.epoch);
    for (u32 element = 0; element < plan.count(); ++element) {
        const ElementWords words = plan.words(base, element);
        for (u32 place = 0; place < plan.element(element).calls; ++place)
            *words.call(place) = call_word(CallState::idle, 0, age.call);
        if (words.samples() == 0 || age.sequence == 0) continue;
        *words.sequence(0) = *words.published() = age.sequence;
        *words.index(age.sequence) = 0;
    }
}

inline std::shared_ptr<Segment> create_service(const SegmentSpec& wanted,
                                               const std::vector<ElementSpec>& elements,
                                               const ServiceAge& age = {}) {
    if (const std::string fault = fault_of(elements); !fault.empty())
        throw Error(Code::misuse, "service " + wanted.name + ": " + fault);
    const ServicePlan plan(elements);
    const ServiceParams params{plan.count(), table_crc(elements)};
    SegmentSpec spec = wanted;
    spec.kind = kServiceKind;
    spec.version = kServiceVersion;
    spec.fingerprint = service_fingerprint();
    spec.size = plan.size();
    std::memcpy(spec.params.data(), &params, sizeof params);
    return Segment::create(spec, [&](std::byte* base) {
        std::memcpy(base + ServicePlan::elements_offset(), elements.data(),
                    elements.size() * sizeof(ElementSpec));
        make_old(base, plan, age);
    });
}

inline std::shared_ptr<Segment> open_service(const std::string& directory,
                                             const std::string& name) {
    return Segment::open(directory, kServiceKind, name, kServiceVersion, service_fingerprint());
}

}  // namespace holdfast
