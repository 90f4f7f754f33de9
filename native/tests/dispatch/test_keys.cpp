// Key_Shared in the dispatcher's tables: the hash of a key, the split, and random histories. In
// these each hash has one consumer, and keeps its order.
#include <map>
#include <random>
#include <set>

#include "holdfast/dispatch/tables.hpp"
#include "tests/check.hpp"

using namespace holdfast;

// The published vectors of MurmurHash3, 32 bits.
static void test_murmur3() {
    CHECK(murmur3("") == 0);
    CHECK(murmur3("hello") == 0x248bfa47u);
    CHECK(murmur3("hello, world") == 0x149bbb7fu);
    CHECK(murmur3("The quick brown fox jumps over the lazy dog") == 0x2e4ff723u);
    CHECK(key_hash("hello") == (0x248bfa47u & 0x7fffffffu) % 65536);
    CHECK(key_hash("hello, world") == 0xbb7fu);
}

static std::vector<std::string> named(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back("consumer " + std::to_string(i));
    return names;
}

static std::vector<u32> owners(const std::vector<KeyRange>& ranges) {
    const KeySplit split(ranges);
    std::vector<u32> seats;
    for (u32 hash = 0; hash < kKeyHashes; ++hash) seats.push_back(split.seat_of(hash));
    return seats;
}

static void test_split() {
    CHECK(split_keys({}).empty());
    CHECK((split_keys({"one"}) == std::vector<KeyRange>{{0, 65535, 0}}));
    for (const int count : {2, 3, 10, 50}) {
        const auto names = named(count);
        const auto before = owners(split_keys(names));
        std::vector<u32> shares(static_cast<std::size_t>(count));
        for (const u32 seat : before) {
            CHECK(seat < names.size());
            ++shares[seat];
        }
        for (const u32 share : shares) {
            CHECK(share > kKeyHashes / static_cast<u32>(count) / 2);
            CHECK(share < 2 * kKeyHashes / static_cast<u32>(count));
        }
        // One that joins takes hashes from others; no other hash moves.
        auto more = names;
        more.push_back("one more");
        const auto after = owners(split_keys(more));
        for (u32 hash = 0; hash < kKeyHashes; ++hash)
            CHECK(after[hash] == before[hash] || after[hash] == names.size());
        // The order of joining decides nothing.
        std::vector<std::string> turned(names.rbegin(), names.rend());
        const auto again = owners(split_keys(turned));
        for (u32 hash = 0; hash < kKeyHashes; ++hash)
            CHECK(turned[again[hash]] == names[before[hash]]);
    }
    // Consumers of one name have a share each.
    std::set<u32> seats;
    for (const KeyRange& each : split_keys({"same", "same", "same"})) seats.insert(each.seat);
    CHECK(seats.size() == 3);
    // Gaps belong to no consumer.
    const KeySplit sticky({{10, 20, 0}, {30, 30, 1}, {65535, 65535, 2}});
    for (const auto& [hash, seat] : std::map<u32, u32>{
             {9, kNoNode}, {10, 0}, {20, 0}, {21, kNoNode}, {30, 1}, {65534, kNoNode}, {65535, 2}})
        CHECK(sticky.seat_of(hash) == seat);
    CHECK(!KeySplit::sound({{10, 20, 0}, {20, 21, 0}}, 1));
    CHECK(!KeySplit::sound({{10, 9, 0}}, 1) && !KeySplit::sound({{0, 65536, 0}}, 1));
    CHECK(!KeySplit::sound({{0, 1, 1}}, 1) && KeySplit::sound({{0, 1, 0}, {2, 2, 0}}, 1));
}

// -- a subscription, played ------------------------------------------------------------------------

static constexpr u32 kHashes = 9;

static u32 hash_at(u64 ordinal) {
    return static_cast<u32>(ordinal * 2654435761u >> 7) % kHashes * 7281;
}

