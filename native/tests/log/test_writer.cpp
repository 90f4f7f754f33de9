// The writer: reported bytes are in the files; failed bytes stay in memory and are written after
// resume().
#include <fcntl.h>

#include <chrono>

#include "tests/log/writer_world.hpp"

using namespace holdfast;
using namespace holdfast::test;

static u32 mask(std::string_view name) {
    const auto found = io_mask(name);
    CHECK(found.has_value());
    return *found;
}

static void test_round_trip() {
    World world;
    world.writer->set_stable(5, 6);
    u64 d = 0;
    for (int i = 0; i < 60; ++i)
        d = world.publish(1 + static_cast<u64>(i) % 3,
                          std::string(static_cast<std::size_t>(i) * 90, 'a'), i % 4 == 0);
    const WriterReport report = world.wait_durable(d);
    CHECK(report.durable_d == 60 && report.journal_d == 60 && report.journals == 1 &&
          report.journal_first_d == 1);
    world.check_ledgers();
    const std::string journal = world.journal("journal1");
    const auto rounds = rounds_of(journal);
    CHECK(rounds.size() == report.rounds && journal.size() == report.journal_offset);
    CHECK(rounds.back().fields.last_d == 60);
    CHECK(rounds.back().fields.stable_view == 5 && rounds.back().fields.stable_index == 6);
    std::size_t frames = 0;
    for (const RoundSeen& each : rounds) {
        frames += each.frames.size();
        CHECK(each.fields.synced_d == each.fields.first_d - 1);
    }
    CHECK(frames == 60 && world.log.pending_bytes() == 0);
    // Something large, and something in another journal.
    world.use_journal("journal2");
    d = world.publish(2, std::string(3'000'000, 'z'));
    const WriterReport later = world.wait_durable(d);
    CHECK(later.journals == 2 && later.journal_first_d == 61);
    CHECK(world.journal("journal1") == journal);
    CHECK(rounds_of(world.journal("journal2"), 61).size() == 1);
    world.check_ledgers();
}

// Not urgent: after its 10 ms. Urgent, or in a mode where each is synced: sooner.
static void test_patience() {
    World world;
    using Clock = std::chrono::steady_clock;
    const auto best_of = [](World& at, bool urgent, int tries) {
        auto best = Clock::duration::max();
        for (int i = 0; i < tries; ++i) {
            const auto begin = Clock::now();
            at.wait_durable(at.publish(1, "x", urgent));
            best = std::min(best, Clock::now() - begin);
        }
        return best;
    };
    const auto patient = best_of(world, false, 3);
    CHECK(patient >= RoundQueue::kPatience);
    CHECK(best_of(world, true, 20) < patient);
    World always(SyncMode::always);
    CHECK(best_of(always, false, 20) < patient);
    // A portion that becomes urgent while it waits takes the rest with it.
    world.publish(1, "a", false);
    world.wait_durable(world.publish(2, "b", true));
    world.check_ledgers();
}

// Nothing is durable without a sync; a failed sync moves the round to another file.
static void test_failed_sync() {
    World world;
    const u64 before = world.publish(1, "before");
    world.wait_durable(before);
    const std::string old = world.journal("journal1");
    arm_fault(mask("journal_sync"), 1, EIO, 1);
    const u64 d = world.publish(2, "failed");
    const WriterReport report = world.wait_failure();
    CHECK(report.failure.op == IoOp::journal_sync && report.failure.error == EIO &&
          faults_fired() == 1);
    CHECK(report.durable_d == before && report.journal_d == before);
    CHECK(report.journal_offset == old.size());
    CHECK_ERROR(Code::misuse, world.writer->resume(), "never repeated on the same file");
    const u64 later = world.publish(3, "later");  // waits
    CHECK(world.writer->poll().durable_d == before);
    world.use_journal("journal2");
    world.writer->resume();
    const WriterReport after = world.wait_durable(later);
    CHECK(after.journals == 2 && after.journal_first_d == d);
    const auto rounds = rounds_of(world.journal("journal2"), d);
    CHECK(rounds.size() == 2 && rounds[0].fields.first_d == d && rounds[1].fields.last_d == later);
    CHECK(world.journal("journal1").substr(0, old.size()) == old);
    world.check_ledgers();
    CHECK_ERROR(Code::misuse, world.writer->resume(), "has not failed");
}

