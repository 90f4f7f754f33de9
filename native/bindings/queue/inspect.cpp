// Looking at a segment from outside: for stats, check, peek and doctor. Nothing here attaches or changes anything.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <map>

#include "bindings/queue/objects.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

nb::dict describe_params(const QueueParams& params) {
    Geometry geometry(params.granules, params.participants);
    nb::dict out;
    out["capacity"] = params.granules * kGranule;
    out["participants"] = params.participants;
    out["delivery"] = params.delivery == Delivery::at_least_once ? "at-least-once" : "at-most-once";
    out["max_deliveries"] = params.max_deliveries;
    out["stall_limit_ms"] = params.stall_limit_ms == kNoStallLimit
                                ? nb::object(nb::none())
                                : nb::cast(params.stall_limit_ms);
    out["checksum"] = params.full_checksum ? "full" : "header";
    out["dead_letter"] =
        params.dead_letter[0] ? nb::object(nb::str(params.dead_letter)) : nb::object(nb::none());
    out["message_size_max"] = geometry.size_max();
    return out;
}

nb::list describe_participants(Segment& segment, const QueueParams& params) {
    nb::list out;
    ParticipantEntry* entries =
        participant_table(segment, Geometry::participants_offset(), params.participants);
    for (u32 slot = 0; slot < params.participants; ++slot) {
        ParticipantInfo info = describe_slot(segment, entries[slot], slot);
        nb::dict each;
        each["slot"] = slot;
        each["active"] = info.active;
        each["alive"] = info.locked;
        each["pid"] = info.pid;
        each["joined_ms"] = info.joined_ms;
        nb::dict counts;
        bool any = false;
        for (std::size_t i = 0; i < std::size(kCountNames); ++i) {
            u64 value =
                std::atomic_ref<u64>(entries[slot].counts[i]).load(std::memory_order_relaxed);
            any |= value != 0;
            counts[kCountNames[i]] = value;
        }
        each["counts"] = counts;
        if (info.active || info.locked || any) out.append(each);
    }
    return out;
}

// Describes a block as it is now. The header of a block without a writer is read; it counts only if it verifies and the
// descriptor has not changed meanwhile.
nb::dict describe_block(QueueState<NativeMemory>& q, u64 position, u64 word, u64 payload_max) {
    nb::dict out;
    State state = Geometry::state(word);
    out["position"] = position;
    out["state"] = state_name(state);
    if (state == State::retry)
        out["owner"] = nb::none();
    else
        out["owner"] = Geometry::owner(word);
    out["bytes"] = q.geometry.length(word) * kGranule;
    out["deliveries"] =
        state == State::retry ? Geometry::deliveries(word) : q.load_mark(position).deliveries;
    const std::optional<u64> age_ms = age_of(q, position);
    out["age_ms"] = age_ms ? nb::cast(*age_ms) : nb::object(nb::none());
    if (state != State::ready && state != State::retry && state != State::taken) return out;
    BlockHeader header = q.memory.read_header(q.block(position));
    u64 room = q.geometry.length(word) * kGranule - sizeof header;
    BlockFault fault = verify(header, position, static_cast<u32>(room));
    if (fault == BlockFault::none &&
        Geometry::blocks_granules(header.size) != q.geometry.length(word))
        fault = BlockFault::size;
    if (fault == BlockFault::none)
        fault = verify_payload(header, q.block(position) + sizeof header);
    nb::object payload = nb::none();
    if (fault == BlockFault::none)
        payload = nb::bytes(reinterpret_cast<const char*>(q.block(position) + sizeof header),
                            std::min<u64>(header.size, payload_max));
    std::atomic_thread_fence(
        std::memory_order_acquire);  // what was read above was read before the next line
    if (q.load_descriptor(position) != word) return out;  // it went on while we looked
    out["fault"] = fault == BlockFault::none ? nb::object(nb::none())
                                             : nb::object(nb::str(fault_name(fault).data()));
    if (fault != BlockFault::none) return out;
    out["size"] = header.size;
    out["time"] = header.time;
    out["payload"] = payload;
    return out;
}

nb::dict describe_fault(const Fault& fault) {
    nb::dict out;
    out["what"] = fault.what;
    out["position"] = fault.position;
    out["value"] = fault.value;
    return out;
}

// The blocks that one participant holds.
struct Holder {
    u64 taken = 0, writing = 0, fenced = 0;
    u64 oldest_ms = 0;

    void add(State state, u64 age) {
        ++(state == State::taken ? taken : state == State::reserved ? writing : fenced);
        oldest_ms = std::max(oldest_ms, age);
    }
};

