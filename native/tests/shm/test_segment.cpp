// Segments: complete or absent, used only after every check, refused with helpful words.
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "holdfast/shm/segment.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;
namespace fs = std::filesystem;

static const std::string directory = default_directory();

static SegmentSpec spec_of(const std::string& name, u64 size = 1 << 20) {
    SegmentSpec spec;
    spec.directory = directory;
    spec.name = name;
    spec.size = size;
    spec.version = 3;
    spec.fingerprint = 77;
    spec.params[0] = std::byte{42};
    return spec;
}

static std::shared_ptr<Segment> open_named(const std::string& name, bool adopt = false) {
    return Segment::open(directory, kQueueKind, name, 3, 77, adopt);
}

// `change` damages the header in the file; `reseal` makes the sum right again.
template <class Change>
static void edit_header(const std::string& name, bool reseal, Change change) {
    const std::string path = Segment::path_of(directory, kQueueKind, name);
    const OwnedFd fd(::open(path.c_str(), O_RDWR));
    SegmentHeader header{};
    CHECK(::pread(fd.get(), &header, sizeof header, 0) == sizeof header);
    change(header);
    if (reseal) header.crc = segment_crc(header);
    CHECK(::pwrite(fd.get(), &header, sizeof header, 0) == sizeof header);
}

