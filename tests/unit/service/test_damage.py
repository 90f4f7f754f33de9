"""Overwrite words of a service: each call ends, with a clear error.

tests/torture/test_service_hostile.py overwrites every word.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import (
    Corrupt,
    Event,
    Field,
    Full,
    HoldfastError,
    Method,
    Misuse,
    Proxy,
    Service,
    Skeleton,
    Timeout,
    _core,
)
from holdfast.cli import main
from tests.kit.processes import until
from tests.kit.service.words import WRITING, Words
from tests.kit.waiting import Waiting

IDLE, CLAIMED, CALL, RUNNING, DONE = range(5)
CALL_NUMBER_MAX = (1 << 55) - 1


class Rig(Service):
    frame = Event(size=16, samples=6)
    gain = Field("f8", samples=8)
    echo = Method(8, 8, calls=2)


Pair = tuple[Skeleton, Proxy]


@pytest.fixture
def pair(runtime_directory: Path) -> Iterator[Pair]:
    with Rig.offer("i", handlers={"echo": lambda data: data}) as skeleton, Rig.find("i") as proxy:
        yield skeleton, proxy


@pytest.fixture
def words(pair: Pair) -> Words:
    return Words(Rig, "i")


def newest_word(words: Words, name: str) -> int:
    """Return the offset of the word of the newest sample."""
    number = words.read(words.published(name))
    return words.word(name, words.read(words.index(name, number), 4))


def test_a_newest_sample_that_cannot_be_held(pair: Pair, words: Words) -> None:
    """The word says WRITING: without a limit, a get would look for ever."""
    skeleton, proxy = pair
    frames = proxy.frame.subscribe()
    skeleton.gain.update(2.0)
    skeleton.frame.send(b"x")
    for name in ("gain", "frame"):
        words.write(newest_word(words, name), WRITING)
    for _ in range(2):
        with pytest.raises(Corrupt, match="word of the newest sample, which cannot be held"):
            proxy.gain.get()
        with pytest.raises(Corrupt, match="word of the newest sample"):
            frames.take(timeout=None)
    assert proxy.stats().corrupt == 4
    assert any("is not there" in each for each in proxy.check())
    skeleton.gain.update(3.0)  # the provider goes on, and so do the others
    assert proxy.gain.get() == 3.0
    skeleton.frame.send(b"y")
    with frames.take(0) as sample:
        assert bytes(sample) == b"y"


def test_all_samples_seem_to_be_held(pair: Pair, words: Words) -> None:
    skeleton, _ = pair
    for value in (WRITING, WRITING - 1, 1 << 61):
        for sample in range(6):
            words.write(words.word("frame", sample), value)
        with pytest.raises(Full, match="no free sample"):
            skeleton.frame.send(b"x")
        with pytest.raises(Full, match="doctor"):
            skeleton.frame.loan(1)
    for sample in range(6):
        words.write(words.word("frame", sample), 0)
    assert skeleton.frame.send(b"x") == 1


def test_places_of_calls_whose_numbers_are_used_up(pair: Pair, words: Words) -> None:
    """Without the error, a call without a timeout would wait for ever."""
    _, proxy = pair
    for place in range(2):
        words.write(words.call("echo", place), CALL_NUMBER_MAX << 9)
    with pytest.raises(HoldfastError, match="55 bits of call numbers"):
        proxy.echo(b"x", timeout=None)
    words.write(words.call("echo", 1), (CALL_NUMBER_MAX - 1) << 9)
    assert proxy.echo(b"y") == b"y"


@pytest.mark.parametrize("state", [CLAIMED, CALL, RUNNING, DONE, 5, 6, 7])
def test_calls_of_no_process(pair: Pair, words: Words, state: int) -> None:
    _, proxy = pair
    for place in range(2):
        words.write(words.call("echo", place), 7 << 9 | 40 << 3 | state)
    with contextlib.suppress(Timeout):
        assert proxy.echo(b"x", timeout=0.02) == b"x"
    if state not in (IDLE, CALL, 6):
        assert any("no process" in each or "does not exist" in each for each in proxy.check())


def test_a_call_that_is_overwritten_while_it_waits(pair: Pair, words: Words) -> None:
    skeleton, proxy = pair

    def overwrite(data: bytes) -> bytes:
        for place in range(2):
            words.write(words.call("echo", place), 99 << 9 | DONE)
        return data

    skeleton.echo.handle(overwrite)
    with pytest.raises(Corrupt, match=r"at place \d was overwritten"):
        proxy.echo(b"x", timeout=20)


@pytest.mark.parametrize("word", [1, 2, 3, 5 << 2 | 2, (1 << 32) - 1])
def test_logs_of_no_process(pair: Pair, words: Words, word: int) -> None:
    _, proxy = pair
    assert proxy._core.slot == 0
    for slot in range(1, 60):
        words.write(words.log("frame", slot), word, 4)
    assert any("belongs to no participant" in each for each in proxy.check())
    proxy.frame.subscribe(max_samples=3).close()  # it has cleared them: no process has these slots
    assert [words.read(words.log("frame", slot), 4) for slot in range(60)] == [0] * 60


def test_an_own_log_that_was_overwritten(pair: Pair, words: Words) -> None:
    _, proxy = pair
    words.write(words.log("frame", 0), 3 << 2 | 2, 4)
    with pytest.raises(Corrupt, match=r"the log of slot 0 for frame of service .* holds 14"):
        proxy.frame.subscribe()
    words.write(words.log("frame", 0), 0, 4)
    proxy.frame.subscribe().close()


def test_numbers_of_samples_that_cannot_be(pair: Pair, words: Words) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe()
    for n in range(4):
        skeleton.frame.send(b"%d" % n)
    words.write(words.published("frame"), (1 << 62) + 1)
    with pytest.raises(Corrupt, match="number of the newest sample"):
        frames.take(0)
    words.write(words.published("frame"), 4)
    words.write(words.index("frame", 4), 6, 4)
    with pytest.raises(Corrupt, match="index of a sample"):
        frames.take(0)
    assert any("which does not exist" in each for each in proxy.check())


def test_a_provider_that_comes_back_to_damage(pair: Pair, words: Words) -> None:
    skeleton, proxy = pair
    skeleton.frame.send(b"x")
    skeleton.close()
    words.write(words.sequence("frame", 3), (1 << 62) + 1)
    with pytest.raises(Corrupt, match="sequence number"):
        Rig.offer("i")
    assert not proxy.offered
    words.write(words.sequence("frame", 3), 0)
    with Rig.offer("i") as again:
        assert again.frame.send(b"y") == 2


def test_a_sample_longer_than_its_element(pair: Pair, words: Words) -> None:
    skeleton, proxy = pair
    frames = proxy.frame.subscribe()
    skeleton.frame.send(b"x")
    skeleton.gain.update(1.0)
    words.write(words.length("frame", words.read(words.index("frame", 1), 4)), 1 << 31, 4)
    words.write(words.length("gain", words.read(words.index("gain", 1), 4)), 7, 4)
    with frames.take(0) as sample:
        assert len(sample) == len(bytes(sample.data)) == 16
    assert any("longer than the element's size" in each for each in proxy.check())
    with pytest.raises(Corrupt, match="7 bytes, not 8"):
        proxy.gain.get()


def test_notices_that_no_process_wrote(pair: Pair, words: Words) -> None:
    skeleton, _ = pair
    for place in range(128):
        words.write(words.notice(place), 1 if place % 2 else 99)
        words.write(words.notice(place) + 8, (1 << 64) - 1)
        words.write(words.notice(place) + 32, (1 << 1024) - 1, 128)
    found = skeleton._core.notices()
    assert len(found) == 64
    assert found[0][1] == (1 << 64) - 1
    assert "\ufffd" in found[0][3]
    assert any("notice 0 has a state" in each for each in skeleton.check())


def test_a_proxy_maps_the_data_read_only(pair: Pair, words: Words) -> None:
    maps = Path("/proc/self/maps").read_text().splitlines()
    rights = [line.split()[1] for line in maps if line.endswith(words.path.name)]
    assert {*rights} == {"r--s", "rw-s"}


def test_a_request_longer_than_its_room(runtime_directory: Path) -> None:
    elements = [element.tuple_of(name) for name, element in Rig._elements.items()]
    where, words = str(runtime_directory), Words(Rig, "i")
    with _core.ServiceProvider(where, "Rig.i", "x", elements, 0o600, -1) as provider:
        proxy = _core.ServiceProxy(where, "Rig.i", "y")
        waiting = Waiting(lambda: proxy.call(2, b"abc", 20))
        until(lambda: words.read(words.call("echo", 0)) & 7 == CALL)
        words.write(words.call("echo", 2), 1 << 20, 4)  # behind the words of both calls: the first length
        call = provider.run(5)
        assert len(call.request) == 8
        assert call.answer(0, b"done") is True
        with pytest.raises(Misuse, match="answered before"):
            call.answer(0, b"again")
        assert waiting.end() == (0, 0, b"done")
        waiting = Waiting(lambda: proxy.call(2, b"abc", 20))
        call = provider.run(20)
        del call  # without an answer
        assert waiting.end() == (0, 2, b"")
        with pytest.raises(Misuse, match="no notice at place 128"):
            provider.notice_taken(128)
        proxy.close()


ABOUTS = [
    b"",
    b"{}",
    b"[1,2,3]",
    b"[" * 900,
    b'{"sample":-1,"request":"x","response":{}}',
    b"\xff" * 20,
    b"1" * 900,
]


@pytest.mark.parametrize("about", ABOUTS, ids=range(len(ABOUTS)))
def test_descriptions_that_are_not_possible(runtime_directory: Path, about: bytes) -> None:
    tuples = [element.tuple_of(name) for name, element in Rig._elements.items()]
    tuples[0] = (*tuples[0][:9], about.decode(errors="replace"))
    provider = _core.ServiceProvider(str(runtime_directory), "Rig.i", "x", tuples, 0o600, -1)
    for act in (lambda: Service.of("Rig.i"), lambda: Rig.find("i", 0)):
        with pytest.raises(HoldfastError):
            act()
    provider.close()


@pytest.mark.parametrize("name", ["close", "offer", "_elements", "__class__", "mro"])
def test_elements_with_names_that_a_class_needs(runtime_directory: Path, name: str) -> None:
    element = (name, *Rig._elements["frame"].tuple_of(name)[1:])
    provider = _core.ServiceProvider(str(runtime_directory), "Rig.i", "x", [element], 0o600, -1)
    with pytest.raises(Misuse, match="use another"):
        Service.of("Rig.i")
    provider.close()
    if name in ("close", "offer", "mro"):
        with pytest.raises(Misuse, match="use another"):
            type("Bad", (Service,), {name: Event(size=1)})


def test_the_documented_way_on(pair: Pair, words: Words, capsys: pytest.CaptureFixture[str]) -> None:
    """Follow "After damage" of docs/guide/service.md."""
    page = (Path(__file__).parents[3] / "docs/guide/service.md").read_text()
    paragraph = re.sub(r"\s+", " ", page.partition("## After damage")[2].partition("## ")[0]).strip()
    assert paragraph == (
        "`Corrupt` says which word cannot be as it was found. `holdfast service doctor Camera.left` looks at "
        "all parts. End all processes of the instance; the next offer creates its memory anew."
    )
    skeleton, proxy = pair
    skeleton.gain.update(2.0)
    words.write(newest_word(words, "gain"), WRITING)
    with pytest.raises(Corrupt, match=r"service Rig\.i is damaged"):
        proxy.gain.get()
    assert main(["service", "doctor", "Rig.i"]) == 1
    assert "fault: element gain" in capsys.readouterr().out
    proxy.close()
    skeleton.close()
    with Rig.offer("i") as fresh, Rig.find("i") as other:
        fresh.gain.update(3.0)
        assert other.gain.get() == 3.0
        assert other.check() == []
