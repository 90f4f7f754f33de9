"""Run a server from start to end: directory, ports, signals, the ready line."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

import holdfast
from holdfast.broker import Broker, Quota
from holdfast.cluster import ClusterMember
from holdfast.errors import BadConfiguration, HoldfastError
from holdfast.local.intake import Ingest
from holdfast.server.auth.access import Access, http_options, is_loopback, server_options
from holdfast.server.cluster_view import BrokerCluster
from holdfast.server.config import Config, value_of
from holdfast.server.flight.link import Setup
from holdfast.server.flight.process import FlightProcess
from holdfast.server.limits import raise_descriptor_limit
from holdfast.server.listening import ListenOptions, bracketed, usable_host
from holdfast.server.logs import log, logging_to
from holdfast.server.membership import (
    cluster_member,
    evict,
    facts_of,
    fetching_words,
    secret_of,
    waiting_words,
)
from holdfast.server.pulsar.listener import Server
from holdfast.server.pulse import pulse
from holdfast.server.seldom import Seldom
from holdfast.server.settings import Settings
from holdfast.server.stopping import StopTime
from holdfast.server.unreplicated import pass_unreplicated, serve_unreplicated
from holdfast.server.waiting_room import WaitingRoom

_CREDENTIAL_KEYS = (
    *("tls.key", "authentication.token.secret_file", "authentication.basic.users_file"),
    "cluster.secret_file",
)  # files that only the server should read


def run(settings: Settings, read: Callable[[], Settings], *, json_ready: bool = False) -> int:
    """Serve until a signal; returns the exit status. `read` reads the settings anew.

    Raises:
        BadConfiguration: a file named in the settings cannot be read or is invalid.
        HoldfastError: the directory cannot be served.
        OSError: a port cannot be opened.
    """
    began = time.monotonic()
    logs = settings.config.log
    with logging_to(sys.stderr, logs.level, logs.format):
        return asyncio.run(_Running(settings, read, began, json_ready).serve())


def require_files(config: Config) -> None:
    """Check the files and the directory that the settings name, and change nothing.

    Raises:
        BadConfiguration: a file cannot be read or is invalid.
        Misuse: the directory cannot hold a store.
    """
    Access(config).close()
    if config.cluster.is_member:
        secret_of(config)
    if config.data is not None:
        Broker.require_directory(config.data)


def keep_for_good() -> None:
    """Exclude present objects from garbage collection: they live as long as the process.

    A full collection looks at every object, and takes 20 to 40 ms for the program alone. A member that was
    lost calls it again: the objects of its last broker must not stay for good.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class _Running:
    """One life of a server."""

    def __init__(
        self, settings: Settings, read: Callable[[], Settings], began: float, json_ready: bool
    ) -> None:
        self._settings = settings
        self._config = settings.config
        self._read = read
        self._began = began
        self._json_ready = json_ready
        self._stop = asyncio.Event()
        self._stopping = StopTime(self._config.limits.shutdown_s)
        self._reason = ""
        self._flight: FlightProcess | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._was_ready = False
        self._unreplicated = (0, 0)
        """Ports for unreplicated topics, without TLS and with it; 0: not open."""

    async def serve(self) -> int:
        config = self._config
        assert config.data is not None
        self._catch_signals()
        log.info("starting", version=holdfast.__version__, pid=os.getpid(), data=config.data)
        self._files = raise_descriptor_limit()
        self._access = Access(config)
        try:
            self._warn(self._settings)
            if config.cluster.is_member:
                await self._serve_as_member()
            else:
                await self._serve_alone()
        finally:
            self._access.close()
        log.info("stopped", seconds=round(time.monotonic() - self._began, 3))
        return 0

    async def _serve_alone(self) -> None:
        assert self._config.data is not None
        broker = await Broker.start(self._config.data, self._config.broker)
        try:
            await self._serve_broker(broker, self._failed(broker))
        finally:
            failed = broker.failure
            await broker.close(self._stopping.broker_s())
        if failed is not None:
            raise failed

    async def _serve_as_member(self) -> None:
        """Join the cluster, serve until the member is lost, and join again."""
        member = cluster_member(self._config)
        try:
            while not self._stop.is_set():
                broker = await self._join(member)
                if broker is None:
                    break
                view = BrokerCluster(
                    broker,
                    self._leave,
                    functools.partial(self._evict, broker),
                    functools.partial(fetching_words, member),
                )
                await self._serve_broker(broker, member.lost(), view)
                if not self._stop.is_set():
                    log.warning(
                        "this node is out of its cluster, and joins again", why=member.status().reason
                    )
        finally:
            await member.close(self._stopping.broker_s())

    async def _join(self, member: ClusterMember) -> Broker | None:
        """Wait until the member serves; None: the server is told to stop.

        HTTP answers the reason meanwhile.
        """
        listen = self._config.listen
        options = ListenOptions(listen.host, listen.backlog, tls=self._access.tls)
        ports = (listen.http_port or None, listen.https_port or None)
        loop = asyncio.get_running_loop()
        async with WaitingRoom(lambda: waiting_words(member), options, ports):
            joining, stopping = loop.create_task(member.join()), loop.create_task(self._stop.wait())
            telling = loop.create_task(self._tell_waiting(member))
            try:
                await asyncio.wait((joining, stopping), return_when=asyncio.FIRST_COMPLETED)
                if self._stop.is_set():
                    log.info("stopping", reason=self._reason, within_s=self._stopping.within_s)
                return joining.result() if joining.done() else None
            finally:
                for task in (joining, stopping, telling):
                    task.cancel()
                await asyncio.gather(joining, stopping, telling, return_exceptions=True)

    async def _tell_waiting(self, member: ClusterMember) -> None:
        """Log each change of what a joining member waits for."""
        told, seen = "", Seldom()
        while True:
            await asyncio.sleep(0.5)
            words, failed = waiting_words(member, progress=False), bool(member.status().reason)
            if words != told:
                lost = failed and member.status().state in ("lost", "transferring")
                if seen.is_due(words, time.monotonic()):
                    (log.warning if lost else log.info)("joining the cluster", state=words)
                _notify(f"STATUS={words}")
                told = words

    async def _leave(self) -> None:
        """Stop the server in order, soon after the answer to the request."""
        self._reason = "it was told to leave the cluster"
        asyncio.get_running_loop().call_later(0.1, self._begin_stop)

    @staticmethod
    async def _evict(broker: Broker, node: int) -> None:
        evict(broker, node)

    async def _serve_broker(
        self, broker: Broker, ends: Coroutine[Any, Any, object], view: BrokerCluster | None = None
    ) -> None:
        """Serve until the server is told to stop, or the broker ends."""
        access = self._access
        access.authorizer.admins = lambda tenant: _admins(broker, tenant)
        access.authorizer.tenants = broker.admin.tenants
        access.authorizer.granted = lambda: broker.admin.granted
        loop = asyncio.get_running_loop()
        waits = [loop.create_task(self._stop.wait()), loop.create_task(ends)]
        beside: list[asyncio.Task[None]] = []
        try:
            async with contextlib.AsyncExitStack() as parts:
                urls = await self._start(parts, broker, access, view)
                if view is not None:
                    ports = {name: port for name, (_, port) in urls.items()}
                    facts = facts_of(self._config, ports, self._unreplicated)
                    broker.membership.announce(socket.gethostname(), **facts)
                    beside.append(loop.create_task(pulse(broker, self._config.cluster.evict_s)))
                keep_for_good()
                self._ready(urls)
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if self._stop.is_set():
                    _notify("STOPPING=1")
                    log.info("stopping", reason=self._reason, within_s=self._stopping.within_s)
        finally:
            for each in (*waits, *beside):
                each.cancel()
            await asyncio.gather(*waits, *beside, return_exceptions=True)

    async def _start(
        self,
        parts: contextlib.AsyncExitStack,
        broker: Broker,
        access: Access,
        view: BrokerCluster | None,
    ) -> dict[str, tuple[str, int]]:
        """Open the ports, which `parts` closes, the last first; return scheme and port of each."""
        config = self._config
        quota = Quota(broker, config.limits)
        quota.start()
        parts.callback(quota.stop)
        listen = config.listen
        urls: dict[str, tuple[str, int | None]] = {}
        server: Server | None = None
        if listen.port is not None or listen.tls_port is not None:
            server = Server(broker, server_options(config, access))
            if listen.http_port is not None or listen.https_port is not None:
                server.http_ports = None
            await server.start()
            parts.push_async_callback(self._stop_part, server.stop)
            urls |= {"port": ("pulsar", server.port), "tls_port": ("pulsar+ssl", server.tls_port)}
        self._unreplicated = await serve_unreplicated(parts, broker, config, server, self._stop_part)
        if listen.http_port is not None or listen.https_port is not None:
            from holdfast.server.http import (
                HttpServer,  # a fifth of the start: a server without HTTP does not wait for it
            )

            self._flight = _flight(config, access)
            options = dataclasses.replace(http_options(config, access, self._flight), cluster=view)
            http = HttpServer(broker, options, server)
            pass_unreplicated(http)
            await http.start()
            parts.push_async_callback(self._stop_part, http.stop)
            if self._flight is not None:  # first: requests may wait for its start
                parts.push_async_callback(self._flight.stop)
            urls |= {"http_port": ("http", http.port), "https_port": ("https", http.https_port)}
        if config.ingest.enabled:
            await self._start_ingest(parts, broker)
        if config.taps:
            from holdfast.server.taps import Taps  # services, for which other servers do not wait

            taps = Taps(broker, config.taps, config.limits.message_bytes)
            taps.start()
            parts.push_async_callback(taps.stop)
        return {name: (scheme, port) for name, (scheme, port) in urls.items() if port is not None}

    async def _start_ingest(self, parts: contextlib.AsyncExitStack, broker: Broker) -> None:
        """Start local publishing; without it the server serves all others."""
        config = self._config
        assert config.data is not None
        size, topics = config.ingest.queue_bytes, config.ingest.topics
        try:
            ingest = Ingest(
                broker,
                config.data,
                capacity=size,
                topics_max=topics,
                message_bytes_max=config.limits.message_bytes,
            )
            await ingest.start()
        except (HoldfastError, OSError) as error:
            log.warning("local publishing through shared memory is off", why=error)
            return
        parts.push_async_callback(ingest.stop)

    # -- what it says ----------------------------------------------------------------------------------

    def _ready(self, urls: dict[str, tuple[str, int]]) -> None:
        """Print the ready line once, and notify the service manager."""
        if self._was_ready:
            log.info("serving again")
            _notify("STATUS=serving")
            return
        self._was_ready = True
        host = bracketed(usable_host(self._config.listen.host))
        shown = {name: f"{scheme}://{host}:{port}" for name, (scheme, port) in urls.items()}
        seconds = round(time.monotonic() - self._began, 3)
        if self._json_ready:
            ports = {name: port for name, (_, port) in urls.items()}
            ready: dict[str, Any] = {"ready": True, "pid": os.getpid(), **ports, "urls": list(shown.values())}
            print(json.dumps(ready), flush=True)
        else:
            print(f"holdfast is ready: {' '.join(shown.values()) or 'no port is open'}", flush=True)
        log.info("ready", seconds=seconds, **shown)
        _notify("READY=1")

    def _warn(self, settings: Settings) -> None:
        """Warn of settings that work but may not be intended."""
        config, files = settings.config, self._files
        if not is_loopback(config.listen.host):
            if not config.authentication.methods:
                log.warning("clients need no authentication on this address", host=config.listen.host)
            elif config.listen.port is not None or config.listen.http_port is not None:
                log.warning("credentials cross the network unencrypted", host=config.listen.host)
        if config.authentication.methods and not config.authorization.enabled:
            log.warning("every authenticated client may do everything", key="authorization.enabled")
        if files < config.limits.connections + 1024:
            log.warning(
                "the limit of open files is below limits.connections + 1024; raise it (ulimit -n)",
                limit=files,
                connections=config.limits.connections,
            )
        if config.authorization.grants and not config.authorization.enabled:
            log.warning("grants have no effect", key="authorization.enabled")
        for key, path in _credential_files(settings):
            with contextlib.suppress(OSError):
                if path.stat().st_mode & 0o007:
                    log.warning("every user of this machine can read a secret", key=key, file=path)

    # -- what it hears ---------------------------------------------------------------------------------

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _signalled(self, number: signal.Signals) -> None:
        if self._stop.is_set():
            # Nothing confirmed is lost: the next start recovers as after a crash.
            os._exit(128 + number)
        self._reason = number.name
        self._begin_stop()

    def _begin_stop(self) -> None:
        self._stopping.begin()
        self._stop.set()

    async def _stop_part(self, stop: Callable[[float], Awaitable[None]]) -> None:
        """Stop a listener; all of them share the time for clients."""
        await stop(self._stopping.clients_s())

    def _reload(self) -> None:
        try:
            fresh = self._read()
            self._access.use(fresh.config)
        except BadConfiguration as error:
            log.error("the settings were not reloaded", why=error)
            return
        used = ("tls", "authentication", "authorization")
        others = [
            field.name
            for field in dataclasses.fields(Config)
            if field.name not in used
            and getattr(fresh.config, field.name) != getattr(self._config, field.name)
        ]
        if self._flight is not None and self._config.listen.https_port is not None:
            # The Flight process still has its first certificate; its readers retry.
            again = self._flight.stop(for_good=False)
            self._renewing = asyncio.get_running_loop().create_task(again, name="flight-renew")
        log.info("reloaded: certificates, keys, users, grants")
        self._warn(fresh)
        if others:
            log.warning("other settings changed; restart to apply them", sections=", ".join(others))

    async def _failed(self, broker: Broker) -> None:
        """Return when the broker has failed: its disk needs attention."""
        while broker.failure is None:
            await asyncio.sleep(1.0)
        log.error("the broker has failed", why=broker.failure)


