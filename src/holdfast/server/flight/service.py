"""Flight itself: who comes is checked first, then what it asks for, then the files are read.

    every call ─► gate: who is it? ─► its topic: may it? ─► its numbers: below visible? ─► files ─► columns
                     └─ the server says ─┘

Reading is what it is by path (holdfast.columns.files, holdfast.columns.decoding): the same code plans,
verifies and decodes.
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

from holdfast.columns.decoding import Decoding, Wish
from holdfast.columns.files import FilePlace, FileTopic
from holdfast.columns.open_chunks import OpenChunks, scan_for
from holdfast.columns.schema import COLUMNS, EXTRA
from holdfast.columns.tickets import (
    Among,
    AtTime,
    Chunks,
    Extent,
    Mark,
    OfTopic,
    Opened,
    Read,
    Trouble,
    Weighed,
    parsed,
    require_inside,
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
from holdfast.ledger.files.table import directory_incarnation
from holdfast.names import TopicName
from holdfast.server.flight.link import Link, Setup
from holdfast.server.flight.places import Places
from holdfast.server.listening import bracketed

logger = logging.getLogger("holdfast.flight")

NAMES_AN_ASK = 200
"""How many topics the server is asked about at once: its loop is not held up for longer."""
SCAN_S = 5.0
"""How long one question for chunked messages reads; whoever asks, asks on."""
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
    """Before every call, whichever it is: nobody is answered who is not known."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> _Caller:
        shown: list[str | None] = [*headers.get("authorization", ())] or [None]
        with _told():
            if len(shown) > 1:
                raise AuthenticationFailed("there is more than one header Authorization")
            self._link.ask(shown[0], [])
        return _Caller(shown[0])


