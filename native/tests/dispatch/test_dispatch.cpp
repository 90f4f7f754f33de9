// The dispatcher's tables: sets, maps and lists against simple models; permits, turns, priorities,
// counts, delays.
#include <map>
#include <random>
#include <set>

#include "holdfast/dispatch/tables.hpp"
#include "tests/check.hpp"

using namespace holdfast;

static void test_run_set() {
    std::mt19937 chance(1);
    RunSet runs;
    std::set<u64> plain;
    for (int step = 0; step < 20'000; ++step) {
        const u64 first = chance() % 200;
        const u64 end = first + chance() % 12;
        switch (chance() % 5) {
            case 0:
            case 1:
                runs.insert(first, end);
                for (u64 each = first; each < end; ++each) plain.insert(each);
                break;
            case 2:
                runs.erase(first, end);
                for (u64 each = first; each < end; ++each) plain.erase(each);
                break;
            case 3:
                for (const Run& run : runs.take(chance() % 9, 3))
                    for (u64 each = run.first; each < run.end; ++each) {
                        CHECK(!plain.empty() && *plain.begin() == each);
                        plain.erase(each);
                    }
                break;
            default:
                CHECK(runs.contains(first) == plain.contains(first));
        }
        u64 met = 0;
        runs.each_meeting(first, end, [&](const Run& run) {
            CHECK(run.first < end && run.end > first && plain.contains(run.first));
            met += std::min(run.end, end) - std::max(run.first, first);
        });
        const auto inside = std::distance(plain.lower_bound(first), plain.lower_bound(end));
        CHECK(first >= end || met == static_cast<u64>(inside));
        CHECK(runs.sound() && runs.size() == plain.size());
        CHECK(runs.empty() || runs.first() == *plain.begin());
    }
    RunSet apart;
    apart.insert(0, 2);
    apart.insert(5, 6);
    apart.insert(50, 60);
    CHECK((apart.take(10, 4) == std::vector<Run>{{0, 2}, {5, 6}}));  // 50 is too far away
    CHECK((apart.take(3, 4) == std::vector<Run>{{50, 53}}) && apart.size() == 7);
}

static void test_map() {
    std::mt19937_64 chance(2);
    OrdinalMap map;
    std::map<u64, u32> plain;
    for (int step = 0; step < 50'000; ++step) {
        const u64 ordinal = chance() % 2 == 0 ? chance() % 300 : (chance() % 300) << 40;
        if (chance() % 3 != 0) {
            const u32 value = static_cast<u32>(chance() % 1000);
            map.at(ordinal, 0) = value;
            plain[ordinal] = value;
        } else {
            CHECK(map.erase(ordinal) == (plain.erase(ordinal) == 1));
        }
        CHECK(map.size() == plain.size());
        const auto found = plain.find(ordinal);
        CHECK(map.find(ordinal) == (found == plain.end() ? OrdinalMap::kNothing : found->second));
        if (step % 1000 == 0) CHECK(map.sound());
    }
    for (const auto& [ordinal, value] : plain) CHECK(map.find(ordinal) == value);
}

static u32 no_hash(u32) {
    return 0;
}

static std::vector<Handed> hand(Dispatch& table, u64 first, u32 count, u32 messages = 1,
                                u64 now_ns = 1, std::vector<Run> skip = {}) {
    auto out =
        table.hand(first, count, [&](u32) { return messages; }, no_hash, skip, {}, nullptr, now_ns);
    table.check();
    return out;
}

// I50: send while permits are left; never more than one entry beyond them.
static void test_permits() {
    Dispatch table;
    const u64 one = table.add(0);
    CHECK(hand(table, 0, 10).empty() && table.replay().size() == 10);
    table.flow(one, 5);
    CHECK(table.wanted() == 5);
    table.take_replay(100, 0);
    const auto out = hand(table, 0, 10, 3);
    CHECK(out.size() == 1 && out[0].indices == (std::vector<u32>{0, 1}) && out[0].messages == 6);
    CHECK(table.consumer(one).permits == -1 && table.wanted() == 0);
    CHECK(table.replay().size() == 8 && table.pending_entries() == 2);
    table.flow(one, 1);
    CHECK(table.wanted() == 0);  // the debt comes first
    table.flow(one, 1);
    CHECK(table.wanted() == 1);
    table.flow(one, ~u64{0});
    table.flow(one, ~u64{0});
    CHECK(table.wanted() == kPermitsMax);
    table.grant(one, 3);
    CHECK(table.wanted() == 3);
}

