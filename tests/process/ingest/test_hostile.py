"""Test local ingest beside forged files, requests and entries; other producers continue."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import (
    Closed,
    Corrupt,
    HoldfastError,
    LayoutMismatch,
    Misuse,
    NoSpace,
    Queue,
    Terminated,
    TooManyParticipants,
)
from holdfast._core import encode_messages
from holdfast.local import drain as draining
from holdfast.local import intake
from holdfast.local.account import PAGE, Account
from holdfast.local.place import Names
from tests.kit.processes import PATIENCE_S, until
from tests.kit.server.ingest_world import World, serving
from tests.kit.slices import seeds


def works(world: World, topic: str = "others") -> None:
    """Publish as an uninvolved producer."""
    with holdfast.Producer(topic, timeout=PATIENCE_S) as p:
        p.put(b"fine")
    assert world.stored(topic)[-1] == b"fine"


# -- requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        b"",
        b"\xff\xfe",
        b"[" * 30_000,
        b"[]",
        b'{"topic": "t"}',
        b'{"topic": "t", "reply": "../../etc/passwd"}',
        '{"topic": "t", "reply": "٣٣"}'.encode(),
        b'{"topic": "t", "reply": "' + b"a" * 1000 + b'"}',
        b'{"topic": {"a": 1}, "reply": "abc"}',
        b'{"topic": "a\\ud800", "reply": "abc"}',
        b'{"topic": "", "reply": "abc"}',
        b'{"topic": "' + b"x" * 20_000 + b'", "reply": "abc"}',
    ],
    ids=range(12),
)
def test_requests_that_make_no_sense(world: World, request_: bytes) -> None:
    with Queue.open(world.ingest.names.door) as door:
        door.put(request_)
    works(world)


def test_names_that_cannot_be(world: World) -> None:
    for name in ("a\ud800", "", "x" * 5000, "persistent://a", "a\nb"):
        with pytest.raises(HoldfastError):
            holdfast.Producer(name, timeout=PATIENCE_S)
    works(world)


def test_a_mistake_in_the_code_lets_others_in(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = intake.Ingest._segment

    async def segment(self: Any, name: str) -> Any:
        if name == "bad":
            raise ZeroDivisionError("a mistake")
        return await real(self, name)

    monkeypatch.setattr(intake.Ingest, "_segment", segment)
    with pytest.raises(holdfast.Timeout):
        holdfast.Producer("bad", timeout=0.1)
    works(world)


def test_a_door_that_was_closed_is_made_anew(world: World) -> None:
    with Queue.open(world.ingest.names.door) as door:
        door.close()
    works(world)


def test_a_door_that_was_damaged_is_made_anew(world: World, runtime_directory: Path) -> None:
    (file,) = runtime_directory.glob("*.door")
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xa5" * 8192)
    with Queue.open(world.ingest.names.door) as door, pytest.raises(HoldfastError):
        door.put(b"x")
    works(world)


def test_a_door_that_was_taken_away_is_made_anew(data: Path) -> None:
    with serving(data, {"idle_s": 0.5}) as world:
        Queue.unlink(world.ingest.names.door)
        works(world)


@pytest.mark.parametrize(
    "pattern", ["holdfast.broker.*", "*.account", "holdfast.queue.ingest.*", "holdfast.*"]
)
def test_files_that_others_remove(data: Path, runtime_directory: Path, pattern: str) -> None:
    """As logind does at logout: new producers are served, and attached ones continue."""
    with serving(data, {"idle_s": 0.2}) as world:
        with holdfast.Producer("orders") as attached:
            attached.put(b"1")
            attached.flush(timeout=PATIENCE_S)
            for path in runtime_directory.glob(pattern):
                path.unlink()
            with holdfast.Producer("orders") as newcomer:
                newcomer.put(b"2")
            attached.put(b"3")
            attached.flush(timeout=PATIENCE_S)
        assert world.stored() == [b"1", b"2", b"3"]
        until(lambda: not world.ingest.topics and not world.ingest._aside)
        topic = world.broker.topic("persistent://public/default/orders").state
        until(lambda: not topic.producers and not world.broker.machine.log.sequences(topic.id))
    assert not list(runtime_directory.glob("holdfast.*")), "nothing is left there"


def test_a_producer_is_told_when_its_queue_cannot_be_found_again(data: Path, runtime_directory: Path) -> None:
    with serving(data, {"idle_s": 1e6}) as world:
        attached = holdfast.Producer("orders")
        for path in runtime_directory.glob("*.account"):
            path.unlink()
        holdfast.Producer("orders").close()
        assert len(world.ingest._aside) == 1
    with pytest.raises(Closed, match="open it again"):
        attached.put(b"1")
    attached._leave()


def test_a_queue_without_an_account_is_removed(data: Path, runtime_directory: Path) -> None:
    with serving(data, {"idle_s": 1e6}):
        attached = holdfast.Producer("orders")
    (account,) = runtime_directory.glob("*.account")
    account.unlink()
    with serving(data, {"idle_s": 1e6}) as world:
        assert [name for name in Queue.list() if not name.endswith(".door")] == []
        with pytest.raises(Closed):
            attached.put(b"1")
        works(world)
    attached._leave()


def test_who_is_refused_costs_nothing(world: World) -> None:
    world.runner(world.broker.admin.create_topic("t"))
    world.runner(world.broker.admin.terminate("t"))
    for _ in range(130):
        with pytest.raises(Terminated):
            holdfast.Producer("t")
    assert len(world.ingest._bells) == 1
    assert world.ingest.topics == []


# -- files --------------------------------------------------------------------------------------------


def page(info: bytes) -> bytes:
    """An account with anything for its description."""
    made = bytearray(PAGE)
    made[:8], made[16:24], made[24] = b"HFINGEST", b"\xff" * 8, 1
    made[512:516] = len(info).to_bytes(4, "little")
    made[516 : 516 + len(info)] = info
    return bytes(made)


GOOD = {"topic": "t", "incarnation": "00", "identity": "aa.bb", "message_bytes_max": 100}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(PAGE),
        b"\xff" * PAGE,
        page(b""),
        page(b"[1]"),
        page(b"[" * 3000),
        page(b"null"),
        page(json.dumps(GOOD | {"topic": 3}).encode()),
        page(json.dumps(GOOD | {"identity": "../x"}).encode()),
        page(json.dumps(GOOD | {"identity": None}).encode()),
        page(json.dumps(GOOD | {"message_bytes_max": "many"}).encode()),
        page(json.dumps(GOOD).encode()),
        page(json.dumps(GOOD | {"topic": "nobody"}).encode()),
    ],
    ids=range(13),
)
def test_accounts_that_make_no_sense(data: Path, runtime_directory: Path, content: bytes) -> None:
    with serving(data) as world:
        world.runner(world.broker.admin.create_topic("t"))
        names = world.ingest.names
    names.account("aa.bb").write_bytes(content)
    with serving(data) as world:
        works(world)
        assert not names.account("aa.bb").exists()


def strange(names: Names, kind: str) -> list[Path]:
    """Things under the names of ingest that are none of its files."""
    account, reply = names.account("aa.bb"), names.reply("cc")
    for each in (account, reply):
        if kind == "directory":
            each.mkdir()
        elif kind == "link":
            each.symlink_to("/etc/passwd")
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(each))
        elif kind == "pipe":
            os.mkfifo(each)
        else:
            each.write_bytes(page(json.dumps(GOOD).encode()))
            os.chown(each, 12345, 12345)
            each.chmod(0o666)
    return [account, reply]


KINDS = ["directory", "link", "socket", "pipe"] + (["another user's"] if os.geteuid() == 0 else [])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_ours_is_left_alone(data: Path, kind: str) -> None:
    with serving(data) as world:
        names = world.ingest.names
    files = strange(names, kind)
    with serving(data) as world:
        works(world)
    assert all(os.path.lexists(each) for each in files)


def test_another_user_holds_the_name_of_the_descriptor(data: Path, runtime_directory: Path) -> None:
    """Another user of the directory can block ingest and is named; the broker serves."""
    if os.geteuid() != 0:
        return
    with serving(data) as world:
        incarnation = world.ingest.names.incarnation
    squatter = runtime_directory / f"holdfast.broker.{incarnation}"
    squatter.write_text("mine")
    os.chown(squatter, 12345, 12345)
    with pytest.raises(holdfast.Denied, match="belongs to another user"), serving(data):
        pass
    squatter.unlink()


# -- entries and words --------------------------------------------------------------------------------


def test_an_entry_that_is_larger_than_allowed_is_damage(data: Path) -> None:
    """Consumers would refuse it, and come back for it, for ever."""
    with serving(data, {"message_bytes_max": 1000}) as world:
        p = holdfast.Producer("orders")
        with pytest.raises(Misuse, match="the largest is 1000"):
            p.put(bytes(1000))
        p.put(bytes(900))
        p.flush(PATIENCE_S)
        p._queue.put(encode_messages([bytes(1000)], "somebody", 0, 1)[0])
        with pytest.raises(Corrupt, match="the largest is 1000"):
            p.flush(PATIENCE_S)
        p._leave()
        works(world)
        assert world.stored("orders") == [bytes(900)]


@pytest.mark.parametrize("seed", seeds("ingest pages", test=1))
def test_any_page_of_a_queue_may_be_overwritten(data: Path, runtime_directory: Path, seed: int) -> None:
    """No producer hangs or dies: unconfirmed messages are refused by name, others continue."""
    chance = random.Random(seed)
    refused, pages = list[str](), 24
    with serving(data, {"capacity": 1 << 15, "topics_max": 1000}) as world:
        bystander = holdfast.Producer("bystander")
        for number in range(pages):
            p = holdfast.Producer(f"t{number}")
            p.put(b"before")
            p.flush(PATIENCE_S)
            (file,) = [each for each in runtime_directory.iterdir() if each.name.endswith(p._queue.name)]
            with file.open("r+b", buffering=0) as raw:
                raw.seek(4096 * number)
                if 4096 * (number + 1) <= file.stat().st_size:
                    raw.write(chance.randbytes(4096))
            try:
                place = p.put_many([b"after"] * 50, timeout=2.0)
                p.wait(place, timeout=4.0)
            except HoldfastError as error:
                refused.append(type(error).__name__)
            bystander.put(b"%d" % number)
            bystander.flush(PATIENCE_S)
            p._leave()
        bystander.close()
        assert world.stored("bystander") == [b"%d" % number for number in range(pages)]
        for number in range(pages):
            assert world.stored(f"t{number}")[0] == b"before"
    assert "Corrupt" in refused


def test_the_broker_finds_a_place_however_many_producers_there_are(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is killed, and producers take any free place meanwhile."""
    monkeypatch.setattr(draining, "PARTICIPANTS", 5)
    with serving(data) as world:
        crowd = [holdfast.Producer("orders") for _ in range(3)]
        with pytest.raises(TooManyParticipants, match="The last place is for the broker"):
            holdfast.Producer("orders")
        (segment,) = world.ingest._segments.values()
        assert segment.queue is not None
        names = segment.queue_name
        world.runner(world.ingest.stop())
        late = Queue.open(names)  # has taken the place that the broker had
        assert late.slot == 0
        for n, p in enumerate(crowd):
            p.put(b"%d" % n)
        world.ingest = world.runner(world._start(data))
        for p in crowd:
            p.close(PATIENCE_S)
        late.detach()
        assert sorted(world.stored("orders")) == [b"0", b"1", b"2"]


