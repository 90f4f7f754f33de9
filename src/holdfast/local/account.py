"""One page of shared memory per ingest queue: the confirmed position, and faults.

```
 byte 0        8            16            24       64              512
      | magic  | confirmed  | ~confirmed  | state  | u16 + text    | u32 + JSON: topic, queue, limits
```

The broker alone writes it. `confirmed` is a position in the queue: every message that was put below it is
durable. It is written twice, so that a word that was half written when the broker was killed is not believed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
from pathlib import Path
from typing import Any, Self

from holdfast import errors
from holdfast.errors import Closed, Corrupt, HoldfastError, NotFound
from holdfast.local.place import open_own, put_file

PAGE = 4096
_MAGIC = int.from_bytes(b"HFINGEST", "little")
_WORD = (1 << 64) - 1
_TEXT_AT, _INFO_AT = 64, 512
_GOING, _ENDED, _WITHDRAWN = 1, 2, 3


class Account:
    """A mapped page. The broker makes it with `create`, producers look at it with `open`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as where:
        ...     info = {"topic": "orders", "incarnation": "", "identity": "1", "message_bytes_max": 9}
        ...     kept = Account.create(Path(where) / "page", info)
        ...     seen = Account.open(kept.path)
        ...     kept.confirm(1040)
        ...     print(seen.info["topic"], seen.confirmed, seen.error)
        ...     kept.close(); seen.close()
        orders 1040 None
    """

    def __init__(self, path: Path, fd: int, writable: bool) -> None:
        self.path = path
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        if os.fstat(fd).st_size != PAGE:
            raise Corrupt(f"{path} is not an account of an ingest queue: its size is not {PAGE}; remove it")
        self._map = mmap.mmap(fd, PAGE, access=access)
        self._bytes = memoryview(self._map)
        self._words = self._bytes[:_TEXT_AT].cast("Q")
        self._seen = 0
        self._last: tuple[HoldfastError | None, str] = (None, "")
        if self._words[0] != _MAGIC:
            self.close()
            raise Corrupt(f"{path} is not an account of an ingest queue; remove it")
        size = int.from_bytes(self._bytes[_INFO_AT : _INFO_AT + 4], "little")
        try:
            self.info: dict[str, Any] = _checked(bytes(self._bytes[_INFO_AT + 4 : _INFO_AT + 4 + size]))
        except (ValueError, KeyError, TypeError, RecursionError):
            self.close()
            raise Corrupt(f"{path} is damaged: it does not say whose account it is; remove it") from None

    @classmethod
    def create(cls, path: Path, info: dict[str, Any]) -> Self:
        """A new one; it has its name only when it is complete."""
        text = json.dumps(info).encode()
        page = bytearray(PAGE)
        page[:8] = _MAGIC.to_bytes(8, "little")
        page[16:24] = _WORD.to_bytes(8, "little")
        page[24] = _GOING
        page[_INFO_AT : _INFO_AT + 4] = len(text).to_bytes(4, "little")
        page[_INFO_AT + 4 : _INFO_AT + 4 + len(text)] = text
        if len(page) != PAGE:
            raise errors.Misuse(f"{len(text)} bytes do not fit into the account {path}")
        put_file(path, bytes(page))
        return cls.open(path, writable=True)

    @classmethod
    def open(cls, path: Path, writable: bool = False) -> Self:
        """Map one that is there.

        Raises:
            NotFound, Denied, Corrupt.
        """
        fd = open_own(path, writable)
        if fd is None:
            raise NotFound(f"there is no account {path}")
        try:
            return cls(path, fd, writable)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Unmap the page; the last values can still be read."""
        if self._map.closed:
            return
        with contextlib.suppress(AttributeError, ValueError):
            self._look()
            self._last = self.error, self.trouble
        self._words.release()
        self._bytes.release()
        self._map.close()

    @property
    def confirmed(self) -> int:
        """Everything that was put below this position is durable."""
        with contextlib.suppress(ValueError):  # closed
            self._look()
        return self._seen  # where the words disagree, what was seen before still holds

    def _look(self) -> None:
        value, check = self._words[1], self._words[2]
        if value ^ check == _WORD and value > self._seen:
            self._seen = value

    @property
    def withdrawn(self) -> bool:
        """A producer that has just attached must leave, and ask again."""
        return self._words[3] != _GOING

    @property
    def error(self) -> HoldfastError | None:
        """Why nothing more is taken here; None while it goes on."""
        try:
            if self._words[3] != _ENDED:
                return None
        except ValueError:
            return self._last[0]
        kind, _, text = self.trouble.partition(": ")
        made = getattr(errors, kind, Closed)
        if not (isinstance(made, type) and issubclass(made, HoldfastError)):
            made = Closed
        return made(text)

    @property
    def trouble(self) -> str:
        """The reason why the broker does not store, in its words; empty: it stores."""
        try:
            size = int.from_bytes(self._bytes[_TEXT_AT : _TEXT_AT + 2], "little")
            return bytes(self._bytes[_TEXT_AT + 2 : _TEXT_AT + 2 + min(size, 440)]).decode(errors="replace")
        except ValueError:
            return self._last[1]

    # -- for the broker --------------------------------------------------------------------------------

    def mend(self) -> None:
        """Keep the older word, after a broker was killed between the two."""
        value, check = self._words[1], self._words[2]
        if value ^ check != _WORD:
            self._words[1] = check ^ _WORD
        self._words[3] = _GOING
        self.say("")

    def confirm(self, end: int) -> None:
        """Everything below `end` is durable. Never goes back."""
        if end > self.confirmed:
            self._words[1] = end
            self._words[2] = end ^ _WORD

    def say(self, trouble: str) -> None:
        """Tell producers why the broker does not store now."""
        text = trouble.encode()[:440]
        self._bytes[_TEXT_AT + 2 : _TEXT_AT + 2 + len(text)] = text
        self._bytes[_TEXT_AT : _TEXT_AT + 2] = len(text).to_bytes(2, "little")

    def withdraw(self, yes: bool) -> None:
        """Mark an unused queue as about to go, or take that back."""
        self._words[3] = _WITHDRAWN if yes else _GOING

    def end(self, error: HoldfastError) -> None:
        """Nothing more is taken; what is confirmed by now stays so."""
        self.say(f"{type(error).__name__}: {error}")
        self._words[3] = _ENDED


def _checked(text: bytes) -> dict[str, Any]:
    info = json.loads(text)
    if not all(isinstance(info[key], str) for key in ("topic", "incarnation", "identity")):
        raise TypeError(f"{text[:80]!r} names no topic")
    if not (info["identity"].replace(".", "").isalnum() and int(info["message_bytes_max"]) > 0):
        raise ValueError(f"{info['identity']!r} is not an identity")
    return dict(info)


__all__ = ["Account"]