nb::dict describe_queue(Segment& segment, const QueueParams& params, u64 skip, u64 blocks_max,
                        u64 payload_max) {
    Geometry geometry(params.granules, params.participants);
    NativeMemory memory;
    QueueState<NativeMemory> q(memory, geometry, segment.base(), 0, params.delivery,
                               params.stall_limit_ms);
    std::vector<std::pair<u64, u64>> seen;
    std::map<u32, Holder> holders;
    u64 passed = 0;
    auto begin = [&] {
        seen.clear();
        holders.clear();
        passed = 0;
    };
    Survey result = survey(q, begin, [&](u64 position, u64 word) {
        State state = Geometry::state(word);
        if (state == State::done || state == State::skip) return;
        if (state == State::taken || state == State::reserved || state == State::fenced)
            holders[Geometry::owner(word)].add(state, age_of(q, position).value_or(0));
        if (passed++ >= skip && seen.size() < blocks_max) seen.emplace_back(position, word);
    });
    nb::dict out;
    out["head"] = result.head;
    out["read"] = result.read;
    out["tail"] = result.tail;
    out["end"] = result.end;
    out["closed"] = result.closed;
    out["overtaken"] = result.overtaken;
    out["positions_left"] = kPositionMax - result.head;
    out["fault"] =
        result.sound() ? nb::object(nb::none()) : nb::object(describe_fault(result.fault));
    nb::dict blocks, bytes;
    for (u32 state = 1; state < 8; ++state) {
        blocks[kStateNames[state]] = result.blocks[state];
        bytes[kStateNames[state]] = result.granules[state] * kGranule;
    }
    out["blocks"] = blocks;
    out["bytes"] = bytes;
    nb::list held;
    for (const auto& [owner, holder] : holders) {
        nb::dict each;
        each["slot"] = owner;
        each["taken"] = holder.taken;
        each["writing"] = holder.writing;
        each["fenced"] = holder.fenced;
        each["oldest_ms"] = holder.oldest_ms;
        held.append(each);
    }
    out["holders"] = held;
    nb::list list;
    for (auto [position, word] : seen) list.append(describe_block(q, position, word, payload_max));
    out["list"] = list;
    return out;
}

void describe_segment(nb::dict& out, nb::list& faults, Segment& segment, u64 skip, u64 blocks_max,
                      u64 payload_max) {
    const SegmentHeader& header = segment.header();
    out["path"] = segment.path();
    out["size"] = segment.size();
    out["version"] = header.version;
    out["version_here"] = kQueueVersion;
    out["fingerprint"] = header.fingerprint;
    out["fingerprint_here"] = queue_fingerprint();
    out["created_ns"] = header.created_ns;
    out["creator_pid"] = header.creator_pid;
    out["this_boot"] = header.boot_id == this_boot();
    if (header.version != kQueueVersion || header.fingerprint != queue_fingerprint()) {
        faults.append("it was made by another version of holdfast; this one cannot read further");
        return;
    }
    QueueParams params;
    try {
        params = QueueAttachment::checked_params(segment);
    } catch (const Error& error) {
        faults.append(nb::str(error.what()));
        return;
    }
    out["params"] = describe_params(params);
    out["people"] = describe_participants(segment, params);
    out["queue"] = describe_queue(segment, params, skip, blocks_max, payload_max);
}

// Everything that can be told of a queue's segment, also when its header is damaged or all its processes are dead.
nb::dict inspect(const std::string& directory, const std::string& name, u64 skip, u64 blocks_max,
                 u64 payload_max) {
    Inspection inspection = Segment::inspect(directory, kQueueKind, name);
    nb::dict out;
    nb::list faults;
    for (const std::string& fault : inspection.faults) faults.append(nb::str(fault.c_str()));
    out["faults"] = faults;
    if (inspection.segment)
        describe_segment(out, faults, *inspection.segment, skip, blocks_max, payload_max);
    return out;
}

// The same for the segment that a queue is attached to, even if its name belongs to another segment by now.
nb::dict inspect_attached(nb::handle queue, u64 skip, u64 blocks_max, u64 payload_max) {
    if (!PyObject_TypeCheck(queue.ptr(), &QueueType))
        throw nb::type_error("inspect_attached needs a queue");
    auto* self = reinterpret_cast<QueueObject*>(queue.ptr());
    if (!usable(self)) throw nb::python_error();
    nb::dict out;
    nb::list faults;
    out["faults"] = faults;
    describe_segment(out, faults, *self->attachment->segment(), skip, blocks_max, payload_max);
    return out;
}

}  // namespace

void bind_inspect(nb::module_& module) {
    module.def("inspect", &inspect, nb::arg("directory"), nb::arg("name"), nb::arg("skip") = 0,
               nb::arg("blocks_max") = 0, nb::arg("payload_max") = 0);
    module.def("inspect_attached", &inspect_attached, nb::arg("queue"), nb::arg("skip") = 0,
               nb::arg("blocks_max") = 0, nb::arg("payload_max") = 0);
}

}  // namespace holdfast::bindings
