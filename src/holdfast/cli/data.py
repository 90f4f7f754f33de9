"""The data directory that a command works on: which one, opened by this process alone."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import difflib
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.parsing import Subparsers, Usage, bare_command, declare
from holdfast.errors import Denied, NotFound

if TYPE_CHECKING:
    from holdfast.broker import Broker

VARIABLE = "HOLDFAST_DATA"
SERVER_VARIABLE = "HOLDFAST_SERVER"
MARK = "holdfast"
"""The file that makes a directory a data directory."""
DEFAULT = "persistent://public/default/"
"""The beginning of a topic's full name, by default."""

Work = Callable[["Broker", argparse.Namespace], Awaitable[int]]


def data_command(
    parent: Subparsers, name: str, summary: str, description: str, work: Work, makes: bool = False
) -> argparse.ArgumentParser:
    """Add a command on an open broker; with `makes` or --create it creates the directory."""

    def run(options: argparse.Namespace) -> int:
        with interruptible() if server_url(options) is not None else contextlib.nullcontext():
            return asyncio.run(served(options, work, makes or getattr(options, "create", False)))

    parser, shared = bare_command(parent, name, summary, description, run)
    shared.add_argument(
        "--data",
        dest="data_directory",
        metavar="DIR",
        help=f"data directory (default ${VARIABLE}); no broker may have it open",
    )
    declare(shared)(f"""
        --server URL: use a running server instead, http://host:port (default ${SERVER_VARIABLE}); its token
            is taken from $HOLDFAST_TOKEN
        """)
    return parser


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt a blocking call; asyncio would wait for its end."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *given: signal.default_int_handler(*given))  # asyncio leaves it alone
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def served(options: argparse.Namespace, work: Work, makes: bool) -> int:
    url = server_url(options)
    if url is not None:
        try:
            from holdfast.cli.remote import RemoteBroker
        except ModuleNotFoundError as error:
            raise Usage(f"a server needs {error.name}: pip install 'holdfast[server]'") from None

        async with RemoteBroker(url) as remote:
            # It has of a broker what the commands use.
            return await work(remote, options)  # type: ignore[arg-type]
    from holdfast.broker import VISITING, Broker  # late: other commands must not wait for its core

    directory = data_directory(options.data_directory)
    if not makes:
        require_data(directory)
    async with Broker.open(directory, **VISITING) as broker:
        return await work(broker, options)


def is_remote(broker: Broker) -> bool:
    """Return whether a command runs against a server, and not in a directory."""
    return hasattr(broker, "http")


def server_url(options: argparse.Namespace) -> str | None:
    """The server that was named; else the environment's, if no directory was named anywhere."""
    given: str | None = options.server
    if given is not None and options.data_directory is not None:
        raise Usage("--data and --server exclude each other")
    if given is None and options.data_directory is None and not os.environ.get(VARIABLE):
        return os.environ.get(SERVER_VARIABLE) or None
    return given


def data_directory(given: str | None) -> Path:
    """The one that was named, else the one of the environment."""
    named = given if given is not None else os.environ.get(VARIABLE)
    if not named:
        raise Usage(f"no data directory given; use --data DIR, or --server URL, or set ${VARIABLE}")
    return Path(named)


def is_data(directory: Path) -> bool:
    return (directory / MARK).is_file()


def require_data(directory: Path) -> None:
    """Looking must not make a directory."""
    if not directory.exists():
        raise NotFound(
            f"there is no directory {directory}; `holdfast topic create` creates it with a first topic"
        )
    if not is_data(directory):
        raise NotFound(
            f"{directory} is not a data directory: it has no file {MARK!r}; `holdfast topic create` creates "
            "one in an empty directory"
        )


def short(topic: str) -> str:
    """The name as people write it."""
    return topic.removeprefix(DEFAULT)


def find_topic(broker: Broker, name: str) -> str:
    """The topic's full name.

    Raises:
        NotFound: the topic does not exist; the text names similar ones.
    """
    from holdfast.names import topic_name

    full = topic_name(name)
    if broker.has_topic(full) or broker.admin.partitions(full):
        return full
    try:
        known = list(map(short, broker.admin.topics()))
    except Denied:  # only superusers of a server may list all topics
        raise NotFound(f"there is no topic {short(full)}") from None
    raise NotFound(f"there is no topic {short(full)}; {nearest(short(full), known, 'topic')}")


def find_subscription(broker: Broker, topic: str, name: str) -> tuple[str, str]:
    """The topic's full name, and the subscription's.

    Raises:
        NotFound: the topic or the subscription does not exist; the text names similar ones.
    """
    full = find_topic(broker, topic)
    known = broker.admin.subscriptions(full)
    if name in known:
        return full, name
    raise NotFound(f"{short(full)} has no subscription {name!r}; {nearest(name, known, 'subscription')}")


def nearest(name: str, known: list[str], noun: str) -> str:
    """Words for what might have been meant."""
    if not known:
        made = {"channel": "`Channel.create()` in a program", "service": "`Service.offer()` in a program"}
        create = made.get(noun, f"`holdfast {noun} create`")
        return f"there is no {noun} at all: {create} creates one"
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    shown = ", ".join(known[:5])
    return f"existing {noun}s: {shown}" + (f" and {len(known) - 5} more" if len(known) > 5 else "")
