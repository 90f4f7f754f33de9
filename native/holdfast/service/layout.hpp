// The bytes of a service instance: where everything stands.
//
//   0        4096       page                                                                      page                    end
//   | header | elements | controls | participants | identities | notices | of each element: control | of each element: data |
//   |<- created once -->|<---------------------------- all sides write --------------------------->|<- provider writes --->|
//
// Proxies map the data read-only. One file has both parts, so that an instance is there whole or not at all.
//
// Controls, each on its own cache line:
//   +0    epoch          u64   offers of this instance so far
//   +64   provider bell  u32   futex word of a provider that waits for calls
//
// Control of an element                            Data of an element
//   bell        u32, a line                          published  u64, a line   the sequence number of the newest sample
//   logs        u32 × 64                             sequences  u64 × samples 0: not a sample
//   samples     u64 × samples, see state.hpp         index      u32 × samples sequence number mod samples -> sample
//   calls       u64 × calls, a line each             lengths    u32 × samples
//   requests    u32 length, then bytes, × calls      buffers    × samples
//                                                    responses  u32 status, u32 length, then bytes, × calls
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "holdfast/base/types.hpp"
#include "holdfast/service/state.hpp"
#include "holdfast/shm/participants.hpp"

namespace holdfast {

inline constexpr u32 kServiceVersion = 1;
inline constexpr u32 kElementsMax = 64;
inline constexpr u32 kSamplesMax = 4096;
inline constexpr u32 kCallsMax = 256;
inline constexpr u64 kSampleSizeMax = u64{1} << 31;
inline constexpr u64 kMessageSizeMax = u64{1} << 24;  // of a request or a response
inline constexpr u64 kSequenceMax = u64{1} << 62;     // 146,000 years at a million samples a second
inline constexpr u64 kCallNumberMax =
    (u64{1} << 55) - 1;  // 1,100 years at a million calls a second

enum class ElementKind : u32 { event = 1, field = 2, method = 3 };

// One element as the segment describes it. `about` is text of the layer above: types and shapes.
struct ElementSpec {
    char name[64];
    u32 kind;
    u32 samples;  // 0: has no samples
    u32 loans;    // samples that the provider's program fills at once
    u32 max_subscribers;
    u32 calls;  // 0: cannot be called
    u32 spare;
    u64 size;  // bytes of a sample
    u64 request_size;
    u64 response_size;
    char about[912];

    std::string_view name_text() const { return {name, ::strnlen(name, sizeof name)}; }
    std::string_view about_text() const { return {about, ::strnlen(about, sizeof about)}; }
};
static_assert(sizeof(ElementSpec) == 1024 && offsetof(ElementSpec, about) == 112);

constexpr u64 round_up(u64 bytes, u64 to) {
    return (bytes + to - 1) / to * to;
}

// There is room for one subscriber, one loan and the newest sample.
constexpr bool valid_element(const ElementSpec& each) {
    const bool samples = each.samples != 0, calls = each.calls != 0;
    if (samples && (each.samples > kSamplesMax || each.loans < 1 || each.loans > each.samples ||
                    each.samples < each.loans + 3 || each.size < 1 || each.size > kSampleSizeMax ||
                    each.max_subscribers < 1 || each.max_subscribers > kServiceProxies))
        return false;
    if (calls && (each.calls > kCallsMax || each.request_size > kMessageSizeMax ||
                  each.response_size > kMessageSizeMax))
        return false;
    switch (static_cast<ElementKind>(each.kind)) {
        case ElementKind::event:
            return samples && !calls;
        case ElementKind::field:
            return samples;
        case ElementKind::method:
            return calls && !samples;
    }
    return false;
}

// Pointers of one element into a mapping of the segment.
class ElementWords {
 public:
    ElementWords() = default;
    ElementWords(std::byte* control, std::byte* data, const ElementSpec& spec)
        : control_(control),
          data_(data),
          samples_(spec.samples),
          size_(round_up(spec.size, 64)),
          request_(request_stride(spec)),
          response_(response_stride(spec)) {
        words_ = reinterpret_cast<u64*>(control + kWordsOffset);
        calls_ = control + kWordsOffset + round_up(u64{samples_} * 8, 64);
        requests_ = calls_ + u64{spec.calls} * 64;
        std::byte* at = data + 64;
        sequences_ = reinterpret_cast<u64*>(at);
        at += round_up(u64{samples_} * 8, 64);
        index_ = reinterpret_cast<u32*>(at);
        at += round_up(u64{samples_} * 4, 64);
        lengths_ = reinterpret_cast<u32*>(at);
        at += round_up(u64{samples_} * 4, 64);
        buffers_ = at;
        responses_ = at + samples_ * size_;
    }

