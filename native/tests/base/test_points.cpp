// Crash points: names, the countdown, and each action in a real process.
#include <set>
#include <thread>
#include <vector>

#include "holdfast/base/points.hpp"
#include "tests/check.hpp"

using namespace holdfast;
using namespace holdfast::test;

HOLDFAST_POINTS(FirstPoint, begun, half_done, done);
HOLDFAST_POINTS(SecondPoint, opened, done_too);

static void test_names() {
    std::set<std::string_view> names;
    std::vector<std::string_view> in_order;
    each_point<FirstPoint, SecondPoint>([&](Point point) {
        CHECK(names.insert(point.name()).second);
        CHECK((point_by_name<FirstPoint, SecondPoint>(point.name()) == point));
        in_order.push_back(point.name());
    });
    CHECK((in_order ==
           std::vector<std::string_view>{"begun", "half_done", "done", "opened", "done_too"}));
    CHECK(Point(FirstPoint::half_done).name() == "half_done");
    CHECK(Point(FirstPoint::done) == FirstPoint::done);
    CHECK(!(Point(FirstPoint::begun) == SecondPoint::opened));
    CHECK(!point_by_name<FirstPoint>("opened"));
    CHECK(Point().name() == "none" && Point(FirstPoint::none) == Point());
}

// Each point has a slot of its own.
static void test_standing() {
    CHECK(&detail::standing_word(FirstPoint::begun) == &detail::standing_word(FirstPoint::begun));
    CHECK(&detail::standing_word(FirstPoint::begun) != &detail::standing_word(SecondPoint::opened));
    CHECK(!is_standing(FirstPoint::done));
    arm(FirstPoint::done, PointAction::stand);
    std::thread other([] { at(FirstPoint::done); });
    while (!is_standing(FirstPoint::done)) std::this_thread::yield();
    CHECK(!is_standing(FirstPoint::begun));
    go_on(SecondPoint::opened);  // another point's: it stays
    CHECK(is_standing(FirstPoint::done));
    go_on(FirstPoint::done);
    other.join();
    CHECK(!is_standing(FirstPoint::done));
}

static void test_actions() {
    const int killed = finish(start([] {
        arm(FirstPoint::done);
        at(FirstPoint::begun);  // another point does nothing
        at(FirstPoint::done);
    }));
    CHECK(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
    const int exited = finish(start([] {
        arm(FirstPoint::done, PointAction::exit);
        at(FirstPoint::done);
    }));
    CHECK(WIFEXITED(exited) && WEXITSTATUS(exited) == kPointExitStatus);
    const pid_t child = start([] {
        arm(FirstPoint::done, PointAction::stop);
        at(FirstPoint::done);
        at(FirstPoint::done);  // once only
    });
    CHECK(stopped(child));
    CHECK(::kill(child, SIGCONT) == 0);
    CHECK(finish(child) == 0);
}

static void test_countdown() {
    const Line line;
    const pid_t child = start([&] {
        arm(FirstPoint::done, PointAction::kill, 3);
        for (int i = 0; i < 9; ++i) {
            at(FirstPoint::done);
            line.tell(static_cast<char>('1' + i));
        }
    });
    CHECK(WIFSIGNALED(finish(child)));
    CHECK(line.wait() == '1' && line.wait() == '2');
    line.tell('.');
    CHECK(line.wait() == '.');  // died the third time
    arm(FirstPoint::done);
    CHECK(any_armed());
    disarm();
    CHECK(!any_armed());
    at(FirstPoint::done);
}

int main() {
    test_names();
    test_actions();
    test_countdown();
    test_standing();
}
