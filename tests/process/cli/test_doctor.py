"""Test `holdfast doctor` on machines and on sound, dead and damaged queues; it changes nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from holdfast import Queue
from holdfast.cli import main
from tests.kit.cli.queues import directory as directory
from tests.kit.command import (
    HEAD_AT,
    RING_BYTES,
    answer,
    complains,
    dead_with_two_taken_and_one_half_written,
    made,
    overwrite,
    run,
    says,
)


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
    told = complains("doctor", "nobody")
    assert "no queue named" in told
    assert told.endswith("; there is no channel, service or directory nobody, either\n")


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
