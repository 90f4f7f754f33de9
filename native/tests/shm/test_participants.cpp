// Participants: a lock byte can be taken if and only if its holder is gone, for every kind of end.
// (P1 P2 P3 P4)
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "holdfast/shm/participants.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

constexpr u64 kTable = 4096;
constexpr unsigned kSlots = 4;
static const std::string directory = default_directory();

static void make(const std::string& name) {
    SegmentSpec spec;
    spec.directory = directory;
    spec.name = name;
    spec.size = 1 << 18;
    Segment::create(spec, {});
}

static std::shared_ptr<Segment> reach(const std::string& name) {
    return Segment::open(directory, kQueueKind, name, 0, 0);
}

// A participant that has attached completely.
struct Attached {
    explicit Attached(const std::string& name, unsigned slots = kSlots)
        : participant(reach(name), kTable, slots) {
        participant.join();
        participant.activate();
    }
    Participant* operator->() { return &participant; }
    Participant participant;
};

// A child that attaches, reports it, and then sleeps until it is killed.
static pid_t start_holder(const std::string& name, const Line& ready) {
    const pid_t child = start([&] {
        Attached me(name);
        ready.tell();
        for (;;) ::pause();
    });
    ready.wait();
    return child;
}

// A description ends with the last process that has it, which may be a moment after the reaped one.
static bool takes_soon(Participant& by, unsigned slot) {
    for (int i = 0; i < 2000; ++i) {
        if (by.take_byte(slot)) return true;
        ::usleep(1000);
    }
    return false;
}

static void test_slots() {
    make("slots");
    Attached a("slots"), b("slots");
    CHECK(a->slot() == 0 &&
          b->slot() == 1);  // twice in one process: two slots, each alive for the other
    CHECK(!a->take_byte(1) && !b->take_byte(0));
    CHECK(!a->take_byte(0) && !b->take_byte(1));  // never its own
    a->drop_byte(0);                              // which cannot be dropped either
    CHECK(!b->take_byte(0));
    CHECK(!a->take_byte(kSlots) && !a->take_byte(~0u));
    CHECK(a->take_byte(3));                      // never held by anybody
    CHECK(b->take_byte(3) && !a->take_byte(3));  // any number may recover, each of them once
    a->drop_byte(3);
    Attached c("slots");  // and meanwhile no process has the slot
    CHECK(c->slot() == 2);
    CHECK_ERROR(Code::too_many_participants, Attached("slots"), "all 4 participants", "pids",
                std::to_string(::getpid()).c_str());
    b->drop_byte(3);
    Attached d("slots");
    CHECK(d->slot() == 3);
    const ParticipantInfo info = a->describe(3);
    CHECK(info.active && info.locked && info.pid == static_cast<u32>(::getpid()));
    CHECK(info.since_ticks != 0 && info.since_ticks == a->describe(0).since_ticks);
    CHECK(info.joined_ms > 1'600'000'000'000u);
    d->leave();
    CHECK(!a->describe(3).active && !a->describe(3).locked && !d->joined());
    CHECK(a->describe(3).pid == static_cast<u32>(::getpid()));  // the last one
    d->leave();                                                 // again is harmless
    d->join();
    CHECK(d->slot() == 3);
    CHECK_ERROR(Code::misuse, d->join(), "attached already");
}

static void test_going_without_leaving_is_a_death() {
    make("gone");
    Attached a("gone");
    {
        Attached b("gone");
        CHECK(!a->take_byte(1));
    }
    CHECK(a->describe(1).active && !a->describe(1).locked);
    CHECK(a->marked_active(1));
    Participant next(reach("gone"), kTable, kSlots);
    next.join();  // takes the dead one's slot and finds its mark, for recovery to see
    CHECK(next.slot() == 1 && next.describe(1).active);
    next.leave();  // gives up before it has recovered anything: the mark must stay
    CHECK(a->describe(1).active);
    CHECK(a->take_byte(1));
    a->mark_inactive(1);
    a->drop_byte(1);
    CHECK(!a->describe(1).active && !a->marked_active(1));
}

static void test_counters_survive_reuse() {
    make("counts");
    {
        Attached a("counts");
        a->count(3, 5);
        a->count(3);
    }
    Attached b("counts"), c("counts");
    b->count(3, 10);
    c->count(3, 100);
    c->count(11, 7);
    CHECK(b->count_of(0, 3) == 16 && b->count_sum(3) == 116 && b->count_sum(11) == 7);
}

