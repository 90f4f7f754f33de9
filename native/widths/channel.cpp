// One side of a channel between a 32-bit and a 64-bit process.
//
//   channel create DIRECTORY KIND      plain, lanes (two producers and priorities; the last of each is used), loop
//   channel produce DIRECTORY COUNT    pushes the numbers 1 to COUNT, in batches of 1 and 2
//   channel consume DIRECTORY COUNT    pops until it has the last number
//   channel audit DIRECTORY            both roles: drains, and counts the free buffers
//
// Each prints its width and what it counted.
#include <sched.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "stepping/channel_world.hpp"

namespace {

using holdfast::Handover;
using holdfast::PoppedDatum;
using holdfast::u32;
using holdfast::u64;
using holdfast::stepping::ChannelParty;

constexpr const char* kName = "widths";

int produce(ChannelParty& party, u64 count) {
    const u32 producer = party.plan().producers - 1, priority = party.plan().priorities - 1;
    if (!party.produce(producer)) return 1;
    for (u64 next = 1; next <= count;) {
        const u64 numbers[] = {next, next + 1};
        const std::size_t together = next % 3 == 0 && next < count ? 2 : 1;
        if (!party.push({numbers, together}, priority, producer)) return 1;
        next += together;
        if (next % 4 == 0) ::sched_yield();
    }
    std::printf("%zu bits: pushed %" PRIu64 "\n", sizeof(void*) * 8, count);
    return 0;
}

int consume(ChannelParty& party, u64 count) {
    if (!party.consume()) return 1;
    u64 popped = 0, lost = 0, last = 0;
    for (PoppedDatum out; last != count;) {
        const Handover result = party.pop(out);
        if (result == Handover::corrupt) return 1;
        if (result != Handover::ok) {
            ::sched_yield();
            continue;
        }
        const u64 number = party.number_in(out);
        if (number <= last || number - last - 1 != out.lost) return 1;
        party.release(out.buffer);
        last = number;
        lost += out.lost;
        ++popped;
    }
    std::printf("%zu bits: popped %" PRIu64 ", lost %" PRIu64 "\n", sizeof(void*) * 8, popped,
                lost);
    return 0;
}

int audit(ChannelParty& party) {
    if (!party.consume() || !party.produce()) return 1;
    u64 left = 0;
    for (PoppedDatum out; party.pop(out) == Handover::ok; ++left) party.release(out.buffer);
    const u64 pool = u64{party.plan().lanes()} * party.plan().lane.pool();
    const holdfast::BufferCounts counts = party.survey().count();
    std::printf("%zu bits: left %" PRIu64 ", free %" PRIu64 " of %" PRIu64 "\n", sizeof(void*) * 8,
                left, pool - counts.in_ring - counts.held, pool);
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const std::string directory = argv[2];
    if (std::strcmp(argv[1], "create") == 0) {
        const std::string kind = argc > 3 ? argv[3] : "";
        const unsigned char each = kind == "lanes" ? 2 : 1;
        ChannelParty::create(directory, kName,
                             holdfast::stepping::channel_params(each, each, kind == "loop"));
        return 0;
    }
    ChannelParty party(directory, kName);
    const u64 count = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0;
    const int status = std::strcmp(argv[1], "produce") == 0   ? produce(party, count)
                       : std::strcmp(argv[1], "consume") == 0 ? consume(party, count)
                                                              : audit(party);
    if (status != 0) std::fprintf(stderr, "%s: wrong\n", argv[1]);
    party.leave();
    return status;
}
