"""The ends of a service's numbers: sequences, calls, epochs, sizes, names, participants, notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Event,
    Field,
    Full,
    HoldfastError,
    Method,
    Misuse,
    Proxy,
    Service,
    Skeleton,
    TooManyParticipants,
    _core,
)
from tests.kit.processes import until
from tests.kit.service.words import PROVIDER, Words

SEQUENCE_MAX = 1 << 62
CALL_NUMBER_MAX = (1 << 55) - 1
EPOCH_MAX = (1 << 64) - 1


class Old(Service):
    tick = Event(size=8, samples=6, loans=2)
    label = Field(8, samples=6, calls=1)
    echo = Method(8, 8, calls=1)


def offer_old(directory: Path, sequence: int = 0, call: int = 0, epoch: int = 0) -> Skeleton:
    """Offer an instance that is old from the start."""
    elements = [element.tuple_of(name) for name, element in Old._elements.items()]
    core = _core.ServiceProvider(str(directory), "Old.i", "x", elements, 0o600, -1, sequence, call, epoch)
    return Skeleton(core, Old._elements, {"echo": lambda data: data}, None)


@pytest.mark.parametrize("first", [(1 << 16) - 2, (1 << 31) - 2, (1 << 32) - 2, (1 << 53) - 2])
def test_sequence_numbers_pass_the_end_of_narrower_numbers(runtime_directory: Path, first: int) -> None:
    with offer_old(runtime_directory, first) as skeleton, Old.find("i") as proxy:
        ticks = proxy.tick.subscribe(max_samples=2)
        for n in range(9):
            assert skeleton.tick.send(b"%d" % n) == first + n + 1
        assert [(each.sequence - first, each.missed) for each in ticks.take_new()] == [(8, 7), (9, 0)]
        skeleton.label.update(b"new")
        assert proxy.label.get() == b"new"
        assert proxy.label.set(b"newer") == b"newer"
        assert proxy.check() == []


def test_the_last_sequence_number(runtime_directory: Path) -> None:
    with offer_old(runtime_directory, SEQUENCE_MAX - 2) as skeleton, Old.find("i") as proxy:
        ticks = proxy.tick.subscribe(max_samples=2)
        assert [skeleton.tick.send(b"%d" % n) for n in range(2)] == [SEQUENCE_MAX - 1, SEQUENCE_MAX]
        for _ in range(3):
            with pytest.raises(HoldfastError, match="used up its sequence numbers"):
                skeleton.tick.send(b"x")
        loan = skeleton.tick.loan(1)
        with pytest.raises(HoldfastError, match="used up its sequence numbers"):
            loan.publish()
        loan.release()
        with pytest.raises(HoldfastError, match="used up"), skeleton.tick.loan(1):
            pass
        skeleton._core.loan(0).release()  # no loan is lost
        assert [bytes(each) for each in ticks.take_new()] == [b"0", b"1"]
        assert proxy.check() == []
    with offer_old(runtime_directory, SEQUENCE_MAX) as skeleton, Old.find("i"):
        with pytest.raises(HoldfastError, match="used up"):
            skeleton.tick.send(b"x")
        assert skeleton.check() == []


def test_the_last_call_number(runtime_directory: Path) -> None:
    with offer_old(runtime_directory, call=CALL_NUMBER_MAX - 2) as skeleton, Old.find("i") as proxy:
        for _ in range(2):
            assert proxy.echo(b"x") == b"x"
        for timeout in (0, 0.01, None):
            with pytest.raises(HoldfastError, match="used up its 55 bits of call numbers"):
                proxy.echo(b"x", timeout)
        assert proxy.label.set(b"y") == b"y", "each element has its own"
        assert skeleton.stats().elements[2].calls_under_way == 0
        assert proxy.check() == []


def test_the_epoch_wraps(runtime_directory: Path) -> None:
    """It is compared only for equality."""
    with offer_old(runtime_directory, epoch=EPOCH_MAX - 1) as skeleton:
        proxy = Old.find("i")
        assert skeleton.epoch == proxy.epoch == EPOCH_MAX
    with Old.offer("i", handlers={"echo": lambda data: data}) as again:
        assert (again.reused, again.epoch, proxy.epoch) == (True, 0, 0)
        assert proxy.echo(b"x") == b"x"
        assert proxy.check() == []
        proxy.close()


def test_bells_wrap(runtime_directory: Path) -> None:
    with Old.offer("i") as skeleton, Old.find("i") as proxy:
        words = Words(Old, "i")
        for offset in (words.control["tick"], words.provider_bell):
            words.write(offset, (1 << 32) - 2, 4)
        bell = proxy._core.bell(0)
        assert bell._listen(False) == (1 << 32) - 1
        ticks = proxy.tick.subscribe()
        skeleton.tick.send(b"x")
        assert bell._listen(False) == 1, "it rang"
        with ticks.take(1) as sample:
            assert bytes(sample) == b"x"
        until(lambda: proxy.label.set(b"y", timeout=20) and words.read(words.provider_bell, 4) < 1000)


def test_counters_of_a_slot_wrap(runtime_directory: Path) -> None:
    """Counters are for people: no decision depends on them, and sums have no width."""
    with Old.offer("i", handlers={"echo": lambda data: data}) as skeleton, Old.find("i") as proxy:
        words = Words(Old, "i")
        ticks = proxy.tick.subscribe()
        for slot in (0, PROVIDER):
            words.write(words.counters(slot), (1 << 64 * 9) - 1, 72)
        for _ in range(3):
            skeleton.tick.send(b"x")
            ticks.take(0).release()
            proxy.echo(b"x")
        stats = skeleton.stats()
        assert (stats.sent, stats.taken) == (2 + (1 << 64) - 1, 2 + (1 << 64) - 1)
        assert (stats.called, stats.answered) == (2 + (1 << 64) - 1, 2 + (1 << 64) - 1)
        assert skeleton.check() == []


# -- participants -------------------------------------------------------------------------------------


def test_62_proxies_and_a_tracer(runtime_directory: Path) -> None:
    with Old.offer("i") as skeleton:
        proxies = [Old.find("i", 0) for _ in range(62)]
        with pytest.raises(TooManyParticipants):
            Old.find("i", 0)
        with Old.trace("i", 0) as tracer:
            assert tracer._core.slot == 62
            with pytest.raises(TooManyParticipants):
                Old.trace("i", 0)
            last = proxies[-1].tick.subscribe()
            assert proxies[-1]._core.slot == 61
            skeleton.tick.send(b"x")
            with last.take(0) as sample:
                assert bytes(sample) == b"x"
        for proxy in proxies:
            proxy.close()


# -- declarations -------------------------------------------------------------------------------------


def test_the_number_of_elements(runtime_directory: Path) -> None:
    def kind(count: int) -> type[Service]:
        return type("Many", (Service,), {f"e{n}": Event(size=1, samples=4) for n in range(count)})

    with pytest.raises(Misuse, match="1 to 64 elements, not 65"):
        kind(65).offer("i")
    with kind(64).offer("i") as skeleton, kind(64).find("i") as proxy:
        last = proxy.e63.subscribe()
        skeleton.e63.send(b"x")
        assert bytes(last.take(0)) == b"x"
        assert proxy.check() == []


def test_the_number_of_samples(runtime_directory: Path) -> None:
    with pytest.raises(Misuse, match="samples must be 4 to 4096"):
        Event(size=1, samples=4097)

    class Many(Service):
        tick = Event(size=1, samples=4096)

    with Many.offer("i") as skeleton, Many.find("i") as proxy:
        for wrong in (0, 4097, -1, 1 << 31, 1 << 64):
            with pytest.raises(Misuse, match="max_samples must be 1 to 4096"):
                proxy.tick.subscribe(max_samples=wrong)
        with pytest.raises(Full, match="the provider needs 2"):
            proxy.tick.subscribe(max_samples=4094)
        ticks = proxy.tick.subscribe(max_samples=4093)
        for n in range(4200):
            skeleton.tick.send(b"%d" % (n % 10))
        held = ticks.take_new()
        assert (len(held), held[0].missed, held[-1].sequence) == (4093, 107, 4200)
        for _ in range(10):
            skeleton.tick.send(b"x")
        assert bytes(held[-1]) == b"9"
        assert proxy.check() == []


@pytest.mark.parametrize("history", [0, 1, 5, 4096])
def test_history_beyond_what_is_there(runtime_directory: Path, history: int) -> None:
    with Old.offer("i") as skeleton, Old.find("i") as proxy:
        for n in range(3):
            skeleton.tick.send(b"%d" % n)
        with proxy.tick.subscribe(max_samples=2, history=history) as ticks:
            got = ticks.take_new()
            assert [bytes(each) for each in got] == [b"1", b"2"][2 - min(history, 2) :]
            assert sum(each.missed for each in got) == max(0, min(history, 3) - 2)
            del got
        for wrong in (-1, 4097, 1 << 64):
            with pytest.raises(Misuse, match="history must be 0 to 4096"):
                proxy.tick.subscribe(history=wrong)


@pytest.mark.parametrize("size", [0, -1, (1 << 31) + 1, 1 << 32, 1 << 63, 1 << 64, 1 << 200])
def test_sizes_beyond_their_width_are_misuse(size: int) -> None:
    makers: list[Any] = [lambda: Event(size=size), lambda: Field(size), lambda: Method(size)]
    for maker in [*makers, lambda: Method(None, size), lambda: Event(dtype="u1", shape=(size,))]:
        with pytest.raises(Misuse):
            maker()


def test_the_largest_sizes(runtime_directory: Path) -> None:
    assert Event(size=1 << 31).tuple_of("e")[6] == Field(1 << 31, settable=False).tuple_of("f")[6] == 1 << 31

    class Large(Service):
        call = Method(1 << 24, 1 << 24, calls=1)

    for most in ((1 << 24) + 1, 1 << 31):
        for maker in (lambda: Method(most), lambda: Method(None, most), lambda: Field(most)):  # noqa: B023
            with pytest.raises(Misuse, match="at most 16777216 bytes"):
                maker()
    with Large.offer("i", handlers={"call": lambda data: data}), Large.find("i") as proxy:
        request = bytes(1 << 24)
        assert proxy.call(request) == request
        with pytest.raises(Misuse, match="at most 16777216 bytes"):
            proxy.call(request + b"x")
        assert proxy.check() == []


def test_the_longest_names(runtime_directory: Path) -> None:
    longest = "i" * (100 - len("Old."))
    with Old.offer(longest) as skeleton, Old.find(longest, 0) as proxy:
        assert Old.find_all() == [longest]
        assert proxy.name == skeleton.name == f"Old.{longest}"
    for act in (Old.offer, lambda name: Old.find(name, 0)):
        with pytest.raises(Misuse, match="1 to 100"):
            act(longest + "i")
    long: Any = type("Long", (Service,), {"e" * 63: Event(size=1)})
    with long.offer("i"), long.find("i", 0):
        pass
    with pytest.raises(Misuse, match="at most 63 bytes"):
        type("Long", (Service,), {"e" * 64: Event(size=1)}).offer("i")  # type: ignore[attr-defined]


def test_the_longest_application(runtime_directory: Path) -> None:
    name = "ä" * 63 + "a"
    with Old.offer("i", application=name) as skeleton, Old.find("i", application=name) as proxy:
        assert {user.application for user in skeleton.stats().users} == {name}
        assert isinstance(proxy, Proxy)
    for wrong in (name + "a", ""):
        with pytest.raises(Misuse, match="1 to 127 bytes"):
            Old.offer("i", application=wrong)
