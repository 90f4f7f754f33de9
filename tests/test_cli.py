"""The real command, run as a user runs it: what it prints, where, and its exit status; good cases and bad."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Queue, _core
from holdfast.cli import environment, main, output, parsing

COMMAND = str(Path(sys.executable).parent / "holdfast")
HEAD_AT, RING_BYTES = 4096, 64 << 10


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Every test has the queues' directory for itself."""
    made = Path(tempfile.mkdtemp(prefix="holdfast-test.", dir="/dev/shm"))
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(made))
    yield made
    shutil.rmtree(made)


def run(*arguments: str, data: bytes = b"", status: int = 0) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([COMMAND, *arguments], input=data, capture_output=True, timeout=60)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def says(*arguments: str, data: bytes = b"", status: int = 0) -> str:
    """What it writes to stdout. Success writes nothing to stderr, failure says there what is wrong."""
    done = run(*arguments, data=data, status=status)
    assert (done.stderr == b"") == (status == 0), done.stderr
    return done.stdout.decode()


def complains(*arguments: str, data: bytes = b"", status: int = 1) -> str:
    done = run(*arguments, data=data, status=status)
    words = done.stderr.decode()
    assert "Traceback" not in words
    return words


def answer(*arguments: str, status: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", status=status).stdout)


def made(name: str = "orders", *messages: bytes) -> str:
    with Queue.create(name, capacity=RING_BYTES) as queue:
        queue.put_many(messages)
    return name


def in_a_process(work: Callable[[], object]) -> int:
    """Starts a process that does this, and then dies with whatever it has in its hands."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    return pid


def dead_with_two_taken_and_one_half_written(name: str) -> None:
    """Two processes, which are alive at the same time, so that each has a slot of its own."""
    ready, go = os.pipe(), os.pipe()

    def reader() -> None:
        queue = Queue.open(name)
        keep = [queue.get(), queue.get()]
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os.kill(os.getpid(), signal.SIGKILL)  # here: once they are out of scope, the messages go back
        assert keep

    def writer() -> None:
        queue = Queue.open(name)
        _core.arm("put_payload")
        queue.put(b"never finished")

    first = in_a_process(reader)
    os.read(ready[0], 1)
    os.waitpid(in_a_process(writer), 0)
    os.write(go[1], b"x")
    os.waitpid(first, 0)
    for end in (*ready, *go):
        os.close(end)


def overwrite(directory: Path, name: str, offset: int, data: bytes) -> None:
    with (directory / f"holdfast.queue.{name}").open("r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(data)


# -- create, ls, stat ---------------------------------------------------------------------------------


def test_create_takes_all_parameters() -> None:
    options = (
        "--capacity 100k --delivery at-least-once --participants 5 --max-deliveries 3 --dead-letter bad "
        "--stall-limit 1.5 --checksum full --mode 660"
    )
    found = answer("queue", "create", "orders", *options.split())
    assert found["capacity"] == 128 << 10  # rounded up to a power of two
    assert (found["participants"], found["max_deliveries"], found["dead_letter"]) == (5, 3, "bad")
    assert (found["stall_limit_ms"], found["checksum"]) == (1500, "full")
    assert Path(found["path"]).stat().st_mode & 0o777 == 0o660
    assert Queue.list() == ["bad", "orders"]
    assert "at-most-once" in says("queue", "create", "other", "--delivery", "at-most-once")


def test_create_refuses(directory: Path) -> None:
    made()
    assert "exists already" in complains("queue", "create", "orders")
    assert "capacity is 65536" in complains("queue", "create", "orders", "--exist-ok")
    says("queue", "create", "orders", "--exist-ok", "--capacity", "64k")
    assert "is no name" in complains("queue", "create", "a/b")
    assert "bytes free" in complains("queue", "create", "huge", "--capacity", "200G")
    assert "belong together" in complains("queue", "create", "x", "--max-deliveries", "3")
    assert "create it" in complains("queue", "create", "x", "--directory", str(directory / "nowhere"))
    for wrong in ("12x", "0", "-1", "1.5M"):
        assert "not a size" in complains("queue", "create", "x", f"--capacity={wrong}", status=2)
    assert "no group" in complains("queue", "create", "x", "--group", "no-such-group", status=2)
    assert "not a mode" in complains("queue", "create", "x", "--mode", "rw", status=2)
    assert Queue.list() == ["orders"]


def test_ls_counts_the_living_and_the_dead(directory: Path) -> None:
    assert says("queue", "ls") == f"no queues in {directory}\n"
    made("orders", b"a", b"b", b"c")
    dead_with_two_taken_and_one_half_written("orders")
    made("full")
    with Queue.open("full") as queue:
        queue.close()
        (found,) = (each for each in answer("queue", "ls") if each["name"] == "full")
        assert (found["attached"], found["alive"], found["dead"], found["state"]) == (1, 1, 0, "closed")
    lines = says("queue", "ls").splitlines()
    assert lines[0].split() == ["NAME", "CAPACITY", "READY", "TAKEN", "ATTACHED", "ALIVE", "DEAD", "STATE"]
    assert lines[2].split() == ["orders", "64", "KiB", "1", "2", "2", "0", "2", "open"]


def test_stat_tells_everything(directory: Path) -> None:
    made("orders", b"hello", b"again")
    with Queue.open("orders") as queue:
        queue.get().give_back()
        with queue.get():
            text = says("queue", "stat", "orders")
            found = answer("queue", "stat", "orders")
    assert f"pid {os.getpid()}" in text
    assert "holds 1 taken" in text
    assert (found["put"], found["put_bytes"], found["taken"], found["redelivered"]) == (2, 10, 1, 1)
    assert "no queue named" in complains("queue", "stat", "nobody")
    assert (
        found["name"]
        == json.loads(says("queue", "stat", "orders", "--json", "--directory", str(directory)))["name"]
    )


def test_stat_watches_until_interrupted() -> None:
    made("orders", b"x")
    watch = subprocess.Popen(
        [COMMAND, "queue", "stat", "orders", "--watch", "0.05"], stdout=subprocess.PIPE, text=True
    )
    assert watch.stdout is not None
    with watch.stdout:
        while "0/s" not in watch.stdout.readline():  # a rate: the second look
            assert watch.poll() is None
        watch.send_signal(signal.SIGINT)
        assert watch.wait(timeout=10) == 0


# -- put, get, peek -----------------------------------------------------------------------------------


def test_put_from_argument_file_stdin_and_lines(tmp_path: Path) -> None:
    made()
    noise = os.urandom(2000)
    (tmp_path / "noise").write_bytes(noise)
    assert says("queue", "put", "orders", "hello") == "put 1 message\n"
    assert says("queue", "put", "orders", "--file", str(tmp_path / "noise")) == "put 1 message\n"
    says("queue", "put", "orders", data=b"all of\nstdin\n")
    assert answer("queue", "put", "orders", "--count", "2", "twice") == {"put": 2}
    says("queue", "put", "orders", "--lines", data=b"one\n\ntwo")
    with Queue.open("orders") as queue, queue.get_many(100, timeout=0) as messages:
        found = messages.tobytes()
    assert found == [b"hello", noise, b"all of\nstdin\n", b"twice", b"twice", b"one", b"", b"two"]


def test_put_says_what_is_wrong(tmp_path: Path) -> None:
    made()
    assert "no queue named" in complains("queue", "put", "nobody", "x")
    assert "too large" in complains("queue", "put", "orders", data=bytes(RING_BYTES))
    assert "no room" in complains("queue", "put", "orders", "x", "--count", "5000", "--timeout", "0")
    says("queue", "purge", "orders")
    words = complains("queue", "put", "orders", "--timeout", "0.05", "--count", "5000", "x")
    assert "after 0.05" in words
    assert "1,023 messages had been put before" in words
    assert "No such file" in complains("queue", "put", "orders", "--file", str(tmp_path / "nothing"))
    assert "exclude each other" in complains("queue", "put", "orders", "--lines", "x", status=2)
    says("queue", "close", "orders")
    assert "closed" in complains("queue", "put", "orders", "x")


def test_get_writes_raw_hex_lines_and_json() -> None:
    data = b"\x00\xff raw \n"
    made("orders", data, b"a", b"b", b"hex", "ü".encode(), b"\xff")
    assert run("queue", "get", "orders").stdout == data
    assert says("queue", "get", "orders", "--lines", "--count", "2") == "a\nb\n"
    assert says("queue", "get", "orders", "--hex") == "686578\n"
    first, second = map(json.loads, says("queue", "get", "orders", "--json", "--count", "2").splitlines())
    assert (first["text"], first["hex"], first["size"], first["redelivered"]) == ("ü", "c3bc", 2, 0)
    assert (second["text"], second["hex"]) == (None, "ff")
    with Queue.open("orders") as queue:
        assert queue.stats().settled == 6


def test_get_says_what_is_wrong() -> None:
    made()
    assert "no queue named" in complains("queue", "get", "nobody")
    assert "no message" in complains("queue", "get", "orders", "--timeout", "0")
    assert "after 0.05" in complains("queue", "get", "orders", "--timeout", "0.05")
    assert "at least 0" in complains("queue", "get", "orders", "--timeout=-1", status=2)
    says("queue", "close", "orders")
    assert "closed" in complains("queue", "get", "orders")


def test_get_follows_until_the_queue_is_closed() -> None:
    made("orders", b"early")
    follow = subprocess.Popen(
        [COMMAND, "queue", "get", "orders", "--follow", "--lines"], stdout=subprocess.PIPE
    )
    with Queue.open("orders") as queue:
        queue.put(b"late")
        queue.close()
    out, _ = follow.communicate(timeout=30)
    assert (follow.returncode, out) == (0, b"early\nlate\n")


@pytest.mark.parametrize("where", ["/dev/full", "a pipe that nobody reads", "closed"])
def test_a_message_that_cannot_be_written_stays_in_the_queue(where: str) -> None:
    made("orders", b"precious")
    if where == "closed":
        done = subprocess.run(
            ["sh", "-c", f"{COMMAND} queue get orders >&-"], stderr=subprocess.PIPE, timeout=30
        )
        assert b"stdout is closed" in done.stderr
    elif where == "/dev/full":
        with Path(where).open("wb") as full:
            done = subprocess.run(
                [COMMAND, "queue", "get", "orders"], stdout=full, stderr=subprocess.PIPE, timeout=30
            )
        assert b"No space left" in done.stderr
    else:
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [COMMAND, "queue", "get", "orders"], stdout=write, stderr=subprocess.PIPE, timeout=30
        )
        os.close(write)
        assert done.stderr == b""
    assert done.returncode == 1
    with Queue.open("orders") as queue, queue.get(timeout=0) as message:
        assert bytes(message.data) == b"precious"
        assert message.redelivered == (0 if where == "closed" else 1)  # there it was not even taken
        assert queue.check() == []


def test_peek_takes_nothing() -> None:
    made("orders", b"first", bytes(range(200)), b"third")
    text = says("queue", "peek", "orders", "--count", "2")
    assert "66 69 72 73 74" in text
    assert "first" in text
    assert "… 136 more bytes" in text
    assert "third" not in text
    with Queue.open("orders") as queue, queue.get():
        assert "first" not in says("queue", "peek", "orders")
        taken, *_ = (
            json.loads(line) for line in says("queue", "peek", "orders", "--all", "--json").splitlines()
        )
        assert (taken["state"], taken["text"], taken["owner_slot"]) == ("TAKEN", "first", queue.slot)
        assert queue.stats().delivered == 1
    says("queue", "purge", "orders")
    assert says("queue", "peek", "orders") == "no message waits\n"


# -- recover, rm --------------------------------------------------------------------------------------


def test_recover_tells_what_it_recovered() -> None:
    made("orders", b"a", b"b", b"c")
    dead_with_two_taken_and_one_half_written("orders")
    text = says("queue", "recover", "orders")
    assert "recovered: 1 half-written message skipped, 2 messages handed on; 3 messages waiting now" in text
    assert "recovered: nothing" in says("queue", "recover", "orders")
    assert says("queue", "get", "orders", "--count", "3", "--lines") == "a\nb\nc\n"


def test_recover_lets_go_where_at_most_once_was_promised() -> None:
    with Queue.create("once", capacity=RING_BYTES, delivery="at-most-once") as queue:
        queue.put_many([b"a", b"b"])
    dead_with_two_taken_and_one_half_written("once")
    found = answer("queue", "recover", "once")
    assert (found["skipped"], found["handed_on"], found["released"], found["waiting"]) == (1, 0, 2, 0)


def test_a_queue_from_before_the_last_boot_is_adopted_when_asked(directory: Path) -> None:
    made("orders", b"kept")
    overwrite(directory, "orders", 48, b"another boot....")
    assert "before the last boot" in complains("queue", "get", "orders")
    assert "--adopt" in complains("queue", "recover", "orders")
    assert "before reboot" in says("queue", "ls")
    assert "BEFORE the last boot" in run("doctor", "orders", status=1).stdout.decode()
    assert "adopted" in says("queue", "recover", "orders", "--adopt")
    assert says("queue", "get", "orders") == "kept"


def test_rm_refuses_while_processes_are_attached() -> None:
    made()
    with Queue.open("orders"):
        words = complains("queue", "rm", "orders")
        assert f"in use by pid {os.getpid()}" in words
        assert Queue.list() == ["orders"]
        assert says("queue", "rm", "--force", "orders") == "removed orders\n"
    assert "no queue named" in complains("queue", "rm", "orders")
    made("one")
    dead_with_two_taken_and_one_half_written(made("two", b"a", b"b"))  # the dead do not count
    assert answer("queue", "rm", "one", "two") == {"removed": ["one", "two"]}
    assert Queue.list() == []


# -- doctor -------------------------------------------------------------------------------------------


def test_doctor_finds_this_machine_fit(directory: Path) -> None:
    made("orders", b"x")
    text = says("doctor")
    for words in (
        "O_TMPFILE",
        "OFD locks",
        "futex_waitv",
        "kernel",
        str(directory),
        "1 queue looked at, 0 with problems",
    ):
        assert words in text
    found = answer("doctor")
    assert found["sound"] is True
    assert {each["status"] for each in found["environment"]} <= {"ok", "note", "warn"}
    assert [each["name"] for each in found["queues"]] == ["orders"]


def test_doctor_finds_a_directory_unfit(directory: Path) -> None:
    done = run("doctor", "--directory", str(directory / "nowhere"), status=1)
    assert b"is not there" in done.stdout
    assert b"not fit" in done.stdout
    done = run("doctor", "--directory", "/proc", status=1)  # no file can be made there
    assert b"bad   O_TMPFILE" in done.stdout


def test_doctor_reads_a_queue_whose_processes_are_all_dead(directory: Path) -> None:
    made("orders", b"a", b"b", b"c")
    dead_with_two_taken_and_one_half_written("orders")
    before = (directory / "holdfast.queue.orders").read_bytes()
    text = says("doctor", "orders")
    assert (directory / "holdfast.queue.orders").read_bytes() == before  # it only looks
    assert "0 alive, 2 dead" in text
    assert text.count("TAKEN by pid") == 2
    assert "RESERVED by pid" in text
    assert "to recover: 1 half-written message skipped, 2 messages handed on" in text
    assert "queue orders: sound" in says("doctor")
    text = says("doctor", "orders", "--recover")
    assert text.endswith("recovered: 1 half-written message skipped, 2 messages handed on\n")
    found = answer("doctor", "orders", "--recover")
    assert found["left"] == []
    assert found["seen"]["queue"]["blocks"]["RETRY"] == 2
    assert found["recovered"] == {"skipped": 0, "handed_on": 0, "released": 0}


def test_doctor_knows_the_way_to_the_dead_letters() -> None:
    with Queue.create("orders", capacity=RING_BYTES, max_deliveries=1, dead_letter="bad") as queue:
        queue.put_many([b"a", b"b"])
    dead_with_two_taken_and_one_half_written("orders")
    assert says("doctor", "orders").count("goes to the dead-letter queue bad") == 2


def test_doctor_leaves_the_living_alone() -> None:
    made("orders", b"a", b"b")
    with Queue.open("orders") as queue, queue.get() as message:
        text = says("doctor", "orders", "--recover")
        assert f"pid {os.getpid()}, alive, holds 1 taken" in text
        assert "recovered: nothing" in text
        assert (message.redelivered, queue.stats().taken) == (0, 1)


def test_doctor_names_a_damaged_message(directory: Path) -> None:
    made("orders", b"a", b"b", b"c")
    overwrite(directory, "orders", 64 - RING_BYTES + 4, b"\xff\xff")  # the size of the second message
    text = run("doctor", "orders", status=1).stdout.decode()
    assert "damaged block  position 1025, READY: size is wrong" in text
    assert "verdict        damaged: 1 message" in text
    assert "1 with problems" in run("doctor", status=1).stdout.decode()
    assert "DAMAGED" in says("queue", "peek", "orders")
    assert says("queue", "get", "orders") == "a"
    assert "position 1025 is damaged" in complains("queue", "get", "orders")
    assert says("queue", "get", "orders") == "c"
    says("doctor", "orders")


@pytest.mark.parametrize(
    ("offset", "what"),
    [
        (0, "magic"),
        (200, "header checksum"),
        (HEAD_AT, "head at position"),
        (HEAD_AT + 256, "tail at position"),
    ],
)
def test_a_damaged_queue_is_told_by_every_command(directory: Path, offset: int, what: str) -> None:
    made("orders", b"a", b"b")
    overwrite(directory, "orders", offset, b"\x13\x37\x13\x37")
    assert f"damaged: {what}" in run("doctor", "orders", status=1).stdout.decode()
    assert answer("doctor", "orders", status=1)["sound"] is False
    assert "damaged" in says("queue", "ls")
    if offset != 0:  # with a wrong name for itself, the rest can still be read
        for verb in ("stat", "peek"):
            assert what in complains("queue", verb, "orders")
    assert what in complains("queue", "recover", "orders")
    assert what in complains("queue", "recover", "--adopt", "orders")
    says("queue", "rm", "orders")


def test_a_file_that_is_too_short_is_told(directory: Path) -> None:
    made("orders")
    os.truncate(directory / "holdfast.queue.orders", 5000)
    assert "5000 bytes found" in run("doctor", "orders", status=1).stdout.decode()
    os.truncate(directory / "holdfast.queue.orders", 10)
    assert "at least 4096" in run("doctor", "orders", status=1).stdout.decode()
    assert "at least 4096" in complains("queue", "stat", "orders")
    says("queue", "rm", "orders")


def test_doctor_wants_a_name_for_recovery() -> None:
    assert "NAME" in complains("doctor", "--recover", status=2)
    assert "no queue named" in complains("doctor", "nobody")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_queues_of_other_users_are_named_and_no_obstacle(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made("theirs", b"x")
    directory.chmod(0o1777)

    def as_somebody_else(*arguments: str) -> tuple[int, str]:
        pid = os.fork()
        if pid == 0:  # in this process: another user may not be able to start the command
            os.setgroups([])
            os.setgid(54321)
            os.setuid(54321)
            status = main(arguments)
            sys.stdout.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return status, "".join(capfd.readouterr())

    status, text = as_somebody_else("queue", "ls")
    assert (status, text.split()[-1]) == (0, "denied")
    status, text = as_somebody_else("doctor")
    assert status == 0
    assert "queue theirs: another user's" in text
    for arguments in (("doctor", "theirs"), ("queue", "get", "theirs"), ("queue", "rm", "theirs")):
        status, text = as_somebody_else(*arguments)
        assert status == 1
        assert "no permission" in text
    assert Queue.list() == ["theirs"]


# -- the rest -----------------------------------------------------------------------------------------


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert "kill -9" in says("--help")
    assert "--sizes" in says("bench", "queue", "--help")
    assert says("--version").startswith("holdfast ")

    def explained(*arguments: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            main([*arguments, "--help"])  # in this process: a new one for each would take seconds
        return capsys.readouterr().out

    for verb in ("ls", "create", "stat", "peek", "put", "get", "recover", "close", "purge", "rm"):
        text = explained("queue", verb)
        assert "--json" in text
        assert "--directory" in text
    for noun in ("doctor", "demo"):
        assert "exit status" in explained(noun)


def test_the_session_on_the_page_is_true() -> None:
    page = (Path(__file__).parent.parent / "docs/cli.md").read_text(encoding="utf-8")
    (session,) = re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    for step in session.split("$ ")[1:]:
        line, _, expected = step.partition("\n")
        done = subprocess.run(
            ["sh", "-c", line], env=os.environ | {"PATH": path}, capture_output=True, timeout=30
        )
        assert (done.returncode, done.stderr) == (0, b""), line
        pattern = ".*".join(map(re.escape, expected.split("...")))
        assert re.fullmatch(pattern, done.stdout.decode()), (line, done.stdout)
    assert Queue.list() == []


def test_wrong_usage_is_status_2() -> None:
    for arguments in ([], ["queue"], ["bench"], ["queue", "fly"], ["queue", "ls", "--fast"], ["queue", "rm"]):
        assert "usage:" in complains(*arguments, status=2)


def test_sizes_and_ages() -> None:
    assert [parsing.size(text) for text in ("1", "64k", "64K", "2MiB", "1G")] == [
        1,
        65536,
        65536,
        2 << 20,
        1 << 30,
    ]
    with pytest.raises(argparse.ArgumentTypeError):
        parsing.size("k")
    assert [output.size_words(size) for size in (0, 1000, 1536, 3 << 30)] == [
        "0 B",
        "1000 B",
        "1.5 KiB",
        "3 GiB",
    ]
    assert [output.age_words(age) for age in (0.25, 90, 7200)] == ["250 ms", "1.5 min", "2.0 h"]


def test_remove_ipc_is_read_as_logind_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[str]:
        return [each.status for each in environment.remove_ipc("/dev/shm", tmp_path)]

    assert found() == []  # no systemd, no logind
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert found() == ["warn"]  # its default is yes
    (tmp_path / "etc/systemd/logind.conf.d").mkdir(parents=True)
    (tmp_path / "etc/systemd/logind.conf").write_text("[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n")
    assert found() == ["ok"]
    (tmp_path / "etc/systemd/logind.conf.d/site.conf").write_text("[Login]\nRemoveIPC=yes\n")
    assert found() == ["warn"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert found() == ["ok"]
    assert list(environment.remove_ipc("/run/holdfast", tmp_path)) == []


def test_a_look_at_a_busy_queue_is_not_taken_for_damage() -> None:
    made()

    def busy() -> None:
        with Queue.open("orders") as queue:
            while True:
                queue.put_many([b"x" * 100] * 50)
                queue.get_many(50).settle()

    pid = in_a_process(busy)
    try:
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            says("doctor", "orders")
            assert "damaged" not in says("queue", "ls")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