def _flight(config: Config, access: Access) -> FlightProcess | None:
    """Prepare the Flight process, which the first read starts."""
    flight, listen, tls = config.flight, config.listen, config.tls
    if not flight.enabled:
        return None
    assert config.data is not None
    vouch = tls.ca if tls.client_certificates == "required" else None
    setup = Setup(
        directory=str(config.data.absolute()),
        host=listen.host,
        port=None if listen.http_port is None else flight.port,
        tls_port=None if listen.https_port is None else flight.tls_port,
        certificate=_path(tls.certificate),
        key=_path(tls.key),
        ca=_path(vouch),
        reads=flight.reads,
        idle_s=flight.idle_s,
        memory_bytes=flight.memory_bytes,
        log_level=config.log.level,
        log_format=config.log.format,
    )
    return FlightProcess(setup, access.readable, flight.host)


def _path(path: Path | None) -> str:
    return "" if path is None else str(path.absolute())


def _admins(broker: Broker, tenant: str) -> Collection[str]:
    found = broker.admin.tenant(tenant)
    return () if found is None else found.admin_roles


def _credential_files(settings: Settings) -> list[tuple[str, Path]]:
    found = []
    key = "authentication.token.secret"
    if settings.file is not None and settings.origin(key).startswith(f"{settings.file}:"):
        found.append((key, settings.file))
    for key in _CREDENTIAL_KEYS:
        if (value := value_of(settings.config, key)) is not None:
            found.append((key, value))
    return found


def _notify(state: str) -> None:
    """Notify systemd, if it asked for notices."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.sendall(state.encode())