// A gap of a compacted run is not delivered, takes no permit and is not read again.
static void test_gaps() {
    for (const DispatchMode mode : {DispatchMode::shared, DispatchMode::single}) {
        Dispatch table(mode);
        table.flow(table.add(0), 3);
        const auto out = table.hand(
            10, 10, [](u32 i) { return i % 3 == 0 ? 1u : 0u; }, no_hash, {}, {}, nullptr, 1);
        CHECK(out.size() == 1 && out[0].indices == (std::vector<u32>{0, 3, 6}));
        CHECK((table.held() == std::vector<Run>{{10, 11}, {13, 14}, {16, 17}}));
        CHECK((table.replay().list() == std::vector<Run>{{19, 20}}));
        CHECK(table.wanted() == 0 && table.filtered_entries() == 6);
        table.check();
    }
}

// A paused consumer keeps its permits, and those that it is given meanwhile.
static void test_pause() {
    Dispatch table;
    const u64 one = table.add(0);
    table.flow(one, 2);
    table.pause(one, true);
    table.flow(one, 3);
    CHECK(table.wanted() == 0 && hand(table, 0, 4).empty());
    CHECK(table.consumer(one).permits == 5);
    table.pause(one, false);
    table.take_replay(100, 0);
    CHECK(table.wanted() == 5 && hand(table, 0, 4, 2).size() == 1);
    CHECK(table.consumer(one).permits == -1);
    table.forgive(one);
    CHECK(table.consumer(one).permits == 0);
    table.check();
}

static void test_batches_in_part_acknowledged() {
    Dispatch table;
    const u64 one = table.add(0);
    table.flow(one, 100);
    const std::vector<LeftOfBatch> left{{1, 3}, {3, 0}};
    table.hand(0, 4, [](u32) { return 10u; }, no_hash, {}, left, nullptr, 1);
    CHECK(table.consumer(one).permits == 100 - 10 - 3 - 10 - 1);
    CHECK(table.consumer(one).pending.messages == 24);
    table.shrink(0, 4);
    CHECK(table.consumer(one).pending.messages == 18);
    table.release(0, 4);
    CHECK(table.consumer(one).pending.messages == 0);
    table.check();
}

static void test_what_is_filtered() {
    Dispatch table;
    table.flow(table.add(0), 100);
    const auto out = hand(table, 100, 10, 1, 1, {{90, 101}, {103, 106}, {109, 200}});
    CHECK(out[0].indices == (std::vector<u32>{1, 2, 6, 7, 8}));
    CHECK(table.filtered_entries() == 5);
    // A replay delivers only the wanted entries, and none that is held (I51).
    const std::vector<Run> only{{100, 102}, {104, 105}};
    const auto again = table.hand(100, 10, [](u32) { return 1u; }, no_hash, {}, {}, &only, 1);
    CHECK(again[0].indices == (std::vector<u32>{0, 4}));
    table.check();
}

// I53: the best level with permits; in it, one after the other.
static void test_turns_and_priorities() {
    Dispatch table(DispatchMode::shared, 2);
    const u64 low = table.add(1);
    const u64 a = table.add(0);
    const u64 b = table.add(0);
    CHECK(table.ids() == (std::vector<u64>{a, b, low}) && table.active() == a);
    for (const u64 id : {low, a, b}) table.flow(id, 5);
    auto out = hand(table, 0, 6);
    CHECK(out.size() == 2 && out[0].consumer == a && out[1].consumer == b);
    CHECK(out[0].indices == (std::vector<u32>{0, 1, 4, 5}));
    CHECK(out[1].indices == (std::vector<u32>{2, 3}));
    out = hand(table, 6,
               6);  // three for b, whose turn it is, one for a, and only then the lower level
    CHECK(out.size() == 3 && out[0].consumer == b && out[1].consumer == a &&
          out[2].consumer == low);
    CHECK(out[0].indices.size() == 3 && out[1].indices.size() == 1 && out[2].indices.size() == 2);

    Dispatch single(DispatchMode::single);
    const u64 second = single.add(0);
    const u64 best = single.add(-1);
    single.flow(second, 100);
    CHECK(single.active() == best && single.wanted() == 0 && hand(single, 0, 3).empty());
    single.remove(best);
    CHECK(single.active() == second && single.wanted() == 100);
    CHECK_ERROR(Code::misuse, single.set_mode(DispatchMode::shared), "type");
    CHECK_ERROR(Code::misuse, single.flow(best, 1), "no consumer 2");
}

