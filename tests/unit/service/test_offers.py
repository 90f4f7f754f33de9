"""Offer, find, restart and watch instances, in one process."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import struct
from pathlib import Path
from queue import Queue

import pytest

from holdfast import (
    Busy,
    Closed,
    Corrupt,
    Denied,
    Event,
    Exists,
    Field,
    Full,
    LayoutMismatch,
    Method,
    Misuse,
    NotFound,
    Service,
    Timeout,
    TooManyParticipants,
    _core,
)
from tests.kit.processes import until

OFD_SETLK = 37
"""`F_OFD_SETLK`, which Python 3.11 does not name."""


class Clock(Service):
    tick = Event(size=8, samples=8)
    rate = Field("f8")


@pytest.fixture(autouse=True)
def _directory(runtime_directory: Path) -> None:
    return


def test_find_waits_until_it_is_offered() -> None:
    with pytest.raises(NotFound, match="not offered"):
        Clock.find("a", timeout=0)
    with pytest.raises(Timeout, match=r"waited 0\.02 s"):
        Clock.find("a", timeout=0.02)
    with pytest.raises(NotFound):
        asyncio.run(Clock.afind("a", timeout=0))
    with pytest.raises(Timeout, match=r"waited 0\.02 s"):
        asyncio.run(Clock.afind("a", timeout=0.02))
    with pytest.raises(Misuse, match="timeout"):
        asyncio.run(Clock.afind("a", timeout=-1))
    with Clock.offer("a"):
        Clock.find("a", timeout=0).close()
        asyncio.run(Clock.afind("a", timeout=0)).close()

    async def late() -> None:
        finding = asyncio.ensure_future(Clock.afind("a", timeout=20))
        await asyncio.sleep(0)
        assert not finding.done()
        with Clock.offer("a"):
            (await finding).close()

    asyncio.run(late())


def test_one_provider() -> None:
    with Clock.offer("a") as skeleton:
        with pytest.raises(Exists, match=f"pid {os.getpid()}"):
            Clock.offer("a")
        Clock.offer("b").close()
        skeleton.tick.send(b"x")
    Clock.offer("a").close()


def test_one_provider_also_without_its_marker(runtime_directory: Path) -> None:
    marker = runtime_directory / "holdfast.offer.Clock.a"
    with Clock.offer("a") as skeleton:
        marker.unlink()
        Clock.find("a", timeout=0).close()  # the last proxy removes what is unused
        with Clock.find("a", timeout=0):
            pass
        with pytest.raises(Exists, match=f"pid {os.getpid()}"):
            Clock.offer("a")
        with Clock.find("a", timeout=0), pytest.raises(Exists, match=f"pid {os.getpid()}"):
            Clock.offer("a")
        assert skeleton._core.has_name
    assert list(runtime_directory.iterdir()) == []


def test_a_descriptor_that_is_not_the_markers_any_more_stays_open(runtime_directory: Path) -> None:
    marker = runtime_directory / "holdfast.offer.Clock.a"
    skeleton = Clock.offer("a")
    [number] = [int(fd.name) for fd in Path("/proc/self/fd").iterdir() if _leads_to(fd, marker)]
    with (runtime_directory / "other").open("w") as other:
        os.dup2(other.fileno(), number)  # as if it was closed, and its number used again
    skeleton.close()
    os.write(number, b"not closed by a stranger")
    os.close(number)


def _leads_to(link: Path, file: Path) -> bool:
    try:
        return link.readlink() == file
    except OSError:
        return False


def test_nothing_is_left_behind(runtime_directory: Path) -> None:
    with Clock.offer("a"), Clock.find("a"):
        assert len(list(runtime_directory.iterdir())) == 2
    assert list(runtime_directory.iterdir()) == []
    skeleton, proxy = Clock.offer("a"), Clock.find("a")
    skeleton.close()
    assert [each.name for each in runtime_directory.iterdir()] == ["holdfast.service.Clock.a"]
    proxy.close()  # never removes: stopped in the middle of it, it would keep every provider out
    assert [each.name for each in runtime_directory.iterdir()] == ["holdfast.service.Clock.a"]
    Clock.offer("a").close()
    assert list(runtime_directory.iterdir()) == []


def test_unlink(runtime_directory: Path) -> None:
    with pytest.raises(NotFound):
        Clock.unlink("a")
    with Clock.offer("a") as skeleton:
        with pytest.raises(Busy, match="offered or used"):
            Clock.unlink("a")
        with Clock.find("a"):
            skeleton.close()
            with pytest.raises(Busy):
                Clock.unlink("a")
    Clock.unlink("a")
    assert list(runtime_directory.iterdir()) == []


def test_a_restart_in_use_goes_on(runtime_directory: Path) -> None:
    with Clock.offer("a") as first:
        proxy = Clock.find("a")
        ticks = proxy.tick.subscribe(max_samples=2)
        first.tick.send(b"1")
        first.rate.update(2.0)
        assert not first.reused
    assert not proxy.offered
    assert proxy.provider_pid is None
    with Clock.offer("a") as second:
        assert second.reused
        assert (second.epoch, proxy.epoch) == (2, 2)
        assert proxy.provider_pid == os.getpid()
        assert second.rate.value == 2.0
        for n in range(5):
            second.tick.send(b"%d" % n)
        assert [(each.sequence, each.missed) for each in ticks.take_new()] == [(5, 4), (6, 0)]
        proxy.close()
    with Clock.offer("a") as third:
        assert not third.reused
        assert third.epoch == 1


def test_another_declaration_is_refused_while_in_use() -> None:
    class Other(Service, name="Clock"):
        tick = Event(size=16, samples=8)

    with Clock.offer("a"):
        proxy = Clock.find("a")
        with pytest.raises(LayoutMismatch, match="tick, rate"):
            Other.find("a", 0)
    with pytest.raises(LayoutMismatch, match=f"pid {os.getpid()}"):
        Other.offer("a")
    proxy.close()
    with Other.offer("a"):
        Other.find("a", 0).close()


def test_a_proxy_follows_an_instance_that_was_created_anew(runtime_directory: Path) -> None:
    with Clock.offer("a") as first:
        proxy = Clock.find("a")
        ticks = proxy.tick.subscribe(max_samples=2)
        first.tick.send(b"old")
    (runtime_directory / "holdfast.service.Clock.a").unlink()
    with Clock.offer("a") as second:
        second.tick.send(b"new")
        with ticks.take(timeout=20) as sample:
            assert bytes(sample.data) == b"new"
        assert ticks.moves == 1
        assert proxy.offered
    proxy.close()


def test_a_subscription_that_does_not_fit_there_ends_alone(runtime_directory: Path) -> None:
    with Clock.offer("a") as first:
        proxy = Clock.find("a")
        ticks = proxy.tick.subscribe(max_samples=5)
        rates = proxy.rate.subscribe()
        first.tick.send(b"old")
    (runtime_directory / "holdfast.service.Clock.a").unlink()
    with Clock.offer("a") as second, Clock.find("a") as quick:
        quick.tick.subscribe(max_samples=5)
        with pytest.raises(Full):
            rates.take(0)
        with pytest.raises(Closed, match="subscribe again"):
            ticks.take(0)
        second.rate.update(3.0)
        with rates.take(1) as sample:
            assert rates.value(sample) == 3.0
    proxy.close()


def test_a_handler_goes_on_with_the_next_provider() -> None:
    got: list[tuple[bytes, int]] = []
    with Clock.offer("a") as first:
        proxy = Clock.find("a")
        proxy.tick.subscribe(handler=lambda sample: got.append((bytes(sample.data), sample.missed)))
        first.tick.send(b"1")
        until(lambda: got)
    with pytest.raises(NotFound):
        proxy.wait_offered(0)
    with pytest.raises(Timeout):
        proxy.wait_offered(0.01)
    with Clock.offer("a") as second:
        proxy.wait_offered(0)
        second.tick.send(b"2")
        until(lambda: len(got) == 2)
        proxy.close()
    assert got == [(b"1", 0), (b"2", 0)]


def test_a_handler_goes_on_when_another_thread_follows(runtime_directory: Path) -> None:
    got: Queue[bytes] = Queue()
    with Clock.offer("a") as first:
        proxy = Clock.find("a")
        proxy.tick.subscribe(max_samples=2, handler=lambda sample: got.put(bytes(sample.data)))
        first.tick.send(b"old")
        assert got.get(timeout=10) == b"old"  # the thread waits for the next one
    (runtime_directory / "holdfast.service.Clock.a").unlink()
    with Clock.offer("a") as second:
        assert proxy.offered
        second.tick.send(b"new")
        assert got.get(timeout=10) == b"new"
    proxy.close()


def test_a_subscription_that_cannot_follow_does_not_hinder_others(runtime_directory: Path) -> None:
    class Two(Service):
        narrow = Event(size=8, samples=5)
        wide = Event(size=8, samples=16)

    with Two.offer("a"):
        proxy = Two.find("a")
        narrow, wide = proxy.narrow.subscribe(2), proxy.wide.subscribe(2)
    (runtime_directory / "holdfast.service.Two.a").unlink()
    with Two.offer("a") as second, Two.find("a") as other:
        other.narrow.subscribe(2)
        with pytest.raises(Full, match="narrow"):
            _ = proxy.offered
        with pytest.raises(Closed):
            narrow.take(0)
        second.wide.send(b"new")
        with wide.take(timeout=10) as sample:
            assert bytes(sample.data) == b"new"
        proxy.close()
        assert not proxy._core.attached


def test_find_all_and_watch() -> None:
    assert Clock.find_all() == []
    with Clock.offer("b"), Clock.offer("a.1"):
        assert Clock.find_all() == ["a.1", "b"]
        changes = Clock.watch(timeout=20)
        assert next(changes) == ("a.1", True)
        assert next(changes) == ("b", True)
    assert sorted((next(changes), next(changes))) == [("a.1", False), ("b", False)]
    with Clock.offer("c"):
        assert next(changes) == ("c", True)
    assert list(Clock.watch(timeout=0)) == []


def test_a_class_from_the_segment() -> None:
    class Lens(Service):
        image = Event(dtype=[("x", "u1"), ("y", "f4")], shape=(4,), samples=6)
        zoom = Field(("f4", (2,)), initial=[1, 2])
        focus = Method("f8", 16)

    with Lens.offer("a", handlers={"focus": lambda distance: b"%d" % distance}):
        found = Service.of("Lens.a")
        described = [element.tuple_of(name) for name, element in found._elements.items()]
        assert described == [element.tuple_of(name) for name, element in Lens._elements.items()]
        with found.find("a") as proxy:
            assert proxy.focus(3.0) == b"3"
            assert proxy.zoom.get().tolist() == [1, 2]
    with pytest.raises(NotFound):
        Service.of("Lens.a")
    with pytest.raises(Misuse, match=r"write SERVICE\.INSTANCE"):
        Service.of("Lens")


def test_only_one_tracer_and_62_proxies() -> None:
    with Clock.offer("a") as skeleton:
        tracer = Clock.trace("a", 0)
        with pytest.raises(TooManyParticipants, match=f"Clock.a can have 1 tracer.*pid {os.getpid()}"):
            Clock.trace("a", 0)
        tracer.close()
        Clock.trace("a", 0).close()
        proxies = [Clock.find("a", 0) for _ in range(62)]
        with pytest.raises(TooManyParticipants, match=f"can have 62 proxies.*pid {os.getpid()}"):
            Clock.find("a", 0)
        proxies.pop().close()
        proxies.append(Clock.find("a", 0))
        for proxy in proxies:
            proxy.close()
        assert len(skeleton.stats().users) == 1


@pytest.mark.parametrize("name", ["", "a b", "../a", "é", "a/b", 3])
def test_names_that_are_not_valid(name: str) -> None:
    with pytest.raises(Misuse):
        Clock.offer(name)
    with pytest.raises(Misuse):
        Clock.find(name, 0)


def test_declarations_that_are_not_valid() -> None:
    for name in ("close", "name", "elements", "_frame"):
        with pytest.raises(Misuse, match=name):
            type("Bad", (Service,), {name: Event(size=1)})
    with pytest.raises(Misuse, match="no elements"):
        type("Bad", (Service,), {}).offer("a")  # type: ignore[attr-defined]
    with pytest.raises(Misuse, match="subclass"):
        Service.offer("a")
    with pytest.raises(Misuse, match="name of a service"):
        type("Bad", (Service,), {}, name="a.b")
    with pytest.raises(Misuse, match="application"):
        Clock.offer("a", application="x" * 200)
    with pytest.raises(Misuse):
        Clock.offer("a", mode=0o10000)


def overwrite(file: Path, data: bytes) -> None:
    with file.open("r+b") as opened:  # not cut off: the provider uses it
        opened.write(data)


def test_damaged_memory_is_refused(runtime_directory: Path) -> None:
    with Clock.offer("a"):
        file = runtime_directory / "holdfast.service.Clock.a"
        for offset, what in ((16, "header"), (4096 + 64, "table"), (200, "header")):
            flip(file, offset)
            with pytest.raises(Corrupt, match=what):
                Clock.find("a", 0)
            assert _core.inspect_service(str(runtime_directory), "Clock.a")["faults"]
            flip(file, offset)


def flip(file: Path, offset: int) -> None:
    """Change a byte in place; the second time, back.

    To truncate a mapped file would be a SIGBUS.
    """
    with file.open("r+b") as opened:
        opened.seek(offset)
        byte = opened.read(1)[0]
        opened.seek(offset)
        opened.write(bytes([byte ^ 0x5A]))


def test_a_class_from_a_damaged_segment_is_refused(runtime_directory: Path) -> None:
    (runtime_directory / "holdfast.service.Clock.a").write_bytes(bytes(100))
    with pytest.raises(Corrupt, match="cannot be read"):
        Service.of("Clock.a")


def test_a_class_of_any_name_from_the_segment() -> None:
    class Odd(Service, name="a-1"):
        tick = Event(size=8)

    with Odd.offer("x"), Service.of("a-1.x").find("x", 0) as proxy:
        assert proxy.name == "a-1.x"


def test_a_segment_that_cannot_be_opened_or_locked_is_refused(runtime_directory: Path) -> None:
    file, aside = runtime_directory / "holdfast.service.Clock.a", runtime_directory / "aside"
    with Clock.offer("a") as skeleton:
        file.rename(aside)
        file.symlink_to(aside)
        with pytest.raises(Denied, match="symbolic link"):
            Clock.find("a", 0)
        file.unlink()
        os.mkfifo(file)
        with pytest.raises(Denied, match="not a regular file"):
            Clock.find("a", 0)
        aside.rename(file)
        with file.open("r+b") as other:  # as a provider that is about to remove it
            wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 1 << 40, 63, 0)
            fcntl.fcntl(other, OFD_SETLK, wanted)
            with pytest.raises(TooManyParticipants, match=re.escape(str(file))):
                Clock.find("a", 0)
        Clock.find("a", 0).close()
        assert len(skeleton.stats().users) == 1


def test_all_logs_of_a_proxy_share_its_descriptors() -> None:
    with Clock.offer("a"), Clock.find("a") as proxy:
        before = sorted(Path("/proc/self/fd").iterdir())
        ticks, rates = proxy.tick.subscribe(), proxy.rate.subscribe()
        assert sorted(Path("/proc/self/fd").iterdir()) == before
        assert [each.subscribers for each in proxy.stats().elements] == [1, 1]
        ticks.close()
        rates.close()