static void test_failed_journal_write() {
    World world;
    world.wait_durable(world.publish(1, "before"));
    arm_fault(mask("journal_write"), 1, ENOSPC, 2);
    const u64 d = world.publish(1, "failed");
    CHECK(world.wait_failure().failure.error == ENOSPC);
    world.writer->resume();
    CHECK(world.wait_failure().failure.op == IoOp::journal_write);  // still full
    CHECK(world.writer->poll().durable_d == d - 1);
    world.writer->resume();
    world.wait_durable(d);
    CHECK(rounds_of(world.journal("journal1")).back().fields.last_d == d);
    world.check_ledgers();
}

// A ledger without room does not hold up the journal, and nothing behind it is durable.
static void test_failed_ledger(const char* op, IoOp expected, u64 countdown) {
    World world;
    if (countdown > 1) world.wait_durable(world.publish(1, "before"));
    const u64 before = world.log.next_d() - 1;
    arm_fault(mask(op), 1, ENOSPC, 1);
    std::vector<std::string> events;
    for (u64 topic = 1; topic <= 3; ++topic) {
        world.sent[topic].push_back("failed");
        events.push_back(publish(topic, topic, 0, "p", {{0, 1, "failed"}}));
    }
    const u64 d = world.apply(frame(events));
    const WriterReport report = world.wait_failure();
    CHECK(report.failure.op == expected && report.failure.error == ENOSPC);
    CHECK(report.failure.what.find("/ledgers/") != std::string::npos);
    CHECK(report.durable_d == before && report.journal_d == d);
    CHECK(rounds_of(world.journal("journal1")).back().fields.last_d == d);
    const u64 later = world.publish(2, "later");
    world.writer->resume();
    const WriterReport after = world.wait_durable(later);
    CHECK(rounds_of(world.journal("journal1")).size() == after.rounds);
    world.check_ledgers();
}

// Both fail: the sync is reported first, the ledger after it.
static void test_failed_both() {
    World world;
    arm_fault(mask("journal_sync") | mask("ledger_write"), 1, EIO, 2);
    const u64 d = world.publish(1, "x");
    CHECK(world.wait_failure().failure.op == IoOp::journal_sync);
    world.use_journal("journal2");
    arm_fault(mask("ledger_write"), 1, EIO, 1);
    world.writer->resume();
    const WriterReport report = world.wait_failure();
    CHECK(report.failure.op == IoOp::ledger_write && report.durable_d == 0 &&
          report.journal_d == d);
    world.writer->resume();
    world.wait_durable(d);
    world.check_ledgers();
}

// The journal's file is removed: not a byte of the next round goes there.
static void test_removed_journal() {
    World world;
    world.wait_durable(world.publish(1, "before"));
    CHECK(::unlink((world.directory.path() + "/journal1").c_str()) == 0);
    const u64 d = world.publish(1, "after");
    const WriterReport report = world.wait_either(d);
    CHECK(report.failure.op == IoOp::journal_write && report.failure.error == ENOENT);
    CHECK(report.durable_d == d - 1);
    world.use_journal("journal2");
    world.writer->resume();
    world.wait_durable(d);
    CHECK(rounds_of(world.journal("journal2"), d).size() == 1);
    world.check_ledgers();
}

// The same for a ledger's file: its bytes can be read while the writer has it open.
static void test_removed_ledger() {
    World world;
    world.wait_durable(world.publish(1, "before"));
    const u64 ledger = world.log.topics().get(1).ledger;
    char name[64];
    std::snprintf(name, sizeof name, "/ledgers/%016llx.data",
                  static_cast<unsigned long long>(ledger));
    const std::string path = world.directory.path() + name, old = read_file(path);
    CHECK(::unlink(path.c_str()) == 0);
    const u64 d = world.publish(1, "after");
    const WriterReport report = world.wait_either(d);
    CHECK(report.failure.op == IoOp::ledger_write && report.failure.error == ENOENT &&
          report.failure.what == path);
    CHECK(world.writer->ledgers().open_data(ledger + 1000) == -1);
    const OwnedFd data(world.writer->ledgers().open_data(ledger));
    std::string found(old.size() + 1, '?');
    CHECK(::pread(data.get(), found.data(), found.size(), 0) == static_cast<ssize_t>(old.size()));
    CHECK(found.substr(0, old.size()) == old);
}

