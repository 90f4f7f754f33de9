"""The ends of a channel's numbers: positions, sizes; and parameters from a damaged header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Channel, Corrupt, HoldfastError, LayoutMismatch, Misuse, _core

POSITION_MAX = 1 << 62
SLOTS = 2
DATA_BELL, SPACE_BELL, PARTICIPANTS = 4096 + 192, 4096 + 256, 4608


def create_old(directory: Path, first: int) -> Channel:
    _core.create_channel(
        str(directory), "old", slots=SLOTS, slot_size=8, loans=3, holds=2, overflow=True, laps=100,
        producers=1, priorities=1, loop=False, dtype="", shape="", mode=0o600, group=-1, first_position=first,
    )  # fmt: skip
    return Channel.open("old")


@pytest.mark.parametrize("first", [(1 << 16) - 2, (1 << 31) - 2, (1 << 32) - 2, (1 << 53) - 2])
def test_positions_pass_the_end_of_narrower_numbers(runtime_directory: Path, first: int) -> None:
    with create_old(runtime_directory, first) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        for n in range(9):
            assert producer.push(b"%d" % n).position == first + n
        with consumer.pop(0) as item:
            assert (bytes(item), item.lost, item.position) == (b"7", 7, first + 7)
        assert channel.check() == []


def test_the_last_position(runtime_directory: Path) -> None:
    with create_old(runtime_directory, POSITION_MAX - 2) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        assert channel.stats().positions_left == 2
        producer.push_batch([b"1", b"2"])
        for _ in range(3):
            with pytest.raises(HoldfastError, match="used up its 62 bits of positions; create a new one"):
                producer.push(b"3")
        assert producer.loans == 0
        assert [bytes(consumer.pop(0)) for _ in range(2)] == [b"1", b"2"]
        assert channel.check() == []


def test_bells_wrap(runtime_directory: Path) -> None:
    with Channel.create("old", slots=1, slot_size=8, overflow=False) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        for bell in (DATA_BELL, SPACE_BELL):
            header_word(runtime_directory, bell, (2**32 - 2).to_bytes(4, "little"))
        assert [role._listen(False) for role in (producer, consumer)] == [2**32 - 1] * 2
        producer.push(b"x")
        consumer.pop(0).release()
        assert [role._listen(False) for role in (producer, consumer)] == [1, 1], "both rang"
        assert channel.check() == []


def test_counters_of_a_slot_wrap(runtime_directory: Path) -> None:
    """Counters are for people: no decision depends on them, and sums have no width."""
    with Channel.create("old", slots=1, slot_size=8) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        for role in (producer, consumer):
            header_word(runtime_directory, PARTICIPANTS + 128 * role.slot + 32, b"\xff" * 8 * 10)
        for _ in range(3):
            producer.push(b"x")
            consumer.pop(0).release()
        stats = channel.stats()
        assert (stats.pushed, stats.popped) == (2 + 2**64 - 1, 2 + 2**64 - 1)
        assert channel.check() == []


@pytest.mark.parametrize("laps", [-1, 0, 1 << 32, 1 << 64])
def test_laps_beyond_their_width_are_misuse(runtime_directory: Path, laps: int) -> None:
    with pytest.raises(Misuse, match="laps"):
        Channel.create("n", slots=1, slot_size=8, laps=laps)


@pytest.mark.parametrize("number", [-1, 0, (1 << 16) + 1, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 1 << 200])
@pytest.mark.parametrize("name", ["slots", "loans", "holds"])
def test_numbers_beyond_every_width_are_misuse(runtime_directory: Path, name: str, number: int) -> None:
    sizes: dict[str, int] = {"slots": 1, "slot_size": 8, name: number}
    with pytest.raises(Misuse):
        Channel.create("n", **sizes)  # type: ignore[arg-type]
    with pytest.raises(Misuse):
        Channel.create("n", slots=1, slot_size=(number << 31) + 1 if number > 0 else number)


@pytest.mark.parametrize("sizes", [{"slots": 65_533}, {"slots": 65_535, "loans": 65_536, "holds": 1}])
def test_the_largest_pool(runtime_directory: Path, sizes: dict[str, Any]) -> None:
    """2**17 buffers, also with the default of `loans`; one slot more is refused."""
    with pytest.raises(Misuse, match="at most 131072 together"):
        Channel.create("n", slot_size=1, **{**sizes, "slots": sizes["slots"] + 1})
    with Channel.create("n", slot_size=1, **sizes) as channel:
        assert channel.stats().buffers == 1 << 17
        producer, consumer = channel.producer(), channel.consumer()
        producer.push(b"x")
        with consumer.pop(0) as item:
            assert bytes(item) == b"x"
        assert channel.check() == []


def header_word(directory: Path, offset: int, value: bytes) -> Path:
    path = directory / "holdfast.channel.old"
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value)
    return path


def test_another_version_and_a_damaged_header(runtime_directory: Path) -> None:
    create_old(runtime_directory, 0).close()
    path = header_word(runtime_directory, 8, b"\x63")
    with pytest.raises(LayoutMismatch, match="layout version: 99 found, 1 expected"):
        Channel.open("old")
    path.unlink()
    create_old(runtime_directory, 0).close()
    header_word(runtime_directory, 192 + 8, b"\xff\xff\xff\xff")
    with pytest.raises(Corrupt):
        Channel.open("old")


def test_damage_is_reported(runtime_directory: Path) -> None:
    """Each word of the ring that no participant writes is named, and nothing crashes."""
    with create_old(runtime_directory, 0) as channel:
        producer = channel.producer()
        producer.push_batch([b"1", b"2"])
        states = next(
            at for at in range(4096, 32768, 4096) if b"\x08\x08" in path_bytes(runtime_directory)[at : at + 8]
        )
        at = states + path_bytes(runtime_directory)[states : states + 3].index(8)
        header_word(runtime_directory, at, b"\xee")
        assert any("its state is 238" in fault for fault in channel.check())
        consumer = channel.consumer()
        with pytest.raises(Corrupt, match="channel old is damaged: state at position"):
            consumer.pop(0)
        header_word(runtime_directory, states, b"\x02" * 3)
        assert channel.check() == ["no slot has the END"]
        producer.close()
        with pytest.raises(Corrupt, match="no slot has the END"):
            channel.producer()


def path_bytes(directory: Path) -> bytes:
    return (directory / "holdfast.channel.old").read_bytes()