// I52: the count of an entry is the number of its deliveries before.
static void test_priorities_are_forgotten() {
    Dispatch dispatch;
    const u64 first = dispatch.add(0);
    for (int priority = -50; priority < 50; ++priority) {
        const u64 other = dispatch.add(priority);
        dispatch.flow(first, 5);
        dispatch.flow(other, 5);
        dispatch.hand(0, 10, [](u32) { return 1u; }, no_hash, {}, {}, nullptr, 1);
        CHECK(dispatch.levels() <= 2);
        dispatch.remove(other);
        dispatch.grant(first, 0);
        dispatch.release(0, 10);
    }
    CHECK(dispatch.levels() == 1);
    dispatch.remove(first);
    CHECK(dispatch.levels() == 0);
}

static void test_counts() {
    Dispatch table;
    const u64 one = table.add(0);
    table.flow(one, 100);
    hand(table, 0, 4);
    CHECK(table.remove(one) == 4 && table.replay().size() == 4 && table.consumers() == 0);
    const u64 two = table.add(0);
    table.flow(two, 100);
    const auto runs = table.take_replay(100, 0);
    auto out = table.hand(0, 4, [](u32) { return 1u; }, no_hash, {}, {}, &runs, 2);
    CHECK(out[0].counts == (std::vector<u32>{1, 1, 1, 1}));
    const std::vector<u64> some{1, 2, 77};
    CHECK(table.redeliver(two, some) == 2 && table.count_of(1) == 2 && table.count_of(0) == 1);
    CHECK(table.release(0, 2) == 1 && table.count_of(1) == 0 && table.replay().size() == 1);
    CHECK(table.counted_entries() == 2);
    table.rewind();  // 3 was held, 2 was not
    CHECK(table.count_of(3) == 2 && table.count_of(2) == 2 && table.pending_entries() == 0);
    table.reset(1);
    CHECK(table.counted_entries() == 0 && table.undelivered().contains(3) &&
          !table.undelivered().contains(4));
    CHECK(!table.undelivered().contains(0));
    hand(table, 1, 2);
    CHECK(!table.undelivered().contains(2) && table.undelivered().contains(3));
    CHECK(table.release(0, ~u64{0}) == 2);
    table.check();
}

// A field just before its limit stays there.
static void test_ends() {
    Dispatch table;
    const u64 one = table.add(0);
    table.flow(one, 100);
    const std::vector<u64> five{5};
    table.set_count(5, kRedeliveriesMax - 1);
    for (int i = 0; i < 3; ++i) {
        table.take_replay(100, 0);
        hand(table, 5, 1);
        CHECK(table.redeliver(one, five) == 1 && table.count_of(5) == kRedeliveriesMax);
    }
    for (const u32 count : {0u, 1023u, 1024u, kRedeliveriesMax}) {
        CHECK((BackOff{0, 2.0, 60}.delay_ns(count) == 0));
        CHECK((BackOff{1, 2.0, 60}.delay_ns(count) == (count == 0 ? 1 : 60)));
    }
    table.take_replay(100, 0);
    hand(table, 5, 1);
    constexpr u64 end = ~u64{0};
    CHECK(table.nack(one, five, {end, 1.0, end}, 1000) == 1 && table.next_due() == end);
}

