"""Files with one block, replaced as a whole, for processes that read a broker's files."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast._core import open_block, seal_block
from holdfast.errors import Corrupt, NotFound
from holdfast.ledger.layout import BLOCK_HEADER, NEW, BlockKind

Content = TypeVar("Content", bound=msgspec.Struct)
WRITTEN_ANEW = "no message is lost: start or restart the broker, which writes it again"


def write_part(path: Path, version: int, content: msgspec.Struct) -> None:
    """Replace a file as a whole."""
    new = path.with_name(path.name + NEW)
    new.write_bytes(seal_block(BlockKind.PART, version, 0, msgspec.msgpack.encode(content)))
    new.replace(path)


def read_part(path: Path, kind: type[Content]) -> Content:
    """Read a file.

    Raises:
        NotFound: it does not exist.
        Corrupt: it is damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist") from None
    block = open_block(data)
    try:
        if isinstance(block, str) or block[0] != BlockKind.PART:
            raise msgspec.DecodeError(f"its block is wrong ({block})")
        return msgspec.msgpack.decode(data[BLOCK_HEADER : BLOCK_HEADER + block[3]], type=kind)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Corrupt(f"{path} does not decode: {error}; {WRITTEN_ANEW}") from error