// Delivery times of some entries.
struct Due {
    i64 now_ms = 0;
    u64 first = 0;
    bool some = false;
    i64 of(u64 ordinal) const {
        return some && ordinal % 5 == 2 ? static_cast<i64>(2 * ordinal + 200) : 0;
    }
    i64 at_ms(u32 i) const { return of(first + i); }
};

// The rules, in the simplest words: an account of every entry.
struct Account {
    explicit Account(bool unordered) : unordered(unordered) { table.set_keyed(unordered); }

    bool unordered;
    Dispatch table;
    std::vector<std::pair<u64, std::string>> consumers;
    std::map<u64, u64> held;  // ordinal -> consumer
    std::set<u64> acked;
    u64 read = 0;
    u64 end = 0;
    u64 given = 0;
    Due due;

    void split() {
        std::vector<std::string> names;
        std::vector<KeySeat> seats;
        for (const auto& [id, name] : consumers) {
            names.push_back(name);
            seats.emplace_back();
            seats.back().consumer = id;
        }
        table.assign(split_keys(names), std::move(seats));
        table.check();
    }

    void took(const std::vector<Handed>& out, u64 first) {
        for (const Handed& each : out) {
            for (const u32 index : each.indices) {
                const u64 ordinal = first + index;
                CHECK(!held.contains(ordinal) && !acked.contains(ordinal));
                CHECK(due.of(ordinal) <= due.now_ms);  // I271
                for (u64 other = 0; !unordered && other < end; ++other) {
                    if (hash_at(other) != hash_at(ordinal) || acked.contains(other)) continue;
                    const auto holder = held.find(other);
                    // I260: all of a hash is with one consumer. I261: those before it are there, too,
                    // or wait for their time.
                    if (holder != held.end()) CHECK(holder->second == each.consumer);
                    if (other < ordinal)
                        CHECK(holder != held.end() || table.schedule().contains(other));
                }
                held[ordinal] = each.consumer;
                ++given;
            }
        }
        table.check();
    }

    void read_on(u64 count) {
        if (table.to_replay()) {
            const auto runs = table.take_replay(count, 8);
            CHECK(!runs.empty());
            CHECK(runs.back().end <= table.position());  // I266
            const u64 first = runs.front().first;
            std::vector<Run> skip;
            for (const u64 each : acked)
                if (each >= first) skip.push_back({each, each + 1});
            took(table.hand(
                     first, static_cast<u32>(runs.back().end - first), [](u32) { return 1u; },
                     [&](u32 i) { return hash_at(first + i); }, skip, {}, &runs, 1, from(first)),
                 first);
            return;
        }
        const u64 first = table.next_free(read);
        const u64 last = std::min(end, first + std::min(count, table.ahead_left()));
        if (last <= first || table.wanted() == 0) return;
        read = last;
        table.set_position(read);
        std::vector<Run> skip;
        for (const u64 each : acked)
            if (each >= first) skip.push_back({each, each + 1});
        took(table.hand(
                 first, static_cast<u32>(last - first), [](u32) { return 1u; },
                 [&](u32 i) { return hash_at(first + i); }, skip, {}, nullptr, 1, from(first)),
             first);
    }
    Due from(u64 first) const { return {due.now_ms, first, due.some}; }

    void forget(u64 consumer) {
        std::erase_if(held, [&](const auto& each) { return each.second == consumer; });
    }

    std::vector<u64> of(u64 consumer) const {
        std::vector<u64> found;
        for (const auto& [ordinal, holder] : held)
            if (holder == consumer) found.push_back(ordinal);
        return found;
    }
};