static void test_delays_and_timeouts() {
    Dispatch table;
    const u64 one = table.add(0);
    table.flow(one, 100);
    const BackOff growing{10, 2.0, 35};
    u64 now = 100;
    for (const u64 expected : {10u, 20u, 35u, 35u}) {
        const auto runs = table.take_replay(100, 0);
        hand(table, 5, 1, 1, now);
        CHECK(runs.size() == (expected == 10 ? 0 : 1));
        const std::vector<u64> five{5};
        CHECK(table.nack(one, five, growing, now) == 1);
        CHECK(table.nack(one, five, growing, now) == 0);  // the consumer does not hold it any more
        CHECK(table.next_due() == now + expected && table.delayed_entries() == 1);
        CHECK(table.take_due(now + expected - 1) == 0);
        CHECK(table.take_due(now + expected) == 1 && table.next_due() == 0);
        now += 1000;
    }
    CHECK(table.count_of(5) == 4);
    table.reset(100);
    hand(table, 0, 3, 1, 50);
    hand(table, 3, 3, 2, 60);
    CHECK(table.oldest_ns(one) == 50 && table.expire(one, 49) == 0);
    table.release(1, 2);
    CHECK(table.expire(one, 50) == 2 && table.oldest_ns(one) == 60);
    const std::vector<u64> four{4};
    CHECK(table.nack(one, four, growing, 60) == 1);
    table.shrink(4, 1);  // acknowledged in part while it waits
    table.check();
    table.release(4, 5);  // acknowledged while it waited
    CHECK(table.next_due() == 0 && table.take_due(1000) == 0);
    table.check();
}

static void test_limit_of_unacknowledged() {
    Dispatch table;
    const u64 one = table.add(0);
    table.flow(one, 100);
    table.set_unacked_max(3);
    CHECK(hand(table, 0, 10)[0].indices.size() == 3 && table.wanted() == 0);
    table.release(0, 1);
    CHECK(table.wanted() == 97);
}

// Tables that travel with a subscription to another member.
static void test_hand_over() {
    Dispatch table;
    const u64 one = table.add(0);
    table.flow(one, 100);
    hand(table, 0, 6);
    const std::vector<u64> two{2};
    CHECK(table.nack(one, two, {10, 1.0, 10}, 1) == 1);  // waits for its time, and counts as held
    table.release(4, 5);
    CHECK(table.held() == (std::vector<Run>{{0, 4}, {5, 6}}) && table.reach() == 6);
    CHECK(table.next_free(0) == 4 && table.next_free(5) == 6 && table.next_free(9) == 9);
    using Counts = std::vector<std::pair<u64, u32>>;
    table.set_count(1, 7);
    CHECK(table.counts(10) == (Counts{{1, 7}, {2, 1}}) && table.counts(1) == (Counts{{1, 7}}));
    table.set_count(0, 3);
    CHECK(table.counts(2) == (Counts{{0, 3}, {1, 7}}) && table.counts_risen() == 1);
    table.reset(1);
    CHECK(table.held().empty() && table.counts(10).empty());
    const std::vector<Run> others{{0, 3}, {5, 9}};
    table.undelivered().keep(others);
    CHECK(table.undelivered().list() == (std::vector<Run>{{1, 3}, {5, 6}}));
    table.check();
}

struct Times {
    i64 now_ms;
    std::map<u64, i64> at;
    i64 at_ms(u32 i) const {
        const auto found = at.find(i);
        return found == at.end() ? 0 : found->second;
    }
};

// Of entries that are parts of chunked messages.
struct Parts : NoTimes {
    std::vector<ChunkPart> parts;
    ChunkPart part(u32 i) const { return parts[i]; }
};

