"""Direct connections of members: strangers, wrong secrets and hostile bytes get nothing."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from holdfast.cluster import Channel, TcpLink, peers
from holdfast.errors import AuthenticationFailed, BadConfiguration, Corrupt, Unsupported

SECRET = b"a secret of this cluster"


async def echo(node: int, channel: Channel) -> None:
    while True:
        await channel.send(b"%d " % node + await channel.receive())


@asynccontextmanager
async def donor(handler: Callable[[int, Channel], Awaitable[None]] = echo) -> AsyncIterator[TcpLink]:
    link = TcpLink(1, {1: "127.0.0.1:0"}, SECRET)
    await link.serve(handler)
    try:
        yield link
    finally:
        await link.close()


async def raw(link: TcpLink) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = link.address.split(":")
    return await asyncio.open_connection(host, int(port))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


def test_members_talk() -> None:
    async def main() -> None:
        async with donor() as link:
            channel = await TcpLink(2, {1: link.address}, SECRET).connect(1)
            await channel.send(b"x" * (1 << 20))
            assert await channel.receive() == b"2 " + b"x" * (1 << 20)
            await channel.close()
            await channel.close()

    asyncio.run(main())


def test_a_port_that_is_taken_is_no_mistake_of_the_settings() -> None:
    """It may be free at the next start."""

    async def main() -> None:
        async with donor() as link:
            with pytest.raises(
                OSError, match="address of node 2 for transfers: address already in use; stop"
            ):
                await TcpLink(2, {2: link.address}, SECRET).serve(echo)
            with pytest.raises(
                BadConfiguration, match=r"cannot assign.*is cluster\.node the id of this machine"
            ):
                await TcpLink(2, {2: "192.0.2.1:6660"}, SECRET).serve(echo)

    asyncio.run(main())


def test_a_joiner_with_another_secret_gets_nothing() -> None:
    async def main() -> None:
        async with donor() as link:
            with pytest.raises(AuthenticationFailed, match=r"has another secret; copy cluster\.secret_file"):
                await TcpLink(2, {1: link.address}, b"other").connect(1)
            reader, writer = await raw(link)  # one that does not check the donor's proof
            writer.write(peers._HELLO.pack(peers.MAGIC, peers.VERSION, 2, bytes(32)) + bytes(32))
            answer = await reader.read()
            assert len(answer) == peers._HELLO.size + 32, "more than the greeting"
            await until(lambda: link.refused >= 1)
            writer.close()

    asyncio.run(main())


def test_a_donor_with_another_secret_or_node_is_refused() -> None:
    async def main() -> None:
        async with donor() as link:
            with pytest.raises(AuthenticationFailed, match="is node 1, not node 3"):
                await TcpLink(2, {3: link.address}, SECRET).connect(3)

    asyncio.run(main())


def test_a_recorded_greeting_is_worth_nothing() -> None:
    """The donor's nonce is new for each connection."""

    class Recording(TcpLink):
        def _proof(self, *what: object) -> bytes:
            proofs.append(super()._proof(*what))  # type: ignore[arg-type]
            return proofs[-1]

    proofs: list[bytes] = []

    async def main() -> None:
        async with donor() as link:
            recording = Recording(2, {1: link.address}, SECRET)
            channel = await recording.connect(1)
            await channel.close()
            reader, writer = await raw(link)
            writer.write(peers._HELLO.pack(peers.MAGIC, peers.VERSION, 2, bytes(32)) + proofs[-1])
            assert len(await reader.read()) == peers._HELLO.size + 32
            writer.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n" + bytes(64), bytes(200), b"HFpeer" + bytes(100), b"\xff" * 300, b""],
)
def test_other_bytes_end_the_connection(data: bytes) -> None:
    async def main() -> None:
        async with donor() as link:
            reader, writer = await raw(link)
            writer.write(data)
            writer.write_eof()
            answer = await reader.read()
            assert len(answer) <= peers._HELLO.size + 32
            await until(lambda: link.refused == 1)
            writer.close()

    asyncio.run(main())


def test_another_version_is_named() -> None:
    with pytest.raises(Unsupported, match="speaks version 9 of copies, this one 1; update the older"):
        peers._opened(peers._HELLO.pack(peers.MAGIC, 9, 2, bytes(32)))


def test_strangers_are_few_and_have_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "GREETING_S", 0.05)

    async def main() -> None:
        async with donor() as link:
            silent = [await raw(link) for _ in range(peers.STRANGERS_MAX + 4)]
            await until(lambda: link.refused == len(silent))
            channel = await TcpLink(2, {1: link.address}, SECRET).connect(1)
            await channel.close()
            for _, writer in silent:
                writer.close()

    asyncio.run(main())


def test_silent_connections_do_not_keep_a_member_out() -> None:
    """They may hold all places for long: the oldest of them makes room."""

    async def main() -> None:
        async with donor() as link:
            silent = [await raw(link) for _ in range(peers.STRANGERS_MAX)]
            await until(lambda: len(link._strangers) == peers.STRANGERS_MAX)
            channel = await TcpLink(2, {1: link.address}, SECRET).connect(1)
            await channel.send(b"in")
            assert await channel.receive() == b"2 in"
            await until(lambda: link.refused == 1)
            await channel.close()
            for _, writer in silent:
                writer.close()

    asyncio.run(main())


def test_a_message_without_end_is_not_read() -> None:
    heard: list[BaseException] = []

    async def listen(node: int, channel: Channel) -> None:
        try:
            await channel.receive()
        except Corrupt as error:
            heard.append(error)

    async def main() -> None:
        async with donor(listen) as link:
            channel = await TcpLink(2, {1: link.address}, SECRET).connect(1)
            channel._writer.write(struct.pack("<I", (1 << 32) - 1))
            await until(lambda: bool(heard))
            assert "a message of 4294967295 bytes; at most" in str(heard[0])
            await channel.close()

    asyncio.run(main())


def test_a_quiet_peer_is_given_up() -> None:
    async def sleep(node: int, channel: Channel) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with donor(sleep) as link:
            channel = await TcpLink(2, {1: link.address}, SECRET).connect(1)
            with pytest.raises(TimeoutError):
                await channel.receive(timeout=0.01)
            await channel.close()

    asyncio.run(main())


def test_a_node_without_an_address_is_named() -> None:
    with pytest.raises(ConnectionError, match="no address of node 7 is configured"):
        asyncio.run(TcpLink(2, {}, SECRET).connect(7))