static void test_create_and_open() {
    std::shared_ptr<Segment> made =
        Segment::create(spec_of("plain"), [](std::byte* base) { base[5000] = std::byte{9}; });
    struct stat status{};
    CHECK(::stat(made->path().c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0600 && status.st_size == 1 << 20);
    CHECK(static_cast<u64>(status.st_blocks) * 512 >= 1 << 20);  // all of it is allocated
    std::shared_ptr<Segment> opened = open_named("plain");
    CHECK(opened->base() != made->base() && opened->size() == made->size());
    CHECK(opened->inode() == made->inode() && opened->device() == made->device());
    CHECK(opened->base()[5000] == std::byte{9});
    opened->base()[6000] = std::byte{8};
    CHECK(made->base()[6000] == std::byte{8});
    CHECK(opened->header().params[0] == std::byte{42});
    CHECK(std::string(opened->header().name.data()) == "plain");
    CHECK(opened->header().creator_pid == static_cast<u32>(::getpid()));
    CHECK_ERROR(Code::exists, Segment::create(spec_of("plain"), {}), "plain", "exists already");
    Segment::unlink(directory, kQueueKind, "plain");
    CHECK(opened->base()[5000] == std::byte{9});  // lives on without its name
    const OwnedFd again(opened->reopen(O_RDWR));  // and can be opened again
    CHECK(::fstat(again.get(), &status) == 0 && status.st_ino == opened->inode());
    CHECK_ERROR(Code::not_found, open_named("plain"), "no queue named \"plain\"", "create it");
    CHECK_ERROR(Code::not_found, Segment::unlink(directory, kQueueKind, "plain"), "plain");
}

static void test_misuse() {
    for (const std::string& name :
         {std::string(), std::string(".hidden"), std::string("a/b"), std::string("a b"),
          std::string(101, 'x'), std::string("ende\xcc\x88"), std::string("zero\0", 5)}) {
        SegmentSpec spec = spec_of("x");
        spec.name = name;
        CHECK_ERROR(Code::misuse, Segment::create(spec, {}), "is not a valid name");
        CHECK_ERROR(Code::misuse, open_named(name), "is not a valid name");
    }
    CHECK(valid_name(std::string(100, 'x')) && valid_name("A-z_0.9"));
    CHECK_ERROR(Code::misuse, Segment::create(spec_of("tiny", 4095), {}), "4095");
    CHECK_ERROR(Code::misuse, Segment::create(spec_of("vast", ~u64{0}), {}), "1 TiB");
    SegmentSpec spec = spec_of("mode");
    for (const mode_t mode : {0000, 0400, 0700, 04600}) {
        spec.mode = mode;
        CHECK_ERROR(Code::misuse, Segment::create(spec, {}), "mode");
    }
    spec.kind = 99;
    CHECK_ERROR(Code::misuse, Segment::create(spec, {}), "kind 99");
    spec = spec_of("nowhere");
    spec.directory = directory + "/missing";
    CHECK_ERROR(Code::not_found, Segment::create(spec, {}), "missing", "HOLDFAST_RUNTIME_DIR");
    CHECK(Segment::list(spec.directory).empty());
}

static void test_init_that_throws_leaves_nothing() {
    try {
        Segment::create(spec_of("thrown"), [](std::byte*) { throw std::runtime_error("no"); });
        CHECK(false);
    } catch (const std::runtime_error&) {
    }
    CHECK_ERROR(Code::not_found, open_named("thrown"), "thrown");
}

static void test_list() {
    Segment::create(spec_of("listed.b", 8192), {});
    Segment::create(spec_of("listed.a", 4096), {});
    SegmentSpec channel = spec_of("listed.a");
    channel.kind = kChannelKind;
    Segment::create(channel, {});
    std::ofstream(directory + "/holdfast.queue..hidden") << "x";
    std::ofstream(directory + "/holdfast.queue") << "x";
    fs::create_directory(directory + "/holdfast.queue.directory");
    const std::vector<SegmentInfo> found = Segment::list(directory);
    CHECK(found.size() == 3);
    CHECK(found[0].name == "listed.a" && found[0].kind == kQueueKind && found[0].size == 4096);
    CHECK(found[1].name == "listed.b" && found[1].path == directory + "/holdfast.queue.listed.b");
    CHECK(found[2].kind == kChannelKind);
    fs::remove(directory + "/holdfast.queue.directory");
    CHECK_ERROR(Code::layout_mismatch, Segment::open(directory, kChannelKind, "listed.a", 4, 77),
                "layout version");
}

static void test_layout_mismatch() {
    Segment::create(spec_of("versions"), {});
    CHECK_ERROR(Code::layout_mismatch, Segment::open(directory, kQueueKind, "versions", 4, 77),
                "versions", "layout version: 3 found, 4 expected", "another version", "use that");
    CHECK_ERROR(Code::layout_mismatch, Segment::open(directory, kQueueKind, "versions", 3, 78),
                "fingerprint", "4d found", "4e expected", "another version");
    // A future version may sum its header in another way: the error is still about the versions.
    edit_header("versions", false, [](SegmentHeader& h) { h.version = 9; });
    CHECK_ERROR(Code::layout_mismatch, open_named("versions"), "9 found, 3 expected");
}

static void test_damage() {
    struct Case {
        const char* words;
        bool reseal;
        void (*change)(SegmentHeader&);
    };
    const Case cases[] = {
        {"magic: \"hOLDFAST\" found", true, [](SegmentHeader& h) { h.magic[0] = 'h'; }},
        {"header checksum", false, [](SegmentHeader& h) { h.params[100] = std::byte{1}; }},
        {"header checksum", false, [](SegmentHeader& h) { h.crc ^= 1; }},
        {"header checksum", false, [](SegmentHeader& h) { h.zeros[3000] = std::byte{1}; }},
        {"header checksum", false, [](SegmentHeader& h) { h.fingerprint ^= 1; }},
        {"header size: 8192 found", true, [](SegmentHeader& h) { h.header_size = 8192; }},
        {"kind: 2 channel found, 1 queue", true, [](SegmentHeader& h) { h.kind = 2; }},
        {"bytes found, 1048577 expected", true, [](SegmentHeader& h) { h.file_size += 1; }},
        {"name: \"Xamaged\" found", true, [](SegmentHeader& h) { h.name[0] = 'X'; }},
        {"name: \"d?maged\" found", true, [](SegmentHeader& h) { h.name[1] = '\x1b'; }},
        {"name", true, [](SegmentHeader& h) { h.name.fill('y'); }},
    };
    for (const Case& each : cases) {
        Segment::create(spec_of("damaged"), {});
        edit_header("damaged", each.reseal, each.change);
        CHECK_ERROR(Code::corrupt, open_named("damaged"), "damaged", each.words);
        const Inspection looked = Segment::inspect(directory, kQueueKind, "damaged");
        CHECK(looked.segment && looked.segment->read_only() && looked.segment->size() == 1 << 20);
        bool told = false;
        for (const std::string& fault : looked.faults) {
            told = told || fault.find(each.words) != std::string::npos;
        }
        CHECK(told);
        Segment::unlink(directory, kQueueKind, "damaged");
    }
    const std::string path = Segment::path_of(directory, kQueueKind, "damaged");
    for (const off_t size : {off_t{0}, off_t{100}, off_t{4095}, off_t{4096}, off_t{1 << 19}}) {
        Segment::create(spec_of("damaged"), {});
        CHECK(::truncate(path.c_str(), size) == 0);
        CHECK_ERROR(Code::corrupt, open_named("damaged"),
                    "size: " + std::to_string(size) + " bytes");
        const Inspection looked = Segment::inspect(directory, kQueueKind, "damaged");
        CHECK(!looked.faults.empty() && (looked.segment != nullptr) == (size >= 4096));
        Segment::unlink(directory, kQueueKind, "damaged");
    }
    Segment::create(spec_of("sound"), {});
    CHECK(Segment::inspect(directory, kQueueKind, "sound").faults.empty());
}

static void
test_holes_are_filled() {  // a copy by other tools is sparse; a full disk must not be a SIGBUS
    Segment::create(spec_of("sparse"), {});
    const std::string path = Segment::path_of(directory, kQueueKind, "sparse");
    CHECK(::truncate(path.c_str(), 4096) == 0 && ::truncate(path.c_str(), 1 << 20) == 0);
    struct stat status{};
    CHECK(::stat(path.c_str(), &status) == 0 && status.st_blocks * 512 < 1 << 20);
    open_named("sparse");
    CHECK(::stat(path.c_str(), &status) == 0 && status.st_blocks * 512 >= 1 << 20);
}

static void test_older_boot() {
    Segment::create(spec_of("old"), [](std::byte* base) { base[4096] = std::byte{5}; });
    edit_header("old", false, [](SegmentHeader& h) { h.boot_id[1] ^= 1; });
    CHECK_ERROR(Code::stale, open_named("old"), "boot id", "before the last boot", "adopt=True");
    CHECK(Segment::inspect(directory, kQueueKind, "old").faults.size() == 1);
    CHECK(open_named("old", true)->base()[4096] == std::byte{5});
    CHECK(open_named("old")->header().boot_id == this_boot());  // adopted for all processes
}

static void test_not_a_file() {
    Segment::create(spec_of("target"), {});
    const std::string link = Segment::path_of(directory, kQueueKind, "link");
    CHECK(::symlink(Segment::path_of(directory, kQueueKind, "target").c_str(), link.c_str()) == 0);
    CHECK_ERROR(Code::denied, open_named("link"), "symbolic link", "not followed");
    CHECK_ERROR(Code::denied, Segment::inspect(directory, kQueueKind, "link"), "symbolic link");
    CHECK_ERROR(Code::exists, Segment::create(spec_of("link"), {}), "exists already");
    CHECK(::mkfifo(Segment::path_of(directory, kQueueKind, "fifo").c_str(), 0600) == 0);
    CHECK_ERROR(Code::denied, open_named("fifo"), "regular file");  // and does not hang
    CHECK(::mkdir(Segment::path_of(directory, kQueueKind, "dir").c_str(), 0700) == 0);
    CHECK_ERROR(Code::denied, open_named("dir"), "regular file");
    CHECK_ERROR(Code::denied, Segment::inspect(directory, kQueueKind, "dir"), "regular file");
}

// The space of all files in the directory. Free space of the whole mount changes with other processes.
static u64 used_space() {
    u64 used = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
        struct stat status{};
        if (::lstat(entry.path().c_str(), &status) == 0)
            used += static_cast<u64>(status.st_blocks) * 512;
    }
    return used;
}

