"""Overwrite words of a service: inspect_service names each, and changes nothing."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Corrupt, _core

EVENT, METHOD = 0, 1
SAMPLES, CALLS = 8, 2
ELEMENTS: list[_core.ElementTuple] = [
    ("event", 1, SAMPLES, 1, 2, 0, 16, 0, 0, ""),
    ("method", 3, 0, 0, 0, CALLS, 0, 16, 16, ""),
]

# native/holdfast/service/layout.hpp
TABLE = 4096
CONTROLS = 8192
PARTICIPANTS = CONTROLS + 128
NOTICES = PARTICIPANTS + 64 * 128 + 64 * 128
EVENT_CONTROL = NOTICES + 128 * 160
LOGS = EVENT_CONTROL + 64
WORDS = LOGS + 64 * 4
METHOD_CONTROL = WORDS + SAMPLES * 8
CALL_WORDS = METHOD_CONTROL + 64 + 64 * 4
REQUESTS = CALL_WORDS + CALLS * 64
DATA = -(-(REQUESTS + CALLS * (64 + 64)) // 4096) * 4096
SEQUENCES = DATA + 64
INDEX = SEQUENCES + SAMPLES * 8
LENGTHS = INDEX + 64

PROVIDER = 63
WRITING = 1 << PROVIDER


def call_word(state: int, owner: int, number: int) -> int:
    return number << 9 | owner << 3 | state


@pytest.fixture
def path(runtime_directory: Path) -> Iterator[Path]:
    """A service with one subscriber in slot 0, and three samples."""
    place = str(runtime_directory)
    provider = _core.ServiceProvider(place, "s", "giver", ELEMENTS, 0o600, -1)
    proxy = _core.ServiceProxy(place, "s", "taker")
    proxy.subscribe(EVENT, 2)
    for _ in range(3):
        provider.send(EVENT, b"abc")
    assert _core.inspect_service(place, "s")["faults"] == []
    yield runtime_directory / "holdfast.service.s"
    proxy.close()
    provider.close()


def write(path: Path, offset: int, form: str, value: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack(form, value))


@pytest.mark.parametrize(
    ("offset", "form", "value", "words"),
    [
        (LOGS, "I", 2 << 2 | 3, "the log of slot 0 is 11"),
        (LOGS, "I", 99 << 2 | 2, "allows 99 samples, more than there are"),
        (LOGS, "I", 6 << 2 | 2, r"its logs allow 7 samples of 8, and the provider needs 2 \(L1\)"),
        (LOGS + 4, "I", 1 << 2 | 2, "the log of slot 1 belongs to no participant"),
        (LOGS + 4 * PROVIDER, "I", 1 << 2 | 2, "the provider has a log"),
        (WORDS, "Q", 1 << 5, r"sample 0 is held by slot 5, which has not subscribed \(V3\)"),
        (DATA, "Q", 1 << 63, "beyond all that are used"),
        (DATA, "Q", 9, "the newest sample, number 9, is not there"),
        (DATA, "Q", 1, r"2 samples are newer than the newest, 1 \(V4\)"),
        (SEQUENCES, "Q", 2, "two samples have the number 2"),
        (INDEX + 4 * 3, "I", SAMPLES, "its index 3 leads to sample 8, which does not exist"),
        (INDEX + 4 * 3, "I", 0, "the newest sample, number 3, is not there"),
        (WORDS + 8 * 2, "Q", WRITING, "the newest sample, number 3, is not there"),
        (LENGTHS, "I", 17, "sample 0 is longer than the element's size"),
        (CALL_WORDS, "Q", call_word(7, 0, 1), "call 0 has the state 7, which does not exist"),
        (CALL_WORDS + 64, "Q", call_word(3, PROVIDER, 1), "call 1 belongs to slot 63, which cannot call"),
        (CALL_WORDS, "Q", call_word(2, 0, 0), "call 0 is in use, but was never claimed"),
        (CALL_WORDS, "Q", call_word(3, 9, 1), r"call 0 belongs to slot 9, which no process has \(M3\)"),
        (NOTICES, "Q", 66, "notice 0 has a state which no participant writes"),
        (PARTICIPANTS + 128 * 5, "Q", 1 << 40, "the entry of slot 5 has bits which no participant writes"),
        (TABLE, "Q", 0, "its table of elements is damaged"),
    ],
)
def test_each_word_is_judged(path: Path, offset: int, form: str, value: int, words: str) -> None:
    kept = path.read_bytes()
    write(path, offset, form, value)
    damaged = path.read_bytes()
    faults = _core.inspect_service(str(path.parent), "s")["faults"]
    assert any(re.search(words, each) for each in faults), faults
    assert path.read_bytes() == damaged
    with path.open("r+b") as file:
        file.write(kept)
    assert _core.inspect_service(str(path.parent), "s")["faults"] == []


def test_requests_and_responses_are_judged(path: Path) -> None:
    write(path, CALL_WORDS, "Q", call_word(2, 0, 1))
    write(path, REQUESTS, "I", 17)
    faults = _core.inspect_service(str(path.parent), "s")["faults"]
    assert faults == ["element method: call 0 has a request longer than its request_size"]
    write(path, CALL_WORDS, "Q", call_word(0, 0, 1))


def test_writers_and_holders_are_counted(path: Path) -> None:
    for sample in range(2):
        write(path, WORDS + 8 * sample, "Q", WRITING)
    for sample in range(3, 8):
        write(path, WORDS + 8 * sample, "Q", 1)
    faults = _core.inspect_service(str(path.parent), "s")["faults"]
    assert faults == [
        "element event: the provider writes 2 samples, and may write 1",
        "element event: slot 0 holds 5 samples, and may hold 2",
    ]
    for sample in range(8):
        write(path, WORDS + 8 * sample, "Q", 0)


def test_a_proxy_tells_damage(path: Path) -> None:
    with _core.ServiceProxy(str(path.parent), "s", "third") as proxy:
        write(path, INDEX + 4 * 3, "I", SAMPLES)
        with pytest.raises(Corrupt, match=r"index of a sample at position 3.*holdfast service doctor s"):
            proxy.read(EVENT)
        write(path, INDEX + 4 * 3, "I", 2)
        assert proxy.read(EVENT) == b"abc"
