"""Run the real command as a user does: output, streams, exit status; bad cases, too."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from holdfast import Queue
from holdfast.cli import main
from tests.kit.cli.queues import directory as directory
from tests.kit.command import (
    COMMAND,
    RING_BYTES,
    answer,
    complains,
    dead_with_two_taken_and_one_half_written,
    follow,
    in_a_process,
    made,
    overwrite,
    run,
    says,
    sessions,
)

# -- create, ls, stat ---------------------------------------------------------------------------------


WRONG_TOGETHER = {
    "--max-deliveries 3": "--max-deliveries and --dead-letter need each other",
    "--dead-letter bad": "--max-deliveries and --dead-letter need each other",
    "--max-deliveries 3 --dead-letter x": "own dead-letter queue",
    "--max-deliveries 3 --dead-letter bad --delivery at-most-once": "--max-deliveries has no meaning",
    "--max-deliveries 251 --dead-letter bad": "--max-deliveries must be 1 to 250",
    "--stall-limit 0": "--stall-limit must be 0.001",
    "--participants 5000": "use 256 bytes to 256 GiB and 1 to 1023",
    "--mode 1777": "mode must be",
}
"""Options that are not valid, or not together: usage errors, as argparse's own."""


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
    assert "is not a valid name" in complains("queue", "create", "a/b", status=2)
    assert "bytes free" in complains("queue", "create", "huge", "--capacity", "200G")
    for wrong, words in WRONG_TOGETHER.items():
        assert words in complains("queue", "create", "x", *wrong.split(), status=2), wrong
    assert "create it" in complains("queue", "create", "x", "--directory", str(directory / "nowhere"))
    for wrong in ("12x", "0", "-1", "1.5M"):
        assert "not a size" in complains("queue", "create", "x", f"--capacity={wrong}", status=2)
    assert "no group" in complains("queue", "create", "x", "--group", "no-such-group", status=2)
    assert "not a mode" in complains("queue", "create", "x", "--mode", "rw", status=2)
    assert Queue.list() == ["orders"]


def test_ls_counts_the_living_and_the_dead(directory: Path) -> None:
    assert says("queue", "ls") == f"no queues in {directory}\n"
    missing = str(directory / "missing")
    told = says("queue", "ls", "--directory", missing)
    assert told == f"no queues in {missing}: the directory does not exist\n"
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
    words = complains("queue", "put", "orders", "--timeout", "2.5", "--count", "5000", "x")
    assert "after 2.5" in words
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
    told = re.search(r"after (\d+\.\d+) s", complains("queue", "get", "orders", "--timeout", "0.05"))
    assert told is not None
    assert float(told[1]) >= 0.05
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
        assert "did you mean orders?" in complains("queue", "rm", "order")
        words = complains("queue", "rm", "orders")
        assert f"in use by pid {os.getpid()}" in words
        assert Queue.list() == ["orders"]
        assert says("queue", "rm", "--force", "orders") == "removed orders\n"
    assert "no queue named" in complains("queue", "rm", "orders")
    made("one")
    dead_with_two_taken_and_one_half_written(made("two", b"a", b"b"))  # the dead do not count
    assert answer("queue", "rm", "one", "two") == {"removed": ["one", "two"]}
    assert Queue.list() == []


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
    follow(sessions()[0])
    assert Queue.list() == []


def test_wrong_usage_is_status_2() -> None:
    for arguments in ([], ["queue"], ["bench"], ["queue", "fly"], ["queue", "ls", "--fast"], ["queue", "rm"]):
        assert "usage:" in complains(*arguments, status=2)


def test_a_look_at_a_busy_queue_is_not_taken_for_damage() -> None:
    made()

    def busy() -> None:
        with Queue.open("orders") as queue:
            while True:
                queue.put_many([b"x" * 100] * 50)
                queue.get_many(50).settle()

    pid = in_a_process(busy)
    try:
        for _ in range(20):
            says("doctor", "orders")
            assert "damaged" not in says("queue", "ls")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
