"""The settings of a server: one frozen tree of typed values, units in the names.

Every leaf has a key (`listen.port`), a variable of the environment (`HOLDFAST_LISTEN_PORT`) and a place in
the TOML file. holdfast.server.settings reads them; holdfast.server.conflicts says what fits together.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from holdfast.broker import BrokerOptions
from holdfast.protocol import FRAME_PADDING_BYTES

Method: TypeAlias = Literal["token", "basic", "tls"]
Action: TypeAlias = Literal["produce", "consume", "admin"]


def at_least(least: float, default: Any, words: str = "") -> Any:
    """Declare a number with its smallest value; `words` say that in an error."""
    return field(default=default, metadata={"least": least, "words": words or f"at least {least}"})


def seconds(default: float, zero: bool = False) -> Any:
    """Declare a time, which may be 0 or not."""
    return at_least(0.0 if zero else 5e-324, default, "0 seconds or more" if zero else "more than 0 seconds")


class Secret:
    """A text that logs, `--print-config` and tracebacks do not show.

    Example:
        >>> Secret("sesame")
        Secret(***)
        >>> Secret("sesame").reveal()
        'sesame'
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text, to check something with it."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True)
class Listen:
    """Addresses to listen on. A port is a number, 0 for any, or "off"."""

    host: str = "127.0.0.1"
    """The address to listen on. `127.0.0.1`: only this machine; `0.0.0.0` or `::`: all networks."""
    port: int | None = 6650
    """Port of the Pulsar protocol."""
    tls_port: int | None = None
    """Port of the Pulsar protocol over TLS; Pulsar's default is 6651."""
    http_port: int | None = 8080
    """Port of HTTP: administration, metrics and health."""
    https_port: int | None = None
    """Port of HTTPS; Pulsar's default is 8443."""
    backlog: int = at_least(1, 1024)
    """Connections that may wait in the kernel to be accepted."""


@dataclass(frozen=True)
class AdvertisedListener:
    """An address for clients that name it. The first is for all others."""

    name: str
    """The listener name that a client asks for."""
    url: str = ""
    """`pulsar://host:port`."""
    tls_url: str = ""
    """`pulsar+ssl://host:port`."""


@dataclass(frozen=True)
class Tls:
    """Certificates of the two TLS ports, and of their clients."""

    certificate: Path | None = None
    """The server's certificate with its intermediate certificates, PEM."""
    key: Path | None = None
    """The server's private key, PEM."""
    ca: Path | None = None
    """Certificate authorities of clients, PEM. Without it the server asks no client for a certificate."""
    client_certificates: Literal["optional", "required"] = "optional"
    """Whether clients need a certificate, if `ca` is set."""
    version: Literal["1.2", "1.3"] = "1.2"
    """The oldest accepted version of TLS."""


@dataclass(frozen=True)
class Tokens:
    """Accepted tokens (JWT). The kind of key decides the algorithm, not the token."""

    secret: Secret | None = None
    """A shared secret of at least 32 bytes, for HS256 (48: HS384, 64: HS512). Prefer `secret_file`."""
    secret_file: Path | None = None
    """File with the shared secret; its content may be `base64:…`."""
    public_key_file: Path | None = None
    """A public key, PEM: RSA for RS256, RS384, RS512; P-256 for ES256."""
    audience: str = ""
    """If set, a token must have this audience."""
    role_claim: str = "sub"
    """The claim that names the role."""
    leeway_s: float = 0.0
    """Accepted difference between this clock and that of the tokens' issuer."""


@dataclass(frozen=True)
class Basic:
    """Names and passwords."""

    users_file: Path | None = None
    """One `name:hash` a line; `holdfast user set` writes it."""


@dataclass(frozen=True)
class Authentication:
    """Authentication of clients. Without any method all are anonymous."""

    methods: tuple[Method, ...] = ()
    """Accepted methods: `token`, `basic`, `tls` (the client's certificate names its role)."""
    anonymous_role: str = ""
    """The role of clients without credentials, or with a method that is not accepted. Empty: such clients
    are refused, unless `methods` is empty."""
    token: Tokens = field(default_factory=Tokens)
    basic: Basic = field(default_factory=Basic)


@dataclass(frozen=True)
class Grant:
    """Actions that roles may do on a resource."""

    roles: tuple[str, ...]
    """The roles; `*` in a name matches any text."""
    on: str
    """`tenant`, `tenant/namespace` or `tenant/namespace/topic`; `*` matches any text within one part."""
    allow: tuple[Action, ...]
    """`produce`, `consume`, `admin`; each is granted by itself."""


@dataclass(frozen=True)
class Authorization:
    """Permissions of roles."""

    enabled: bool = False
    """Check grants. Without it every authenticated client may do everything."""
    superusers: tuple[str, ...] = ()
    """Roles that may do everything; `*` is not a wildcard here."""
    grants: tuple[Grant, ...] = ()
    """Grants of other roles. An action without a grant is refused."""


