// The topic's view: after any death of its writer and any damage, a reader gets one published
// state, or an error.
#include <fstream>
#include <iterator>
#include <string>

#include "holdfast/base/clock.hpp"
#include "holdfast/log/publication.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

static constexpr u64 kTopic = 7;
static const Incarnation kDirectory{1, 2};

static std::string path() {
    const char* given = std::getenv("HOLDFAST_RUNTIME_DIR");
    return std::string(given != nullptr ? given : "/dev/shm") + "/view";
}

static std::string bytes_of_file() {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// Into the same file, which is mapped.
static void overwrite(const std::string& bytes) {
    const OwnedFd fd(::open(path().c_str(), O_RDWR | O_CLOEXEC));
    CHECK(::pwrite(fd.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
}

// States whose parts belong together, so that a mixture shows.
static ViewedTopic state_of(u64 n) {
    return {{n, ~n}, n, 2 * n, 3 * n, ViewState::live};
}

static void test_publish_and_read() {
    ::unlink(path().c_str());
    CHECK_ERROR(Code::not_found, TopicViewReader(path(), kTopic, kDirectory), "view");
    TopicView view(path(), kTopic, kDirectory);
    const TopicViewReader reader(path(), kTopic, kDirectory);
    CHECK_ERROR(Code::corrupt, reader.read(), "neither copy");  // nothing was published yet
    for (u64 n = 1; n < 10; ++n) {
        view.publish(state_of(n));
        CHECK(reader.read() == state_of(n));
    }
    CHECK_ERROR(Code::misuse, view.publish({{}, 2, 1, 0, ViewState::live}), "above the visible");
    CHECK(reader.read() == state_of(9));
    CHECK(bytes_of_file().size() == kViewSize);
    CHECK_ERROR(Code::corrupt, TopicViewReader(path(), 8, kDirectory), "another number");
    CHECK_ERROR(Code::corrupt, TopicViewReader(path(), kTopic, {1, 3}), "another directory");
    view.sync();
}

// The number of a copy wraps: the newer one still counts, and 0 is never used.
static void test_the_number_wraps() {
    ::unlink(path().c_str());
    {
        TopicView view(path(), kTopic, kDirectory);
    }
    {
        ViewMapping raw(OwnedFd(::open(path().c_str(), O_RDWR | O_CLOEXEC)), path(), true);
        raw.write(0, make_view(~u64{0} - 1, kTopic, state_of(1)));
        raw.write(1, make_view(~u64{0}, kTopic, state_of(2)));
    }
    TopicView view(path(), kTopic, kDirectory);
    const TopicViewReader reader(path(), kTopic, kDirectory);
    CHECK(reader.read() == state_of(2));
    for (u64 n = 3; n < 8; ++n) {
        view.publish(state_of(n));
        CHECK(reader.read() == state_of(n));
    }
}

// Every bit of both copies: the other copy is used, and no damaged one ever.
static void test_damage() {
    ::unlink(path().c_str());
    TopicView view(path(), kTopic, kDirectory);
    view.publish(state_of(1));
    view.publish(state_of(2));  // in copy 1
    const TopicViewReader reader(path(), kTopic, kDirectory);
    const std::string good = bytes_of_file();
    for (std::size_t bit = 0; bit < 2 * sizeof(ViewCopy) * 8; ++bit) {
        std::string bad = good;
        const std::size_t at = kViewCopies + bit / 8;
        bad[at] = static_cast<char>(bad[at] ^ 1 << (bit % 8));
        overwrite(bad);
        const bool newer = bit / 8 >= sizeof(ViewCopy);
        CHECK(reader.read() == state_of(newer ? 1 : 2));
    }
    std::string bad = good;
    bad[kViewCopies + 30] = bad[kViewCopies + 160] = 'x';
    overwrite(bad);
    CHECK_ERROR(Code::corrupt, reader.read(), "neither copy", path().c_str());
    view.publish(state_of(3));
    CHECK(reader.read() == state_of(3));
}

// A writer that dies after any word of a copy leaves the state before it (I74).
static void test_half_written() {
    ::unlink(path().c_str());
    {
        TopicView view(path(), kTopic, kDirectory);
        view.publish(state_of(1));
        view.publish(state_of(2));
    }
    const std::string good = bytes_of_file();
    const ViewCopy next = make_view(3, kTopic, state_of(3));  // goes to copy 0
    for (std::size_t words = 0; words <= kViewWords; ++words) {
        std::string half = good;
        std::memcpy(half.data() + kViewCopies, next.data(), words * 8);
        overwrite(half);
        const ViewedTopic expected = state_of(words == kViewWords ? 3 : 2);
        CHECK(TopicViewReader(path(), kTopic, kDirectory).read() == expected);
        // The next broker goes on without damage to the whole copy, at whichever word it dies.
        TopicView again(path(), kTopic, kDirectory);
        CHECK(TopicViewReader(path(), kTopic, kDirectory).read() == expected);
        again.publish(state_of(4));
        again.publish(state_of(5));
        CHECK(TopicViewReader(path(), kTopic, kDirectory).read() == state_of(5));
    }
}

static void test_reopen_and_replace() {
    ::unlink(path().c_str());
    {
        TopicView(path(), kTopic, kDirectory).publish(state_of(1));
    }
    const TopicViewReader reader(path(), kTopic, kDirectory);
    TopicView(path(), kTopic, kDirectory).publish(state_of(2));
    CHECK(reader.read() == state_of(2) && !reader.moved());  // the same file is continued
    std::string bad = bytes_of_file();
    bad[40] = static_cast<char>(bad[40] ^ 1);
    overwrite(bad);
    std::ofstream(path() + ".new") << "left behind";
    TopicView(path(), kTopic, kDirectory).publish(state_of(3));
    CHECK(reader.moved() && reader.read() == state_of(2));
    CHECK(TopicViewReader(path(), kTopic, kDirectory).read() == state_of(3));
    CHECK(::access((path() + ".new").c_str(), F_OK) != 0);
    CHECK(::truncate(path().c_str(), 300) == 0);
    CHECK_ERROR(Code::corrupt, TopicViewReader(path(), kTopic, kDirectory), "300 bytes");
    TopicView(path(), kTopic, kDirectory).publish(state_of(4));
    CHECK(TopicViewReader(path(), kTopic, kDirectory).read() == state_of(4));
    ::unlink(path().c_str());
    CHECK(::symlink("/etc/passwd", path().c_str()) == 0);
    CHECK_ERROR(Code::denied, TopicViewReader(path(), kTopic, kDirectory), "cannot open");
    TopicView(path(), kTopic, kDirectory).publish(state_of(5));  // in its place, not through it
    CHECK(TopicViewReader(path(), kTopic, kDirectory).read() == state_of(5));
}

static void test_another_boot() {
    ::unlink(path().c_str());
    TopicView view(path(), kTopic, kDirectory);
    view.publish(state_of(1));
    const TopicViewReader reader(path(), kTopic, kDirectory);
    const auto as_of_another_boot = [&](ViewState state) {
        ViewedTopic topic = state_of(2);
        topic.state = state;
        ViewCopy copy = make_view(2, kTopic, topic);
        copy[kViewBoot] ^= 1;
        copy[kViewSum] = view_sum(copy, kTopic);
        std::string bytes = bytes_of_file();
        std::memcpy(bytes.data() + kViewCopies + sizeof copy, copy.data(), sizeof copy);
        overwrite(bytes);
        return topic;
    };
    if (this_boot() != std::array<u64, 2>{}) {
        as_of_another_boot(ViewState::live);
        CHECK_ERROR(Code::stale, reader.read(), "last boot");
    }
    CHECK(reader.read() == as_of_another_boot(ViewState::closed));
    CHECK(reader.read() == as_of_another_boot(ViewState::gone));
}

static void test_fork() {
    ::unlink(path().c_str());
    TopicView view(path(), kTopic, kDirectory);
    const TopicViewReader reader(path(), kTopic, kDirectory);
    view.publish(state_of(1));
    Line go, done;
    const pid_t child = start([&] {
        CHECK_ERROR(Code::misuse, view.publish(state_of(99)), "child");
        CHECK(reader.read() == state_of(1));
        done.tell();
        go.wait();
        CHECK(reader.read() == state_of(2));  // a reader's child reads on
    });
    done.wait();
    view.publish(state_of(2));
    go.tell();
    CHECK(finish(child) == 0);
    CHECK(reader.read() == state_of(2));
}

// A process writes as fast as it can and is killed, repeatedly; another reads as fast as it can.
static void test_two_processes() {
    ::unlink(path().c_str());
    u64 last = 0;
    {
        TopicView view(path(), kTopic, kDirectory);
        view.publish(state_of(++last));
    }
    const TopicViewReader reader(path(), kTopic, kDirectory);
    const ViewMapping raw(OwnedFd(::open(path().c_str(), O_RDONLY | O_CLOEXEC)), path(), false);
    u64 reads = 0, raw_reads = 0;
    for (int round = 0; round < 12; ++round) {
        Line begun;
        const pid_t writer = start([&] {
            TopicView view(path(), kTopic, kDirectory);
            for (u64 n = last;; ++n) {
                view.publish(state_of(n));
                if (n == last) begun.tell();
            }
        });
        begun.wait();
        for (const u64 stop = monotonic_ns() + 25'000'000; monotonic_ns() < stop;) {
            const ViewedTopic seen = reader.read();
            CHECK(seen == state_of(seen.first));  // no mixture
            CHECK(seen.first >= last);            // never back
            last = seen.first;
            ++reads;
            for (unsigned which = 0; which < 2; ++which) {
                const auto copy = raw.read(which);
                if (!copy) continue;
                CHECK(whole(*copy, kTopic));  // by the order of the words alone, before any sum
                ++raw_reads;
            }
        }
        kill_and_reap(writer);
        CHECK(reader.read() == state_of(reader.read().first));
        last = reader.read().first;
    }
    CHECK(reads > 1000 && raw_reads > 1000);
    std::printf("%llu reads while %llu states were written\n",
                static_cast<unsigned long long>(reads), static_cast<unsigned long long>(last));
}

int main() {
    test_publish_and_read();
    test_the_number_wraps();
    test_damage();
    test_half_written();
    test_reopen_and_replace();
    test_another_boot();
    test_fork();
    test_two_processes();
}
