"""A process that reads a view whose writer is killed."""

from __future__ import annotations

from pathlib import Path

from holdfast import _core
from tests.kit.processes import Start, tell, until

DIRECTORY = bytes(range(16))


def write_for_ever(path: str) -> None:
    from holdfast import _core

    view = _core.TopicView(path, 3, bytes(range(16)))
    n = _core.TopicViewReader(path, 3, bytes(range(16))).read()[1]
    tell(n)
    while True:
        n += 1
        view.publish(n.to_bytes(16, "little"), n, 2 * n, 3 * n)


def test_a_writer_that_is_killed(tmp_path: Path, start: Start) -> None:
    path = str(tmp_path / "view")
    _core.TopicView(path, 3, DIRECTORY).publish(bytes(16), 0, 0, 0)
    reader = _core.TopicViewReader(path, 3, DIRECTORY)
    last = 0
    for _ in range(5):
        writer = start(write_for_ever, path)
        assert writer.hear() == last  # the next writer goes on where the last one died
        until(lambda: reader.read()[1] > last + 100)  # noqa: B023
        for _ in range(2000):
            incarnation, first, visible, table, state = reader.read()
            assert (visible, table, state) == (2 * first, 3 * first, "live")
            assert int.from_bytes(incarnation, "little") == first
            assert first >= last
            last = first
        writer.kill()
        last = reader.read()[1]
        assert reader.read() == (last.to_bytes(16, "little"), last, 2 * last, 3 * last, "live")
