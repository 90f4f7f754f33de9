"""Read topics of a broker elsewhere over Arrow Flight: `Place` and `TopicReader` for the network.

    service.url ── HTTP: where does Flight listen? ──► server ── starts it ──► Flight process
         └──────── plan, time, weights, rows: the same token ───────────────────►┘

With a binary address, the broker is asked there for its HTTP address first.

A request that breaks is repeated for a while, from the beginning: HTTP is asked again, because a restarted
process listens at another address. Rows continue where they were cut; each batch says how. An error that the
server raises on purpose is raised here as it was raised there, and the request is not repeated.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import socket
import ssl
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.flight as flight

from holdfast import errors
from holdfast.columns.address import CREDENTIALS, SCHEMES, Address, tls_context
from holdfast.columns.decoding import Wish
from holdfast.columns.open_chunks import OpenChunks
from holdfast.columns.tickets import (
    AMONG_MAX,
    BOUND_MAX,
    Among,
    AtTime,
    Chunks,
    Extent,
    Mark,
    OfTopic,
    OfVersions,
    Opened,
    Read,
    Trouble,
    Weighed,
)
from holdfast.errors import BadConfiguration, Closed, HoldfastError, Misuse, Timeout, TooManyConnections
from holdfast.names import topic_name

log = logging.getLogger("holdfast.pipeline.remote")

PATH = "/holdfast/v1/flight"
LOOKUP = "/lookup/v2/topic/"
TIMEOUT_S = 60.0
"""How long requests to a broker that does not answer are repeated ..."""
BUSY_TIMES = 10
"""... and to one that is busy: this many times as long, because other reads end."""
CALL_S = 30.0
"""Time limit of one request."""
ADDRESS_S = 5.0
"""Time limit for the broker's HTTP address; then it counts as away."""
PAUSE_S, PAUSE_MAX_S = 0.05, 1.0
ANSWER_BYTES_MAX = 1 << 20
KEYS_BYTES_MAX = 512 << 10
"""Bytes of a filter's keys that a ticket takes; with more, the filter runs here."""
_CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 310_000),  # the least that a server allows; finds dead machines
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
]
_STATUSES: dict[int, type[HoldfastError]] = {
    401: errors.AuthenticationFailed,
    403: errors.Denied,
    404: errors.Unsupported,
}
_AGAIN = (Closed, Timeout, TooManyConnections)
_TLS_OPTIONS = (
    "set tlsTrustCertsFilePath to the certificates to trust, and tlsCertificateFilePath to this client's, if "
    "the broker asks for one"
)
Done = TypeVar("Done")


class Where(msgspec.Struct, rename="camel"):
    """The result of HTTP: addresses of Flight and the broker."""

    url: str
    broker_url: str = ""
    broker_url_tls: str = ""


class Found(msgspec.Struct, rename="camel"):
    """The result of a topic's lookup."""

    broker_url: str
    broker_url_tls: str = ""


class _Away(Exception):
    """The server does not answer, or not completely; it may be back soon."""


class _Busy(_Away):
    """The server answers, and has no free place for a read."""


