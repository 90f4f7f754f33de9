"""Overwrite words of a channel: each call ends, with a clear error.

tests/torture/test_channel_hostile.py found these; it overwrites every word.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Channel, Corrupt, Misuse, Timeout, _core
from holdfast.cli import main
from tests.kit.channel.words import HOLE, Words

PENDING, EMPTY = 0x04, 0x02
FIRST = 0x5A5A5A5A
SLOTS = 3
CONTROLS_END = 4608
SLOTS_AT, DTYPE, SHAPE = 200, 224, 480
"""Offsets of parameters in the header."""


@pytest.fixture
def channel(runtime_directory: Path) -> Iterator[Channel]:
    _core.create_channel(
        str(runtime_directory), "c", slots=SLOTS, slot_size=8, loans=4, holds=2, overflow=True, laps=100,
        producers=1, priorities=1, loop=False,
        dtype="", shape="", mode=0o600, group=-1, first_position=FIRST,
    )  # fmt: skip
    with Channel.open("c") as made:
        yield made


@pytest.fixture
def words() -> Words:
    return Words("c")


@pytest.mark.parametrize("state", [PENDING, HOLE | 0x40])
def test_a_pop_ends_where_no_slot_has_the_end(channel: Channel, words: Words, state: int) -> None:
    """Each slot is passed over: without a limit, the pop would go round for ever."""
    states = words.states(channel)
    consumer = channel.consumer()
    words.write(states, bytes([state]) * (SLOTS + 1))
    for timeout in (0, 0.01, None):
        with pytest.raises(Corrupt, match="channel c is damaged: no slot has the END"):
            consumer.pop(timeout)
    assert "no slot has the END" in channel.check()
    assert channel.stats().corrupt == 3


@pytest.mark.parametrize("position", [(1 << 62) + 4, (1 << 64) - 2, (1 << 64) - 1])
def test_an_end_beyond_the_last_position(channel: Channel, words: Words, position: int) -> None:
    """A batch that began there would wrap round 64 bits, and leave its memory."""
    position -= (position - FIRST) % (SLOTS + 1)  # of the same slot
    words.write(words.last(FIRST, 8), position.to_bytes(8, "little"))
    with pytest.raises(Corrupt, match="position of the END"):
        channel.producer()


@pytest.mark.parametrize("holder", [65, 1 << 31, (1 << 32) - 1])
def test_a_role_of_a_participant_that_does_not_exist(channel: Channel, words: Words, holder: int) -> None:
    """It is damage, and not another producer that the user should look for."""
    before = words.image()
    with channel.producer() as producer:
        at = words.changed(before, 0, producer.slot + 1, below=CONTROLS_END)
    words.write(at, holder.to_bytes(4, "little"))
    with pytest.raises(Corrupt, match=f"word of a role .* holds 0x0*{holder:x}, which no participant"):
        channel.producer()
    words.write(at, bytes(4))
    channel.producer().push(b"x")


@pytest.mark.parametrize("many", [False, True], ids=["push", "batch"])
def test_a_loan_that_met_damage_when_it_was_pushed(channel: Channel, words: Words, many: bool) -> None:
    """The datum is in the ring, and its loan is not the program's."""
    states = words.states(channel)
    producer = channel.producer()
    loan = producer.loan(1)
    words.write(states, bytes([EMPTY]) * (SLOTS + 1))
    with pytest.raises(Corrupt, match="END, overwritten by another process"):
        producer.push_batch([loan]) if many else producer.push(loan)
    assert producer.loans == 0
    with pytest.raises(Misuse, match="was pushed"):
        bytes(loan.data)
    with pytest.raises(Misuse, match="released before"):
        loan.release()
    assert producer.loans == 0
    loans = [producer.loan() for _ in range(4)]
    assert producer.loans == len(loans)


@pytest.mark.parametrize(
    "text",
    [b"\xff\xfe\0", b"<x9\0", b"[((\0", b"O\0", b"f8\0"],
    ids=["bytes", "none", "half", "object", "large"],
)
def test_a_dtype_that_is_not_one(runtime_directory: Path, text: bytes) -> None:
    Channel.create("typed", slots=1, dtype="f4", shape=(2, 3)).close()
    Words("typed").header(DTYPE, text)
    with Channel.open("typed") as channel:
        for role in (channel.producer, channel.consumer):
            with pytest.raises(Corrupt, match="create it anew"):
                role()
        assert channel.stats().dtype is not None


@pytest.mark.parametrize("text", [b"\xff", b"2;3\0", b"-2,3\0"])
def test_a_shape_that_is_not_one(runtime_directory: Path, text: bytes) -> None:
    Channel.create("typed", slots=1, dtype="f4", shape=(2, 3)).close()
    Words("typed").header(SHAPE, text)
    with pytest.raises(Corrupt, match="its parameters are not possible"):
        Channel.open("typed")
    assert _core.inspect_channel(str(runtime_directory), "typed")["faults"]