@dataclass(frozen=True)
class Limits:
    """Limits of clients, and of the server."""

    message_bytes: int = 5 << 20
    """The largest message; clients are told. A frame may have 64 KiB more."""
    connections: int = at_least(1, 10_000)
    """Connections in all, HTTP included."""
    connections_per_address: int = at_least(1, 5_000)
    """Connections from one address."""
    unauthenticated_s: float = seconds(10.0)
    """Time for a connection to authenticate, or to renew an expired token."""
    requests_in_flight: int = at_least(1, 1000)
    """Unanswered requests of one connection. At this number the server stops reading from it."""
    producers_per_connection: int = at_least(1, 10_000)
    """Producers of one connection at once; further ones are refused."""
    consumers_per_connection: int = at_least(1, 10_000)
    """Consumers and readers of one connection at once; further ones are refused."""
    watchers_per_connection: int = at_least(1, 50)
    """Topic lists that one connection may watch at once; further ones are refused, and their clients poll."""
    topics: int = at_least(1, 100_000)
    """Topics in all."""
    subscriptions: int = at_least(1, 200_000)
    """Durable subscriptions in all."""
    subscriptions_per_topic: int = at_least(1, 10_000)
    """Durable subscriptions of one topic."""
    namespaces: int = at_least(1, 10_000)
    """Tenants and namespaces in all."""
    schemas_per_topic: int = at_least(1, 100)
    """Schemas of one topic."""
    schema_bytes: int = at_least(1, 512 << 10)
    """The largest schema."""
    properties_bytes: int = at_least(1, 8 << 10)
    """Properties of a subscription, a consumer or a producer, and roles of a tenant."""
    metadata_bytes: int = at_least(1, 256 << 20)
    """Names, properties and schemas of topics and subscriptions in all."""
    partial_batches: int = at_least(1, 10_000)
    """Partially acknowledged batches of one subscription. Partial acknowledgements of further batches are
    refused: such a batch is acknowledged as a whole."""
    stages: int = at_least(1, 10_000)
    """Stages open at once."""
    sinks: int = at_least(1, 100_000)
    """Remembered keys of sinks."""
    held_bytes: int = 512 << 20
    """Memory of the process for clients, in all: incomplete frames and bodies, unread answers, state of
    producers, consumers and watched lists. Above it, requests are refused, and the connections that
    have been slow for longest are closed."""
    frame_s: float = seconds(30.0)
    """Time for a frame or an HTTP body to arrive, plus a second per 16 KiB of it."""
    keepalive_s: float = seconds(30.0)
    """Idle time after which a connection gets a PING; it is closed after the same time without an answer."""
    liveness_s: float = seconds(5.0)
    """Time to answer a PING for a client that holds a producer name or exclusive subscription which
    another client asks for."""
    volatile_s: float = seconds(60.0, zero=True)
    """Time for which the position of a disconnected reader is kept after a seek."""
    write_bytes: int = at_least(1, 512 << 10)
    """Unsent bytes of one connection. Above it, its consumers get no further messages."""
    http_body_bytes: int = at_least(1, 1 << 20)
    """The largest body of an HTTP request."""
    http_requests: int = at_least(1, 200)
    """HTTP requests in progress, of all connections; further ones get status 503."""
    shutdown_s: float = seconds(10.0, zero=True)
    """Time for a stopping server to confirm what it has accepted."""

    @property
    def frame_bytes(self) -> int:
        """The largest frame."""
        return self.message_bytes + FRAME_PADDING_BYTES


@dataclass(frozen=True)
class Http:
    """Access to health and metrics over HTTP."""

    health_open: bool = True
    """Answer health and readiness without authentication; both are only yes or no."""
    metrics_open: bool = False
    """Answer `/metrics` without authentication; it contains names of topics and subscriptions."""
    metrics_roles: tuple[str, ...] = ()
    """Roles other than superusers that may read `/metrics`, if it is not open."""


@dataclass(frozen=True)
class Ingest:
    """Publishing through shared memory, for programs of the same user."""

    enabled: bool = True
    """Accept local producers through shared memory, in $HOLDFAST_RUNTIME_DIR or else /dev/shm."""
    queue_bytes: int = at_least(1 << 16, 16 << 20, "at least 64 KiB")
    """Size of each topic's queue; a message may have half of it."""
    topics: int = at_least(1, 256)
    """Topics with a queue at once."""


TAP_SAMPLES_MAX = 1024


@dataclass(frozen=True)
class Tap:
    """An event or field of a service, and the topic that stores its samples."""

    service: str
    """Service and instance: `Camera.left`."""
    event: str
    """The event or field."""
    topic: str
    """The topic that gets a message for each sample; created if missing."""
    max_samples: int = 4
    """Samples that the tap holds at once, at most 1024. The event needs one more."""

    @classmethod
    def from_text(cls, text: str) -> Tap | None:
        """Read `SERVICE.INSTANCE/EVENT=TOPIC`; None if it is not of this form.

        Example:
            >>> Tap.from_text("Camera.left/frame=camera-left")
            Tap(service='Camera.left', event='frame', topic='camera-left', max_samples=4)
        """
        source, equals, topic = text.partition("=")
        service, slash, event = source.strip().rpartition("/")
        return cls(service, event, topic.strip()) if equals and slash else None

    @property
    def source(self) -> str:
        """The service and its element, as errors, logs and metrics name them."""
        return f"{self.service}/{self.event}"


