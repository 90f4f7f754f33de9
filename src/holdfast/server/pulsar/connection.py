"""Serve one connection: carry out its frames, and send answers once per turn.

Promises upward: only authenticated clients are served. The outcome is as if commands were carried out in the
order of their arrival. A slow reader, a slow disk, or too many requests each stop the reading of their
connection, so that its memory is bounded. Needs from below: the core's reader, which finds the frames, puts
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
from holdfast.protocol import framed
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.listening import bracketed
from holdfast.server.logs import Log
from holdfast.server.pace import Appetite, Pace
from holdfast.server.pulsar import commands
from holdfast.server.pulsar.commands import NO_REQUEST, Refused, refusal
from holdfast.server.pulsar.consumers import Consumers
from holdfast.server.pulsar.fields import unserved_kind
from holdfast.server.pulsar.passing import Passing
from holdfast.server.pulsar.producers import Producers
from holdfast.server.pulsar.requests import REQUESTS, Request
from holdfast.server.pulsar.setup import Credentials, Identity, PulsarAction
from holdfast.server.pulsar.turns import Pending
from holdfast.server.pulsar.watching import Watches

if TYPE_CHECKING:
    from holdfast.server.pulsar.listener import Server

LOG = Log("holdfast.wire")

PROTOCOL_VERSION = 21
"""The newest version of this server; an older client is answered with its own."""

FLUSH_BYTES = 256 << 10
"""Unsent bytes that leave before the turn ends: the transport reports a slow client sooner."""

GREETING_BYTES_MAX = 64 << 10
"""The largest frame of a client that is not authenticated yet."""

TURN_COMMANDS = TURN_ITEMS = 8
"""Of one connection in one turn of the loop: commands without SEND, ACK and FLOW; and with these.
SENDs of a producer, plain ACKs or FLOWs of a consumer count once."""

LINGER_S = 5.0
"""Time for a closed client to read the reason."""

QUIET_S, _LINGER_STEP_S = 0.5, 0.05
"""Silence after which a closed client that has received everything is disconnected."""

_PUBLISHES, _REFUSED_SEND, _ACKS, _FLOW, _BROKEN, _PASSED = range(1, 7)  # kinds of items from the reader
_TOO_EARLY = Refused(pb.NotAllowedError, "send CONNECT first, and wait for its answer")
_SERVER = f"holdfast {__version__}"
_PING = framed(pb.CommandPing())
_PONG = framed(pb.CommandPong())


class Connection(asyncio.BufferedProtocol):
    """The connection of a client. Handlers of its requests use `send` and `authorize`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.broker = server.broker
        self.options = server.options
        self.identity: Identity | None = None
        """None until the client is authenticated."""
        self.address = ""
        self.client_version = ""
        self.producers: Producers = Producers(self)
        self.consumers: Consumers = Consumers(self)
        self.watches: Watches = Watches(self)
        self.passing = Passing(self)
        self.stalled = False  # the client reads more slowly than the server sends
        self.loop = asyncio.get_running_loop()
        self.reader = WireReader(GREETING_BYTES_MAX)
        self._protocol_version = 0
        self._auth_method = ""
        self._behind = ""
        """The role of a proxy's client, as the proxy names it."""
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
        """The transfer of an incomplete frame."""
        self._paused_at = 0.0
        self._writing = Pace(2 * self.options.keepalive_s)
        self._unsent = 0
        """Bytes that were unsent when the client became slow."""
        self._peer = ""
        self._appetite = Appetite(len(server.buffer))
        self._entered = False
        self._showing = False
        self._closing = False
        self.lost = self.loop.create_future()
        """Done when the connection is closed."""

    # -- its life --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=self.options.write_bytes)
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
            LOG.debug("client disconnected", peer=self.address, role=self.role, why=error or "closed")

    def _ended(self) -> None:
        """Release everything that the client had; its messages go to other consumers."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._requests.cancel()
        for task in self._tasks:
            task.cancel()
        self._alive()  # ends the wait of `lives`
        self.consumers.gone()
        self.producers.gone()
        self.watches.gone()
        self.reader = WireReader(GREETING_BYTES_MAX)  # frees an incomplete frame now
        self.server.budget.hold((self, "frame"), 0)
        self.server.budget.hold((self, "unsent"), 0)

    def close(self, reason: Refused | None = None) -> None:
        """Close the connection, and tell the client the reason, if any."""
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
            # Closing a socket with unread input would reset it, and the client would lose the reason.
            with contextlib.suppress(OSError):  # the client has reset the connection
                transport.write_eof()
            transport.resume_reading()
            self._linger(self.loop.time() + LINGER_S)
        else:
            transport.close()
            self.loop.call_later(LINGER_S, self.abort)

    def _linger(self, until: float) -> None:
        """Wait until the client closes, too, or has the reason, or its time is over."""
        if self._transport is None:
            return
        now = self.loop.time()
        if now >= until or (now - self._heard > QUIET_S and not self._unread()):
            self._transport.abort()
        else:
            self.loop.call_later(_LINGER_STEP_S, self._linger, until)

    def _unread(self) -> bool:
        """Return whether bytes have not yet reached the client's machine."""
        assert self._transport is not None
        waiting = self._transport.get_write_buffer_size()
        with contextlib.suppress(OSError):
            raw = fcntl.ioctl(self._transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
            waiting += struct.unpack("i", raw)[0]
        return waiting > 0

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def shut(self, reason: Refused) -> None:
        """Stop reading, refuse waiting requests, and close producers and consumers."""
        self.pause("stopping")
        under_way = self._requests.abandon(lambda request, number: self.send(request.refuse(number, reason)))
        await asyncio.gather(*under_way, return_exceptions=True)
        self.consumers.shut()
        self.producers.shut()
        self.close(reason if self.identity is None else None)

    # -- what comes in ---------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer of all connections: each empties it before the next one reads."""
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
        """Carry out all complete frames."""
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
        finally:  # also after an error, every event in the frame gets its future
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
            elif kind == _PASSED:
                if item[1] in self.producers.held:
                    self.producers.held.add(item[1], *item[4:])
                else:
                    self.passing.published(*item[1:])
            elif kind == _ACKS:
                self.consumers.acked(*item[1:])
            elif kind == _FLOW:
                self.consumers.flow(item[1], item[2])
            elif kind == _REFUSED_SEND:
                self.producers.refused(*item[1:])
            elif kind == _BROKEN:
                self.close(Refused(pb.UnknownError, f"the bytes are not Pulsar's protocol: {item[1]}"))
            else:
                self._command(item[1], item[2])
        if self.reader.stalled:  # the frame of events was full; it has room again after the turn
            self.pause("frame")
            if "requests" not in self._pauses:  # else when some were answered
                self.loop.call_soon(self._take_rest)
        if added and self.broker.behind:
            self.server.wait_for_room()

    def _note_frame(self, taken: bool) -> None:
        """Time an incomplete frame, and count its bytes in the budget."""
        pending, budget = self.reader.pending, self.server.budget
        if taken or not pending:  # the pending bytes are of a new frame, the youngest holder
            self._frame.end()
            budget.hold((self, "frame"), 0)
        if pending:
            self._frame.begin(self.loop.time())
            budget.hold((self, "frame"), pending, self.crowded_out)

    def crowded_out(self) -> None:
        """Close this client, the one that has been slow for longest: the budget is exhausted."""
        reason = "memory for clients exceeds limits.held_bytes; this client has been slow for longest"
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
            self.close(Refused(pb.UnknownError, f"a command of type {kind} cannot be parsed: {error}"))
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
                self.close(Refused(pb.NotAllowedError, unserved_kind(kind)))
            else:
                self._request(request, getattr(command, request.name), size)

    # -- requests --------------------------------------------------------------------------------------

    def _request(self, request: Request, message: Any, size: int) -> None:
        self._requests.add(request, message, size)
        if not self._requests.room:
            self.pause("requests")

    async def _carry_out(self, request: Request, message: Any) -> None:
        try:
            answer = await request.carry_out(self, message)
        except (HoldfastError, Refused) as error:
            refused = refusal(error, request.codes)
            self.server.refusals.say(
                "request refused", refused, peer=self.address, role=self.role, request=request.name
            )
            answer = request.refuse(message.request_id, refused)
        except Exception as error:  # a bug: the other clients are not affected
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
        """Start work that is cancelled at the end of the connection."""
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
        """Check that the client may do an action; of a proxy, its client as well.

        Raises:
            Denied: no grant allows it.
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
        """Check the client's credentials, first or renewed; nothing else is read meanwhile."""
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
                words = f"the new credentials are of the role {identity.role!r}, the connection is of"
                raise Denied(f"{words} {self.identity.role!r}; open another connection")
        except Denied as error:
            self.close(Refused(pb.AuthenticationError, str(error)))
            return
        if self.identity is None:
            self.reader.frame_max = self.options.frame_bytes
            most = self.options.message_bytes
            self.send(commands.connected(_SERVER, self._protocol_version, most))
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
        self.send(commands.auth_challenge(_SERVER, self._protocol_version, self._auth_method))
        late = Refused(
            pb.AuthenticationError, "the credentials have expired, and the client sent no new ones"
        )
        self._expiry = self.loop.call_later(self.options.unauthenticated_s, self.close, late)

    # -- what goes out ---------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Queue frames for the client; they leave together at the end of the turn."""
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
        """Pass the queued frames to the transport."""
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
        """Count unsent bytes of a slow client in the budget; return their number."""
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
        """The URL by which the client has reached this broker."""
        if self._transport is None:
            return ""
        host, port, *_ = self._transport.get_extra_info("sockname")
        scheme = "pulsar" if self._transport.get_extra_info("sslcontext") is None else "pulsar+ssl"
        return f"{scheme}://{bracketed(host)}:{port}"

    # -- stopping and starting to read -----------------------------------------------------------------

    def pause(self, why: str) -> None:
        """Stop reading until `go_on` with the same reason."""
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
        """Ping a silent client, and close one that stays silent; called periodically."""
        if self._closing:
            return
        if self.identity is None:
            if now - self._opened > self.options.unauthenticated_s:
                reason = f"no CONNECT within {self.options.unauthenticated_s} s (limits.unauthenticated_s)"
                self.close(Refused(pb.AuthenticationError, reason))
        elif self.stalled:
            self._look_at_writing(now)
        elif self._pauses:
            # An answer may wait unread. But the kernel reports a dead peer only when something is sent.
            if now - max(self._heard, self._pinged or 0.0) > self.options.keepalive_s:
                self._ping(now)
        elif self._frame.late(now, self.reader.pending):
            self.close(
                Refused(
                    pb.TooManyRequests,
                    f"a frame is incomplete after {self._frame.since(now):.0f} s, with {self.reader.pending} "
                    "bytes; send faster, send smaller frames, or raise limits.frame_s",
                )
            )
        elif self._pinged is not None:
            if now - self._pinged > self.options.keepalive_s:
                LOG.warning("client is silent", peer=self.address, seconds=now - self._heard)
                self.abort()
        elif now - self._heard > self.options.keepalive_s:
            self._ping(now)

    def _look_at_writing(self, now: float) -> None:
        """Close a client that does not read: its unsent bytes must become fewer."""
        left = self._note_unsent()
        if self._writing.late(now, max(0, self._unsent - left)):
            LOG.warning("client does not read", peer=self.address, seconds=self._writing.since(now))
            self.abort()

    async def lives(self) -> bool:
        """Ping the client, and close it without an answer; return whether it answered."""
        if self._closing or self._pauses:
            return not self._closing
        answer = self.loop.create_future()
        if not self._answers:  # else a ping is on its way
            self._ping(self.loop.time())
            self.flush()
        self._answers.append(answer)
        try:
            async with asyncio.timeout(self.options.liveness_s):
                await answer
        except TimeoutError:
            LOG.warning("client did not answer a PING; another client takes its place", peer=self.address)
            self.abort()
            return False
        return not self._closing

    def _ping(self, now: float) -> None:
        self._pinged = now
        self.send(_PING)

    def _alive(self) -> None:
        self._heard = self.loop.time()
        self._pinged = None
        answers, self._answers = self._answers, []
        for each in answers:
            if not each.done():
                each.set_result(None)


def _trace(error: BaseException) -> str:
    """Format an error with its traceback."""
    return "".join(traceback.format_exception(error))
