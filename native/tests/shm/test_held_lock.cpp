// The lock and its description in one value: it moves, it ends with its process, and a forked child does not keep it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "holdfast/shm/held_lock.hpp"
#include "holdfast/shm/segment.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

static const std::string path = default_directory() + "/held_lock";

static OwnedFd open_it() {
    return OwnedFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
}

static HeldLock take(LockKind kind, off_t first = 0, off_t count = 1) {
    int error = 0;
    HeldLock held = HeldLock::take(open_it, kind, first, count, error);
    CHECK(held ? error == 0 : error == EAGAIN);
    return held;
}

static bool is_free(off_t first = 0, off_t count = 1) {
    return static_cast<bool>(take(LockKind::exclusive, first, count));
}

static void test_kinds() {
    HeldLock alone = take(LockKind::exclusive);
    CHECK(alone && !take(LockKind::exclusive) && !take(LockKind::shared));
    CHECK(is_free(1));  // another byte
    alone.release();
    CHECK(!alone && alone.fd() == -1);
    HeldLock one = take(LockKind::shared), two = take(LockKind::shared);
    CHECK(one && two && !is_free());
    one.release();
    CHECK(!is_free());
    two.release();
    CHECK(is_free());
    // A range conflicts with each of its bytes.
    HeldLock byte = take(LockKind::exclusive, 7);
    CHECK(!is_free(0, 10) && is_free(0, 7) && is_free(8, 10));
}

static void test_an_open_that_fails() {
    int error = 0;
    const HeldLock held =
        HeldLock::take([] { return OwnedFd(::open("/nowhere/at/all", O_RDWR | O_CLOEXEC)); },
                       LockKind::exclusive, 0, 1, error);
    CHECK(!held && error == ENOENT);
    // A description that cannot be written to takes no exclusive lock.
    const HeldLock refused =
        HeldLock::take([] { return OwnedFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); },
                       LockKind::exclusive, 0, 1, error);
    CHECK(!refused && error == EBADF);
}

static void test_moves() {
    HeldLock first = take(LockKind::exclusive);
    const int fd = first.fd();
    HeldLock second(std::move(first));
    CHECK(second && second.fd() == fd && !is_free());
    HeldLock third;
    CHECK(!third);
    third = std::move(second);
    CHECK(third && third.fd() == fd && !is_free());
    // Assignment releases what the target had.
    HeldLock other = take(LockKind::exclusive, 5);
    CHECK(!is_free(5));
    other = std::move(third);
    CHECK(is_free(5) && !is_free());
    {
        const HeldLock last(std::move(other));
    }
    CHECK(is_free());
}

static void test_the_holder_dies() {
    const Line ready;
    const pid_t child = start([&] {
        const HeldLock held = take(LockKind::exclusive);
        CHECK(held.fd() >= 0);
        ready.tell();
        for (;;) ::pause();
    });
    ready.wait();
    CHECK(!is_free());
    kill_and_reap(child);
    CHECK(is_free());
}

// The description is closed in the child before fork() returns there.
static void test_a_forked_child_does_not_keep_it() {
    HeldLock held = take(LockKind::exclusive);
    const Line ready, end;
    pid_t child = start([&] {
        CHECK(!held && held.fd() == -1 && !is_free());
        held.release();  // the parent's lock stays
        CHECK(!is_free());
        ready.tell();
        end.wait();
    });
    ready.wait();
    CHECK(held && !is_free());
    held.release();
    CHECK(is_free());  // the child is alive
    end.tell();
    CHECK(finish(child) == 0);
    // The same if the holder dies.
    const Line born;
    child = start([&] {
        const HeldLock mine = take(LockKind::exclusive);
        CHECK(mine.fd() >= 0);
        const pid_t grandchild = ::fork();
        CHECK(grandchild >= 0);
        if (grandchild == 0) {
            ::alarm(60);
            born.tell();
            end.wait();
            ready.tell();
            ::_exit(0);
        }
        for (;;) ::pause();
    });
    born.wait();
    CHECK(!is_free());
    kill_and_reap(child);
    CHECK(is_free());
    end.tell();
    ready.wait();
}

static void test_a_file_that_is_removed_or_created_anew() {
    HeldLock held = take(LockKind::exclusive);
    CHECK(held.is_named(path.c_str()) && !held.is_named("/nowhere/at/all"));
    CHECK(::unlink(path.c_str()) == 0);
    CHECK(!held.is_named(path.c_str()));
    const HeldLock anew =
        take(LockKind::exclusive);  // another file: the old lock is not in the way
    CHECK(anew && anew.is_named(path.c_str()) && !held.is_named(path.c_str()));
    CHECK(!HeldLock().is_named(path.c_str()));
    in_child([&] { CHECK(!anew.is_named(path.c_str())); });
}

static void test_descriptors_stay_above_the_standard_ones() {
    in_child([] {
        for (const int fd : {0, 1, 2}) ::close(fd);
        const HeldLock one = take(LockKind::shared), two = take(LockKind::shared),
                       three = take(LockKind::shared);
        if (one.fd() < 3 || two.fd() < 3 || three.fd() < 3 || is_free()) ::_exit(9);
        for (const int fd : {0, 1, 2})
            if (::fcntl(fd, F_GETFD) != -1) ::_exit(8);
    });
}

int main() {
    test_kinds();
    test_an_open_that_fails();
    test_moves();
    test_the_holder_dies();
    test_a_forked_child_does_not_keep_it();
    test_a_file_that_is_removed_or_created_anew();
    test_descriptors_stay_above_the_standard_ones();
}
