// A full file system: an error with figures and advice, never a SIGBUS. On a tmpfs of 1 MiB of our own.
#include <sched.h>
#include <sys/mount.h>

#include <cstring>
#include <fstream>

#include "holdfast/shm/segment.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

static SegmentSpec spec_of(const std::string& directory, const std::string& name, u64 size) {
    SegmentSpec spec;
    spec.directory = directory;
    spec.name = name;
    spec.size = size;
    return spec;
}

static void mount_tmpfs(const std::string& at, const char* options) {
    CHECK(::mkdir(at.c_str(), 0700) == 0);
    CHECK(::mount("tmpfs", at.c_str(), "tmpfs", 0, options) == 0);
}

// As root directly; as another user by way of a user namespace, where that is permitted.
static void enter_mount_namespace() {
    if (::unshare(CLONE_NEWNS) == 0) return;
    const std::string user = "0 " + std::to_string(::geteuid()) + " 1";
    const std::string group = "0 " + std::to_string(::getegid()) + " 1";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        skip("no private mount namespace is permitted here: " + errno_text(errno));
    }
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << user;
    std::ofstream("/proc/self/gid_map") << group;
}

int main() {
    enter_mount_namespace();
    CHECK(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
    const std::string small = default_directory() + "/small";
    mount_tmpfs(small, "size=1m");

    CHECK_ERROR(Code::no_space, Segment::create(spec_of(small, "big", 8 << 20), {}), "8388608",
                "1048576 bytes free", "ask for less");
    std::shared_ptr<Segment> fits = Segment::create(spec_of(small, "fits", 768 << 10), {});
    CHECK_ERROR(Code::no_space, Segment::create(spec_of(small, "second", 512 << 10), {}),
                "262144 bytes free");
    CHECK_ERROR(Code::exists, Segment::create(spec_of(small, "fits", 8 << 20), {}), "fits");
    CHECK(Segment::list(small).size() == 1);                     // nothing of the failures is left
    std::memset(fits->base() + 4096, 0xff, (768 << 10) - 4096);  // every page is there

    // Holes in a file of a full file system: refused at open, before any access.
    const std::string path = fits->path();
    CHECK(::truncate(path.c_str(), 4096) == 0 && ::truncate(path.c_str(), 768 << 10) == 0);
    std::shared_ptr<Segment> filler = Segment::create(spec_of(small, "filler", 900 << 10), {});
    CHECK_ERROR(Code::no_space, Segment::open(small, kQueueKind, "fits", 0, 0), "bytes free");

    // A file system that has no limit, and says so with zeros.
    const std::string boundless = default_directory() + "/boundless";
    mount_tmpfs(boundless, "size=0");
    CHECK(Segment::create(spec_of(boundless, "any", 8 << 20), {})->size() == 8 << 20);

    // No more inodes.
    const std::string few = default_directory() + "/few";
    mount_tmpfs(few, "size=1m,nr_inodes=2");
    Segment::create(spec_of(few, "one", 8192), {});
    CHECK_ERROR(Code::no_space, Segment::create(spec_of(few, "two", 8192), {}), "make room");
    for (const std::string& at : {small, boundless, few}) {
        CHECK(::umount2(at.c_str(), MNT_DETACH) == 0);
    }
}
