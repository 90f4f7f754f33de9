"""Messages that no member sends: each is an error that ends the copy."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.cluster.peers import QUIET_S
from holdfast.cluster.transfer import Ask, Bring, Sorry, Tail, Want, _hear, donate
from holdfast.errors import Busy, Corrupt

WANT = msgspec.msgpack.encode(Want("ab"))
HOSTILE = (
    WANT.replace(b"ab", b"\xff\xfe"),
    bytes([WANT[0] + 1]) + WANT[1:] + b"\x91" * 100_000 + b"\x00",
    b"\x91" * 100_000,
    b"",
    msgspec.msgpack.encode(Tail(1, 2)),
)


class Said:
    """A channel from which these messages come."""

    def __init__(self, *messages: bytes) -> None:
        self._messages = list(messages)
        self.sent: list[bytes] = []

    async def send(self, message: bytes) -> None:
        self.sent.append(message)

    async def receive(self, timeout: float = QUIET_S) -> bytes:
        return self._messages.pop(0)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("data", HOSTILE, ids=["text", "deep", "deep at once", "empty", "another message"])
def test_a_message_that_cannot_be_is_refused(data: bytes) -> None:
    """A joiner asks the next donor after `Corrupt`; any other error would end its program."""
    for expected in (Want, Ask | Bring):
        with pytest.raises(Corrupt, match="update it"):
            asyncio.run(_hear(Said(b"\x01" + data), expected))  # type: ignore[arg-type]
    with pytest.raises(Corrupt, match="update it"):
        asyncio.run(donate(None, Said(b"\x01" + data)))


def test_a_refusal_comes_as_its_words() -> None:
    with pytest.raises(Busy, match="ask another"):
        asyncio.run(_hear(Said(b"\x01" + msgspec.msgpack.encode(Sorry("ask another"))), Want))
