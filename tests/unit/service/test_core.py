"""Call every operation of a service's bindings, in one process."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Closed, Empty, Exists, Full, LayoutMismatch, Misuse, NotFound, _core
from tests.kit.service.core import (
    ABSENT,
    ELEMENTS,
    EVENT,
    FIELD,
    LARGE,
    METHOD,
    active,
    connect,
    data,
    element,
    files,
    offer,
)

# -- provider and proxy ----------------------------------------------------------------------------------


class Ends:
    """Garbage in a cycle, whose end calls a function."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.me, self.call = self, call

    def __del__(self) -> None:
        self.call()


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_a_collection_in_a_take_may_end_the_subscription(
    place: str, provider: _core.ServiceProvider, end: str
) -> None:
    proxy = connect(place)
    proxy.subscribe(0, 2)
    provider.send(0, b"A")
    calls = {"unsubscribe": lambda: proxy.unsubscribe(0), "close": proxy.close}
    threshold = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        lists: list[list[int]] = [[] for _ in range(300)]  # the next one needs memory: a collection may run
        Ends(calls[end])
        gc.set_threshold(1)
        gc.enable()
        taken = proxy.take(0, 2, 0)
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
    assert len(lists) == 300
    assert _core.inspect_service(place, "s")["faults"] == []
    held = [each["holders"] for each in _core.inspect_service(place, "s")["elements"][0]["samples"]]
    assert held.count([0]) == 1
    assert bytes(taken[0].data) == b"A"
    del taken
    held = [each["holders"] for each in _core.inspect_service(place, "s")["elements"][0]["samples"]]
    assert held.count([0]) == 0
    proxy.close()
    assert _core.inspect_service(place, "s")["faults"] == []