// I262: nothing is stuck. With permits, everything is delivered and acknowledged.
static void finish(Account& play) {
    Dispatch& table = play.table;
    table.take_due(~u64{0});
    play.due.now_ms = std::numeric_limits<i64>::max();
    table.take_scheduled(play.due.now_ms);
    if (play.consumers.empty()) play.consumers.emplace_back(table.add(0), "last");
    play.split();
    for (const auto& [id, name] : play.consumers) table.grant(id, 1'000'000);
    for (int round = 0; round < 100'000 && play.acked.size() < play.end; ++round) {
        play.read_on(50);
        for (const auto& [ordinal, holder] : play.held) {
            table.release(ordinal, ordinal + 1);
            play.acked.insert(ordinal);
        }
        play.held.clear();
    }
    CHECK(play.acked.size() == play.end && play.given > 100);
    CHECK(table.keys()->known() == 0 && table.keys()->waiting() == 0);
    table.check();
}

static void test_at_random(bool unordered, bool delays, u32 seed) {
    std::mt19937 chance(seed);
    Account play(unordered);
    play.due.some = delays;
    Dispatch& table = play.table;
    table.set_position(0);
    table.set_ahead_max(40);
    u64 now = 1;
    u32 number = 0;
    for (int step = 0; step < 1500; ++step) {
        now += chance() % 5;
        play.due.now_ms = static_cast<i64>(now);
        const u64 id =
            play.consumers.empty() ? 0 : play.consumers[chance() % play.consumers.size()].first;
        switch (chance() % 12) {
            case 0:
                if (play.consumers.size() >= 4) break;
                play.consumers.emplace_back(table.add(0), "c" + std::to_string(number++ % 6));
                play.split();
                break;
            case 1:
                if (id == 0 || chance() % 3 != 0) break;
                table.remove(id);
                play.forget(id);
                std::erase_if(play.consumers, [&](const auto& each) { return each.first == id; });
                play.split();
                break;
            case 2:
            case 3:
                if (id != 0) table.flow(id, chance() % 6);
                break;
            case 4: {
                if (id == 0) break;
                for (const u64 each : play.of(id)) {
                    if (chance() % 2 == 0) continue;
                    table.release(each, each + 1);
                    play.held.erase(each);
                    play.acked.insert(each);
                }
                break;
            }
            case 5: {
                if (id == 0) break;
                const auto mine = play.of(id);
                if (mine.empty()) break;
                const u64 one = mine[chance() % mine.size()];
                table.nack(id, std::vector<u64>{one}, {chance() % 2 * 10, 1.0, 10}, now);
                play.held.erase(one);
                break;
            }
            case 6:
                table.take_due(now);
                table.take_scheduled(play.due.now_ms);
                break;
            case 7:
                if (id == 0 || chance() % 4 != 0) break;
                table.redeliver_all(id);
                play.forget(id);
                break;
            case 8:
                if (chance() % 20 != 0) break;
                table.rewind();
                play.held.clear();
                play.read = chance() % 2 == 0 ? 0 : play.read / 2;
                for (u64 each = play.read; each-- > 0;) play.acked.insert(each);
                table.release(0, play.read);
                table.set_position(play.read);
                break;
            case 9:
                play.end += chance() % 20;
                break;
            default:
                play.read_on(1 + chance() % 12);
        }
        table.check();
    }
    finish(play);
}

// A hash that moves drains first.
static void test_draining() {
    Account play(false);
    Dispatch& table = play.table;
    table.set_position(0);
    play.consumers.emplace_back(table.add(0), "one");
    play.split();
    table.flow(play.consumers[0].first, 100);
    play.end = 40;
    play.read_on(30);
    CHECK(play.held.size() == 30 && table.keys()->draining().empty());
    play.consumers.emplace_back(table.add(0), "two");
    play.split();
    table.flow(play.consumers[1].first, 100);
    const auto moved = table.keys()->draining();
    CHECK(!moved.empty());
    for (const Draining& each : moved) CHECK(each.entries > 0 && each.seat == 1);
    play.read_on(10);  // those of the moved hashes wait
    CHECK(table.keys()->waiting() > 0 && !table.to_replay());
    // It returns to its holder: nothing waits any more.
    table.remove(play.consumers[1].first);
    play.forget(play.consumers[1].first);
    play.consumers.pop_back();
    play.split();
    CHECK(table.keys()->draining().empty() && table.to_replay());
    while (table.to_replay()) play.read_on(10);
    CHECK(play.held.size() == 40);
    play.consumers.emplace_back(table.add(0), "two");
    play.split();
    const u64 count = table.keys()->draining().size();
    for (u64 each = 0; each < 40; ++each) table.release(each, each + 1);
    CHECK(table.keys()->draining().empty());
    CHECK(table.consumer(play.consumers[0].first).drained == count);
}