class _Patience:
    """Limits how long a request is repeated, from its first failure on.

    Time before the failure, and time that the caller takes for rows, do not count.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self.got_on()

    def got_on(self) -> None:
        self._away_since: float | None = None
        self._busy_since: float | None = None
        self._pause_s = PAUSE_S

    def wait(self, error: Exception) -> None:
        """Wait before the next attempt. Raises Timeout: the limit is reached."""
        now = time.monotonic()
        if isinstance(error, _Busy):
            self._away_since = None  # it answers
            self._busy_since = self._busy_since or now
            limit_s = BUSY_TIMES * self._timeout_s
            if now + self._pause_s > self._busy_since + limit_s:
                raise Timeout(
                    f"{self._url} had no free place for this read for {limit_s:g} s: {error}; set "
                    "flight.reads higher there, or read with fewer tasks at once"
                ) from error
        else:
            self._away_since = self._away_since or now
            if now + self._pause_s > self._away_since + self._timeout_s:
                raise Timeout(
                    f"{self._url} did not answer for {self._timeout_s:g} s: {error}; is the server running? "
                    "service.url is its HTTP address, or its binary one"
                ) from error
        time.sleep(self._pause_s)
        self._pause_s = min(PAUSE_MAX_S, 2 * self._pause_s)


class RemotePlace:
    """A serving broker, by its HTTP or its binary address. For one thread."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        trust: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        scheme = url.partition("://")[0]
        if scheme not in (*SCHEMES, "http", "https") or not url.partition("://")[2].strip("/"):
            raise BadConfiguration(
                f"option service.url is {url!r}; it must be the broker's HTTP address, such as "
                "http://127.0.0.1:8080, or its binary one, such as holdfast://127.0.0.1:6650. "
                "`holdfast serve` prints both when it starts"
            )
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._token = token
        self._trust, self._certificate, self._key = trust, certificate, key
        self._client: flight.FlightClient | None = None
        self._http = None if scheme in SCHEMES else self.url
        """The HTTP address; `None` until the broker is asked for it at its binary address."""
        if self._http is None:
            self._address()  # raises if it is not a broker's

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RemotePlace:
        """Return the place in parsed options of the source."""
        return cls(
            options["service.url"],
            *(options.get(each) for each in CREDENTIALS),
            timeout_s=options.get("timeout") or TIMEOUT_S,
        )

    # -- as a Place ------------------------------------------------------------------------------------

    def topics(self, among: Collection[str] = ()) -> list[str]:
        """See Place; only topics that the token may read."""
        names = list(among)
        parts = [names[at : at + AMONG_MAX] for at in range(0, len(names), AMONG_MAX)] or [[]]
        return sorted({each for part in parts for each in self.call("topics", Among(part), list[str])})

    def open(self, name: str, view: int = 0) -> RemoteTopic:
        """See Place. Raises Denied."""
        found = self.call("plan", OfTopic(name, view=view), Extent)
        return RemoteTopic(self, name, bytes.fromhex(found.incarnation), found.view, found.horizon)

    def binary_url(self, topic: str | None = None) -> str:
        """Return the binary address of the same broker. Raises like `call`.

        With a topic, the token needs a right on that topic; without one, the right to consume from some
        topic.
        """
        if self.url.partition("://")[0] in SCHEMES:
            return self.url
        patience = _Patience(self.url, self.timeout_s)
        while True:
            try:
                with self.reached():
                    found = self.where() if topic is None else self._lookup(topic)
            except _Away as error:
                patience.wait(error)
                continue
            url = found.broker_url_tls if self.url.startswith("https://") else found.broker_url
            if not url:
                raise BadConfiguration(
                    f"{self.url} has no binary address with the same encryption; check the server's ports"
                )
            return url

    # -- requests -------------------------------------------------------------------------------------

    def call(self, action: str, body: msgspec.Struct, kind: type[Done]) -> Done:
        """Send one request, and return its result.

        Raises:
            Timeout: the server did not answer within the limit.
            HoldfastError: it was refused.
        """
        asked = flight.Action(action, msgspec.json.encode(body))
        patience = _Patience(self.url, self.timeout_s)
        while True:
            try:
                with self.connected() as client:
                    [answer] = client.do_action(asked, self._options(CALL_S))
                    return msgspec.json.decode(answer.body.to_pybytes(), type=kind)
            except _Away as error:
                patience.wait(error)

    def rows(self, ticket: Read) -> Iterator[tuple[pa.RecordBatch, Mark]]:
        """Read one stream, to its end or until it breaks (_Away)."""
        with self.connected() as client:
            reader = client.do_get(flight.Ticket(msgspec.json.encode(ticket)), self._options(None))
            try:
                while True:
                    chunk = reader.read_chunk()
                    yield chunk.data, msgspec.msgpack.decode(chunk.app_metadata.to_pybytes(), type=Mark)
            except StopIteration:
                return
            finally:
                reader.cancel()  # no effect at the end; otherwise the caller wants no more

    @contextlib.contextmanager
    def connected(self) -> Iterator[flight.FlightClient]:
        """Wrap one use of Flight. Raises _Away, or the server's error."""
        with self.reached():
            if self._client is None:
                self._client = self._connect(self.where())
            yield self._client

    @contextlib.contextmanager
    def reached(self) -> Iterator[None]:
        """Wrap a step that may break. Raises _Away, or the server's error."""
        try:
            yield
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            refused = None if isinstance(error, HoldfastError) else _trouble(error)
            if isinstance(error, HoldfastError) or (refused and not isinstance(refused, _AGAIN)):
                raise (refused or error) from None
            words = str(refused or error).split(". gRPC client debug context")[0]
            if isinstance(refused, TooManyConnections):
                raise _Busy(words) from error
            self._forget()  # ask again where it listens
            if (
                "certificate" in words.lower()
            ):  # HTTP was believed, so it is the name; or they change just now
                words += "; flight.host of the server must be a name in its certificate"
            raise _Away(words) from error

    def _forget(self) -> None:
        self._client = None
        if self.url.partition("://")[0] in SCHEMES:
            self._http = None

    def _address(self) -> Address:
        return Address(self.url, self._token, self._trust, self._certificate, self._key).checked()

    def _http_url(self) -> str:
        """Return the HTTP address. Raises _Away, OSError, or the broker's refusal."""
        if self._http is None:
            client = self._address().client(min(ADDRESS_S, self.timeout_s))
            try:
                self._http = client.http_url()
            except Timeout as error:
                raise _Away(str(error)) from error
            finally:
                client.close()
        return self._http

    def where(self) -> Where:
        """Return where Flight listens now. Raises _Away, OSError, or the refusal of HTTP."""
        return self._asked(PATH, Where)

    def _lookup(self, topic: str) -> Found:
        """Look up the broker of a topic like Pulsar's clients. Raises like `where`."""
        path = topic_name(topic).replace("://", "/", 1).split("/", 3)
        return self._asked(LOOKUP + "/".join(quote(each, safe="") for each in path), Found)

    def _asked(self, path: str, kind: type[Done]) -> Done:
        """Send one HTTP request."""
        parts = urlsplit(self._http_url())
        assert parts.hostname is not None
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            tls = tls_context(self._trust, self._certificate, self._key)
            connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=CALL_S, context=tls)
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=CALL_S)
        try:
            connection.request("GET", parts.path + path, headers=headers)
            response = connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX)
            if response.length and len(body) < ANSWER_BYTES_MAX:
                raise _Away("the answer of HTTP was cut")
        except ssl.SSLEOFError:
            raise  # cut in the middle, as by a server that was killed
        except ssl.SSLError as error:
            raise BadConfiguration(f"{self.url}: {error}; {_TLS_OPTIONS}") from None
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                raise
            raise BadConfiguration(f"{self.url}: {error.strerror}; is service.url right?") from None
        except http.client.RemoteDisconnected as error:
            if parts.scheme == "https":  # also the reply to a missing or wrong certificate
                raise _Away(f"{error}; {_TLS_OPTIONS}") from error
            raise
        except http.client.BadStatusLine as error:
            raise BadConfiguration(f"{self.url} does not speak HTTP ({error!r})") from None
        except http.client.HTTPException as error:
            raise _Away(repr(error)) from error
        finally:
            connection.close()
        return self._answered(response.status, body, kind)

    def _answered(self, status: int, body: bytes, kind: type[Done]) -> Done:
        if status == 200:
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.json.decode(body, type=kind)
            raise BadConfiguration(f"{self.url} is not a broker's HTTP address: it answers something else")
        try:
            reason = str(msgspec.json.decode(body)["reason"])
        except (msgspec.MsgspecError, KeyError, TypeError):
            reason = f"status {status}"
        words = f"{self.url}: {reason}"
        if status in (429, 500, 502, 503, 504):
            raise _Away(words)
        raise _STATUSES.get(status, Misuse)(words)

    def _connect(self, where: Where) -> flight.FlightClient:
        more: dict[str, Any] = {}
        if where.url.startswith("grpc+tls://"):
            more["tls_root_certs"] = _roots(self._trust)
            if self._certificate is not None:
                more["cert_chain"] = Path(self._certificate).read_bytes()
                more["private_key"] = Path(self._key or self._certificate).read_bytes()
        return flight.FlightClient(where.url, generic_options=_CHANNEL, **more)

    def _options(self, timeout_s: float | None) -> flight.FlightCallOptions:
        shown = [] if self._token is None else [(b"authorization", f"Bearer {self._token}".encode())]
        return flight.FlightCallOptions(timeout=timeout_s, headers=shown)


