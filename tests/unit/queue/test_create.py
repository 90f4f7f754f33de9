"""Names, parameters and figures of queues: create, open, list, detach, `stats`, `check`."""

from __future__ import annotations

import os
import pickle
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast
from holdfast import Empty, Exists, LayoutMismatch, Misuse, NotFound, Queue, _core
from tests.kit.processes import until
from tests.kit.queue.segments import segment


def test_create_open_list_unlink() -> None:
    assert Queue.list() == []
    with Queue.create("b", capacity=4096) as q, Queue.create("a", capacity=4096), Queue.open("b") as other:
        assert (q.name, q.attached, q.directory) == ("b", True, os.environ["HOLDFAST_RUNTIME_DIR"])
        assert q.slot != other.slot
        assert Queue.list() == ["a", "b"]
        assert repr(q) == "<holdfast.Queue 'b'>"
        q.put(b"x")
        assert other.get_bytes(timeout=0) == b"x"
        Queue.unlink("b")
        assert Queue.list() == ["a"]
        q.put(b"y")  # attached participants keep it
        assert other.get_bytes(timeout=0) == b"y"
    with pytest.raises(NotFound, match="b"):
        Queue.open("b")
    with pytest.raises(FileNotFoundError, match="b"):
        Queue.unlink("b")
    Queue.unlink("a")


def test_another_directory(tmp_path: Path) -> None:
    with Queue.create("q", capacity=4096, directory=str(tmp_path)) as q:
        assert (Queue.list(), Queue.list(directory=str(tmp_path))) == ([], ["q"])
        with Queue.open("q", directory=str(tmp_path)) as other:
            other.put(b"x")
        assert q.get_bytes(timeout=0) == b"x"
    Queue.unlink("q", directory=str(tmp_path))
    assert Queue.list(directory=str(tmp_path)) == []
    with pytest.raises(NotFound):
        Queue.create("q", capacity=4096, directory=str(tmp_path / "missing"))


def test_what_a_queue_is_does_not_change_with_its_name(q: Queue) -> None:
    """After unlink, even if another queue has the name, a queue shows its own figures."""
    q.put_many([b"a", b"b"])
    Queue.unlink("q")
    with Queue.create("q", capacity=1 << 12):
        assert (q.stats().ready, q.stats().capacity_bytes) == (2, 1 << 16)
        assert q.check() == []


def test_open_missing() -> None:
    with pytest.raises(NotFound, match=r'no queue named "nowhere".*create it first') as caught:
        Queue.open("nowhere")
    assert isinstance(caught.value, FileNotFoundError)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "..", "a b", "ü", "x" * 101])
def test_names_that_are_none(name: str) -> None:
    for make in (Queue.create, Queue.open, Queue.unlink):
        with pytest.raises(Misuse):
            make(name)
    assert Queue.list() == []


@pytest.mark.parametrize("name", ["x" * 100, "a.b-c_D9", "-"])
def test_names_that_are_good(name: str) -> None:
    Queue.create(name, capacity=256).detach()
    assert Queue.list() == [name]