// All parts of a chunked message go to one consumer of a Shared subscription.
static void test_chunks() {
    constexpr auto first = ChunkPart::first, middle = ChunkPart::middle, last = ChunkPart::last;
    Dispatch table(DispatchMode::shared, 1);
    const u64 one = table.add(0);
    const u64 two = table.add(0);
    for (const u64 id : {one, two}) table.flow(id, 20);
    u64 ordinal = 0;
    // One entry of the message with this hash; returns its consumer.
    const auto give = [&](u32 hash, ChunkPart part) {
        const auto all = [](u32) { return 1u; };
        const auto of = [&](u32) { return hash; };
        const auto handed =
            table.hand(ordinal++, 1, all, of, {}, {}, nullptr, 1, Parts{{}, {part}});
        table.check();
        return handed.at(0).consumer;
    };
    CHECK(give(7, first) == one && give(8, first) == two);
    CHECK(give(8, middle) == two && give(7, middle) == one && give(7, middle) == one);
    CHECK(give(7, last) == one && give(8, last) == two);
    // Two producers send messages of one key at the same time.
    const u64 both = give(7, first);
    CHECK(give(7, first) == both && give(7, middle) == both);
    CHECK(give(7, last) == both && give(7, middle) == both && give(7, last) == both);
    const u64 next = give(7, first);  // the consumer is chosen anew
    CHECK(give(7, middle) == next && give(7, last) == next);
    const u64 after = give(7, first);
    CHECK(after != next && give(7, last) == after);
    // Without permits, or when it has left, another one gets the rest.
    const u64 third = give(9, first);
    table.grant(third, 0);
    CHECK(give(9, middle) != third);
    table.flow(third, 5);
    CHECK(give(9, middle) == third);
    table.remove(third);
    CHECK(give(9, middle) != third && give(9, last) != third);
}

// I271: entries wait for their time, use no permits meanwhile, and come as a replay.
static void test_schedule() {
    Dispatch table;
    const u64 id = table.add(0);
    table.flow(id, 2);
    const Times times{100, {{0, 300}, {1, 101}, {2, 100}, {4, 200}}};
    const auto all = [](u32) { return 1u; };
    const auto same = [](u32) { return 0u; };
    const auto handed = table.hand(10, 5, all, same, {}, {}, nullptr, 1, times);
    CHECK(handed.size() == 1 && handed[0].indices == (std::vector<u32>{2, 3}));
    CHECK(table.schedule().waiting().list() == (std::vector<Run>{{10, 12}, {14, 15}}));
    CHECK(table.next_scheduled() == 101 && table.take_scheduled(100) == 0 && table.wanted() == 0);
    CHECK(table.next_free(10) == 15);  // what waits or is held is not read again
    table.rewind();
    CHECK(table.next_free(10) == 12 && table.schedule().size() == 3);
    table.flow(id, 1);
    CHECK(table.wanted_entries() == 10);  // most were not due: the next read is longer
    table.check();
    CHECK(table.take_scheduled(200, 1) == 1 && table.take_scheduled(200) == 1 &&
          table.next_scheduled() == 300);
    CHECK(table.replay().list() == (std::vector<Run>{{11, 12}, {14, 15}}));
    table.release(10, 11);
    CHECK(table.schedule().empty() && table.schedule().memory() == 0);
    CHECK(table.next_scheduled() == std::numeric_limits<i64>::max());
    // A clock that was set back: an entry that was due is not, and waits again.
    const std::vector<Run> runs = table.take_replay(10, 10);
    CHECK(table.hand(11, 4, all, same, {}, {}, &runs, 1, Times{50, {{0, 101}, {3, 200}}}).empty());
    CHECK(table.schedule().size() == 2 && table.replay().empty());
    table.reset(12);
    CHECK(table.schedule().waiting().list() == (std::vector<Run>{{14, 15}}));
    table.check();
    table.remove(id);
    table.set_mode(DispatchMode::single);
    CHECK(table.schedule().empty() && table.replay().empty());
    table.flow(table.add(0), 10);
    CHECK(table.hand(14, 1, all, same, {}, {}, nullptr, 1, Times{50, {{0, 200}}}).size() == 1);
    table.check();
}

