"""End providers and consumers in every way, with and without their return.

A provider stops, is killed, or is killed at a named point of offer, send, give back, stop or a call. A
consumer is not there, holds a sample, or is killed at a named point of find, subscribe, take, release,
unsubscribe or a call. Afterwards the held sample is as it was. Another process can do all that the dead ones
did, and the capacity is that of a new instance. `make test` has every end once on each side; `make nightly`
has all pairs.
"""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from holdfast import Departed, PeerDied, Proxy, Skeleton, Subscription, Timeout, _core
from holdfast._core import ServiceSample
from tests.kit.processes import Child, Start, hear, tell, until
from tests.kit.service.rig import SAMPLES, Rig
from tests.kit.slices import pick

KILLED = -signal.SIGKILL

SENDING = ["sample_allocated", "sample_written", "sample_shown", "sample_announced", "sample_dropped"]
OFFERING = ["marker_held", "offer_cleaned", "offer_counted", "offer_open", "call_failed"]
CREATING = ["offer_unused", "offer_created", "usage_held", "usage_removed"]
STOPPING = ["stop_left", "stop_removed", "marker_removed"]
PROVIDER = ["stop", "kill", *SENDING, *OFFERING, *CREATING, *STOPPING]
CONNECTING = ["proxy_attached", "proxy_reaped"]
SUBSCRIBING = ["log_asked", "log_summed", "log_active", "log_left"]
TAKING = ["sample_marked", "sample_taken", "sample_released"]
CALLING = ["call_claimed", "call_written", "call_submitted", "call_collected"]
CONSUMER = ["none", "holding", *CONNECTING, *SUBSCRIBING, *TAKING, *CALLING]
ELSEWHERE = {
    "sample_traced", "sample_unmarked", "log_withdrew", "log_cleared", "holder_cleared", "clean_invalid",
    "clean_cleared", "call_running", "call_answered", "call_done", "call_withdrawn", "call_cleared",
    "notice_busy", "notice_posted", "notice_taken",
}  # fmt: skip
"""Points that need another situation: below, and in native/tests/service."""
ALL = [
    (provider, consumer, back)
    for provider, consumer, back in itertools.product(PROVIDER, CONSUMER, ("returns", "is gone"))
    if not (consumer == "holding" and provider in CREATING)  # a segment in use is neither removed nor created
]