def test_an_array_that_is_too_short(runtime_directory: Path) -> None:
    with Channel.create("typed", slots=1, dtype="u1", shape=777) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        producer.push(bytes(777))
        Words("typed").write(Words("typed").last(777, 4), (776).to_bytes(4, "little"))
        with consumer.pop(0) as item, pytest.raises(Corrupt, match="has 776 bytes, not 777"):
            item.array.sum()
        assert consumer.held == 0


def test_a_datum_longer_than_its_buffer(channel: Channel, words: Words) -> None:
    producer, consumer = channel.producer(), channel.consumer()
    producer.push(b"seven b")
    words.write(words.last(7, 4), (9).to_bytes(4, "little"))
    assert [each for each in channel.check() if "longer than a buffer" in each]
    with pytest.raises(Corrupt, match="length of a datum"):
        consumer.pop(0)
    assert (consumer.held, channel.stats().held) == (0, 0)


def test_a_buffer_that_is_twice_in_the_ring(channel: Channel, words: Words) -> None:
    with channel.producer() as producer:
        producer.push_batch([b"1", b"2"])
    first, second = (words.last(FIRST + n, 8) + 8 for n in range(2))  # the index is beside the position
    words.write(second, words.image()[first : first + 4])
    assert any("is in two slots" in each for each in channel.check())
    with pytest.raises(Corrupt, match="a buffer that is twice in the ring"):
        channel.producer()


def test_an_owner_that_does_not_exist(channel: Channel, words: Words) -> None:
    producer, consumer = channel.producer(), channel.consumer()
    producer.push(b"x")
    before = words.image()
    item = consumer.pop(0)
    words.write(words.changed(before, 0, consumer.slot + 1), b"\xc8")
    assert any("its owner 200 does not exist" in each for each in channel.check())
    item.release()
    assert channel.check() == []


def test_a_consumer_beyond_the_end(channel: Channel, words: Words) -> None:
    words.write(words.image().index(FIRST.to_bytes(8, "little"), 4096), (FIRST + 9).to_bytes(8, "little"))
    assert any("is beyond the END" in each for each in channel.check())
    with pytest.raises(Corrupt, match=r"position of the END|no slot has the END"):
        channel.consumer().pop(0)


def test_parameters_of_a_larger_file(channel: Channel, words: Words) -> None:
    words.header(SLOTS_AT, (60_000).to_bytes(4, "little"))
    with pytest.raises(Corrupt, match="its parameters are not possible"):
        Channel.open("c")


def test_the_documented_way_on(channel: Channel, words: Words, capsys: pytest.CaptureFixture[str]) -> None:
    """Follow "After damage" of docs/guide/channel.md, sentence by sentence."""
    page = (Path(__file__).parents[3] / "docs/guide/channel.md").read_text()
    paragraph = re.sub(r"\s+", " ", page.partition("## After damage")[2].partition("## ")[0]).strip()
    assert paragraph == (
        "`Corrupt` says which word cannot be as it was found. Items and loans that the program has stay "
        "valid. `holdfast channel doctor NAME` shows the state of every part. Close the roles, remove the "
        "channel with `holdfast channel rm NAME`, and create it anew. Data that are still in the "
        "ring are lost."
    )
    states = words.states(channel)
    producer, consumer = channel.producer(), channel.consumer()
    producer.push(b"safe")
    item, loan = consumer.pop(0), producer.loan(2)
    words.write(states, b"\xee" * (SLOTS + 1))
    with pytest.raises(Corrupt, match=r"channel c is damaged: state at position \d+ holds 0x0+ee"):
        consumer.pop(0)
    with pytest.raises(Corrupt, match=r"channel c is damaged: state at position \d+ holds 0x0+ee"):
        producer.push(b"x")
    loan.data[:] = b"ok"
    assert (bytes(item), bytes(loan.data)) == (b"safe", b"ok")
    assert main(["channel", "doctor", "c"]) == 1
    said = capsys.readouterr().out
    assert said.count("its state is 238, which no participant writes") >= SLOTS
    producer.close()
    consumer.close()
    assert main(["channel", "rm", "c"]) == 0
    with Channel.create("c", slots=SLOTS, slot_size=8) as anew:
        anew.producer().push(b"new")
        with anew.consumer().pop(0) as first:
            assert bytes(first) == b"new"
        assert anew.check() == []


def test_a_pop_that_is_starved_lets_other_threads_run(channel: Channel, words: Words) -> None:
    """Freeze each slot of a ring whose positions are far ahead: each look starts anew."""
    consumer = channel.consumer()
    states, position = words.states(channel), words.last(FIRST, 8)
    words.write(position, (1 << 61).to_bytes(8, "little"))
    words.write(states, bytes([PENDING]) * (SLOTS + 1))
    found: list[Exception] = []

    def pop() -> None:
        try:
            consumer.pop(0.3)
        except Timeout as error:
            found.append(error)

    thread = threading.Thread(target=pop)
    thread.start()
    thread.join(0.01)
    assert thread.is_alive()  # with the GIL kept, this line comes when the pop has ended
    thread.join()
    assert "overtook this pop" in str(found[0])