    static u64 control_size(const ElementSpec& spec) {
        return kWordsOffset + round_up(u64{spec.samples} * 8, 64) +
               spec.calls * (64 + request_stride(spec));
    }
    static u64 data_size(const ElementSpec& spec) {
        return 64 + round_up(u64{spec.samples} * 8, 64) + 2 * round_up(u64{spec.samples} * 4, 64) +
               spec.samples * round_up(spec.size, 64) + spec.calls * response_stride(spec);
    }

    u32 samples() const { return samples_; }
    u32* bell() const { return reinterpret_cast<u32*>(control_); }
    u32* log(u32 slot) const { return reinterpret_cast<u32*>(control_ + 64) + slot; }
    u64* word(u32 sample) const { return words_ + sample; }
    u64* call(u32 place) const { return reinterpret_cast<u64*>(calls_ + u64{place} * 64); }
    u32* request_length(u32 place) const {
        return reinterpret_cast<u32*>(requests_ + place * request_);
    }
    std::byte* request(u32 place) const { return requests_ + place * request_ + 64; }

    u64* published() const { return reinterpret_cast<u64*>(data_); }
    u64* sequence(u32 sample) const { return sequences_ + sample; }
    u32* index(u64 number) const { return index_ + number % samples_; }
    u32* length(u32 sample) const { return lengths_ + sample; }
    std::byte* buffer(u32 sample) const { return buffers_ + sample * size_; }
    u32* response_status(u32 place) const {
        return reinterpret_cast<u32*>(responses_ + place * response_);
    }
    u32* response_length(u32 place) const { return response_status(place) + 1; }
    std::byte* response(u32 place) const { return responses_ + place * response_ + 64; }

 private:
    static constexpr u64 kWordsOffset = 64 + 64 * sizeof(u32);
    static u64 request_stride(const ElementSpec& spec) {
        return 64 + round_up(spec.request_size, 64);
    }
    static u64 response_stride(const ElementSpec& spec) {
        return 64 + round_up(spec.response_size, 64);
    }

    std::byte* control_ = nullptr;
    std::byte* data_ = nullptr;
    u32 samples_ = 0;
    u64 size_ = 0, request_ = 0, response_ = 0;
    u64* words_ = nullptr;
    std::byte* calls_ = nullptr;
    std::byte* requests_ = nullptr;
    u64* sequences_ = nullptr;
    u32* index_ = nullptr;
    u32* lengths_ = nullptr;
    std::byte* buffers_ = nullptr;
    std::byte* responses_ = nullptr;
};

// The identity of a participant: the application's name, for people and for notices (notices.hpp).
struct IdentityEntry {
    char application[128];
};
static_assert(sizeof(IdentityEntry) == 128);

// A notice for the provider: this process is gone. See notices.hpp.
struct NoticeEntry {
    u64 state;
    u64 pid;
    u64 since;
    u64 spare;
    char application[128];
};
static_assert(sizeof(NoticeEntry) == 160);
inline constexpr u32 kNotices = 128;

// The offsets of all parts.
class ServicePlan {
 public:
    ServicePlan() = default;
    explicit ServicePlan(std::vector<ElementSpec> elements, ServiceSlots slots = {})
        : elements_(std::move(elements)), slots_(slots) {
        u64 at = round_up(notices_offset() + kNotices * sizeof(NoticeEntry), 64);
        for (const ElementSpec& each : elements_) {
            controls_.push_back(at);
            at = round_up(at + ElementWords::control_size(each), 64);
        }
        data_ = at = round_up(at, 4096);
        for (const ElementSpec& each : elements_) {
            datas_.push_back(at);
            at = round_up(at + ElementWords::data_size(each), 64);
        }
        size_ = round_up(at, 4096);
    }

    const std::vector<ElementSpec>& elements() const { return elements_; }
    const ElementSpec& element(u32 i) const { return elements_[i]; }
    u32 count() const { return static_cast<u32>(elements_.size()); }
    const ServiceSlots& slots() const { return slots_; }

    static constexpr u64 elements_offset() { return 4096; }
    u64 controls_offset() const {
        return round_up(elements_offset() + elements_.size() * sizeof(ElementSpec), 4096);
    }
    u64 epoch_offset() const { return controls_offset(); }
    u64 provider_bell_offset() const { return controls_offset() + 64; }
    u64 participants_offset() const { return controls_offset() + 128; }
    u64 identities_offset() const { return participants_offset() + 64 * sizeof(ParticipantEntry); }
    u64 notices_offset() const { return identities_offset() + 64 * sizeof(IdentityEntry); }
    // From here on proxies map the segment read-only.
    u64 data_offset() const { return data_; }
    u64 size() const { return size_; }

    ElementWords words(std::byte* base, u32 element) const {
        return {base + controls_[element], base + datas_[element], elements_[element]};
    }

 private:
    std::vector<ElementSpec> elements_;
    ServiceSlots slots_;
    std::vector<u64> controls_, datas_;
    u64 data_ = 0, size_ = 0;
};

}  // namespace holdfast