static void test_killed_and_stopped() {
    make("killed");
    Attached me("killed");
    const Line ready;
    const pid_t child = start_holder("killed", ready);
    CHECK(me->describe(1).pid == static_cast<u32>(child) && me->describe(1).locked);
    CHECK(!me->take_byte(1));
    CHECK(::kill(child, SIGSTOP) == 0 && stopped(child));
    CHECK(!me->take_byte(1));  // silent is not dead
    CHECK(::kill(child, SIGCONT) == 0);
    kill_and_reap(child);
    CHECK(me->take_byte(1));  // at once: the process is reaped, so its descriptors are closed
    CHECK(me->describe(1).active && !me->describe(1).locked);
}

// The kernel does not look at pids: a table with another's pid proves nothing either way.
static void test_pids_decide_nothing() {
    make("pids");
    Attached me("pids");
    const Line ready;
    const pid_t child = start_holder("pids", ready);
    auto* table = participant_table(*me->segment(), kTable, kSlots);
    table[1].who = kActiveBit | 0x7ffffffe;  // a pid that no process has, though its holder lives
    CHECK(!me->take_byte(1));
    kill_and_reap(child);
    table[1].who =
        kActiveBit | static_cast<u32>(::getpid());  // a living pid, though its holder is gone
    table[1].since = table[0].since;
    CHECK(me->take_byte(1));
}

static void test_exec_drops_it() {
    make("exec");
    Attached me("exec");
    const Line ready;
    const pid_t child = start([&] {
        Attached other("exec");
        ready.tell();
        ::execlp("sleep", "sleep", "1000", nullptr);
    });
    ready.wait();
    CHECK(takes_soon(me.participant, 1));  // the same process, alive, but no participant any more
    kill_and_reap(child);
}