// Killed or ended at each named point, creation leaves nothing that blocks the next; after the
// link, a good segment.
static void test_death_during_creation() {
    const Point points[] = {SegmentPoint::create_file, SegmentPoint::create_allocated,
                            SegmentPoint::create_initialised, SegmentPoint::create_linked};
    for (const Point point : points) {
        for (const PointAction action : {PointAction::kill, PointAction::exit}) {
            const u64 used_before = used_space();
            const int status = finish(start([&] {
                arm(point, action);
                Segment::create(spec_of("dying", 16 << 20), {});
            }));
            CHECK(status != 0);
            if (point == SegmentPoint::create_linked) {
                CHECK(open_named("dying")->size() == 16 << 20);
                Segment::unlink(directory, kQueueKind, "dying");
            } else {
                CHECK_ERROR(Code::not_found, open_named("dying"), "dying");
                CHECK(used_space() == used_before);  // no file is left, also under another name
            }
            Segment::create(spec_of("dying"), {});
            Segment::unlink(directory, kQueueKind, "dying");
        }
    }
}

// Of many processes that create the same name at once, one wins and all see a complete segment.
static void test_race_to_create() {
    const Line go;
    pid_t children[8];
    for (pid_t& child : children) {
        child = start([&] {
            go.wait();
            try {
                Segment::create(spec_of("raced"),
                                [](std::byte* base) { base[4096] = std::byte{5}; });
                ::_exit(1);
            } catch (const Error& error) {
                CHECK(error.code == Code::exists);
                CHECK(open_named("raced")->base()[4096] == std::byte{5});
            }
        });
    }
    for ([[maybe_unused]] const pid_t child : children) go.tell();
    int winners = 0;
    for (const pid_t child : children) {
        const int status = finish(child);
        CHECK(WIFEXITED(status));
        winners += WEXITSTATUS(status);
    }
    CHECK(winners == 1);
}

// A limit of the process is reported as such. (Python ignores SIGXFSZ; so does this test.)
static void test_limits() {
    in_child([] {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1 << 16, 1 << 16};
        CHECK(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
        CHECK_ERROR(Code::no_space, Segment::create(spec_of("limited"), {}), "ulimit -f");
    });
}

static void test_unfit_file_systems() {
    CHECK(std::string(unfit_file_system(NFS_SUPER_MAGIC)) == "NFS");
    CHECK(std::string(unfit_file_system(0xff534d42)) == "CIFS");
    CHECK(std::string(unfit_file_system(0x65735546)) == "FUSE");
    CHECK(unfit_file_system(TMPFS_MAGIC) == nullptr &&
          unfit_file_system(EXT4_SUPER_MAGIC) == nullptr);
}

int main() {
    test_create_and_open();
    test_misuse();
    test_init_that_throws_leaves_nothing();
    test_list();
    test_layout_mismatch();
    test_damage();
    test_holes_are_filled();
    test_older_boot();
    test_not_a_file();
    test_death_during_creation();
    test_race_to_create();
    test_limits();
    test_unfit_file_systems();
}