def test_a_queue_that_cannot_be_taken_over_is_left(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another version is named and stays; other producers are served."""
    with serving(data):
        p = holdfast.Producer("orders")
    p.put(b"for a broker that can read it")
    real = Queue.open

    def refuse(name: str, **options: Any) -> Queue:
        if name == p._queue.name:
            raise LayoutMismatch("made by another version")
        return real(name, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "open", refuse)
        with serving(data) as world:
            works(world)
            assert world.ingest.topics == ["persistent://public/default/others"]
    with serving(data) as world:
        p.close(PATIENCE_S)
        assert world.stored("orders") == [b"for a broker that can read it"]


def test_no_room_in_the_runtime_directory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Any:
        raise NoSpace("there is no room for it")

    with monkeypatch.context() as patch:
        patch.setattr(Queue, "create", full)
        with pytest.raises(NoSpace, match="no room"):
            holdfast.Producer("orders")
    assert world.ingest.topics == []
    assert [name for name in Queue.list() if not name.endswith(".door")] == []
    works(world, "orders")


# -- a producer's own ---------------------------------------------------------------------------------


def test_what_a_closed_producer_still_tells(world: World) -> None:
    with holdfast.Producer("orders") as p:
        place = p.put(b"x")
    assert p.confirmed >= place
    assert not p.pending
    with pytest.raises(Closed):
        p.put(b"y")
    with pytest.raises(Closed):
        p.flush()
    p.close()
    account = p._account
    account.close()
    assert (account.error, account.trouble) == (None, "")


def test_closing_wakes_who_waits(world: World) -> None:
    p = holdfast.Producer("orders")
    world.runner(world.ingest.stop())
    p.put(b"x")
    told: list[BaseException] = []
    waiting = threading.Event()

    def wait() -> None:
        waiting.set()
        try:
            p.flush(PATIENCE_S)
        except HoldfastError as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(PATIENCE_S)
    p._leave()
    thread.join(PATIENCE_S)
    assert isinstance(told[0], Closed), told
    world.ingest = world.runner(world._start(Path("data")))
    until(lambda: world.stored("orders") == [b"x"])


def test_a_child_is_told_to_make_its_own(world: World) -> None:
    p = holdfast.Producer("orders")
    p.put(b"1")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        said = []
        for call in (lambda: p.put(b"child"), lambda: p.flush(1.0), p.close):
            try:
                call()
                said.append("nothing")
            except BaseException as error:
                said.append(f"{type(error).__name__}: {error}")
        os.write(write, json.dumps(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    for each in json.loads(os.read(read, 1 << 16)):
        assert "made before fork(); make a new one" in each
    os.close(read)
    os.close(write)
    p.put(b"2")
    p.close()
    assert world.stored("orders") == [b"1", b"2"]


def test_an_account_is_looked_at_after_it_was_closed(tmp_path: Path) -> None:
    kept = Account.create(tmp_path / "page", GOOD)
    seen = Account.open(kept.path)
    kept.confirm(100)
    kept.end(Terminated("the topic was terminated"))
    seen.close()
    assert seen.confirmed == 100
    assert isinstance(seen.error, Terminated)
    seen.close()
    kept.close()