class _Listener(flight.FlightServerBase):  # type: ignore[misc]
    """One address. What is asked there is the same as at the other."""

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
    """What can be asked, whichever way it came."""

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
        }

    def act(self, header: str | None, action: Any) -> Any:
        found = self.actions.get(action.type)
        if found is None:
            raise Misuse(f"there is no action {action.type[:64]!r}; there are: {', '.join(self.actions)}")
        with self._places.call():
            return found(header, action.body.to_pybytes())

    def _topics(self, header: str | None, body: bytes) -> list[str]:
        """The topics that the caller may read."""
        asked = parsed(body, Among).among if body else []
        # Those that are looked for are asked about whether they are there or not: how long it takes tells
        # nobody. Then all is of topics that one may read.
        among = self._allowed(header, sorted({str(TopicName.parse(each)) for each in asked}))
        if asked and not among:
            return []
        with self._listing:
            names = self._place.topics(among)
        sure = set(among)
        others = self._allowed(header, [name for name in names if name not in sure])
        return sorted([*others, *sure.intersection(names)])

    def _allowed(self, header: str | None, names: list[str]) -> list[str]:
        """Those of them that the caller may read."""
        found = []
        for at in range(0, len(names), NAMES_AN_ASK):
            part = names[at : at + NAMES_AN_ASK]
            allowed = self._link.ask(header, part).allowed
            found += [name for name, may in zip(part, allowed, strict=True) if may]
        return found

    def _plan(self, header: str | None, body: bytes) -> Extent:
        """What can be read of a topic now."""
        topic = self._open(header, parsed(body, OfTopic))
        return Extent(topic.incarnation.hex(), *topic.plan())

    def _time(self, header: str | None, body: bytes) -> int:
        """The first entry that was stored at a time or later."""
        asked = parsed(body, AtTime)
        return self._open(header, asked).at_time(asked.time_ms)

    def _weights(self, header: str | None, body: bytes) -> list[tuple[int, int]]:
        """How many bytes stand before some entries of a range."""
        asked = parsed(body, Weighed)
        topic = self._open(header, asked)
        topic.plan()
        return topic.weights(asked.start, asked.stop, asked.step)

    def _chunks(self, header: str | None, body: bytes) -> Opened:
        """Which chunked messages have begun in a range, and not ended."""
        asked = parsed(body, Chunks)
        topic = self._open(header, asked)
        first, visible = topic.plan()
        before, stop = [OpenChunks(*each) for each in asked.before], min(asked.stop, visible)
        found, to = scan_for(SCAN_S, topic, min(max(asked.start, first), stop), stop, before)
        return Opened(found, to if to < stop else asked.stop)

    def rows(self, header: str | None, ticket: bytes) -> tuple[pa.Schema, Iterator[Any]]:
        """The rows that a ticket names, each batch with a mark."""
        asked = parsed(ticket, Read)
        known = {**COLUMNS, **EXTRA}
        if wrong := [name for name in asked.columns if name not in known]:
            raise Misuse(f"there is no column {wrong[0][:64]!r}; there are: {', '.join(known)}")
        if len(set(asked.columns)) < len(asked.columns):
            raise Misuse("a column is named twice")
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

    def _stream(self, topic: FileTopic, asked: Read, wish: Wish, empty: pa.RecordBatch) -> Iterator[Any]:
        # A place is taken here and not by do_get: a stream that never began would never give it back.
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
                    mark.damaged = decoding.damaged_below(mark.start)  # the others are met again
                    yield rows.select(asked.columns), msgspec.msgpack.encode(mark)
                    taken += 1
            except NotFound:
                # Trimmed under our hands. All before it was handed over: whoever may go on behind it does.
                yield empty, msgspec.msgpack.encode(Mark(decoding.at, 0, damaged=decoding.damaged))
                raise
            mark = Mark(asked.stop, 0, end=True, damaged=decoding.damaged)
            yield empty, msgspec.msgpack.encode(mark)

    def _open(self, header: str | None, asked: OfTopic) -> FileTopic:
        """Each call has its own: what is opened is used by one thread.

        Raises:
            Denied, NotFound.
        """
        told = self._link.ask(header, [asked.topic])
        if not told.allowed[0]:
            raise Denied(f"the role {told.role!r} may not consume from {asked.topic}")
        topic = FileTopic(self._directory, asked.topic, self._incarnation)
        if asked.incarnation and asked.incarnation != topic.incarnation.hex():
            raise NotFound(f"{asked.topic} was deleted and made again; start a new query")
        return topic


def _mark(before: Mark, rows: pa.RecordBatch) -> Mark:
    """How to go on behind these rows. Positions rise; an entry's rows may stand in several batches."""
    positions = rows.column(rows.schema.get_field_index(POSITION))
    last = positions[-1].as_py()
    corrupt = rows.schema.get_field_index("corrupt")
    if corrupt >= 0 and rows.column(corrupt)[-1].is_valid:
        return Mark(last + 1, 0)  # of a damaged entry there is one row: it is not to be counted again
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
    """Errors as Flight knows them, with ours beside them."""
    try:
        yield
    except HoldfastError as error:
        kind = next((kind for ours, kind in _KINDS if isinstance(error, ours)), flight.FlightInternalError)
        if isinstance(error, Corrupt):
            logger.error("damage below what is visible", extra={"fields": {"why": str(error)}})
        raise kind(str(error), msgspec.json.encode(Trouble.of(error))) from error
    except MemoryError as error:  # what others have, or had; or what was asked for is more than there will be
        words = f"Flight has no memory for this now ({error}); retry later, or set flight.memory_bytes higher"
        logger.warning("no room", extra={"fields": {"why": str(error)}})
        raise flight.FlightUnavailableError(words, msgspec.json.encode(Trouble("Closed", words))) from error
    except Exception as error:
        logger.exception("a call failed")
        words = "a mistake of this program, or damage; the server's log says more"
        trouble = Trouble("HoldfastError", words)
        raise flight.FlightInternalError(words, msgspec.json.encode(trouble)) from error
