"""Serve Flight calls: authenticate, authorize the topic, check the range, read the files.

    every call ─► authenticate ─► authorize the topic ─► range below visible? ─► files ─► columns
                     └── the server answers ──┘

The same code plans, verifies and decodes as in reads by path (holdfast.columns.files,
holdfast.columns.decoding).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from holdfast.columns import (
    COLUMNS,
    EXTRA,
    NEWEST,
    Among,
    AtTime,
    Chunks,
    Decoding,
    EntryReader,
    Extent,
    FilePlace,
    FileTopic,
    Mark,
    OfTopic,
    OfVersions,
    OpenChunks,
    Opened,
    Read,
    Trouble,
    Weighed,
    Wish,
    parsed,
    require_inside,
    scan_for,
)
from holdfast.errors import (
    AuthenticationFailed,
    Closed,
    Corrupt,
    Denied,
    HoldfastError,
    Misuse,
    NotFound,
    Timeout,
    TooManyConnections,
)
from holdfast.ledger.files import directory_incarnation
from holdfast.names import TopicName
from holdfast.server.flight.link import Link, Setup
from holdfast.server.flight.places import Places
from holdfast.server.listening import bracketed

logger = logging.getLogger("holdfast.flight")

NAMES_AN_ASK = 200
"""Topics in one question to the server, which bounds the time of its loop."""
SCAN_S = 5.0
"""Time limit of one call for chunked messages; the caller repeats it for the rest."""
SCHEMAS_BYTES = 1 << 20
"""Bytes of schemas in one answer, which has at least one; the caller asks for the rest."""
POSITION = "position"


class Service:
    """The listeners of one process: without TLS, with it, or both."""

    def __init__(self, setup: Setup, link: Link) -> None:
        self.places = Places(setup.reads, setup.idle_s)
        reads = Reads(Path(setup.directory), link, self.places)
        gate = {"caller": _Gate(link)}
        host = bracketed(setup.host)
        self._listeners: list[flight.FlightServerBase] = []
        self.port = self.tls_port = None
        if setup.port is not None:
            plain = _Listener(reads, f"grpc://{host}:{setup.port}", middleware=gate)
            self._listeners.append(plain)
            self.port = plain.port
        if setup.tls_port is not None:
            shown = (Path(setup.certificate).read_bytes(), Path(setup.key).read_bytes())
            vouch: dict[str, Any] = {}
            if setup.ca:
                vouch = {"verify_client": True, "root_certificates": Path(setup.ca).read_bytes()}
            secure = _Listener(
                reads,
                f"grpc+tls://{host}:{setup.tls_port}",
                middleware=gate,
                tls_certificates=[shown],
                **vouch,
            )
            self._listeners.append(secure)
            self.tls_port = secure.port


class _Caller(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, header: str | None) -> None:
        self.header = header


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Authenticates the caller of every call."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Caller:
        shown: list[str | None] = [*headers.get("authorization", ())] or [None]
        with _told():
            if len(shown) > 1:
                raise AuthenticationFailed("the call has several headers Authorization; send one")
            self._link.ask(shown[0], [])
        return _Caller(shown[0])


class _Listener(flight.FlightServerBase):  # type: ignore[misc]
    """One address; all addresses serve the same calls."""

    def __init__(self, reads: Reads, location: str, **more: Any) -> None:
        self._reads = reads  # before it listens
        super().__init__(location, **more)

    def list_actions(self, context: Any) -> list[tuple[str, str]]:
        return [(name, (act.__doc__ or "").strip()) for name, act in self._reads.actions.items()]

    def do_action(self, context: Any, action: Any) -> list[Any]:
        with _told():
            return [flight.Result(msgspec.json.encode(self._reads.act(_header(context), action)))]

    def do_get(self, context: Any, ticket: Any) -> Any:
        with _told():
            schema, rows = self._reads.rows(_header(context), ticket.ticket)
        return flight.GeneratorStream(schema, rows)


class Reads:
    """Actions and reads of topics, for all listeners."""

    def __init__(self, directory: Path, link: Link, places: Places) -> None:
        self._directory = directory
        self._incarnation = directory_incarnation(directory)
        self._place = FilePlace(str(directory))
        self._listing = threading.Lock()
        self._link = link
        self._places = places
        self.actions = {
            "topics": self._topics,
            "plan": self._plan,
            "time": self._time,
            "weights": self._weights,
            "chunks": self._chunks,
            "schemas": self._schemas,
        }

    def act(self, header: str | None, action: Any) -> Any:
        found = self.actions.get(action.type)
        if found is None:
            raise Misuse(f"there is no action {action.type[:64]!r}; use {', '.join(self.actions)}")
        with self._places.call():
            return found(header, action.body.to_pybytes())

    def _topics(self, header: str | None, body: bytes) -> list[str]:
        """List the topics that the caller may read."""
        asked = parsed(body, Among).among if body else []
        # The grants are checked before the existence of a topic: the time of the answer must not reveal
        # topics that the caller may not read.
        among = self._allowed(header, sorted({str(TopicName.parse(each)) for each in asked}))
        if asked and not among:
            return []
        with self._listing:
            names = self._place.topics(among)
        sure = set(among)
        others = self._allowed(header, [name for name in names if name not in sure])
        return sorted([*others, *sure.intersection(names)])

    def _allowed(self, header: str | None, names: list[str]) -> list[str]:
        """Return the topics of a list that the caller may read."""
        found = []
        for at in range(0, len(names), NAMES_AN_ASK):
            part = names[at : at + NAMES_AN_ASK]
            allowed = self._link.ask(header, part).allowed
            found += [name for name, may in zip(part, allowed, strict=True) if may]
        return found

    def _plan(self, header: str | None, body: bytes) -> Extent:
        """Return the readable range of a topic."""
        topic = self._open(header, parsed(body, OfTopic), newest=True)
        return Extent(topic.incarnation.hex(), *topic.plan(), topic.view, topic.horizon)

    def _time(self, header: str | None, body: bytes) -> int:
        """Return the first entry that was stored at a time or later."""
        asked = parsed(body, AtTime)
        return self._open(header, asked).at_time(asked.time_ms)

    def _weights(self, header: str | None, body: bytes) -> list[tuple[int, int]]:
        """Return the bytes before some entries of a range."""
        asked = parsed(body, Weighed)
        topic = self._open(header, asked)
        topic.plan()
        return topic.weights(asked.start, asked.stop, asked.step)

    def _chunks(self, header: str | None, body: bytes) -> Opened:
        """Return the chunked messages that begin in a range and do not end there."""
        asked = parsed(body, Chunks)
        topic = self._open(header, asked)
        first, visible = topic.plan()
        before, stop = [OpenChunks(*each) for each in asked.before], min(asked.stop, visible)
        found, to = scan_for(SCAN_S, topic, min(max(asked.start, first), stop), stop, before)
        return Opened(found, to if to < stop else asked.stop)

    def _schemas(self, header: str | None, body: bytes) -> list[bytes]:
        """Return some schemas of a topic, by version."""
        asked = parsed(body, OfVersions)
        found, size = list[bytes](), 0
        for each in self._open(header, asked).schemas()[asked.first :]:
            size += len(each)
            if found and size > SCHEMAS_BYTES:
                break
            found.append(each)
        return found

    def rows(self, header: str | None, ticket: bytes) -> tuple[pa.Schema, Iterator[Any]]:
        """Return the rows of a ticket, each batch with a mark."""
        asked = parsed(ticket, Read)
        known = {**COLUMNS, **EXTRA}
        if wrong := [name for name in asked.columns if name not in known]:
            raise Misuse(f"there is no column {wrong[0][:64]!r}; use {', '.join(known)}")
        if len(set(asked.columns)) < len(asked.columns):
            raise Misuse("a column is listed twice; list each once")
        topic = self._open(header, asked)
        require_inside(asked, *topic.plan())
        names = [*asked.columns, *([] if POSITION in asked.columns else [POSITION])]
        wish = Wish(
            names,
            asked.permissive,
            asked.publish_min_us,
            asked.publish_max_us,
            None if asked.keys is None else tuple(asked.keys),
            asked.whole,
        )
        empty = pa.record_batch(wish.decoder(topic.name).finish()).select(asked.columns)
        return empty.schema, self._stream(topic, asked, wish, empty)

    def _stream(self, topic: EntryReader, asked: Read, wish: Wish, empty: pa.RecordBatch) -> Iterator[Any]:
        # The place is counted here, not in do_get: a stream that never begins would hold it forever.
        decoding, taken = Decoding(topic, asked.start, asked.stop, wish), 0
        with _told(), self._places.read(lambda: decoding.at + taken):
            mark, left = Mark(asked.start, asked.skip), asked.skip
            try:
                for batch in decoding.batches():
                    if left >= batch.num_rows:
                        left -= batch.num_rows
                        continue
                    rows = batch.slice(left)
                    left = 0
                    mark = _mark(mark, rows)
                    mark.damaged = decoding.damaged_below(mark.start)  # later damage is found again
                    yield rows.select(asked.columns), msgspec.msgpack.encode(mark)
                    taken += 1
            except NotFound:
                # Trimmed during the read. All rows before it were sent; the reader may continue behind it.
                yield empty, msgspec.msgpack.encode(Mark(decoding.at, 0, damaged=decoding.damaged))
                raise
            mark = Mark(asked.stop, 0, end=True, damaged=decoding.damaged)
            yield empty, msgspec.msgpack.encode(mark)

    def _open(self, header: str | None, asked: OfTopic, newest: bool = False) -> EntryReader:
        """Open a topic for one call: an open topic belongs to one thread.

        Raises:
            Denied: the caller has no grant of consume.
            Misuse: it asks for the newest view, and has to name one: calls of one query read the same view.
            NotFound: the topic does not exist, or is another one of the same name.
            Outdated: the compacted view is gone.
        """
        if asked.view == NEWEST and not newest:
            raise Misuse("the number of a view is wanted here: send the one that `plan` has returned")
        told = self._link.ask(header, [asked.topic])
        if not told.allowed[0]:
            words = "it needs a grant of consume on this topic (authorization.grants)"
            raise Denied(f"the role {told.role!r} may not consume from {asked.topic}: {words}")
        topic = FileTopic(self._directory, asked.topic, self._incarnation)
        if asked.incarnation and asked.incarnation != topic.incarnation.hex():
            raise NotFound(f"{asked.topic} was deleted and created again; start a new query")
        return topic.through(asked.view) if asked.view else topic


def _mark(before: Mark, rows: pa.RecordBatch) -> Mark:
    """Return the mark behind these rows; an entry's rows may be in several batches."""
    positions = rows.column(rows.schema.get_field_index(POSITION))
    last = positions[-1].as_py()
    corrupt = rows.schema.get_field_index("corrupt")
    if corrupt >= 0 and rows.column(corrupt)[-1].is_valid:
        return Mark(last + 1, 0)  # a damaged entry has one row, which must not be counted twice
    low, high = 0, len(positions) - 1
    while low < high:
        middle = (low + high) // 2
        if positions[middle].as_py() < last:
            low = middle + 1
        else:
            high = middle
    count = len(positions) - low
    return Mark(last, count + (before.skip if low == 0 and before.start == last else 0))


