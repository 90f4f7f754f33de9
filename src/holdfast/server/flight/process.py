"""Start the Flight process on demand, and answer its questions.

    none ── port() ──► starting ── Ready ──► running ── the link ends ──► none
                          └── fails, or takes too long ──► none; port() raises the reason

A process that died is started by the next request for its port. Every reader with a broken connection sends
one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec

from holdfast.columns import Trouble
from holdfast.errors import Closed, HoldfastError, Misuse, Unsupported
from holdfast.server.flight.link import HEAD, Ask, Ready, Setup, Told, frame, frame_size
from holdfast.server.logs import Log

log = Log("holdfast.flight")

START_S = 45.0
"""Time to start: Arrow is large, and a disk may be slow."""
END_S = 2.0
AGAIN_S = 1.0
"""Time after a failed start in which requests get its error, without another start."""

Readable: TypeAlias = Callable[[str | None, Sequence[str]], Awaitable[tuple[str, list[bool]]]]
"""Returns the role behind a header, and which topics it may read. Raises AuthenticationFailed."""


class FlightProcess:
    """The Flight process: at most one, started on demand."""

    def __init__(self, setup: Setup, readable: Readable, host: str = "") -> None:
        self._setup = setup
        self._readable = readable
        self.host = host
        """Name or address for clients; empty: the one that they used for HTTP."""
        self._starting: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._ready: Ready | None = None
        self._serving: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._asks: set[asyncio.Task[None]] = set()
        self._failed: tuple[float, HoldfastError] | None = None
        self._stopped = False

    @property
    def pid(self) -> int | None:
        """The process id; None: the process does not run."""
        return None if self._process is None else self._process.pid

    async def port(self, tls: bool) -> int:
        """Return the port of the process; start it if necessary.

        Raises:
            Unsupported: pyarrow is not installed, or Flight has no such port.
            Closed: the process did not start, or the server stops.
        """
        if self._ready is None:
            if self._starting is None or self._starting.done():
                self._starting = asyncio.get_running_loop().create_task(self._start(), name="flight-start")
                self._starting.add_done_callback(_heard)
            # Shielded: other requests wait for the same start if this one is cancelled.
            started = self._starting
            try:
                await asyncio.shield(started)
            except asyncio.CancelledError:
                if started.cancelled():
                    raise Closed("the server or its Flight process is stopping; retry later") from None
                raise
        if self._ready is None:
            raise Closed("the Flight process died; retry later")
        found = self._ready.tls_port if tls else self._ready.port
        if found is None:
            raise Unsupported(
                f"Flight listens only {'without' if tls else 'with'} TLS, as HTTP does; ask by that address"
            )
        return found

    async def stop(self, *, for_good: bool = True) -> None:
        """Stop the process; if not for good, the next request starts a new one."""
        self._stopped = self._stopped or for_good
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await self._end()

    async def _start(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._stopped:
            raise Closed("the server is stopping; retry when it has restarted")
        if self._failed is not None and now < self._failed[0] + AGAIN_S:
            raise self._failed[1]
        try:
            async with asyncio.timeout(START_S):
                self._ready = await self._spawn()
        except (TimeoutError, OSError, EOFError, Misuse, msgspec.MsgspecError) as error:
            self._failed = (
                now,
                Closed(f"Flight did not start: {str(error) or 'it takes too long'}; see the server's log"),
            )
        except HoldfastError as error:
            self._failed = now, error
        except BaseException:
            await self._end()
            raise
        else:
            self._failed = None
            log.info("Flight listens", pid=self.pid, port=self._ready.port, tls_port=self._ready.tls_port)
            return
        await self._end()
        log.error("Flight did not start", why=self._failed[1])
        raise self._failed[1]

    async def _spawn(self) -> Ready:
        ours, theirs = socket.socketpair()
        with theirs:
            # A session of its own: Ctrl-C stops the server, which stops the process. Our settings are
            # removed from the environment, because they may have secrets.
            ours_alone = ("HOLDFAST_", "NOTIFY_SOCKET")
            kept = {name: value for name, value in os.environ.items() if not name.startswith(ours_alone)}
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "holdfast.server.flight", str(theirs.fileno())),
                    stdin=DEVNULL,
                    stdout=DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                    env=kept,
                )
            except BaseException:
                ours.close()
                raise
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._writer.write(frame(self._setup))
        found = msgspec.msgpack.decode(await _read(reader), type=Ready)
        if found.unsupported:
            raise Unsupported(found.unsupported)
        if found.failed:
            raise Closed(f"Flight did not start: {found.failed}")
        self._serving = asyncio.get_running_loop().create_task(self._serve(reader), name="flight")
        return found

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        """Answer questions until the process ends."""
        assert self._writer is not None
        process, writer = self._process, self._writer
        assert process is not None
        with contextlib.suppress(EOFError, OSError, Misuse, msgspec.MsgspecError):
            while True:
                ask = msgspec.msgpack.decode(await _read(reader), type=Ask)
                task = asyncio.get_running_loop().create_task(self._answer(ask, writer))
                self._asks.add(task)
                task.add_done_callback(self._asks.discard)
        self._ready = None
        writer.close()
        await _reap(process)
        if process.returncode:
            log.warning("Flight process died; the next read starts a new one", status=process.returncode)

    async def _answer(self, ask: Ask, writer: asyncio.StreamWriter) -> None:
        try:
            role, allowed = await self._readable(ask.header, ask.topics)
            told = Told(ask.number, role, allowed)
        except HoldfastError as error:
            told = Told(ask.number, trouble=Trouble.of(error))
        if not writer.is_closing():
            writer.write(frame(told))

    async def _end(self) -> None:
        self._ready = None
        if self._writer is not None:
            self._writer.close()
        if self._serving is not None:
            self._serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._serving
        for task in list(self._asks):
            task.cancel()
        process, self._process = self._process, None
        self._writer = self._serving = None
        if process is not None:
            await _reap(process)


def _heard(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a start without a waiting request; the log has it."""
    if not task.cancelled():
        task.exception()


async def _reap(process: Process) -> None:
    """Wait for the process, which ends with its link; kill it if it is stuck."""
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _read(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(frame_size(await reader.readexactly(HEAD.size)))


__all__ = ["FlightProcess"]
