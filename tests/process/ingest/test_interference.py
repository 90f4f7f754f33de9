"""Other code removes files of local ingest and closes descriptors: both are recreated."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import NotFound, Timeout
from holdfast.local.drain import Segment
from holdfast.local.place import Announcement, brokers
from tests.kit.processes import Start, hear, tell, until
from tests.kit.server.ingest_world import World, serving
from tests.kit.strangers import descriptors_of, remove, replace

FILES = {
    "account": "holdfast.ingest.*.account",
    "queue": "holdfast.queue.ingest.*.[0-9a-f]*",
    "descriptor": "holdfast.broker.*",
}
WAIT_S = 20.0


def close(path: Path) -> None:
    """Close all descriptors of this file that this process has."""
    for number in descriptors_of(path):
        os.close(number)


@pytest.fixture
def busy(data: Path) -> Iterator[World]:
    """A broker that looks after its files often."""
    with serving(data, {"idle_s": 0.2}) as world:
        yield world


def of(directory: Path, name: str) -> list[Path]:
    return [path for path in directory.glob(FILES[name]) if not path.name.endswith(".door")]


def publish(topic: str, payload: bytes, timeout: float = WAIT_S) -> None:
    with holdfast.Producer(topic, timeout=timeout) as p:
        p.put(payload)


def goes_on(
    world: World,
    directory: Path,
    name: str,
    way: Callable[[Path], None],
    *,
    attach_s: float = WAIT_S,
) -> None:
    """Attached producers continue, and new ones find the broker and its queues.

    A test with a broken broker shortens the one wait that has to fail, and no other.
    """
    with holdfast.Producer("orders") as p:
        p.put(b"before")
        p.flush(WAIT_S)
        files = of(directory, name)
        assert len(files) == 1
        way(files[0])
        p.put(b"after")
        p.flush(WAIT_S)
        if name == "descriptor":
            until(lambda: files[0].exists() and world.ingest._announcement.is_there())  # type: ignore[union-attr]
        publish("orders", b"new", attach_s)
        publish("others", b"other", attach_s)
    assert world.stored("orders") == [b"before", b"after", b"new"]
    assert world.stored("others") == [b"other"]


@pytest.mark.parametrize(
    ("name", "way"), [(name, way) for name in FILES for way in (remove, replace)] + [("descriptor", close)]
)
def test_ingest_goes_on(busy: World, runtime_directory: Path, name: str, way: Callable[[Path], None]) -> None:
    goes_on(busy, runtime_directory, name, way)
    files = ("account", "queue")  # no process uses them any more: they are removed
    until(lambda: not any(path for each in files for path in of(runtime_directory, each)))
    assert not busy.ingest._aside


def test_what_is_another_file_by_then_is_not_taken_away(data: Path, runtime_directory: Path) -> None:
    with serving(data):
        (path,) = runtime_directory.glob(FILES["descriptor"])
        replace(path)
    assert path.exists()


def serve_and_fork(data: str) -> None:
    from tests.kit.server.ingest_world import serving

    with serving(Path(data)):
        if os.fork() == 0:
            tell(os.getpid())  # by now it has closed what is the parent's
            while True:
                time.sleep(1)
        hear()


def test_a_forked_child_does_not_make_a_dead_broker_look_alive(
    data: Path, runtime_directory: Path, start: Start
) -> None:
    broker = start(serve_and_fork, str(data))
    child = broker.hear()
    assert [each.pid for each in brokers(runtime_directory)[0]] == [broker.pid]
    broker.kill()
    live, stale = brokers(runtime_directory)
    assert (live, len(stale)) == ([], 1)
    with serving(data) as world:  # nor does it keep the data directory
        publish("orders", b"x")
        assert world.stored("orders") == [b"x"]
    assert Path(f"/proc/{child}").exists(), "it lives"
    os.kill(child, signal.SIGKILL)


# -- the faults, brought back ---------------------------------------------------------------------------


def test_a_broker_that_does_not_look_after_its_queues_is_noticed(
    busy: World, runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Segment, "is_there", lambda self: True)
    with pytest.raises(Timeout):
        goes_on(busy, runtime_directory, "queue", remove, attach_s=0.4)


def test_a_broker_that_is_not_found_is_noticed(
    busy: World, runtime_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Announcement, "is_there", lambda self: True)
    monkeypatch.setitem(globals(), "until", lambda condition: None)
    with pytest.raises(NotFound, match="no broker serves"):
        goes_on(busy, runtime_directory, "descriptor", remove, attach_s=0.4)