def slice_of(cases: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return a few cases that have every end of either side."""
    wanted = [
        (provider, CONSUMER[n % len(CONSUMER)], ("returns", "is gone")[n % 2])
        for n, provider in enumerate(PROVIDER)
    ]
    wanted += [(PROVIDER[n % 2], consumer, "returns") for n, consumer in enumerate(CONSUMER)]
    wanted += [
        ("kill", "holding", "returns"),
        ("sample_written", "holding", "returns"),
        ("stop", "holding", "is gone"),
    ]
    return [case for case in cases if case in wanted]


def test_every_point_is_covered() -> None:
    points = {*PROVIDER, *CONSUMER} - {"stop", "kill", "none", "holding"}
    assert points | ELSEWHERE == {*_core.service_points()}
    assert not points & ELSEWHERE


def provider_victim(point: str) -> None:
    """In a child: offer; then end as the test wants it."""
    from tests.kit.service.rig import Rig

    skeleton = Rig.offer("r", handlers={"reset": lambda data: data})
    skeleton.frame.send(b"first")
    tell("offered")
    assert hear() == "go"
    skeleton.frame.send(b"second")
    if point == "kill":
        os.kill(os.getpid(), 9)
    if point != "stop":
        _core.arm(point, "kill")
        skeleton.frame.send(b"third")
        skeleton.frame.loan().release()
        skeleton.close()
        skeleton = Rig.offer("r", handlers={"reset": lambda data: data})
        skeleton.close()
        tell("survived")
    skeleton.close()


def consumer_victim(point: str) -> None:
    """In a child: use the service, and die at the point."""
    from tests.kit.service.rig import Rig

    _core.arm(point, "kill")
    proxy = Rig.find("r", timeout=20)
    frames = proxy.frame.subscribe(max_samples=2, history=1)
    sample = frames.take(timeout=20)
    sample.release()
    frames.close()
    proxy.reset(b"x", timeout=20)
    tell("survived")


def hold(proxy: Proxy) -> tuple[Subscription, ServiceSample]:
    frames = proxy.frame.subscribe(max_samples=2, history=1)
    return frames, frames.take(0)


def require_capacity(proxy: Proxy, skeleton: Skeleton, others: int = 0) -> None:
    """Check that a subscriber gets all samples that the others leave."""
    most = SAMPLES - 3 - others
    with proxy.frame.subscribe(max_samples=most) as frames:
        for n in range(2 * SAMPLES):
            skeleton.frame.send(b"%d" % n)
        taken = frames.take_new()
        assert [bytes(each.data) for each in taken] == [
            b"%d" % n for n in range(2 * SAMPLES - most, 2 * SAMPLES)
        ]
        del taken
    assert proxy.reset(b"again", timeout=20) == b"again"
    assert proxy.check() == []


def require_like_new(directory: Path) -> None:
    """Check that the next provider and consumer have the whole capacity."""
    with Rig.offer("r", handlers={"reset": lambda data: data}) as skeleton, Rig.find("r", 20) as proxy:
        require_capacity(proxy, skeleton)
        stats = proxy.stats()
        assert [
            (each.held, each.writing, each.subscribers, each.calls_under_way) for each in stats.elements
        ] == [(0, 0, 0, 0)] * 2
        assert [user.role for user in stats.users] == ["proxy", "provider"]
    assert list(directory.iterdir()) == []


def end(child: Child, provider: str) -> None:
    child.tell("go")
    child.wait(0 if provider == "stop" else KILLED)


@pytest.mark.parametrize(("provider", "consumer", "back"), pick(test=slice_of(ALL), nightly=ALL))
def test_ends(start: Start, runtime_directory: Path, provider: str, consumer: str, back: str) -> None:
    victim = start(provider_victim, provider)
    assert victim.hear() == "offered"
    if consumer not in ("none", "holding"):
        start(consumer_victim, consumer).wait(KILLED)
    if consumer != "holding":
        end(victim, provider)
    else:
        with Rig.find("r", 0) as proxy:
            frames, sample = hold(proxy)
            end(victim, provider)
            assert bytes(sample.data) == b"first"
            if back == "returns":
                with Rig.offer("r", handlers={"reset": lambda data: data}) as skeleton:
                    assert skeleton.reused
                    sent = skeleton.frame.sequence
                    with Rig.find("r", 0) as second:
                        require_capacity(second, skeleton, others=3)
                    assert bytes(sample.data) == b"first"
                    last = frames.take_new()[-1]
                    assert last.sequence == sent + 2 * SAMPLES
                    del last
            else:
                while frames.take_new():  # what it sent before its death
                    pass
                with pytest.raises(Timeout, match="no provider"):
                    frames.take(0.01)
                with pytest.raises(PeerDied):
                    proxy.reset(b"x")
            sample.release()
            del sample, frames
    if back == "returns" and consumer not in ("none", "holding"):
        with Rig.offer("r", handlers={"reset": lambda data: data}) as skeleton, Rig.find("r", 20) as proxy:
            require_capacity(proxy, skeleton)
    require_like_new(runtime_directory)


@pytest.mark.parametrize("point", ["clean_invalid", "clean_cleared"])
def test_death_in_the_cleaning_after_a_death(start: Start, runtime_directory: Path, point: str) -> None:
    first = start(provider_victim, "sample_written")
    assert first.hear() == "offered"
    with Rig.find("r", 0) as proxy:
        frames, sample = hold(proxy)
        end(first, "sample_written")
        start(cleaning_victim, point).wait(KILLED)
        with Rig.offer("r", handlers={"reset": lambda data: data}) as skeleton:
            assert (skeleton.reused, skeleton.frame.sequence) == (True, 2)
            skeleton.frame.send(b"third")
            assert [bytes(each.data) for each in frames.take_new()] == [b"third"]
            assert bytes(sample.data) == b"first"
        sample.release()
        del sample, frames
    require_like_new(runtime_directory)


def cleaning_victim(point: str) -> None:
    from tests.kit.service.rig import Rig

    _core.arm(point, "kill")
    Rig.offer("r")


@pytest.mark.parametrize("point", ["call_running", "call_answered", "call_done"])
def test_death_in_a_call(start: Start, runtime_directory: Path, point: str) -> None:
    victim = start(calls_victim, point)
    assert victim.hear() == "offered"
    with Rig.find("r", 0) as proxy:
        if point == "call_done":
            assert proxy.reset(b"x", timeout=20) == b"x"
        else:
            with pytest.raises(PeerDied) as caught:
                proxy.reset(b"x", timeout=20)
            assert caught.value.executed is None
        victim.wait(KILLED)
        with Rig.offer("r", handlers={"reset": lambda data: data}):
            assert proxy.reset(b"y", timeout=20) == b"y"
    require_like_new(runtime_directory)


def calls_victim(point: str) -> None:
    from tests.kit.service.rig import Rig

    _core.arm(point, "kill")
    with Rig.offer("r", handlers={"reset": lambda data: data}):
        tell("offered")
        hear()


def test_death_after_a_lost_race_for_a_sample(start: Start, runtime_directory: Path) -> None:
    """The provider writes a sample that the consumer looks for, since older ones were held."""
    with Rig.offer("r", handlers={"reset": lambda data: data}) as skeleton:
        with Rig.find("r", 0) as greedy, greedy.frame.subscribe(max_samples=SAMPLES - 3) as frames:
            for n in range(SAMPLES - 3):
                skeleton.frame.send(b"%d" % n)
            held = frames.take_new()
            for n in range(3):
                skeleton.frame.send(b"%d" % n)
            loan = skeleton.frame.loan()  # the first of the last three samples
            del held
        start(history_victim, "sample_unmarked").wait(KILLED)
        loan.release()
        with Rig.find("r", 0) as proxy:
            require_capacity(proxy, skeleton)
    require_like_new(runtime_directory)


def history_victim(point: str) -> None:
    from tests.kit.service.rig import Rig

    _core.arm(point, "kill")
    Rig.find("r", 20).frame.subscribe(max_samples=9, history=9).take(20)


def test_death_after_it_withdrew_another_subscriber(start: Start, runtime_directory: Path) -> None:
    with Rig.offer("r", handlers={"reset": lambda data: data}) as skeleton:
        lower = start(subscribing_victim, "log_withdrew")
        assert lower.hear() == "connected"
        higher = start(subscribing_victim, "log_asked")
        assert higher.hear() == "connected"
        for victim in (higher, lower):
            victim.tell("go")
            victim.wait(KILLED)
        with Rig.find("r", 0) as proxy:
            require_capacity(proxy, skeleton)
    require_like_new(runtime_directory)


def subscribing_victim(point: str) -> None:
    from tests.kit.service.rig import Rig

    proxy = Rig.find("r", 20)
    tell("connected")
    assert hear() == "go"
    _core.arm(point, "kill")
    proxy.frame.subscribe(max_samples=9)
    tell("survived")


def test_a_second_living_process_of_an_application_is_left_alone(
    start: Start, runtime_directory: Path
) -> None:
    """Neither rolled back, nor reported; the dead one is, once its slot is looked at."""
    departed: list[Departed] = []
    handlers = {"reset": lambda data: data}
    with (
        Rig.offer("r", handlers=handlers, on_departed=departed.append) as skeleton,
        Rig.find("r", 0, application="viewer") as living,
    ):
        frames, sample = hold_one(living, skeleton)
        dead = start(same_application, "viewer")
        assert dead.hear() == "holding"
        dead.kill()
        with Rig.find("r", 0, application="viewer") as third:
            until(lambda: departed)
            assert {(each.application, each.pid) for each in departed} == {("viewer", dead.pid)}
            assert bytes(sample.data) == b"kept"
            assert third.stats().elements[0].held == 1
        sample.release()
        del sample, frames
    require_like_new(runtime_directory)


def hold_one(proxy: Proxy, skeleton: Skeleton) -> tuple[Subscription, ServiceSample]:
    skeleton.frame.send(b"kept")
    return hold(proxy)


def same_application(name: str) -> None:
    from tests.kit.service.rig import Rig

    proxy = Rig.find("r", 20, application=name)
    sample = proxy.frame.subscribe(history=1).take(20)
    tell("holding")
    hear()
    del sample


def test_notices_wait_for_a_provider(start: Start, runtime_directory: Path) -> None:
    departed: list[Departed] = []
    first = Rig.offer("r")
    with Rig.find("r", 0) as proxy:
        dead = start(same_application, "gone")
        first.frame.send(b"x")
        first.frame.send(b"y")
        assert dead.hear() == "holding"
        first.close()
        dead.kill()
        assert proxy.reap() == 1
        assert proxy.stats().notices == 1
        with Rig.offer("r", on_departed=departed.append):
            until(lambda: departed)
            until(lambda: proxy.stats().notices == 0)
        assert [(each.application, each.pid) for each in departed] == [("gone", dead.pid)]


def test_the_death_of_a_provider_is_not_a_notice(start: Start, runtime_directory: Path) -> None:
    departed: list[Departed] = []
    victim = start(provider_victim, "kill")
    assert victim.hear() == "offered"
    with Rig.find("r", 0) as proxy:
        end(victim, "kill")
        with Rig.offer("r", on_departed=departed.append) as skeleton:
            assert skeleton.reused
            assert proxy.stats().notices == 0
    assert departed == []