def test_create_twice(q: Queue) -> None:
    with pytest.raises(Exists, match=r'"q" exists already') as caught:
        Queue.create("q", capacity=1 << 16)
    assert isinstance(caught.value, FileExistsError)
    q.put(b"kept")
    with Queue.create("q", capacity=1 << 16, exist_ok=True) as same:
        assert same.get_bytes(timeout=0) == b"kept"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"capacity": 1 << 17}, "capacity is 65536, not 131072"),
        ({"delivery": "at-most-once"}, "delivery is 'at-least-once', not 'at-most-once'"),
        ({"participants": 7}, "participants is 64, not 7"),
        ({"stall_limit": 0.5}, "stall_limit_ms is None, not 500"),
        ({"checksum": "full"}, "checksum is 'header', not 'full'"),
        ({"max_deliveries": 3, "dead_letter": "d"}, "max_deliveries is 0, not 3"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_name_that_exists_with_other_parameters(q: Queue, other: dict[str, Any], words: str) -> None:
    wanted: dict[str, Any] = {"capacity": 1 << 16, **other}
    with pytest.raises(LayoutMismatch) as caught:
        Queue.create("q", exist_ok=True, **wanted)
    assert words in str(caught.value)
    assert str(caught.value).count(", not ") == len(other), "exactly the differences"
    assert [each.pid for each in q.stats().participants] == [os.getpid()], "the attempt left no attachment"


@pytest.mark.parametrize("capacity", [1, 100, 255, 256, 257, 300, 1000, 1024, 1025, 65536, 65537])
def test_the_capacity_is_rounded_up_to_a_power_of_two(capacity: int) -> None:
    expected = max(256, 1 << (capacity - 1).bit_length())
    with Queue.create("r", capacity=capacity) as q, Queue.create("r", capacity=capacity, exist_ok=True):
        assert q.stats().capacity_bytes == expected
        assert q.message_size_max == q.stats().message_size_max == expected // 2 - 32


@pytest.mark.parametrize(
    "params",
    [
        {"capacity": -1},
        {"capacity": 1 << 60},
        {"participants": 0},
        {"participants": -1},
        {"participants": 1024},
        {"delivery": "exactly-once"},
        {"checksum": "none"},
        {"max_deliveries": 3},
        {"dead_letter": "d"},
        {"max_deliveries": 0, "dead_letter": "d"},
        {"max_deliveries": 251, "dead_letter": "d"},
        {"max_deliveries": 3, "dead_letter": "q"},
        {"max_deliveries": 3, "dead_letter": "../d"},
        {"max_deliveries": 3, "dead_letter": "d", "delivery": "at-most-once"},
        {"stall_limit": 0.0},
        {"stall_limit": -1.0},
        {"mode": 0o777},
        {"mode": 0o060},
    ],
    ids=str,
)
def test_parameters_that_make_no_sense(params: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        Queue.create("q", **{"capacity": 4096, **params})
    assert Queue.list() == [], "nothing is left behind"


def test_the_dead_letter_queue_of_a_quicker_process_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes create one queue; the slower one created the dead-letter queue, and loses."""
    options: dict[str, Any] = {"capacity": 4096, "max_deliveries": 2, "dead_letter": "d"}
    create = _core.create_queue

    def overtaken(where: str, name: str, **rest: Any) -> None:
        if name == "w":
            monkeypatch.setattr(_core, "create_queue", create)
            Queue.create("w", **options).detach()
        create(where, name, **rest)

    monkeypatch.setattr(_core, "create_queue", overtaken)
    with pytest.raises(Exists):
        Queue.create("w", **options)
    assert sorted(Queue.list()) == ["d", "w"]


def test_a_creation_that_fails_leaves_no_dead_letter_queue(q: Queue) -> None:
    with pytest.raises(Exists):
        Queue.create("q", capacity=4096, max_deliveries=2, dead_letter="q.dead")
    assert Queue.list() == ["q"]


def test_use_after_detach(q: Queue) -> None:
    q.put(b"x")
    message = q.get()
    batch_of_none = q.stats().ready
    q.detach()
    q.detach()  # a second call does no harm
    assert (q.attached, batch_of_none, repr(q)) == (False, 0, "<holdfast.Queue 'q' (detached)>")
    calls: list[Callable[[], object]] = [
        lambda: q.put(b"y"),
        lambda: q.put_many([b"y"]),
        lambda: q.get(),
        lambda: q.get_bytes(),
        lambda: q.get_into(bytearray(9)),
        lambda: q.get_many(3),
        lambda: q.close(),
        lambda: q.purge(),
        lambda: q.stats(),
        lambda: q.check(),
        lambda: q.recover(),
        lambda: next(iter(q)),
        lambda: q.arm(),
        lambda: message.data,
    ]
    for call in calls:
        with pytest.raises(Misuse, match="detached"):
            call()
    message.settle()  # too late: it was returned
    with Queue.open("q") as again, again.get(timeout=0) as back:
        assert (bytes(back), back.redelivered) == (b"x", 1)


def test_leaving_gives_back_all_that_is_held(q: Queue) -> None:
    q.put_many([b"a", b"b", b"c", b"d"])
    with Queue.open("q") as other:
        held = [other.get(), other.get()]
        other.get_bytes()
    assert (q.stats().returned, q.stats().taken) == (2, 0)
    with q.get_many(9) as first, q.get_many(9) as second, q.get_many(9) as third:
        assert [*first.tobytes(), *second.tobytes(), *third.tobytes()] == [b"a", b"b", b"d"]
        assert [first[0].redelivered, second[0].redelivered, third[0].redelivered] == [1, 1, 0]
    del held


def test_a_pickled_queue_opens_itself(q: Queue) -> None:
    copy = pickle.loads(pickle.dumps(q))
    assert isinstance(copy, Queue)
    assert copy.slot != q.slot
    copy.put(b"x")
    assert q.get_bytes(timeout=0) == b"x"
    copy.detach()


def test_the_figures_add_up(q: Queue) -> None:
    began_ms = time.time() * 1000
    with Queue.open("q") as other:
        q.put_many([b"x" * 100] * 10)
        other.put(b"y" * 7)
        with other.get_many(4):
            pass
        held = q.get_many(3)
        q.get().give_back()
        stats = q.stats()
        assert (stats.name, stats.delivery, stats.closed) == ("q", "at-least-once", False)
        assert (stats.put, stats.put_bytes) == (11, 1007)
        assert (stats.ready, stats.returned, stats.taken, stats.writing) == (3, 1, 3, 0)
        assert (stats.delivered, stats.settled, stats.given_back, stats.redelivered) == (8, 4, 1, 0)
        assert stats.put == stats.settled + stats.ready + stats.returned + stats.taken
        assert stats.used_bytes + stats.free_bytes == stats.capacity_bytes == 1 << 16
        assert stats.used_bytes >= 64 * (3 * (stats.ready + stats.returned + stats.taken - 1) + 1)
        assert 2**51 < stats.positions_left < 2**52
        (holder,) = stats.holders
        assert (holder.slot, holder.pid, holder.taken, holder.writing) == (q.slot, os.getpid(), 3, 0)
        assert {each.slot for each in stats.participants} == {q.slot, other.slot}
        assert all(each.alive and each.attached for each in stats.participants)
        joined_ms = {each.slot: each.joined_ms for each in stats.participants}
        assert joined_ms[q.slot] <= joined_ms[other.slot] <= time.time() * 1000 + 1
        assert began_ms - 20 <= joined_ms[other.slot], "its clock has steps"
        held.settle()
    stats = q.stats()
    assert (stats.settled, len(stats.participants)) == (7, 1), "the figures of those who left are kept"


def test_stats_are_frozen(q: Queue) -> None:
    with pytest.raises(AttributeError):
        q.stats().put = 7  # type: ignore[misc]


def test_how_long_a_message_is_held(q: Queue) -> None:
    q.put(b"x")
    began = time.monotonic()
    with q.get():
        until(lambda: q.stats().holders[0].oldest_ms >= 5)
        (holder,) = q.stats().holders
        held_ms = 1000 * (time.monotonic() - began)
        assert 5 <= holder.oldest_ms <= held_ms + 50, "its clock has steps"


def test_check_tells_of_damage(q: Queue) -> None:
    q.put(b"x" * 50)
    assert q.check() == []
    with segment("q").open("r+b") as file:
        data = file.read()
        file.seek(data.index(b"x" * 50) - 20)
        file.write(b"\xff")  # in the block's header
    assert len(q.check()) == 1
    assert "is wrong" in q.check()[0]
    with pytest.raises(holdfast.Corrupt, match=r"damaged.*set aside"):
        q.get(timeout=0)
    q.put(b"next")
    assert q.get_bytes(timeout=0) == b"next"
    assert q.stats().corrupt == 1
    with pytest.raises(Empty):
        q.get(timeout=0)


def test_a_full_checksum_sees_a_changed_payload() -> None:
    with Queue.create("sum", capacity=4096, checksum="full") as q:
        q.put_many([b"x" * 50, b"good"])
        with segment("sum").open("r+b") as file:
            data = file.read()
            file.seek(data.index(b"x" * 50))
            file.write(b"y")
        with pytest.raises(holdfast.Corrupt):
            q.get(timeout=0)
        assert q.get_bytes(timeout=0) == b"good"


@pytest.mark.parametrize(
    "numbers",
    [
        {"capacity": (1 << 38) + 1},
        {"capacity": 1 << 64},
        {"capacity": 1 << 80},
        {"participants": 1024},
        {"participants": 1 << 40},
    ],
)
def test_numbers_beyond_every_width_are_misuse(numbers: dict[str, int]) -> None:
    with pytest.raises(Misuse, match="is not possible; use 256 bytes to 256 GiB and 1 to 1023"):
        Queue.create("q", **numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize("group", [-1, -5, (1 << 32) - 1, 1 << 32, 1 << 40])
def test_a_group_that_no_system_has_is_misuse(group: int) -> None:
    """Cut to 32 bits, 2^32 was group 0: that of root."""
    with pytest.raises(Misuse, match=f"there is no group {group}: a number is 0 to 4294967294"):
        Queue.create("q", group=group)


@pytest.mark.parametrize("mode", [-1, 0o1777, 1 << 40])
def test_a_mode_that_no_file_has_is_misuse(mode: int) -> None:
    with pytest.raises(Misuse, match="mode must be 0 to 0o777"):
        Queue.create("q", mode=mode)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"capacity": 1.5}, "capacity must be a whole number of bytes, such as 1 << 20, not 1.5"),
        ({"capacity": "1M"}, "capacity must be a whole number of bytes, such as 1 << 20, not '1M'"),
        ({"capacity": True}, "capacity must be a whole number of bytes, such as 1 << 20, not True"),
        ({"participants": 2.5}, "participants must be a whole number, not 2.5"),
        ({"max_deliveries": 1.5, "dead_letter": "d"}, "max_deliveries must be a whole number, not 1.5"),
        ({"max_deliveries": 3, "dead_letter": 5}, "dead_letter must be text (str), not 5"),
        ({"stall_limit": "1"}, "stall_limit must be 0.001 to 1000000 seconds, not '1'"),
        ({"mode": "660"}, "mode must be a whole number, such as 0o660, not '660'"),
        ({"group": 1.5}, "group must be the name or the number of a group, not 1.5"),
        ({"directory": 5}, "directory must be a path (str or Path), not 5"),
    ],
    ids=str,
)
def test_arguments_of_another_type(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Misuse, match=re.escape(words)):
        Queue.create("q", **given)
    assert Queue.list() == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (3, "the name of a queue must be text (str), not 3"),
        (None, "the name of a queue must be text (str), not None"),
        (b"q", "the name of a queue must be text (str), not b'q'"),
        ("q\ud800", "has half of a surrogate pair in it; use whole characters"),
    ],
)
def test_names_of_another_type(name: Any, words: str) -> None:
    for make in (Queue.create, Queue.open, Queue.unlink):
        with pytest.raises(Misuse, match=re.escape(words)):
            make(name)


def test_numbers_and_paths_of_other_types_that_mean_the_same(tmp_path: Path) -> None:
    numbers: dict[str, Any] = {"capacity": np.int64(1024), "participants": np.int8(3)}
    with Queue.create("q", directory=tmp_path, **numbers) as q:
        assert q.stats().capacity_bytes == 1024
    assert Queue.list(directory=tmp_path) == ["q"]
    Queue.unlink("q", directory=tmp_path)
