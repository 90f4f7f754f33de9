"""One connection: frames come in and are carried out, answers collect and leave once per turn.

Promises upward: nothing is served before the client has shown who it is; what a client sends is carried out
in the order of its arrival, as far as the outcome can tell; a client that is slow to read, a disk that is
slow to write, and requests that pile up each stop the reading of that connection, so that none of them costs
more than a bounded amount of memory. Needs from below: the core's reader, which finds the frames, puts
publishes into the turn's frame of events and decodes acknowledgements.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import struct
import termios
import traceback
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from holdfast import __version__
from holdfast._core import WireReader
from holdfast.errors import Closed, Denied, HoldfastError
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.protocol.frames import framed
from holdfast.server.listening import bracketed
from holdfast.server.logs import Log
from holdfast.server.pace import Appetite, Pace
from holdfast.server.pulsar import commands
from holdfast.server.pulsar.commands import NO_REQUEST, Refused, refusal
from holdfast.server.pulsar.consumers import Consumers
from holdfast.server.pulsar.options import Credentials, Identity, PulsarAction
from holdfast.server.pulsar.producers import Producers
from holdfast.server.pulsar.requests import REQUESTS, Request
from holdfast.server.pulsar.turns import Pending
from holdfast.server.pulsar.watching import Watches

if TYPE_CHECKING:
    from holdfast.server.pulsar.listener import Server

LOG = Log("holdfast.wire")

PROTOCOL_VERSION = 21
"""The newest that this server speaks; clients are answered with their own if it is older."""

FLUSH_BYTES = 256 << 10
"""So much leaves before the turn ends: the transport says sooner that the client is slow."""

GREETING_BYTES_MAX = 64 << 10
"""The largest frame of a client that nobody knows yet."""

TURN_COMMANDS = 8
"""Commands of one connection that are taken in one turn of the loop, but for SEND, ACK and FLOW."""

TURN_ITEMS = 8
"""The same with these: SENDs of a producer, plain ACKs or FLOWs of a consumer count once."""

LINGER_S = 5.0
"""How long a client that was closed may take to read why."""

QUIET_S = 0.5
"""Who was closed, has all that was sent to it, and says nothing for so long, is not waited for."""
_LINGER_STEP_S = 0.05

_PUBLISHES, _REFUSED_SEND, _ACKS, _FLOW, _BROKEN = range(1, 6)  # of what the reader finds
_TOO_EARLY = Refused(pb.NotAllowedError, "nothing is served before CONNECT was answered")
_PING = framed(pb.CommandPing())
_PONG = framed(pb.CommandPong())


class Connection(asyncio.BufferedProtocol):
    """A client, from its first byte to its last. Those who serve its requests use `send` and `authorize`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.broker = server.broker
        self.options = server.options
        self.identity: Identity | None = None
        """None until the client has shown who it is."""
        self.address = ""
        self.client_version = ""
        self.producers: Producers = Producers(self)
        self.consumers: Consumers = Consumers(self)
        self.watches: Watches = Watches(self)
        self.stalled = False
        """The client reads more slowly than it is sent to."""
        self.loop = asyncio.get_running_loop()
        self.reader = WireReader(GREETING_BYTES_MAX)
        self._protocol_version = 0
        self._auth_method = ""
        self._behind = ""
        """For whom a proxy speaks, by its own account."""
        self._refreshes = False
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flush_scheduled = False
        self._pauses: set[str] = set()
        self._requests = Pending(self, self._carry_out, self._request_ended)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._expiry: asyncio.TimerHandle | None = None
        self._opened = self._heard = self.loop.time()
        self._pinged: float | None = None
        self._answers: list[asyncio.Future[None]] = []
        self._frame = Pace(self.options.frame_s)
        """A frame of which only the beginning is there."""
        self._paused_at = 0.0
        self._writing = Pace(2 * self.options.keep_alive_s)
        self._unsent = 0
        """How much waited to be sent when the client began to be slow."""
        self._peer = ""
        self._appetite = Appetite(len(server.buffer))
        self._entered = False
        self._showing = False
        self._closing = False
        self.lost = self.loop.create_future()
        """Done when the connection has gone."""

    # -- its life --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=self.options.write_buffer_bytes)
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self.address = f"{peer[0]}:{peer[1]}"
        with contextlib.suppress(OSError, AttributeError):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._peer = str(peer[0])
        self.server.connections.add(self)
        try:
            self.options.enter(self._peer)
            self._entered = True
        except HoldfastError as error:
            self.close(Refused(pb.TooManyRequests, str(error)))

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._transport = None
        self._out.clear()
        self.server.connections.discard(self)
        if self._entered:
            self._entered = False
            self.options.leave(self._peer)
        self._ended()
        if not self.lost.done():
            self.lost.set_result(None)
        if self.identity is not None:
            LOG.debug("client gone", peer=self.address, role=self.role, why=error or "closed")

    def _ended(self) -> None:
        """Nothing more is done for the client: what it had goes to others."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._requests.cancel()
        for task in self._tasks:
            task.cancel()
        self._alive()  # whoever waits for a sign of life need not wait any more
        self.consumers.gone()
        self.producers.gone()
        self.watches.gone()
        self.reader = WireReader(GREETING_BYTES_MAX)  # half a frame must not wait for the garbage collector
        self.server.budget.hold((self, "frame"), 0)
        self.server.budget.hold((self, "unsent"), 0)

    def close(self, reason: Refused | None = None) -> None:
        """End it; the client is told why, if there is a reason."""
        if self._closing or self._transport is None:
            return
        if reason is not None:
            self.server.refusals.say("client closed", reason, peer=self.address, role=self.role)
            self.send(commands.error(NO_REQUEST, reason))
        self.flush()
        self._closing = True
        transport = self._transport
        self._ended()
        if self.identity is not None and transport.can_write_eof():
            # To close while something of the client is unread would take back what it has not read yet.
            with contextlib.suppress(OSError):  # the client has reset the connection
                transport.write_eof()
            transport.resume_reading()
            self._linger(self.loop.time() + LINGER_S)
        else:
            transport.close()
            self.loop.call_later(LINGER_S, self.abort)

    def _linger(self, until: float) -> None:
        """Until the client closes, too, or knows why it should, or has had its time."""
        if self._transport is None:
            return
        now = self.loop.time()
        if now >= until or (now - self._heard > QUIET_S and not self._unread()):
            self._transport.abort()
        else:
            self.loop.call_later(_LINGER_STEP_S, self._linger, until)

    def _unread(self) -> bool:
        """Is there anything that has not reached the client's machine?"""
        assert self._transport is not None
        waiting = self._transport.get_write_buffer_size()
        with contextlib.suppress(OSError):
            raw = fcntl.ioctl(self._transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
            waiting += struct.unpack("i", raw)[0]
        return waiting > 0

    def abort(self) -> None:
        """End it now."""
        if self._transport is not None:
            self._transport.abort()

    async def shut(self, reason: Refused) -> None:
        """The server stops: nothing more is taken; who waits, and everybody who is attached, is told."""
        self.pause("stopping")
        under_way = self._requests.abandon(lambda request, number: self.send(request.refuse(number, reason)))
        await asyncio.gather(*under_way, return_exceptions=True)
        self.consumers.shut()
        self.producers.shut()
        self.close(reason if self.identity is None else None)

    # -- what comes in ---------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """One for all connections: what is read is taken out before the next one reads."""
        return self.server.buffer[: self._appetite.bytes]

    def buffer_updated(self, count: int) -> None:
        if self._closing:
            self._heard = self.loop.time()
            return
        self._alive()
        self.producers.heed_space(count)
        self._take(self.server.buffer[:count])
        self._appetite.took(self.loop.time() - self._heard)

    def _take(self, data: memoryview | bytes) -> None:
        """Carry out everything that is complete."""
        try:
            frame = self.broker.frame
        except HoldfastError as error:
            self.close(refusal(error))
            return
        before = frame.count
        items: list[Any] = []
        try:
            room = min(TURN_COMMANDS, self._requests.room)
            items = list[Any](self.reader.feed(data, frame, room, TURN_ITEMS))
        finally:  # whatever happens, every event that is in the frame has its future
            added = frame.count - before
            futures = iter(self.broker.added(added) if added else ())
        self._note_frame(bool(items))
        for item in items:
            if self._closing:
                return
            kind = item[0]
            if self.identity is None and _PUBLISHES <= kind <= _FLOW:
                self.close(_TOO_EARLY)
            elif kind == _PUBLISHES:
                self.producers.published(next(futures), *item[1:])
            elif kind == _ACKS:
                self.consumers.acked(*item[1:])
            elif kind == _FLOW:
                self.consumers.flow(item[1], item[2])
            elif kind == _REFUSED_SEND:
                self.producers.refused(*item[1:])
            elif kind == _BROKEN:
                self.close(Refused(pb.UnknownError, f"this is not the protocol: {item[1]}"))
            else:
                self._command(item[1], item[2])
        if self.reader.stalled:  # the frame of events was full: when it has left, there is room again
            self.pause("frame")
            if "requests" not in self._pauses:  # else when some were answered
                self.loop.call_soon(self._take_rest)
        if added and self.broker.behind:
            self.server.wait_for_room()

    def _note_frame(self, taken: bool) -> None:
        """What is there of an incomplete frame: it has its time, and counts for the whole process."""
        pending, budget = self.reader.pending, self.server.budget
        if taken or not pending:  # what is there now is another frame, and the youngest of all
            self._frame.end()
            budget.hold((self, "frame"), 0)
        if pending:
            self._frame.begin(self.loop.time())
            budget.hold((self, "frame"), pending, self.crowded_out)

    def crowded_out(self) -> None:
        """Too much is held in all, and this client has held its part for longest: it is closed."""
        reason = "too much is held for clients, and this one has been slow for longest (limits.held_bytes)"
        self.server.refusals.say("client closed", reason, peer=self.address, role=self.role)
        self.abort()
        self._closing = True
        self._ended()

    def _take_rest(self) -> None:
        if not self._closing:
            self._take(b"")
            if not self.reader.stalled:
                self.go_on("frame")

    def _command(self, kind: int, body: bytes) -> None:
        try:
            commands.require_size(kind, len(body))
            command = pb.BaseCommand.FromString(body)
            commands.require_text(command)
        except (DecodeError, UnicodeDecodeError) as error:
            self.close(Refused(pb.UnknownError, f"a command of type {kind} that cannot be read: {error}"))
        except Refused as error:
            self.close(error)
        else:
            self._obey(kind, command, len(body))

    def _obey(self, kind: int, command: pb.BaseCommand, size: int) -> None:
        if self.identity is None:
            self._greet(kind, command)
        elif kind == pb.BaseCommand.PING:
            self.send(_PONG)
        elif kind == pb.BaseCommand.PONG:
            pass
        elif kind == pb.BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES:
            self.consumers.redeliver(command.redeliverUnacknowledgedMessages)
        elif kind == pb.BaseCommand.AUTH_RESPONSE:
            self._show(command.authResponse.response)
        else:
            request = REQUESTS.get(kind) or self.server.handlers.get(kind)
            if request is None:
                self.close(Refused(pb.NotAllowedError, f"this broker does not know commands of type {kind}"))
            else:
                self._request(request, getattr(command, request.name), size)

    # -- requests --------------------------------------------------------------------------------------

    def _request(self, request: Request, message: Any, size: int) -> None:
        self._requests.add(request, message, size)
        if not self._requests.room:
            self.pause("requests")

    async def _carry_out(self, request: Request, message: Any) -> None:
        try:
            answer = await request.handle(self, message)
        except (HoldfastError, Refused) as error:
            refused = refusal(error, request.codes)
            self.server.refusals.say(
                "request refused", refused, peer=self.address, role=self.role, request=request.name
            )
            answer = request.refuse(message.request_id, refused)
        except Exception as error:  # a mistake in the code: this client is told, the others are not disturbed
            LOG.error("request failed", peer=self.address, request=request.name, error=_trace(error))
            reason = Refused(pb.UnknownError, f"{type(error).__name__}: {error}")
            answer = request.refuse(message.request_id, reason)
        if answer is not None:
            self.send(answer)

    def _request_ended(self) -> None:
        if "requests" in self._pauses and self._requests.few:
            self.go_on("requests")
            if self.reader.stalled:
                self.loop.call_soon(self._take_rest)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that ends with the connection, if not before."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_done)
        return task

    def _spawned_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("work failed", peer=self.address, error=_trace(error))
            self.close(refusal(error if isinstance(error, Exception) else Closed(repr(error))))

    # -- who it is -------------------------------------------------------------------------------------

    @property
    def role(self) -> str:
        return "" if self.identity is None else self.identity.role

    def authorize(self, action: PulsarAction, name: str, subscription: str = "", behind: str = "") -> None:
        """May this client do that? A proxy that says who is behind it, too: both must be allowed.

        Raises:
            Denied: it may not.
        """
        for role in {self.role: None, self._behind or self.role: None, behind or self.role: None}:
            self.options.authorize(role, action, name, subscription)

    def _greet(self, kind: int, command: pb.BaseCommand) -> None:
        if kind != pb.BaseCommand.CONNECT or self._showing or self.reader.pending:
            self.close(_TOO_EARLY)
            return
        greeting = command.connect
        self.client_version = greeting.client_version
        self._behind = greeting.original_principal
        self._protocol_version = min(greeting.protocol_version, PROTOCOL_VERSION)
        self._refreshes = greeting.feature_flags.supports_auth_refresh
        shown = pb.AuthData(auth_method_name=greeting.auth_method_name, auth_data=greeting.auth_data)
        self._show(shown)

    def _show(self, shown: pb.AuthData) -> None:
        """The client shows who it is, for the first time or once more: one at a time, nothing beside it."""
        if not self._showing:
            self._showing = True
            self.pause("showing")
            self.spawn(self._examine(shown)).add_done_callback(self._shown)

    def _shown(self, _: asyncio.Task[None]) -> None:
        self._showing = False
        self.go_on("showing")

    async def _examine(self, shown: pb.AuthData) -> None:
        assert self._transport is not None
        certificate = self._transport.get_extra_info("peercert")
        credentials = Credentials(
            shown.auth_method_name, shown.auth_data, self.address, certificate if certificate else None
        )
        try:
            identity = await self.options.authenticate(credentials)
            if self.identity is not None and identity.role != self.identity.role:
                raise Denied(f"this connection is {self.identity.role!r}'s, not {identity.role!r}'s")
        except Denied as error:
            self.close(Refused(pb.AuthenticationError, str(error)))
            return
        if self.identity is None:
            self.reader.frame_max = self.options.frame_bytes_max
            self.send(
                commands.connected(
                    f"holdfast {__version__}", self._protocol_version, self.options.message_bytes_max
                )
            )
            LOG.debug("client connected", peer=self.address, role=identity.role, version=self.client_version)
        self.identity = identity
        self._auth_method = shown.auth_method_name
        if self._expiry is not None:
            self._expiry.cancel()
        if identity.expires_s is not None:
            self._expiry = self.loop.call_later(max(0.0, identity.expires_s), self._expired)

    def _expired(self) -> None:
        if not self._refreshes:
            self.close(Refused(pb.AuthenticationError, "the credentials have expired; connect with new ones"))
            return
        challenge = commands.auth_challenge(
            f"holdfast {__version__}", self._protocol_version, self._auth_method
        )
        self.send(challenge)
        late = Refused(pb.AuthenticationError, "the credentials have expired, and no new ones were shown")
        self._expiry = self.loop.call_later(self.options.handshake_s, self.close, late)

    # -- what goes out ---------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Frames for the client; they leave together at the end of the turn."""
        if self._closing:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= FLUSH_BYTES:
            self.flush()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self._flush_turn)

    def flush(self) -> None:
        """Hand what has collected to the transport."""
        if self._out and self._transport is not None and not self._closing:
            out, self._out, self._out_bytes = self._out, [], 0
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))
            if self.stalled:
                self._note_unsent()

    def _flush_turn(self) -> None:
        self._flush_scheduled = False
        self.flush()

    def pause_writing(self) -> None:
        self.stalled = True
        self._unsent = self._note_unsent()
        self._writing.begin(self.loop.time())
        self.pause("writing")
        self.consumers.hold()

    def _note_unsent(self) -> int:
        """What waits to be sent counts for the whole process, while the client is slow."""
        size = 0 if self._transport is None else self._transport.get_write_buffer_size()
        self.server.budget.hold((self, "unsent"), size, self.crowded_out)
        return size

    def resume_writing(self) -> None:
        self.stalled = False
        self._writing.end()
        self.server.budget.hold((self, "unsent"), 0)
        self._requests.look()
        self.go_on("writing")
        self.consumers.release()
        self.watches.release()

    @property
    def url(self) -> str:
        """Where the client has reached this broker, as a client would write it."""
        if self._transport is None:
            return ""
        host, port, *_ = self._transport.get_extra_info("sockname")
        scheme = "pulsar" if self._transport.get_extra_info("sslcontext") is None else "pulsar+ssl"
        return f"{scheme}://{bracketed(host)}:{port}"

    # -- stopping and starting to read -----------------------------------------------------------------

    def pause(self, why: str) -> None:
        """Read no more, until `go_on` is told the same."""
        if not self._pauses and self._transport is not None and not self._closing:
            self._paused_at = self.loop.time()
            self._transport.pause_reading()
        self._pauses.add(why)

    def go_on(self, why: str) -> None:
        if why not in self._pauses:
            return
        self._pauses.discard(why)
        if not self._pauses and self._transport is not None and not self._closing:
            self._heard = self.loop.time()
            self._frame.rest(self._heard - self._paused_at)
            self._pinged = None
            self._transport.resume_reading()

    # -- is it alive? ----------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Called from time to time: who is silent is asked, who stays silent is gone."""
        if self._closing:
            return
        if self.identity is None:
            if now - self._opened > self.options.handshake_s:
                self.close(Refused(pb.AuthenticationError, f"no CONNECT in {self.options.handshake_s} s"))
        elif self.stalled:
            self._look_at_writing(now)
        elif self._pauses:
            # It may have answered: nobody has looked. But who has gone is found out by sending to it.
            if now - max(self._heard, self._pinged or 0.0) > self.options.keep_alive_s:
                self._ping(now)
        elif self._frame.late(now, self.reader.pending):
            self.close(
                Refused(
                    pb.TooManyRequests,
                    f"{self.reader.pending} bytes of a frame in {self._frame.since(now):.0f} s, and no end; "
                    "send it faster, or smaller ones (limits.frame_s)",
                )
            )
        elif self._pinged is not None:
            if now - self._pinged > self.options.keep_alive_s:
                LOG.warning("client is silent", peer=self.address, seconds=now - self._heard)
                self.abort()
        elif now - self._heard > self.options.keep_alive_s:
            self._ping(now)

    def _look_at_writing(self, now: float) -> None:
        """What waits to be sent must become less: who has gone without a word reads nothing."""
        left = self._note_unsent()
        if self._writing.late(now, max(0, self._unsent - left)):
            LOG.warning("client does not read", peer=self.address, seconds=self._writing.since(now))
            self.abort()

    async def lives(self) -> bool:
        """Ask the client for a sign of life; without one it is closed."""
        if self._closing or self._pauses:
            return not self._closing
        answer = self.loop.create_future()
        if not self._answers:  # else it was asked already
            self._ping(self.loop.time())
            self.flush()
        self._answers.append(answer)
        try:
            async with asyncio.timeout(self.options.liveness_s):
                await answer
        except TimeoutError:
            LOG.warning("client gives way to another that lives", peer=self.address)
            self.abort()
            return False
        return not self._closing

    def _ping(self, now: float) -> None:
        self._pinged = now
        self.send(_PING)

    def _alive(self) -> None:
        self._heard = self.loop.time()
        self._pinged = None
        if self._answers:
            answers, self._answers = self._answers, []
            for each in answers:
                if not each.done():
                    each.set_result(None)


def _trace(error: BaseException) -> str:
    """All of it, for who has to find the mistake."""
    return "".join(traceback.format_exception(error))