// Other code closes descriptors that it does not know, and opens them for another file.
static void test_numbers_of_others(const std::string& name, IoOp op) {
    World world;
    world.wait_durable(world.publish(1, "before"));
    struct stat ours{}, each{};
    CHECK(::stat((world.directory.path() + name).c_str(), &ours) == 0);
    const OwnedFd stranger(world.directory.make("stranger"));
    std::vector<int> numbers;
    for (int fd = 3; fd < 256; ++fd) {
        if (::fstat(fd, &each) != 0 || each.st_ino != ours.st_ino || each.st_dev != ours.st_dev)
            continue;
        CHECK(::dup2(stranger.get(), fd) == fd);
        numbers.push_back(fd);
    }
    CHECK(!numbers.empty());
    const u64 d = world.publish(1, "after");
    const WriterReport report = world.wait_either(d);
    CHECK(report.failure.op == op && report.failure.error == EBADF);
    if (op == IoOp::journal_write) world.use_journal("journal2");
    world.writer->resume();
    world.wait_durable(d);
    CHECK(read_file(world.directory.path() + "/stranger").empty());
    for (const int fd : numbers) CHECK(::close(fd) == 0);  // it was not closed by the writer
    world.check_ledgers();
}

static void test_short_writes() {
    for (const int size : {-1, -7, -4096}) {
        World world;
        arm_fault(mask("write"), 1, size, 0);
        for (int i = 0; i < 5; ++i)
            world.publish(1 + static_cast<u64>(i) % 3,
                          std::string(301, static_cast<char>('a' + i)));
        world.wait_durable(5);
        disarm_fault();
        CHECK(faults_fired() > 5);
        CHECK(rounds_of(world.journal("journal1")).back().fields.last_d == 5);
        world.check_ledgers();
    }
}

// Bytes that a crash left under the name of a new ledger are removed first.
static void test_left_over() {
    World world;
    const int fd = world.directory.make("ledgers/0000000000000001.data");
    CHECK(::pwrite(fd, "old bytes", 9, 5000) == 9);
    ::close(fd);
    arm_fault(mask("truncate"), 1, EIO, 1);
    const u64 d = world.publish(1, "new");
    CHECK(world.wait_failure().failure.op == IoOp::ledger_truncate);
    world.writer->resume();
    world.wait_durable(d);
    world.check_ledgers();
    CHECK(world.directory.ledger(1, ".data").size() == 64 + 40);
}

// A ledger that is absent although it has entries: reported, not created.
static void test_missing_ledger() {
    World world;
    world.log.topics().add(9, 3, false);
    world.log.open_ledger(9, 77, 0, 3, 200);
    world.log.topics().open_session(9, 9, "p", 0);
    world.apply(frame({publish(9, 9, 0, "p", {{0, 1, "x"}})}));
    const WriterReport report = world.wait_failure();
    CHECK(report.failure.op == IoOp::ledger_open && report.failure.error == ENOENT);
}

// The mode os: durable after the write. The sync comes within a second, and its failure is
// reported.
static void test_mode_os() {
    World world(SyncMode::os);
    arm_fault(mask("journal_sync"), 1, EIO, 1);
    const auto begin = std::chrono::steady_clock::now();
    world.wait_durable(world.publish(1, "x"));
    world.wait_durable(world.publish(1, "y"));
    CHECK(rounds_of(world.journal("journal1")).back().fields.synced_d == 0);  // proves nothing yet
    world.check_ledgers();
    CHECK(world.wait_failure().failure.op == IoOp::journal_sync);
    CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::seconds(1));
    CHECK_ERROR(Code::misuse, world.writer->resume(), "never repeated");
    world.use_journal("journal2");
    world.writer->resume();
    world.wait_durable(world.publish(1, "y"));
    // A journal that was left is synced as well, and the last one when the writer stops.
    world.use_journal("journal3");
    world.wait_durable(world.publish(1, "z"));
    arm_fault(mask("journal_sync"), 3, EIO, 1);
    world.writer->stop(true);
    CHECK(!world.writer->poll().failure);
    arm_fault(mask("journal_sync"), 2, EIO, 1);
    world.writer->start();
    world.use_journal("journal4");
    world.wait_durable(world.publish(1, "u"));
    world.use_journal("journal5");
    world.wait_durable(world.publish(1, "v"));
    world.writer->stop(true);
    CHECK(world.writer->poll().failure.op == IoOp::journal_sync);
    world.check_ledgers();
    const u64 synced = rounds_of(world.journal("journal5"), 6).back().fields.synced_d;
    CHECK(synced == 4);  // the stop before
}