def test_both_sides_know_the_instance(
    place: str, provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    assert (provider.name, provider.slot, provider.attached, provider.reused) == ("s", 63, True, False)
    assert (proxy.name, proxy.slot, proxy.attached, proxy.tracer) == ("s", 0, True, False)
    assert (provider.epoch, proxy.epoch) == (1, 1)
    assert (proxy.offered, proxy.provider_pid, proxy.has_name) == (True, os.getpid(), True)
    assert proxy.elements == provider.elements == ELEMENTS
    assert proxy.reap() == provider.reap() == 0
    assert provider.notices() == []
    assert _core.list_services(place) == [("s", True, os.getpid())]


def test_an_instance_has_one_provider(place: str, provider: _core.ServiceProvider) -> None:
    with pytest.raises(Exists, match=f"offered already by pid {os.getpid()}"):
        offer(place)
    assert provider.attached


def test_a_provider_that_ends_removes_what_is_unused(place: str) -> None:
    offer(place).close()
    assert files(place) == []
    with pytest.raises(NotFound):
        connect(place)
    assert _core.list_services(place) == []


def test_proxies_outlive_their_provider(place: str) -> None:
    first = offer(place)
    with connect(place) as proxy:
        first.send(EVENT, b"a")
        first.close()
        assert not proxy.offered
        assert proxy.read(EVENT) == b"a"
        assert _core.list_services(place) == [("s", False, 0)]
        assert not _core.remove_service(place, "s")
        with pytest.raises(LayoutMismatch, match=f"in use with other elements.*pid {os.getpid()}"):
            offer(place, ELEMENTS[:1])
        with offer(place) as second:
            assert (second.reused, second.epoch, proxy.epoch) == (True, 2, 2)
            assert second.send(EVENT, b"b") == 2
            assert proxy.offered
    assert files(place) == ["holdfast.service.s"]  # the provider ended before the proxy
    assert _core.remove_service(place, "s")


def test_remove_says_what_is_in_use(place: str) -> None:
    with pytest.raises(NotFound, match="there is no service s"):
        _core.remove_service(place, "s")
    provider = offer(place)
    assert not _core.remove_service(place, "s")
    proxy = connect(place)
    provider.close()
    assert not _core.remove_service(place, "s")
    proxy.close()
    assert _core.remove_service(place, "s")
    assert files(place) == []


@pytest.mark.parametrize(
    ("elements", "words"),
    [
        ([], "1 to 64 elements"),
        ([ELEMENTS[0], ELEMENTS[0]], "two elements have the name event"),
        ([("x" * 64, *ELEMENTS[0][1:])], "at most 63 bytes"),
        ([("e", 1, 3, 1, 1, 0, 16, 0, 0, "")], "sizes of element e"),
        ([("e", 1, -1, 1, 1, 0, 16, 0, 0, "")], "samples of an element cannot be -1"),
        ([("e", 1, 1 << 40, 1, 1, 0, 16, 0, 0, "")], "samples of an element cannot be"),
        ([("e", 1, 8, 1, 1, 0, 16, 0, 0, "y" * 912)], "at most 911 bytes"),
    ],
)
def test_impossible_elements_leave_nothing(place: str, elements: Any, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        offer(place, elements)
    assert files(place) == []


def test_names_and_modes_are_checked_before_a_marker_is_made(place: str) -> None:
    with pytest.raises(Misuse, match="not a valid name"):
        _core.ServiceProvider(place, "../s", "", ELEMENTS, 0o600, -1)
    with pytest.raises(Misuse, match="mode"):
        _core.ServiceProvider(place, "s", "", ELEMENTS, 0o4600, -1)
    with pytest.raises(TypeError):
        offer(place, [("e", 1)])  # type: ignore[list-item]
    assert files(place) == []


def test_an_object_without_init_says_so(place: str, provider: _core.ServiceProvider) -> None:
    for kind in (_core.ServiceProvider, _core.ServiceProxy):
        made: Any = kind.__new__(kind)
        with pytest.raises(Misuse, match="not initialised"):
            made.name  # noqa: B018
        with pytest.raises(Misuse, match="not initialised"):
            made.reap()
        made.close()
    with pytest.raises(Misuse, match="called before"):
        provider.__init__(place, "t", "", ELEMENTS, 0o600, -1)  # type: ignore[misc]


def test_closed_roles_say_so(place: str) -> None:
    provider = offer(place)
    proxy = connect(place)
    for role in (proxy, provider):
        role.close()
        role.close()
        assert not role.attached
    for use in (
        lambda: provider.send(EVENT, b""),
        lambda: provider.run(0),
        lambda: provider.notices(),
        lambda: proxy.subscribe(EVENT, 1),
        lambda: proxy.call(METHOD, b""),
        lambda: proxy.offered,
    ):
        with pytest.raises(Closed, match="of service s was closed"):
            use()


def test_wrong_elements_are_refused(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    for use in (lambda: provider.send(3, b""), lambda: proxy.read(-1), lambda: proxy.bell(9)):
        with pytest.raises(Misuse, match=r"does not exist|has no element"):
            use()
    with pytest.raises(Misuse, match="method of service s has no samples"):
        proxy.subscribe(METHOD, 1)
    with pytest.raises(Misuse, match="event of service s has no calls"):
        proxy.call(EVENT, b"")
    with pytest.raises(TypeError):
        proxy.read("event")  # type: ignore[arg-type]


# -- samples ---------------------------------------------------------------------------------------------


def test_samples_arrive_in_order_with_their_length(
    provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    proxy.subscribe(EVENT, 3)
    assert proxy.subscribed(EVENT)
    with pytest.raises(Empty, match="no new sample of event of service s"):
        proxy.take(EVENT, 1, 0)
    for n, each in enumerate((b"", b"x", b"y" * 16), 1):
        assert provider.send(EVENT, each) == n == provider.sequence(EVENT) == proxy.newest(EVENT)
    samples = proxy.take(EVENT, 9)
    assert data(samples) == [(b"", 1, 0), (b"x", 2, 0), (b"y" * 16, 3, 0)]
    assert [len(each) for each in samples] == [0, 1, 16]
    assert samples[2][0] == ord("y")
    assert proxy.held(EVENT) == 3
    with pytest.raises(Misuse, match=r"holds 3 samples of event.*as many as"):
        proxy.take(EVENT, 1, 0)
    for sample in samples:
        sample.release()
    assert proxy.held(EVENT) == 0


def test_missed_samples_are_counted(
    place: str, provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    proxy.subscribe(EVENT, 2)
    for n in range(5):
        provider.send(EVENT, b"%d" % n)
    assert data(proxy.take(EVENT, 2)) == [(b"3", 4, 3), (b"4", 5, 0)]
    provider.send(EVENT, b"5")
    provider.send(EVENT, b"6")
    assert data(proxy.take(EVENT, 1)) == [(b"6", 7, 1)]
    counts = _core.inspect_service(place, "s")["people"][0]["counts"]
    assert (counts["taken"], counts["missed"]) == (3, 4)


def test_history_is_taken_at_subscription(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    for n in range(4):
        provider.send(EVENT, b"%d" % n)
    proxy.subscribe(EVENT, 3, history=2)
    assert data(proxy.take(EVENT, 3)) == [(b"2", 3, 0), (b"3", 4, 0)]
    proxy.unsubscribe(EVENT)
    proxy.subscribe(EVENT, 3, 100)
    assert data(proxy.take(EVENT, 3)) == [(b"1", 2, 1), (b"2", 3, 0), (b"3", 4, 0)]


def test_a_sample_is_valid_until_its_last_view_is_gone(
    place: str, provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    proxy.subscribe(EVENT, 1)
    provider.send(EVENT, b"abc")
    with proxy.take(EVENT, 1)[0] as sample:
        view = sample.data
        with pytest.raises(TypeError):
            view[0] = 0
    with pytest.raises(Misuse, match=r"was released.*Copy"):
        sample.data  # noqa: B018
    with pytest.raises(Misuse, match="released before; release it once"):
        sample.release()
    for n in range(20):
        provider.send(EVENT, b"%d" % n)
    assert (bytes(view), proxy.held(EVENT)) == (b"abc", 1)
    view.release()
    assert proxy.held(EVENT) == 0
    assert all(each["holders"] == [] for each in element(place, EVENT)["samples"])


def test_samples_outlive_their_proxy(place: str, provider: _core.ServiceProvider) -> None:
    proxy = connect(place)
    proxy.subscribe(EVENT, 2)
    provider.send(EVENT, b"a")
    provider.send(EVENT, b"b")
    first, second = proxy.take(EVENT, 2)
    proxy.close()
    for n in range(20):
        provider.send(EVENT, b"%d" % n)
    view = first.data
    first.release()
    assert (bytes(view), bytes(second)) == (b"a", b"b")
    assert active(place) == ["proxy", "provider"]
    del view, second
    assert active(place) == ["provider"]
    assert element(place, EVENT)["logs"] == []


def test_a_proxy_that_is_dropped_leaves(place: str, provider: _core.ServiceProvider) -> None:
    proxy = connect(place)
    proxy.subscribe(EVENT, 1)
    del proxy
    assert active(place) == ["provider"]
    provider.reap()
    assert provider.notices() == []


def test_unsubscribe_waits_for_the_last_sample(
    place: str, provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    proxy.subscribe(EVENT, 1)
    with pytest.raises(Misuse, match="has subscribed to event of service s already"):
        proxy.subscribe(EVENT, 1)
    provider.send(EVENT, b"a")
    (sample,) = proxy.take(EVENT, 1)
    proxy.unsubscribe(EVENT)
    assert not proxy.subscribed(EVENT)
    with pytest.raises(Misuse, match="still holds 1"):
        proxy.subscribe(EVENT, 1)
    with pytest.raises(Misuse, match="has not subscribed"):
        proxy.take(EVENT, 1)
    with pytest.raises(Misuse, match="has not subscribed"):
        proxy.unsubscribe(EVENT)
    assert element(place, EVENT)["logs"] == [{"slot": 0, "state": "active", "samples": 1}]
    sample.release()
    assert element(place, EVENT)["logs"] == []
    proxy.subscribe(EVENT, 1)


def test_full_says_what_is_in_use(
    place: str, provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    with pytest.raises(Full, match=r"cannot lend 6 samples.*has 8.*provider needs 2"):
        proxy.subscribe(EVENT, 6)
    proxy.subscribe(EVENT, 4)
    with connect(place) as second, connect(place) as third:
        with pytest.raises(Full, match=f"pid {os.getpid()} has 4"):
            second.subscribe(EVENT, 1)
        proxy.unsubscribe(EVENT)
        proxy.subscribe(EVENT, 1)
        second.subscribe(EVENT, 1)
        with pytest.raises(Full, match="2 subscribers, as many as its max_subscribers"):
            third.subscribe(EVENT, 1)
        provider.send(EVENT, b"a")
        with pytest.raises(Full, match="max_subscribers"):
            third.read(EVENT)


def test_read_copies_the_newest(
    place: str, provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    assert proxy.read(FIELD) is provider.newest(FIELD) is None
    provider.send(FIELD, b"a")
    assert proxy.read(FIELD) == provider.newest(FIELD) == b"a"
    assert not proxy.subscribed(FIELD)
    proxy.subscribe(FIELD, 1)
    provider.send(FIELD, b"b" * LARGE)
    assert proxy.read(FIELD) == provider.newest(FIELD) == b"b" * LARGE
    (sample,) = proxy.take(FIELD, 1, 0)  # a read takes nothing away
    assert proxy.read(FIELD) == b"b" * LARGE == bytes(sample)
    provider.send(FIELD, b"c")
    assert proxy.read(FIELD) == b"c"
    proxy.unsubscribe(FIELD)
    assert proxy.read(FIELD) == b"c"
    sample.release()
    assert element(place, FIELD)["logs"] == []
    assert all(each["holders"] == [] for each in element(place, FIELD)["samples"])


def test_a_tracer_gets_every_sample(
    place: str, provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    with connect(place, tracer=True) as tracer:
        assert tracer.tracer
        tracer.subscribe(EVENT, 3)
        for n in range(4):
            provider.send(EVENT, b"%d" % n)
        assert data(tracer.take(EVENT, 9, 0)) == [(b"0", 1, 0), (b"1", 2, 0), (b"2", 3, 0)]
        provider.send(EVENT, b"4")
        assert data(tracer.take(EVENT, 9, 0)) == [(b"4", 5, 1)]
        with pytest.raises(Misuse, match="read it with a proxy"):
            tracer.read(EVENT)
        tracer.unsubscribe(EVENT)
        assert tracer.read(EVENT) == b"4"
    assert active(place) == ["proxy", "provider"]


def test_arrays_come_from_the_hook(provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    proxy.subscribe(EVENT, 1)
    provider.send(EVENT, b"ab")
    (sample,) = proxy.take(EVENT, 1)
    with pytest.raises(Misuse, match="not declared as an array"):
        sample.array  # noqa: B018
    with pytest.raises(Misuse, match="for each element"):
        proxy._as_array = [None]
    proxy._as_array = [lambda buffer: list(memoryview(buffer)), None, None]
    assert sample.array == [97, 98]
    provider._as_array = [lambda buffer: memoryview(buffer), None, None]
    loan = provider.loan(EVENT)
    loan.array[:2] = b"cd"
    loan.publish()
    assert (proxy.read(EVENT) or b"")[:2] == b"cd"


# -- loans -----------------------------------------------------------------------------------------------


def test_a_loan_is_published_when_its_with_ends(
    provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    loan = provider.loan(EVENT, 4)
    assert (len(loan), loan.sequence) == (4, None)
    with loan as buffer:
        buffer[:] = b"abcd"
    assert (loan.sequence, proxy.read(EVENT)) == (1, b"abcd")
    with pytest.raises(Misuse, match="was published"):
        loan.data  # noqa: B018
    with pytest.raises(Misuse, match="published before"):
        loan.release()
    loan = provider.loan(EVENT)
    loan[0:2] = b"xy"
    assert (loan[0], len(loan)) == (ord("x"), 16)
    assert loan.publish() == 2


def test_a_failed_with_gives_the_loan_back(
    provider: _core.ServiceProvider, proxy: _core.ServiceProxy
) -> None:
    with pytest.raises(KeyError), provider.loan(EVENT):
        raise KeyError
    with (
        pytest.raises(Misuse, match=r"1 views or arrays.*nothing was published"),
        provider.loan(EVENT) as kept,
    ):
        view = kept[:1]
    assert proxy.newest(EVENT) == 0
    with pytest.raises(Misuse, match="at most 1 samples at once"):
        provider.loan(EVENT)
    view.release()
    provider.loan(EVENT).release()
    assert provider.send(EVENT, b"a") == 1


def test_loans_are_limited(provider: _core.ServiceProvider) -> None:
    loan = provider.loan(EVENT)
    with pytest.raises(Misuse, match="lends its provider at most 1"):
        provider.send(EVENT, b"a")
    del loan
    with pytest.raises(Misuse, match="a sample of 17 bytes is too large for event"):
        provider.send(EVENT, bytes(17))
    with pytest.raises(Misuse, match="too large"):
        provider.loan(EVENT, 17)
    with pytest.raises(Misuse, match="at least 0 bytes"):
        provider.loan(EVENT, -1)
    with pytest.raises(TypeError):
        provider.send(EVENT, "text")  # type: ignore[arg-type]


def test_views_of_a_loan_keep_the_closed_provider(place: str) -> None:
    provider = offer(place)
    loan = provider.loan(EVENT)
    view = loan.data
    with connect(place) as proxy:
        provider.close()
        assert not proxy.offered
        assert proxy.call(METHOD, b"a", 0) == (ABSENT, 0, None)
        with pytest.raises(Exists):
            offer(place)
        view[:1] = b"x"
        with pytest.raises(Misuse, match="was released"):
            loan.publish()
        view.release()
        with offer(place) as second:
            assert second.reused
            assert second.send(EVENT, b"a") == 1


# -- looking from outside --------------------------------------------------------------------------------


def test_inspect_shows_all(place: str, provider: _core.ServiceProvider, proxy: _core.ServiceProxy) -> None:
    proxy.subscribe(EVENT, 2)
    provider.send(EVENT, b"abc")
    (sample,) = proxy.take(EVENT, 1)
    loan = provider.loan(EVENT)
    seen = _core.inspect_service(place, "s")
    assert (seen["faults"], seen["overtaken"], seen["notices"], seen["epoch"]) == ([], False, [], 1)
    assert seen["params"]["elements"] == ELEMENTS
    assert [(each["role"], each["alive"], each["application"]) for each in seen["people"]] == [
        ("proxy", True, "taker"),
        ("provider", True, "giver"),
    ]
    event = seen["elements"][EVENT]
    assert (event["name"], event["published"]) == ("event", 1)
    assert event["samples"][0] == {"sequence": 1, "length": 3, "writing": False, "holders": [0]}
    assert [each["writing"] for each in event["samples"]].count(True) == 1
    assert event["logs"] == [{"slot": 0, "state": "active", "samples": 2}]
    assert seen["elements"][METHOD]["calls"] == [{"state": "idle", "owner": 0, "number": 0}] * 2
    del sample, loan


def test_points_can_be_armed() -> None:
    points = _core.service_points()
    assert {"sample_allocated", "log_asked", "call_claimed", "notice_busy", "marker_held", "offer_open"} <= {
        *points
    }
    for point in points:
        _core.arm(point, "kill", 1 << 40)
    _core.disarm()


def test_a_watch_tells_names(place: str) -> None:
    watch = _core.DirectoryWatch(place)
    assert watch.read() == []
    provider = offer(place)
    assert {"holdfast.offer.s", "holdfast.service.s"} <= {*watch.read()}
    provider.close()
    assert {"holdfast.offer.s", "holdfast.service.s"} <= {*watch.read()}
    assert watch.fileno() >= 0
    watch.close()
    watch.close()
    with pytest.raises(Closed):
        watch.read()
    with pytest.raises(NotFound, match="cannot be watched"):
        _core.DirectoryWatch(place + "/none")