class RemoteTopic:
    """A topic of a broker elsewhere."""

    home = b""

    def __init__(
        self, place: RemotePlace, name: str, incarnation: bytes, view: int = 0, horizon: int = 0
    ) -> None:
        self.place = place
        self.name = name
        self.incarnation = incarnation
        self.view = view
        self.horizon = horizon
        self.of = (name, incarnation.hex(), view)
        """The beginning of every request."""

    def plan(self) -> tuple[int, int]:
        """See TopicReader. Raises NotFound: the topic was deleted or replaced."""
        found = self.place.call("plan", OfTopic(*self.of), Extent)
        return found.first, found.visible

    def at_time(self, time_ms: int) -> int:
        """See TopicReader."""
        moment = max(-BOUND_MAX, min(BOUND_MAX, time_ms))
        return self.place.call("time", AtTime(*self.of, time_ms=moment), int)

    def weights(self, start: int, stop: int, step: int = 0) -> list[tuple[int, int]]:
        """See TopicReader."""
        if start >= stop:
            return [(start, 0)]
        asked = Weighed(*self.of, start=start, stop=stop, step=step)
        return self.place.call("weights", asked, list[tuple[int, int]])

    def open_chunks(self, start: int, stop: int, before: list[OpenChunks]) -> list[OpenChunks]:
        """See TopicReader; sends as many requests as needed."""
        while start < stop:
            told = [(each.uuid, each.first, each.newest) for each in before]
            asked = Chunks(*self.of, start=start, stop=stop, before=told)
            found = self.place.call("chunks", asked, Opened)
            if found.to <= start:
                raise HoldfastError(f"{self.place.url} makes no progress with {self.name} at entry {start}")
            before, start = found.open, found.to
        return before

    def schemas(self) -> tuple[bytes, ...]:
        """See TopicReader; sends as many requests as needed."""
        found: list[bytes] = []
        while True:
            asked = OfVersions(*self.of, first=len(found))
            some = self.place.call("schemas", asked, list[bytes])
            if not some:
                return tuple(found)
            found += some

    def decoding(self, start: int, stop: int, wish: Wish) -> RemoteDecoding:
        """Like `decoding.Decoding`, done by the server."""
        return RemoteDecoding(self, start, stop, wish)