// A forked child releases the lock, keeps its own private copy, and lives on; the parent's death is
// still seen.
static void test_fork() {
    make("fork");
    Attached me("fork");
    const Line ready, child_told, go;
    const pid_t parent = start([&] {
        Attached other("fork");
        std::byte* base = other->segment()->base();
        base[100'000] = std::byte{1};
        start([&] {
            CHECK(other->forked() && other->segment()->forked() && !other->joined());
            CHECK(base[100'000] == std::byte{1});
            base[100'000] = std::byte{2};  // a stray write
            other->count(0);
            CHECK(!other->take_byte(3));
            other->drop_byte(1);
            other->leave();
            CHECK_ERROR(Code::misuse, other->join(), "fork()", "open it again");
            CHECK_ERROR(Code::misuse, Participant(other->segment(), kTable, kSlots).join(),
                        "fork()");
            Attached anew("fork");  // to go on, it must attach again
            CHECK(anew->slot() == 2 && !anew->take_byte(1) && !anew->forked());
            CHECK(anew->segment()->base()[100'000] ==
                  std::byte{1});  // the stray write stayed private
            child_told.tell();
            for (;;) ::pause();
        });
        child_told.wait();
        CHECK(!other->forked() && other->joined());
        ready.tell();
        for (;;) ::pause();
    });
    ready.wait();
    CHECK(!me->take_byte(1) && !me->take_byte(2));
    CHECK(me->count_sum(0) == 0);
    const u32 grandchild = me->describe(2).pid;
    kill_and_reap(parent);
    CHECK(me->take_byte(1));   // though the child lives on
    CHECK(!me->take_byte(2));  // which it does
    CHECK(::kill(static_cast<pid_t>(grandchild), SIGKILL) == 0);
    CHECK(takes_soon(me.participant, 2));
}

// Fork while other threads attach and detach all the time: no child may inherit a lock.
static void test_fork_among_threads() {
    make("threads");
    Attached me("threads", 64);
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
            const std::shared_ptr<Segment> segment = reach("threads");
            while (!ended.load()) {
                Participant(segment, kTable, 64).join();
                ::usleep(20);  // lets fork() have its turn
            }
        });
    }
    std::vector<pid_t> children;
    for (int i = 0; i < 300; ++i) {
        children.push_back(start([] {
            for (;;) ::pause();
        }));
    }
    ended.store(true);
    for (std::thread& thread : threads) thread.join();
    // The last child may not have run yet: it releases what it inherited in its first moments.
    for (unsigned slot = 1; slot < 64; ++slot) CHECK(takes_soon(me.participant, slot));
    for (const pid_t child : children) kill_and_reap(child);
}

// A recoverer dies while it holds a dead participant's byte: the kernel releases both.
static void test_recoverer_dies() {
    make("recoverer");
    Attached me("recoverer");
    const Line ready, go;
    kill_and_reap(start_holder("recoverer", ready));  // slot 1
    Attached keeper("recoverer");                     // takes slot 1 over,
    CHECK(keeper->slot() == 1);
    const pid_t victim = start_holder("recoverer", ready);  // so that the next is in slot 2
    const pid_t recoverer = start([&] {
        Attached other("recoverer");
        CHECK(other->slot() == 3);
        ready.tell();
        go.wait();
        CHECK(other->take_byte(2));
        ready.tell();
        for (;;) ::pause();
    });
    ready.wait();
    kill_and_reap(victim);
    go.tell();
    ready.wait();
    CHECK(me->take_byte(2) && !me->take_byte(3));  // being recovered, and alive
    me->drop_byte(2);
    CHECK_ERROR(Code::too_many_participants, Attached("recoverer"), "being recovered");
    kill_and_reap(recoverer);
    CHECK(me->take_byte(3) && me->take_byte(2));
    me->drop_byte(2);
    CHECK(keeper->take_byte(2) && keeper->take_byte(3));
}

// Killed at each point of attach and detach: the slot can be taken, and its mark says what is left
// to do.
static void test_death_while_attaching() {
    const std::pair<Point, bool> cases[] = {{AttachPoint::attach_locked, false},
                                            {AttachPoint::attach_active, true},
                                            {AttachPoint::detach_begin, true},
                                            {AttachPoint::detach_inactive, false}};
    for (const auto& [point, marked] : cases) {
        const std::string name = "dying." + std::string(point.name());
        make(name);
        Attached me(name);
        const int status = finish(start([&, which = point] {
            arm(which);
            Attached other(name);
            other->leave();
        }));
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(me->take_byte(1));
        CHECK(me->marked_active(1) == marked);
        me->drop_byte(1);
        CHECK(Attached(name)->slot() == 1);
    }
}

// One description, many threads: the kernel would admit all of them; the bitmap admits one.
static void test_threads_take_turns() {
    make("turns");
    Attached me("turns");
    std::atomic<int> inside{0}, taken{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            for (int k = 0; k < 3000; ++k) {
                if (!me->take_byte(2)) continue;
                CHECK(inside.fetch_add(1) == 0);
                if (k % 16 == 0) std::this_thread::yield();
                taken.fetch_add(1);
                CHECK(inside.fetch_sub(1) == 1);
                me->drop_byte(2);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(taken.load() > 0);
    CHECK(!me->describe(2).locked && me->take_byte(2));
}

// The state of the last holder is repaired while the byte is shared: others could do it at the same
// time.
static void test_joining_recovers_first() {
    make("joining");
    Attached me("joining");
    {
        Attached dead("joining");
    }
    Participant next(reach("joining"), kTable, kSlots);
    unsigned asked = kSlots;
    next.join([&](unsigned slot) {
        asked = slot;
        CHECK(me->take_byte(slot) && me->marked_active(slot));
        me->drop_byte(slot);
        return true;
    });
    CHECK(asked == 1 && next.slot() == 1 && !me->marked_active(1) && !me->take_byte(1));
    // A participant that cannot have a slot alone goes on to the next.
    {
        Attached dead("joining");
        CHECK(dead->slot() == 2);
    }
    CHECK(me->take_byte(2));
    Participant other(reach("joining"), kTable, kSlots);
    other.join([](unsigned) { return true; });
    CHECK(other.slot() == 3 && !me->marked_active(2));
}

// Another process attaches, and dies, between the repair and the exclusive lock: a thread marks the
// slot as that process would. A thread cannot be timed to hit the gap, so it is tried until one
// does.
static void test_joining_recovers_again() {
    make("twice");
    Attached me("twice");
    auto* table = participant_table(*me->segment(), kTable, kSlots);
    const std::atomic_ref<u64> who(table[1].who);
    bool seen = false;
    for (int round = 0; round < 100000 && !seen; ++round) {
        {
            Attached dead("twice");
            CHECK(dead->slot() == 1);
        }
        const u64 marked = who.load();
        std::thread other([&] {
            while (me->marked_active(1)) {
            }
            who.store(marked);
        });
        Participant next(reach("twice"), kTable, kSlots);
        int asked = 0;
        next.join([&](unsigned) { return ++asked > 0; });
        other.join();
        seen = asked == 2;
        CHECK(next.slot() == 1 && asked <= 2);
    }
    CHECK(seen);
}

// P4. Code that does not know the descriptors closes all of them, and opens them again.
static void test_descriptors_closed_by_others() {
    for (const char* reuse : {"nothing", "a stranger", "the same file"}) {
        const std::string name = "closed." + std::to_string(reuse[0] + reuse[2]);
        make(name);
        Attached living(name);
        auto victim = std::make_unique<Attached>(name);
        CHECK((*victim)->slot() == 1 && (*victim)->proven());
        std::vector<int> numbers;
        for (int fd = 3; fd < 64; ++fd) {
            struct stat status{};
            const bool mine =
                ::fstat(fd, &status) == 0 && status.st_ino == living->segment()->inode();
            // The last two of the segment's: the victim's mapping and its lock.
            if (mine) numbers.push_back(fd);
        }
        CHECK(numbers.size() >= 4);
        numbers.erase(numbers.begin(), numbers.end() - 2);
        const std::string path = reuse[0] == 'a' ? "/proc/self/exe" : living->segment()->path();
        for (const int fd : numbers) ::close(fd);
        std::vector<OwnedFd> strangers;
        if (reuse[0] != 'n')
            for (std::size_t i = 0; i < numbers.size(); ++i)
                strangers.emplace_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        for (std::size_t i = 0; i < strangers.size(); ++i) CHECK(strangers[i].get() == numbers[i]);
        CHECK(!(*victim)->take_byte(0) && !(*victim)->take_byte(3));
        CHECK(!(*victim)->proven() && (*victim)->lost() && !(*victim)->joined());
        CHECK(living->take_byte(1));  // for the others it is dead
        living->drop_byte(1);
        victim.reset();
        for (const OwnedFd& each : strangers)
            // not closed by the participant that lost them
            CHECK(::fcntl(each.get(), F_GETFD) >= 0);
        CHECK(living->proven() && !living->lost());
    }
}

// Removed and created again under the same name: old and new participants do not see each other.
static void test_new_file_same_name() {
    make("again");
    Attached old("again");
    Segment::unlink(directory, kQueueKind, "again");
    make("again");
    Attached fresh("again");
    CHECK(old->slot() == 0 && fresh->slot() == 0);
    Participant second(old->segment(), kTable, kSlots);
    second.join();  // still possible, by the segment that it holds
    CHECK(second.slot() == 1 && !old->take_byte(1) && fresh->take_byte(1));
}

static void test_inspection_sees_locks() {
    make("looked");
    Attached me("looked");
    const Inspection looked = Segment::inspect(directory, kQueueKind, "looked");
    auto* table = participant_table(*looked.segment, kTable, kSlots);
    CHECK(describe_slot(*looked.segment, table[0], 0).locked);
    CHECK(!describe_slot(*looked.segment, table[1], 1).locked);
}

static void test_table_must_fit() {
    make("fit");
    const std::shared_ptr<Segment> segment = reach("fit");
    CHECK_ERROR(Code::corrupt, Participant(segment, kTable, 0), "does not fit");
    CHECK_ERROR(Code::corrupt, Participant(segment, kTable, kSlotsMax + 1), "does not fit");
    CHECK_ERROR(Code::corrupt, Participant(segment, kTable + 8, 1), "does not fit");
    CHECK_ERROR(Code::corrupt, Participant(segment, (1 << 18) - 64, 1), "does not fit");
    CHECK_ERROR(Code::corrupt, Participant(segment, ~u64{63}, 1), "does not fit");
    Participant last(segment, (1 << 18) - 128, 1);
    last.join();
}

int main() {
    test_slots();
    test_going_without_leaving_is_a_death();
    test_counters_survive_reuse();
    test_killed_and_stopped();
    test_pids_decide_nothing();
    test_exec_drops_it();
    test_fork();
    test_fork_among_threads();
    test_recoverer_dies();
    test_death_while_attaching();
    test_threads_take_turns();
    test_joining_recovers_first();
    test_joining_recovers_again();
    test_descriptors_closed_by_others();
    test_new_file_same_name();
    test_inspection_sees_locks();
    test_table_must_fit();
}
