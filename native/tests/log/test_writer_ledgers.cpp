// The writer's ledger files: which are to be synced, which are closed, the files of a new
// generation; and fork().
#include <sys/resource.h>

#include "tests/log/writer_world.hpp"

using namespace holdfast;
using namespace holdfast::test;

static std::vector<u64> unsynced(World& world, std::size_t limit = 100) {
    std::vector<u64> out;
    for (const UnsyncedLedger& each : world.writer->ledgers().unsynced(limit)) {
        CHECK(::fdatasync(each.data) == 0 && ::fdatasync(each.index) == 0);
        CHECK((::fcntl(each.data, F_GETFD) & FD_CLOEXEC) != 0);
        ::close(each.data);
        ::close(each.index);
        out.push_back(each.ledger);
    }
    return out;
}

static void test_unsynced() {
    World world;
    LedgerFileTable& ledgers = world.writer->ledgers();
    CHECK(unsynced(world).empty());
    world.wait_durable(world.publish(1, "a"));  // ledger 1
    world.wait_durable(world.publish(2, "b"));  // ledger 2
    CHECK((unsynced(world) == std::vector<u64>{1, 2}));
    world.wait_durable(world.publish(1, "c"));
    CHECK((unsynced(world, 1) == std::vector<u64>{1}));  // the one that waits longest
    ledgers.synced(1, 64 + 40);                          // not all of it
    CHECK((unsynced(world) == std::vector<u64>{2, 1}));
    ledgers.synced(2, ~u64{0});
    CHECK((unsynced(world) == std::vector<u64>{1}));
    ledgers.synced(1, 64 + 80);
    ledgers.synced(1, 64);  // late reports undo nothing
    ledgers.synced(99, 1);
    CHECK(unsynced(world).empty());
    world.wait_durable(world.publish(2, "d"));
    CHECK((unsynced(world) == std::vector<u64>{2}));
    CHECK(ledgers.open_count() == 2);
    ledgers.forget(2);
    ledgers.forget(99);
    CHECK(unsynced(world).empty() && ledgers.open_count() == 1);
    world.wait_durable(world.publish(2, "e"));  // opened again
    world.check_ledgers();
}

// Few descriptors: files are closed, unsynced ones only after a sync, whose failure is reported.
static void test_too_many() {
    rlimit before{};
    CHECK(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const rlimit few{64, before.rlim_max};
    CHECK(::setrlimit(RLIMIT_NOFILE, &few) == 0);  // 16 ledgers at most
    {
        World world(SyncMode::group, 30);
        LedgerFileTable& ledgers = world.writer->ledgers();
        for (u64 topic = 1; topic <= 16; ++topic) world.wait_durable(world.publish(topic, "first"));
        ledgers.synced(3, ~u64{0});
        const u32 sync = *io_mask("ledger_sync");
        arm_fault(sync, 1, EIO, 1);
        world.wait_durable(world.publish(17, "takes the place of 3"));
        CHECK(faults_fired() == 0 && ledgers.open_count() == 16);
        const u64 d = world.publish(18, "has no place");
        const WriterReport report = world.wait_failure();
        CHECK(report.failure.op == IoOp::ledger_sync && report.durable_d == d - 1 &&
              report.journal_d == d);
        CHECK(report.failure.what.find("0000000000000001.data") != std::string::npos);
        world.writer->resume();
        CHECK(world.wait_failure().failure.op ==
              IoOp::ledger_sync);  // not repeated on the same file
        CHECK(faults_fired() == 1);
        ledgers.use_generation(1, 0);  // its file was repaired
        world.writer->resume();
        world.wait_durable(d);
        for (u64 topic = 1; topic <= 30; ++topic)
            world.wait_durable(world.publish(topic, "second"));
        CHECK(ledgers.open_count() > 8 && ledgers.open_count() <= 16);
        world.check_ledgers();
    }
    CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

// A ledger is not a file: from one round to the next it is written elsewhere.
static void test_generation() {
    World world;
    CHECK(world.writer->ledgers().use_generation(5, 1) == 0);
    world.wait_durable(world.publish(1, "old"));
    for (const char* name : {"ledgers/0000000000000001.1.data", "ledgers/0000000000000001.1.index"})
        ::close(world.directory.make(name));
    CHECK(world.writer->ledgers().use_generation(1, 1) == 64 + 40);
    world.wait_durable(world.publish(1, "new"));
    CHECK(world.directory.entries(1) == std::vector<std::string>{"old"});
    const std::string data = world.directory.ledger(1, ".1.data"),
                      index = world.directory.ledger(1, ".1.index");
    CHECK(data.substr(0, 104) == std::string(104, '\0') &&
          index.substr(0, 72) == std::string(72, '\0'));
    CHECK((entries_of(data.substr(104), index.substr(72), 104, 1) ==
           std::vector<std::string>{"new"}));
}

// A child does not have the thread: every call is refused, nothing hangs, and the parent goes on.
static void test_fork() {
    World world;
    world.wait_durable(world.publish(1, "before"));
    for (int i = 0; i < 20; ++i) {
        world.publish(1, "meanwhile");
        in_child([&world] {
            CHECK_ERROR(Code::misuse, world.writer->poll(), "before fork()");
            CHECK_ERROR(Code::misuse, world.writer->start(), "before fork()");
            CHECK_ERROR(Code::misuse, world.writer->stop(true), "before fork()");
            CHECK_ERROR(Code::misuse, world.writer->resume(), "before fork()");
            const std::string text = frame({});
            CHECK_ERROR(Code::misuse, world.log.begin(bytes_of(text), 1, 1, false),
                        "before fork()");
            world.writer.reset();
        });
    }
    world.wait_durable(world.publish(1, "after"));
    world.check_ledgers();
}

int main() {
    test_unsynced();
    test_too_many();
    test_generation();
    test_fork();
}
