"""Typed channels: arrays go in and come out, in place."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from holdfast import Channel, Misuse


@pytest.fixture
def typed(runtime_directory: object) -> Any:
    with Channel.create("t", slots=2, dtype="f4", shape=(2, 3)) as channel:
        yield channel, channel.producer(), channel.consumer()


def test_arrays(typed: Any) -> None:
    channel, producer, consumer = typed
    wanted = numpy.arange(6, dtype="f4").reshape(2, 3)
    producer.push(wanted)
    producer.push(wanted.T.copy().T * 2)  # not contiguous in C's order
    with consumer.pop() as item:
        assert item.array.dtype == numpy.float32
        assert not item.array.flags.writeable
        assert (item.array == wanted).all()
    with consumer.pop() as item:
        assert (item.array == 2 * wanted).all()
    assert channel.stats().dtype == "<f4"
    assert channel.stats().shape == (2, 3)


def test_a_loan_is_used_like_an_array(typed: Any) -> None:
    _, producer, consumer = typed
    with producer.loan() as frame:
        frame[:] = 7
        frame[0, 1] = 8
        assert frame.shape == (2, 3)
        assert numpy.asarray(frame).sum() == 43
        assert len(frame) == 2
        frame.fill(1)
    with consumer.pop() as item:
        assert item.array.sum() == 6
    loan = producer.loan()
    loan[:] = 2
    producer.push(loan)
    with consumer.pop() as item:
        assert item.array.sum() == 12


def test_an_array_keeps_its_buffer_out_of_circulation(typed: Any) -> None:
    channel, producer, consumer = typed
    producer.push(numpy.full((2, 3), 5, "f4"))
    with consumer.pop() as item:
        kept = item.array
    for n in range(30):
        producer.push(numpy.full((2, 3), n, "f4"))
        assert (kept == 5).all()
    del kept, item
    assert channel.stats().held == 0
    with pytest.raises(Misuse, match="alive"), producer.loan() as frame:
        mine = frame.array
    mine[:] = 3
    del mine
    assert producer.loans == 0


def test_other_types_and_shapes_are_refused(typed: Any) -> None:
    _, producer, _ = typed
    for wrong in (numpy.zeros((3, 2), "f4"), numpy.zeros((2, 3), "c8"), b"123", numpy.zeros(6, "f4")):
        with pytest.raises(Misuse):
            producer.push(wrong)
    with pytest.raises(Misuse, match="is typed"):
        producer.loan(8)
    producer.push(bytes(24))
    for arguments in ({"dtype": "O"}, {"dtype": "f4", "shape": (0,)}, {"dtype": "nonsense"}):
        with pytest.raises(Misuse):
            Channel.create("n", slots=1, **arguments)
    with pytest.raises(Misuse, match="leave slot_size out"):
        Channel.create("n", slots=1, slot_size=9, dtype="f4")


def test_records(runtime_directory: object) -> None:
    kind = [("time", "<u8"), ("value", "<f4", (2,))]
    with Channel.create("r", slots=2, dtype=kind, shape=4) as channel, Channel.open("r") as other:
        producer: Any = channel.producer()
        with producer.loan() as rows:
            rows["time"] = 9
            rows["value"] = 1
        with other.consumer() as consumer, consumer.pop() as item:
            assert item.array["time"].tolist() == [9] * 4
            assert item.array["value"].shape == (4, 2)
            del item


GAPS = numpy.dtype([("flag", "u1"), ("value", "<i4")], align=True)
KINDS = {
    "a C struct": GAPS,
    "an array": numpy.dtype(("<f4", (2, 3))),
    "an array in a C struct": numpy.dtype([("flag", "u1"), ("value", "<f4", (2,))], align=True),
    "a union": numpy.dtype({"names": ["a", "b"], "formats": ["<i4", "<i2"], "offsets": [0, 0]}),
    "longer than its fields": numpy.dtype({"names": ["a"], "formats": ["<i4"], "itemsize": 16}),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_type_arrives_as_it_was_given(runtime_directory: object, name: str) -> None:
    given = numpy.zeros(2, KINDS[name])
    with Channel.create("k", slots=2, dtype=KINDS[name], shape=2) as channel, Channel.open("k") as other:
        producer: Any = channel.producer()
        producer.push(given)
        with other.consumer() as consumer, consumer.pop() as item:
            assert (item.array.dtype, item.array.shape) == (given.dtype, given.shape)
            del item


def test_a_type_that_cannot_be_stored_is_refused(runtime_directory: object) -> None:
    with pytest.raises(Misuse, match="a field in a field has gaps"):
        Channel.create("k", slots=2, dtype=[("a", GAPS), ("b", "u1")])