class RemoteDecoding:
    """Reads one range of one topic as rows, decoded by the server."""

    def __init__(self, topic: RemoteTopic, start: int, stop: int, wish: Wish) -> None:
        self._topic = topic
        self._stop = stop
        self._wish = wish
        self._mark = Mark(start, 0, end=start >= stop)
        self._keys: pa.Array | None = None
        """Keys of a filter that runs here."""
        if wish.keys is not None and sum(len(key) * 4 // 3 + 8 for key in wish.keys) > KEYS_BYTES_MAX:
            self._keys = pa.array(wish.keys, pa.binary())
        self.damaged = 0
        """How many entries were left out (mode=permissive), before the last rows."""
        self.at = start
        """All entries before this one were returned."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises like `Decoding.batches`; Timeout: the server does not answer."""
        place = self._topic.place
        patience = _Patience(place.url, place.timeout_s)
        while not self._mark.end:
            before = self.damaged
            try:
                for batch, mark in place.rows(self._ticket()):
                    self._mark, self.at, self.damaged = mark, mark.start, before + mark.damaged
                    patience.got_on()
                    rows = batch if self._keys is None else self._filtered(batch)
                    if rows.num_rows:
                        yield rows
                if not self._mark.end:
                    raise _Away("the stream of rows was cut")
            except _Away as error:
                log.warning("%s, position %d: %s; retrying", self._topic.name, self.at, error)
                patience.wait(error)
        if self.damaged:
            log.warning("%s: %d damaged entries were left out", self._topic.name, self.damaged)

    def _filtered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Filter by keys like the decoder: a row without a key is left out."""
        import pyarrow.compute as pc  # large, and rarely needed

        keys = batch.column(batch.schema.get_field_index("key"))
        return batch.filter(pc.is_in(keys, value_set=self._keys)).select(self._wish.columns)

    def _ticket(self) -> Read:
        wish, here = self._wish, self._keys is not None
        more = ["key"] if here and "key" not in wish.columns else []
        return Read(
            *self._topic.of,
            start=self._mark.start,
            stop=self._stop,
            skip=self._mark.skip,
            columns=[*wish.columns, *more],
            permissive=wish.permissive,
            publish_min_us=wish.publish_min_us,
            publish_max_us=wish.publish_max_us,
            whole=wish.whole,
            keys=None if wish.keys is None or here else list(wish.keys),
        )


def _trouble(error: Exception) -> HoldfastError | None:
    """Return the error that the server raised on purpose; `None` if a step broke."""
    told = getattr(error, "extra_info", None)
    if not told:
        return None
    try:
        return msgspec.json.decode(told, type=Trouble).error()
    except msgspec.MsgspecError:
        return None


def _roots(trust: str | None) -> bytes | None:
    """Return the certificates to trust: Arrow does not use the system's."""
    paths = ssl.get_default_verify_paths()
    for each in (trust, paths.cafile, paths.openssl_cafile):
        if each is not None and Path(each).is_file():
            return Path(each).read_bytes()
    return None
