// The hand-over of a channel without Python, for the benchmark, beside a cache line that changes cores. The states are
// packed, or each has a cache line of its own. Nothing here is used by the library.
#include "bindings/base/reference.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>

#include "holdfast/channel/shelf.hpp"
#include "holdfast/shm/memory.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

constexpr u32 kLoans = 2;
constexpr u32 kHolds = 2;
constexpr u64 kBufferBytes = 64;
constexpr u32 kLaps = 1000;

// The memory of one channel, and the operations of its two sides. Each side is used by one thread.
template <u32 kStride>
class ReferenceChannel {
 public:
    explicit ReferenceChannel(u32 slots)
        : geometry_(slots, kLoans, kHolds, kBufferBytes),
          pages_(geometry_.size(kStride)),
          writing_(writer_memory_, geometry_, fresh(pages_, geometry_)),
          shelf_(geometry_),
          reading_(reader_memory_, geometry_, pages_.at(0)) {
        writing_.recover_producer(tail_);
        head_ = reading_.load_head();
    }

    // As a push of the library: lend a buffer, hand it over, wake a consumer, take back a displaced buffer.
    void push() {
        const u32 buffer = shelf_.lend(writing_, no_way_back_);
        const u64 began = tail_;
        u32 displaced = Shelf::kNone;
        writing_.push(tail_, std::span(&buffer, 1), true,
                      [&](u32 slot, bool had_data) { displaced = shelf_.frozen(slot, had_data); });
        shelf_.pushed(writing_.slot(began), buffer);
        writing_.announce_datum();
        if (displaced != Shelf::kNone) shelf_.give_back(displaced);
    }

    bool pop() {
        Popped popped;
        if (reading_.pop(head_, 1, kLaps, popped) != Handover::ok) return false;
        reading_.release(popped.index);
        return true;
    }

 private:
    static std::byte* fresh(reference::Pages& pages, const ChannelGeometry& geometry) {
        std::memset(pages.at(0), 0, geometry.size(kStride));
        initialise_channel<kStride>(pages.at(0), geometry);
        return pages.at(0);
    }

    ChannelGeometry geometry_;
    reference::Pages pages_;
    alignas(reference::kLineBytes) NativeMemory writer_memory_;
    ChannelRing<NativeMemory, kStride> writing_;
    WayBack<ChannelRing<NativeMemory, kStride>> no_way_back_;
    Shelf shelf_;
    u64 tail_ = 0;
    alignas(reference::kLineBytes) NativeMemory reader_memory_;
    ChannelRing<NativeMemory, kStride> reading_;
    u64 head_ = 0;
};

template <u32 kStride>
double round_trip(u64 rounds, u32 slots) {
    ReferenceChannel<kStride> there(slots), back(slots);
    return reference::round_trip_ns(
        rounds,
        [&](u64) {
            there.push();
            while (!back.pop()) {
            }
        },
        [&](u64) {
            while (!there.pop()) {
            }
            back.push();
        });
}

// `count` pushes in a row, into a full ring if the consumer is slower or absent.
template <u32 kStride>
std::pair<double, u64> stream(u64 count, u32 slots, bool consumer) {
    ReferenceChannel<kStride> channel(slots);
    const std::vector<int> cores = reference::two_cores();
    std::atomic<bool> ready{!consumer}, done{false};
    u64 popped = 0;
    std::thread reader([&] {
        if (!consumer) return;
        reference::pin(cores[1]);
        ready.store(true);
        while (!done.load(std::memory_order_relaxed)) popped += channel.pop();
    });
    double ns = 0;
    std::thread writer([&] {
        reference::pin(cores[0]);
        while (!ready.load()) {
        }
        const reference::Clock::time_point start = reference::Clock::now();
        for (u64 i = 0; i < count; ++i) channel.push();
        ns = reference::seconds_since(start) * 1e9 / static_cast<double>(count);
        done.store(true, std::memory_order_relaxed);
    });
    writer.join();
    reader.join();
    return {ns, popped};
}

double round_trip_of(u64 rounds, u32 slots, bool packed) {
    return packed ? round_trip<kPackedStates>(rounds, slots)
                  : round_trip<kSpreadStates>(rounds, slots);
}

std::pair<double, u64> stream_of(u64 count, u32 slots, bool packed, bool consumer) {
    if (count == 0) throw std::invalid_argument("at least one push");
    return packed ? stream<kPackedStates>(count, slots, consumer)
                  : stream<kSpreadStates>(count, slots, consumer);
}

}  // namespace

void bind_channel_reference(nb::module_& module) {
    using Release = nb::call_guard<nb::gil_scoped_release>;
    module.def("reference_channel_pingpong", &round_trip_of, nb::arg("rounds"), nb::arg("slots"),
               nb::arg("packed"), Release(),
               "Nanoseconds for one datum there and one back, through two channels in C++.");
    module.def("reference_channel_stream", &stream_of, nb::arg("count"), nb::arg("slots"),
               nb::arg("packed"), nb::arg("consumer"), Release(),
               "Nanoseconds of a push among `count` in a row, and how many were popped meanwhile.");
}

}  // namespace holdfast::bindings