// Entries that consumers of another member hold keep their hash.
static void test_away() {
    Account play(false);
    Dispatch& table = play.table;
    table.set_position(0);
    play.consumers.emplace_back(table.add(0), "one");
    play.split();
    table.flow(play.consumers[0].first, 100);
    play.end = 20;
    const u32 hash = hash_at(0);
    const std::vector<u8> packed{static_cast<u8>(hash & 0xff), static_cast<u8>(hash >> 8)};
    const std::vector<Run> run{{0, 1}};
    table.set_away(run, packed);
    play.read = 1;
    table.set_position(1);
    play.read_on(19);
    for (const auto& [ordinal, holder] : play.held) CHECK(hash_at(ordinal) != hash);
    CHECK(!table.to_replay() && table.keys()->waiting() > 0);
    play.acked.insert(0);
    table.release(0, 1);  // acknowledged there
    CHECK(table.to_replay());
    table.check();
}

// A delayed entry does not hold up later ones of its hash. When it is due, the holder of the hash gets it.
static void test_delayed() {
    Account play(false);
    Dispatch& table = play.table;
    table.set_position(0);
    play.consumers.emplace_back(table.add(0), "one");
    play.split();
    const u64 one = play.consumers[0].first;
    table.flow(one, 200);
    play.due.some = true;
    play.end = 120;  // a fifth has times from 204 to 434
    play.read_on(120);
    CHECK(play.held.size() == 96 && table.schedule().size() == 24 && !table.to_replay());
    CHECK(table.keys()->waiting() == 0 && table.next_scheduled() == 204);
    play.consumers.emplace_back(table.add(0), "two");
    play.split();
    const u64 two = play.consumers[1].first;
    table.flow(two, 200);
    play.due.now_ms = 500;
    CHECK(table.take_scheduled(500) == 24 && table.to_replay());
    table.check();
    const auto split = owners(split_keys({"one", "two"}));
    while (table.to_replay()) play.read_on(120);
    u64 waiting = 0;
    for (u64 each = 2; each < 120; each += 5) {
        const bool moved = split[hash_at(each)] == 1;
        waiting += moved ? 1 : 0;
        CHECK(moved == !play.held.contains(each));  // "one" holds later ones of a hash that moved
    }
    CHECK(waiting > 0 && waiting < 24 && table.keys()->waiting() == waiting);
    for (const u64 each : play.of(one)) {
        table.release(each, each + 1);
        play.held.erase(each);
        play.acked.insert(each);
    }
    while (table.to_replay()) play.read_on(120);
    CHECK(play.of(two).size() == waiting && table.keys()->waiting() == 0);
    // A clock that was set back: an entry that is given back waits again, and holds up nothing.
    play.due.now_ms = 100;
    const u64 first = play.of(two).front();
    table.redeliver_all(two);
    play.forget(two);
    while (table.to_replay()) play.read_on(120);
    CHECK(play.of(two).empty() && table.schedule().contains(first));
    finish(play);
}

int main() {
    test_murmur3();
    test_split();
    for (u32 seed = 1; seed <= static_cast<u32>(test::rounds(6, 200)); ++seed) {
        test_at_random(false, seed % 2 == 0, seed);
        test_at_random(true, seed % 2 == 0, seed);
    }
    test_draining();
    test_away();
    test_delayed();
}
