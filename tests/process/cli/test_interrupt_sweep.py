"""Ctrl-C at many moments of every command: the exit status 130, and no traceback."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Channel, Method, Queue, Service
from tests.kit import slices
from tests.kit.cli.interrupts import Ended, interrupted, verbs
from tests.kit.command import run
from tests.kit.served import Served, served

COMMANDS = {
    "queue ls": "",
    "queue create": "new",
    "queue stat": "q --watch 0.05",
    "queue peek": "q",
    "queue put": "q hello",
    "queue get": "q --count 30 --timeout 60",
    "queue recover": "q",
    "queue close": "q",
    "queue purge": "q",
    "queue rm": "q",
    "queue demo": "--seconds 60",
    "channel ls": "",
    "channel stat": "c",
    "channel watch": "c",
    "channel doctor": "c",
    "channel rm": "c",
    "service ls": "",
    "service show": "Sensor.s",
    "service watch": "",
    "service call": "Sensor.s poll",
    "service doctor": "Sensor.s",
    "service rm": "Sensor.s",
    "topic ls": "AT",
    "topic create": "new AT",
    "topic stats": "t AT",
    "topic set": "t --ttl 1h AT",
    "topic limits": "t --producers-max 9 AT",
    "topic permit": "t ann produce,consume AT",
    "topic permissions": "t AT",
    "topic properties": "t --set team=trade AT",
    "topic produce": "t --lines AT",
    "topic consume": "t --subscription s --timeout 60 AT",
    "topic peek": "t AT",
    "topic message": "t 1:0 AT",
    "topic examine": "t --server SERVER",
    "topic find": "t --time -1h AT",
    "topic last": "t AT",
    "topic trim": "t AT",
    "topic backlog-size": "t 1:0 --server SERVER",
    "topic internal": "t --server SERVER",
    "topic terminate": "t AT",
    "topic truncate": "t AT",
    "topic purge": "t AT",
    "topic move": "t s u AT",
    "topic get": "t s AT",
    "topic reject": "t s 1:0 AT",
    "topic drain": "t AT",
    "topic compact": "t --wait AT",
    "topic expire": "t --older-than 1h AT",
    "topic unload": "t --server SERVER",
    "topic partitions": "AT",
    "topic rm": "t --force AT",
    "exchange ls": "AT",
    "exchange create": "x AT",
    "exchange info": "x AT",
    "exchange bind": "x t AT",
    "exchange unbind": "x t AT",
    "exchange alternate": "t x AT",
    "exchange delete": "x AT",
    "subscription ls": "AT",
    "subscription create": "t new AT",
    "subscription stats": "t s AT",
    "subscription properties": "t s --set team=trade AT",
    "subscription peek": "t s AT",
    "subscription skip": "t s 1 AT",
    "subscription reset": "t s --earliest AT",
    "subscription expire": "t s --older-than 1h AT",
    "subscription clear": "t s AT",
    "subscription analyze": "t s --server SERVER",
    "subscription rm": "t s AT",
    "namespace ls": "AT",
    "namespace create": "public/new AT",
    "namespace set": "public/default --ttl 1h AT",
    "namespace limits": "public/default --producers-max 9 AT",
    "namespace permit": "public/default ann produce,consume AT",
    "namespace permissions": "public/default AT",
    "namespace roles": "public/default s --roles ann AT",
    "namespace properties": "public/default --set team=trade AT",
    "namespace missing": "public/default AT",
    "namespace bundles": "public/default --server SERVER",
    "namespace unload": "public/default --server SERVER",
    "namespace clear": "public/default AT",
    "namespace unsubscribe": "public/default s AT",
    "schema get": "t --server SERVER",
    "schema versions": "t --server SERVER",
    "schema upload": "t FOLDER/record.avsc --server SERVER",
    "schema check": "t FOLDER/record.avsc --server SERVER",
    "schema strategy": "t BACKWARD --server SERVER",
    "schema rules": "--namespace public/default --auto-update yes --server SERVER",
    "schema delete": "t --server SERVER",
    "broker stats": "--server SERVER",
    "broker options": "--server SERVER",
    "broker quotas": "--server SERVER",
    "serve": "--data DATA --port 0 --http-port 0 --set ingest.enabled=false",
    "cluster init": "1=10.0.0.1 2=10.0.0.2 3=10.0.0.3 --to FOLDER/cluster",
    "cluster survive": "--data DATA",
    "cluster status": "--server SERVER",
    "cluster members": "--server SERVER",
    "cluster queues": "--server SERVER",
    "cluster options": "--server SERVER",
    "cluster leave": "--server SERVER",
    "cluster evict": "2 --server SERVER",
    "cluster free": "orders --server SERVER",
    "top": "--server SERVER",
    "user set": "FOLDER/users ann",
    "user rm": "FOLDER/users bob",
    "user ls": "FOLDER/users",
    "token create": "ann --secret-file FOLDER/secret",
    "token secret": "FOLDER/new-secret",
    "doctor": "DATA",
    "backup": "DATA FOLDER/backup",
    "restore": "BACKUP FOLDER/restored",
    "pipeline init": "FOLDER/project",
}
"""Arguments of each command. AT: a data directory, and a server."""
ELSEWHERE = {
    "pipeline archive", "pipeline compact", "pipeline audit", "pipeline replay", "pipeline measure",
    "bench queue", "bench channel", "bench service", "bench broker", "bench server", "bench pipeline",
    "bench cluster", "demo", "cluster demo",
}  # fmt: skip
"""Spark has tests of its own (tests/spark), the demo, too; benchmarks run from a checkout."""
WAITING = {
    "queue stat", "queue get", "channel watch", "service watch", "topic consume", "serve", "top",
    "queue demo",
}  # fmt: skip
"""They go on until they are interrupted."""
ENDED_BY_IT = {"queue stat", "channel watch", "service watch", "serve", "top", "queue demo"}
"""Ctrl-C is the way to end them: status 0 once they show something."""
SOME = ("queue put", "topic produce", "subscription reset")
MOMENTS = slices.pick(3, 6)


class Sensor(Service):
    poll = Method()


def test_every_command_is_swept() -> None:
    assert {*verbs()} == COMMANDS.keys() | ELSEWHERE


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a data directory, a backup of it, and credentials."""
    folder = tmp_path_factory.mktemp("kept")
    data = str(folder / "data")
    run("topic", "produce", "t", "--create", "--lines", "--data", data, data=b"message\n" * 50)
    run("subscription", "create", "t", "s", "--start", "earliest", "--data", data)
    run("backup", data, str(folder / "backup"))
    (folder / "record.avsc").write_text('{"type": "record", "name": "R", "fields": []}')
    run("token", "secret", str(folder / "secret"))
    run("user", "set", str(folder / "users"), "bob", data=b"password\n")
    return folder