@dataclass(frozen=True)
class Flight:
    """Reads of whole topics by Arrow Flight; the first read starts a process."""

    enabled: bool = True
    """Serve reads by Arrow Flight; clients learn its address over HTTP. Needs pyarrow (`holdfast[spark]`)."""
    host: str = ""
    """Name or address for clients. Empty: the one that the client used for HTTP."""
    port: int = 0
    """Port beside `listen.http_port`, on the same address. 0: any free port."""
    tls_port: int = 0
    """Port beside `listen.https_port`. 0: any free port."""
    reads: int = at_least(1, 16)
    """Reads in progress; further ones are told to retry."""
    idle_s: float = seconds(300.0)
    """Idle time after which the Flight process stops; the next read starts it again."""
    memory_bytes: int = at_least(2 << 30, 4 << 30, "at least 2 GiB: Arrow reserves more than it uses")
    """Memory limit of the Flight process."""


@dataclass(frozen=True)
class ClusterNode:
    """A node of the cluster, the same list on every node."""

    node: int
    """The node's id in corosync.conf."""
    transfer: str
    """`host:port`, at which other nodes fetch state from it."""


@dataclass(frozen=True)
class Cluster:
    """Membership in a cluster of brokers. `holdfast cluster init` writes this section."""

    node: int = 0
    """The id of this node. 0: this broker is alone."""
    name: str = "holdfast"
    """The name of the cluster; the group of its brokers in Corosync has it, too."""
    nodes: tuple[ClusterNode, ...] = ()
    """All nodes of the cluster, this one included. Each has one vote."""
    secret_file: Path | None = None
    """File with a secret of at least 32 bytes, the same on every node. It protects the transfer of state."""
    evict_s: float = seconds(30.0)
    """Time for which a member may hold the others back. Then they continue without it.

    A member that stands still without holding others back has twice the time, and in a quiet cluster up to
    four times."""
    unreplicated_port: int = 0
    """Port for unreplicated topics of this node, open if `listen.port` is. 0: any free port."""
    unreplicated_tls_port: int = 0
    """The same with TLS, open if `listen.tls_port` is. 0: any free port."""

    @property
    def is_member(self) -> bool:
        """Whether the broker is a member of a cluster."""
        return self.node != 0


@dataclass(frozen=True)
class Logs:
    """The log, on the standard error stream."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is written."""
    format: Literal["text", "json"] = "text"
    """`text`, or `json`: one object per line."""


@dataclass(frozen=True)
class ServedBroker(BrokerOptions):
    """The broker itself."""

    require_namespaces: bool = True
    """Create topics only in existing namespaces, as Pulsar's clients expect."""


@dataclass(frozen=True)
class Config:
    """All settings of a server. `Config()` is a server for this machine alone.

    Example:
        >>> Config().listen.port
        6650
        >>> Config(listen=Listen(port=0)).limits.frame_bytes - Config().limits.message_bytes
        65536
    """

    data: Path | None = None
    """The data directory."""
    listen: Listen = field(default_factory=Listen)
    advertised: tuple[AdvertisedListener, ...] = ()
    """Addresses for clients behind a proxy or another network. Without any, clients are told the address by
    which they came."""
    tls: Tls = field(default_factory=Tls)
    authentication: Authentication = field(default_factory=Authentication)
    authorization: Authorization = field(default_factory=Authorization)
    limits: Limits = field(default_factory=Limits)
    http: Http = field(default_factory=Http)
    ingest: Ingest = field(default_factory=Ingest)
    taps: tuple[Tap, ...] = ()
    """Events and fields of services in shared memory that are stored in topics."""
    flight: Flight = field(default_factory=Flight)
    cluster: Cluster = field(default_factory=Cluster)
    log: Logs = field(default_factory=Logs)
    broker: ServedBroker = field(default_factory=ServedBroker)


@functools.cache
def _defaults() -> Config:
    return Config()


def value_of(config: Config, key: str) -> Any:
    """Look a setting up by its key.

    Example:
        >>> value_of(Config(), "limits.connections")
        10000
    """
    return functools.reduce(getattr, key.split("."), config)


def setting(key: str) -> Any:
    """Declare a field of options that takes default and meaning from a setting."""
    return field(default=value_of(_defaults(), key), metadata={"setting": key})


def options_of(of: type, config: Config) -> dict[str, Any]:
    """Collect the settings that are fields of options."""
    known = {each.name: each.metadata.get("setting") for each in fields(of)}
    return {name: value_of(config, key) for name, key in known.items() if key}
