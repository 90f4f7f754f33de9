// Which user may open a segment: files of strangers are refused, groups share if the creator allows
// it.
#include <grp.h>

#include "holdfast/shm/participants.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

static const std::string directory = default_directory();
constexpr uid_t kAnn = 54321;
constexpr uid_t kBob = 54322;
constexpr gid_t kShared = 54400;
constexpr gid_t kOther = 54401;

template <class Body>
static void as(uid_t user, gid_t group, Body body) {
    in_child([&] {
        CHECK(::setgroups(1, &group) == 0);
        CHECK(::setresgid(user, user, user) == 0 && ::setresuid(user, user, user) == 0);
        body();
    });
}

static void make(const std::string& name, mode_t mode, gid_t gid = kSameGroup) {
    SegmentSpec spec;
    spec.directory = directory;
    spec.name = name;
    spec.size = 1 << 16;
    spec.mode = mode;
    spec.gid = gid;
    Segment::create(spec, {});
}

static void attach(const std::string& name) {
    Participant participant(Segment::open(directory, kQueueKind, name, 0, 0), 4096, 4);
    participant.join();
    participant.activate();
    participant.leave();
}

int main() {
    if (::geteuid() != 0) skip("only root can act as two users");
    CHECK(::chmod(directory.c_str(), 01777) == 0);
    ::umask(0077);  // the mode is as requested

    as(kAnn, kShared, [] {
        make("private", 0600);
        make("world", 0666);
        make("group", 0660, kShared);
        make("readable", 0640, kShared);
        CHECK_ERROR(Code::denied, make("foreign", 0660, kOther), "group 54401", "member");
        attach("private");
        attach("group");
    });
    as(kBob, kShared, [] {
        CHECK_ERROR(Code::denied, attach("private"), "no permission", "mode=");
        CHECK_ERROR(Code::denied, attach("readable"), "no permission");
        CHECK_ERROR(Code::denied, attach("world"), "uid 54321", "neither this user nor root");
        attach("group");
        CHECK_ERROR(Code::denied, Segment::unlink(directory, kQueueKind, "group"), "owner");
        CHECK(Segment::inspect(directory, kQueueKind, "readable").faults.empty());
    });
    as(kBob, kOther, [] { CHECK_ERROR(Code::denied, attach("group"), "no permission"); });
    make("roots", 0666);
    as(kBob, kOther, [] { attach("roots"); });  // root is trusted anyway
    attach("group");                            // and may, where the creator shares
    CHECK_ERROR(Code::denied, attach("private"), "uid 54321");

    CHECK(::chmod(directory.c_str(), 0700) == 0 &&
          ::mkdir((directory + "/shut").c_str(), 0755) == 0);
    CHECK(::chmod(directory.c_str(), 0755) == 0);
    as(kBob, kOther, [] {
        SegmentSpec spec;
        spec.directory = directory + "/shut";
        spec.name = "x";
        spec.size = 4096;
        CHECK_ERROR(Code::denied, Segment::create(spec, {}), "write permission");
    });
}