@pytest.fixture(scope="module")
def server(kept: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    data = tmp_path_factory.mktemp("served") / "data"
    shutil.copytree(kept / "data", data)
    with served(data, "--set", "ingest.enabled=false", http=True) as one:
        yield one


def cases() -> list[tuple[str, str]]:
    chosen = COMMANDS if slices.NIGHTLY else SOME
    return [
        (command, where)
        for command in chosen
        for where in (("directory", "server") if "AT" in COMMANDS[command].split() else ("",))
    ]


@pytest.mark.parametrize(("command", "where"), cases())
def test_an_interrupt_is_quiet(
    command: str, where: str, kept: Path, server: Served, tmp_path: Path, runtime_directory: Path
) -> None:
    def once(at: int, number: int) -> Ended:
        folder = tmp_path / str(number)
        shutil.copytree(kept, folder, ignore=shutil.ignore_patterns("backup"))
        for each in runtime_directory.iterdir():
            each.unlink()
        with Queue.create("q", capacity=1 << 16) as queue:
            queue.put_many([b"message"] * 20)
        Channel.create("c", slots=2, slot_size=8).close()
        if where == "server" or "SERVER" in COMMANDS[command]:
            fill(server.http_url, number)
        words = {
            "AT": f"--data {folder}/data" if where == "directory" else f"--server {server.http_url}",
            "DATA": f"{folder}/data",
            "BACKUP": f"{kept}/backup",
            "SERVER": server.http_url,
            "new": f"new-{number}",
            "public/new": f"public/new-{number}",
        }
        text = " ".join(words.get(each, each) for each in COMMANDS[command].split())
        given = [*command.split(), *text.replace("FOLDER", str(folder)).split()]
        try:
            with Sensor.offer("s", handlers={"poll": lambda: None}):
                return interrupted(at, given, command in WAITING, data=b"secret-word\n" * 3)
        finally:
            shutil.rmtree(folder)

    calls = once(0, 0).calls
    assert calls
    for moment in range(1, MOMENTS + 1):
        ended = once(calls * moment // (MOMENTS + 1), moment)
        said = "" if command == "serve" and "Traceback" not in ended.errors else ended.errors  # its log
        fine = (0, 130) if command in ENDED_BY_IT else (130,)
        assert (ended.status in fine, said) == (True, ""), (moment, calls, ended)


def fill(url: str, number: int) -> None:
    """Create the topic of the commands anew; those of earlier runs go."""
    for name in ("t", f"new-{number - 1}"):
        with contextlib.suppress(AssertionError):
            run("topic", "rm", name, "--force", "--server", url)
    run("topic", "produce", "t", "--create", "--lines", "--server", url, data=b"message\n" * 50)
    run("subscription", "create", "t", "s", "--start", "earliest", "--server", url)


def test_an_interrupt_of_the_end_is_quiet(kept: Path) -> None:
    """Python joins threads and runs exit functions then, and showed a traceback."""
    arguments = ("doctor", str(kept / "data"))
    calls = interrupted(0, arguments, waits=False).calls
    for later in range(0, slices.pick(60, 600), 20):
        ended = interrupted(calls + later, arguments, waits=False)
        assert (ended.status in (0, 130), ended.errors) == (True, ""), (later, ended)


LOST = """
import os, signal, sys, time, weakref
import holdfast.cli.entry as entry, holdfast_command

class Thing: ...

def drop(argv):
    thing = Thing()
    seen = weakref.ref(thing, lambda _: [os.kill(os.getpid(), signal.SIGINT), time.sleep(60)])
    del thing
    time.sleep(60)
    return 0

entry.run = drop
sys.exit(holdfast_command.main())
"""


def test_an_interrupt_in_a_callback_is_not_lost() -> None:
    """Python shows and drops an exception in the callback of a weak reference."""
    ended = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


HALF_CLOSED = """
import asyncio, sys
import holdfast.cli.entry as entry, holdfast_command

def leave(argv):
    loop = asyncio.new_event_loop()
    loop._csock.close()
    loop._ssock.close()
    loop._ssock = None
    if KEPT:
        leave.loop = loop
    raise KeyboardInterrupt

entry.run = leave
sys.exit(holdfast_command.main())
"""


@pytest.mark.parametrize("kept", [False, True], ids=["at once", "at the end"])
def test_a_loop_that_is_half_closed_ends_quietly(kept: bool) -> None:
    """An interrupt left a loop half closed; its finaliser closed it again, and failed."""
    program = HALF_CLOSED.replace("KEPT", str(kept))
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
