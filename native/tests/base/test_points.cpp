// Crash points: names, the countdown, and each action in a real process.
#include <set>

#include "holdfast/base/points.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

static void test_names() {
    std::set<std::string_view> names;
    for (int i = 0; i < static_cast<int>(Point::count_); ++i) {
        const Point point = static_cast<Point>(i);
        CHECK(names.insert(point_name(point)).second);
        CHECK(point_by_name(point_name(point)) == point);
    }
    CHECK(point_name(Point::put_checksum) == "put_checksum");
    CHECK(point_name(Point::create_linked) ==
          "create_linked");  // the last: none is missing between
    CHECK(!point_by_name("no_such_point"));
    CHECK(point_name(Point::count_) == "unknown");
}

static void test_actions() {
    const int killed = finish(start([] {
        arm(Point::settled);
        at(Point::put_begin);  // another point does nothing
        at(Point::settled);
    }));
    CHECK(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
    const int exited = finish(start([] {
        arm(Point::settled, PointAction::exit);
        at(Point::settled);
    }));
    CHECK(WIFEXITED(exited) && WEXITSTATUS(exited) == kPointExitStatus);
    const pid_t child = start([] {
        arm(Point::settled, PointAction::stop);
        at(Point::settled);
        at(Point::settled);  // once only
    });
    CHECK(stopped(child));
    CHECK(::kill(child, SIGCONT) == 0);
    CHECK(finish(child) == 0);
}

static void test_countdown() {
    const Line line;
    const pid_t child = start([&] {
        arm(Point::settled, PointAction::kill, 3);
        for (int i = 0; i < 9; ++i) {
            at(Point::settled);
            line.tell(static_cast<char>('1' + i));
        }
    });
    CHECK(WIFSIGNALED(finish(child)));
    CHECK(line.wait() == '1' && line.wait() == '2');
    line.tell('.');
    CHECK(line.wait() == '.');  // died the third time
    arm(Point::settled);
    CHECK(any_armed());
    disarm();
    CHECK(!any_armed());
    at(Point::settled);
}

int main() {
    test_names();
    test_actions();
    test_countdown();
}