// Against a plain map, and I270: forgotten times do not pile up.
static void test_schedule_at_random() {
    std::mt19937 chance(5);
    Schedule schedule;
    std::map<u64, i64> plain;
    i64 now = 0;
    for (int step = 0; step < 30'000; ++step) {
        const u64 first = chance() % 4000;
        switch (chance() % 4) {
            case 0:
            case 1:
                // An entry's time never changes, so it is the same after a reset.
                for (u64 each = first; each < first + 8; ++each) {
                    const i64 at = static_cast<i64>(each * 7919 % 40'000);
                    if (at > now && plain.emplace(each, at).second) schedule.insert(each, at);
                }
                break;
            case 2:
                schedule.erase(first, first + 200);
                plain.erase(plain.lower_bound(first), plain.lower_bound(first + 200));
                break;
            default:
                ++now;
                std::vector<u64> due;
                schedule.take_due(now, [&](u64 each) { due.push_back(each); });
                for (const u64 each : due) CHECK(plain.at(each) <= now && plain.erase(each) == 1);
                CHECK(std::none_of(plain.begin(), plain.end(),
                                   [&](const auto& each) { return each.second <= now; }));
        }
        CHECK(schedule.size() == plain.size());
        if (step % 100 == 0) CHECK(schedule.sound());
        if (!plain.empty()) {
            u64 free = first;
            while (plain.contains(free)) ++free;
            CHECK(schedule.next_free(first) == free && schedule.contains(first) == (free != first));
        }
    }
    CHECK(now > 1000);
}

// The size of a million entries, and that a far one does not keep it.
static void test_schedule_size() {
    for (const u64 step : {1, 2}) {
        Schedule schedule;
        for (u64 each = 0; each < 1'000'000; ++each)
            schedule.insert(each * step, static_cast<i64>(1'000'000 - each));
        CHECK(schedule.size() == 1'000'000 && schedule.memory() < 100 << 20);
        schedule.erase(1, 2'000'000);
        CHECK(schedule.size() == 1 && schedule.memory() < 64 << 10);
    }
}

// Random operations; check() after each. Every entry is in some table until it is released.
static void test_at_random() {
    std::mt19937 chance(3);
    Dispatch table(DispatchMode::shared, 3);
    std::set<u64> alive;
    std::vector<u64> consumers;
    u64 next = 0;
    u64 now = 0;
    for (int step = 0; step < 20'000; ++step) {
        ++now;
        const u64 id = consumers.empty() ? 0 : consumers[chance() % consumers.size()];
        std::vector<u64> some;
        for (int each = 0; each < 4; ++each) some.push_back(chance() % (next + 1));
        switch (chance() % 9) {
            case 0:
                if (consumers.size() < 5)
                    consumers.push_back(table.add(static_cast<int>(chance() % 2)));
                break;
            case 1:
                if (id != 0 && chance() % 4 == 0) {
                    table.remove(id);
                    std::erase(consumers, id);
                }
                break;
            case 2:
                if (id != 0) table.flow(id, chance() % 10);
                break;
            case 3: {
                const u32 count = chance() % 8;
                for (u32 each = 0; each < count; ++each) alive.insert(next + each);
                hand(table, next, count, 1 + chance() % 3, now);
                next += count;
                break;
            }
            case 4: {
                const auto runs = table.take_replay(6, 2);
                if (runs.empty()) break;
                if (chance() % 5 == 0)
                    table.put_back(runs);
                else
                    table.hand(
                        runs.front().first, static_cast<u32>(runs.back().end - runs.front().first),
                        [](u32) { return 1u; }, no_hash, {}, {}, &runs, now);
                break;
            }
            case 5:
                if (id != 0) table.nack(id, some, {3, 2.0, 40}, now);
                break;
            case 6:
                if (id != 0) table.redeliver(id, some);
                break;
            case 7: {
                const u64 first = chance() % (next + 1);
                const u64 end = first + chance() % (chance() % 10 == 0 ? 1000 : 4);
                table.release(first, end);
                alive.erase(alive.lower_bound(first), alive.lower_bound(end));
                break;
            }
            default:
                table.take_due(now);
                if (id != 0 && now > 30) table.expire(id, now - 30);
        }
        table.check();
        const u64 known = table.pending_entries() + table.delayed_entries() + table.replay().size();
        CHECK(known == alive.size());
        for (const u64 each : consumers) CHECK(table.consumer(each).permits > -3);
    }
    CHECK(next > 1000);
}

int main() {
    test_run_set();
    test_map();
    test_permits();
    test_gaps();
    test_pause();
    test_batches_in_part_acknowledged();
    test_what_is_filtered();
    test_turns_and_priorities();
    test_priorities_are_forgotten();
    test_counts();
    test_ends();
    test_delays_and_timeouts();
    test_limit_of_unacknowledged();
    test_hand_over();
    test_at_random();
    test_schedule();
    test_chunks();
    test_schedule_at_random();
    test_schedule_size();
}
