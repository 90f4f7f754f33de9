"""The view of a topic, for readers of its files."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from holdfast import Corrupt, Misuse, NotFound, _core
from tests.kit.ledger.entry_bytes import file_header

DIRECTORY = bytes(range(16))


def test_what_is_published_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "view")
    with pytest.raises(NotFound):
        _core.TopicViewReader(path, 3, DIRECTORY)
    view = _core.TopicView(path, 3, DIRECTORY)
    reader = _core.TopicViewReader(path, 3, DIRECTORY)
    with pytest.raises(Corrupt, match="neither copy"):
        reader.read()
    incarnation = b"random id of 3: "
    for visible in (0, 5, 7):
        view.publish(incarnation, 0, visible, 1)
        assert reader.read() == (incarnation, 0, visible, 1, "live")
    view.publish(incarnation, 7, 9, 2, state="closed")
    view.sync()
    assert reader.read() == (incarnation, 7, 9, 2, "closed")
    view.publish(incarnation, 9, 9, 2, state="gone")
    assert reader.read()[4] == "gone"
    assert not reader.moved()
    Path(path).unlink()
    assert reader.moved()
    for wrong in ((b"short", 0, 0, 0), (incarnation, 1, 0, 0), (incarnation, 0, 0, 0, "open")):
        with pytest.raises(Misuse):
            view.publish(*wrong)
    _core.TopicView(path, 3, DIRECTORY)
    with pytest.raises(Corrupt, match="another number"):
        _core.TopicViewReader(path, 4, DIRECTORY)


def test_its_header_is_that_of_every_file(tmp_path: Path) -> None:
    path = tmp_path / "view"
    _core.TopicView(str(path), 3, DIRECTORY).publish(DIRECTORY, 1, 2, 3)
    data = path.read_bytes()
    assert len(data) == 4096
    assert data[:64] == file_header(5, 3, DIRECTORY)
    begin, low, high, first, visible, table, state = struct.unpack_from("<7Q", data, 128)
    assert (begin, first, visible, table, state) == (1, 1, 2, 3, 0)
    assert struct.pack("<QQ", low, high) == DIRECTORY
    assert struct.unpack_from("<Q", data, 128 + 120) == (1,)