// stop(true) writes all portions; stop(false) leaves them to the next writer.
static void test_stop() {
    World world;
    world.publish(1, "flushed", false);
    world.writer->stop(true);
    CHECK(world.writer->poll().durable_d == 1);
    world.writer->stop(true);  // again does nothing
    world.publish(1, "waits");
    CHECK(world.writer->poll().durable_d == 1 && world.log.pending_bytes() > 0);
    world.start_writer(SyncMode::group);
    CHECK(world.writer->poll().durable_d == 1 && world.writer->poll().journal_d == 2);
    CHECK(world.wait_failure().failure.error == EBADF);  // it has no journal yet
    world.use_journal("journal2");
    world.writer->resume();
    world.wait_durable(2);
    CHECK_ERROR(Code::misuse, world.writer->start(), "runs already");
    CHECK(rounds_of(world.journal("journal2"), 2).size() == 1);
    world.check_ledgers();
    // After an error there is nothing to wait for.
    arm_fault(mask("journal_sync"), 1, EIO, 1);
    world.publish(1, "lost");
    CHECK(world.wait_failure().failure.op == IoOp::journal_sync);
    world.writer->stop(true);
    CHECK(world.writer->poll().durable_d == 2);
}

// A redo writes ledgers and no journal.
static void test_redo() {
    World world;
    world.writer->stop(true);
    world.sent[1] = {"again"};
    CHECK(world.apply(frame({publish(1, 8, 8, "q", {{0, 1, "again"}}), event(20, 1, "")}), true,
                      true) == 2);
    world.start_writer(SyncMode::group);
    const WriterReport report = world.wait_durable(2);
    CHECK(report.rounds <= 1 && report.journals == 0);
    world.check_ledgers();
    CHECK(world.journal("journal1").empty());
}

// Frames of all sizes, as fast as they come, while the store asks which ledgers to sync and changes
// journals.
static void test_busy() {
    World world;
    u64 seed = 99, d = 0;
    const auto random = [&seed](u64 below) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return (seed >> 33) % below;
    };
    for (int i = 0; i < 1500; ++i) {
        const u64 size = random(60) == 0 ? random(700'000) : random(4000);
        d = world.publish(1 + random(3), std::string(size, static_cast<char>('a' + i % 26)),
                          random(3) == 0);
        if (random(20) == 0) {
            for (const UnsyncedLedger& each : world.writer->ledgers().unsynced(2)) {
                ::close(each.data);
                ::close(each.index);
                world.writer->ledgers().synced(each.ledger, each.size);
            }
        }
        if (i % 500 == 250) world.use_journal("busy" + std::to_string(i));
        if (random(100) == 0) world.wait_durable(d);
        CHECK(!world.writer->poll().failure);
    }
    world.wait_durable(d);
    world.check_ledgers();
    u64 next = 1;
    for (const char* name : {"journal1", "busy250", "busy750", "busy1250"}) {
        const auto rounds = rounds_of(world.journal(name), next);
        if (!rounds.empty()) next = rounds.back().fields.last_d + 1;
    }
    CHECK(next == d + 1);
}

// When a caller learns that something is durable, it is not pending any more: no later notice
// comes.
static void test_pending() {
    World world;
    for (int i = 0; i < 300; ++i) {
        const u64 d = world.publish(1, std::string(30'000, 'x'));
        while (world.writer->poll().durable_d < d) {
        }
        CHECK(world.log.pending_bytes() == 0);
    }
}

// Of several unused journals, the last one counts.
static void test_journals_are_numbered() {
    World world;
    world.use_journal("journal2");
    world.use_journal("journal3");
    CHECK(world.writer->poll().journals == 0);
    world.wait_durable(world.publish(1, "x"));
    CHECK(world.writer->poll().journals == 3);
    CHECK(world.journal("journal1").empty() && world.journal("journal2").empty());
    CHECK(rounds_of(world.journal("journal3")).size() == 1);
}

static void test_misuse() {
    World world;
    CHECK_ERROR(Code::misuse, world.writer->use_journal(0, 100), "multiple of 4096");
    CHECK_ERROR(Code::misuse, world.writer->use_journal(0, 0), "multiple of 4096");
    CHECK_ERROR(Code::io, world.writer->use_journal(-1, 4096), "cannot use the journal");
}

int main() {
    test_round_trip();
    test_patience();
    test_failed_sync();
    test_failed_journal_write();
    for (const u64 countdown : {1, 2}) {
        test_failed_ledger("ledger_write", IoOp::ledger_write, countdown);
        test_failed_ledger("index_write", IoOp::index_write, countdown);
        test_failed_ledger("open", IoOp::ledger_open, countdown);
    }
    test_failed_both();
    test_removed_journal();
    test_removed_ledger();
    test_numbers_of_others("/journal1", IoOp::journal_write);
    test_numbers_of_others("/ledgers/0000000000000001.data", IoOp::ledger_write);
    test_numbers_of_others("/ledgers/0000000000000001.index", IoOp::index_write);
    test_short_writes();
    test_left_over();
    test_missing_ledger();
    test_mode_os();
    test_stop();
    test_redo();
    test_busy();
    test_pending();
    test_journals_are_numbered();
    test_misuse();
}