def _header(context: Any) -> str | None:
    caller: _Caller = context.get_middleware("caller")
    return caller.header


_KINDS: list[tuple[type[HoldfastError], type[Exception]]] = [
    (AuthenticationFailed, flight.FlightUnauthenticatedError),
    (Denied, flight.FlightUnauthorizedError),
    (Closed, flight.FlightUnavailableError),
    (Timeout, flight.FlightUnavailableError),
    (TooManyConnections, flight.FlightUnavailableError),
]


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Convert errors to those of Flight, with ours inside."""
    try:
        yield
    except HoldfastError as error:
        kind = next((kind for ours, kind in _KINDS if isinstance(error, ours)), flight.FlightInternalError)
        if isinstance(error, Corrupt):
            logger.error("damage in visible entries", extra={"fields": {"why": str(error)}})
        raise kind(str(error), msgspec.json.encode(Trouble.of(error))) from error
    except MemoryError as error:  # other reads have it, or this one needs more than the limit
        words = f"Flight has no memory for this now ({error}); retry later, or raise flight.memory_bytes"
        logger.warning("out of memory", extra={"fields": {"why": str(error)}})
        raise flight.FlightUnavailableError(words, msgspec.json.encode(Trouble("Closed", words))) from error
    except Exception as error:
        logger.exception("call failed")
        words = "the call failed by a bug of the server or by damage; the server's log says more"
        trouble = Trouble("HoldfastError", words)
        raise flight.FlightInternalError(words, msgspec.json.encode(trouble)) from error
