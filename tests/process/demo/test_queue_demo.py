"""Test the demo of the queue: its account balances, faults are noticed, examples run."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Queue, _core
from holdfast.demo.queue import workers
from holdfast.demo.queue.account import balance
from tests.kit import ROOT
from tests.kit.processes import until
from tests.kit.slices import pick

COMMAND = str(Path(sys.executable).parent / "holdfast")
EXAMPLES = ROOT / "examples"


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No test leaves a queue or a record behind."""
    made = Path(tempfile.mkdtemp(prefix="holdfast-test.", dir="/dev/shm"))
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(made))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield made
    left = sorted(path.name for path in [*made.iterdir(), *tmp_path.glob("holdfast-demo.*")])
    shutil.rmtree(made)
    assert left == []


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "queue", "demo", *arguments], capture_output=True, text=True, timeout=100)


def test_processes_are_killed_and_nothing_is_lost() -> None:
    seconds = pick(test=3, nightly=20)
    done = demo("--seconds", str(seconds), "--json")
    assert done.returncode == 0, done.stderr
    account = json.loads(done.stdout)
    assert account["good"] is True
    assert sum(account["killed"].values()) >= seconds // 2
    assert account["confirmed"] > 100 * seconds
    assert account["delivered"] == account["confirmed"] + account["unconfirmed"]
    assert [account[fault] for fault in ("lost", "unmarked", "invented", "damaged")] == [0, 0, 0, 0]
    assert account["faults"] == []


def test_without_a_terminal_it_prints_lines() -> None:
    done = demo("--seconds", "1.5", "--no-chaos", "--producers", "1", "--consumers", "1", "--rate", "2000")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum("running" in line for line in lines) >= 2
    assert "\033" not in done.stdout
    assert re.search(r"processes killed +0 ", done.stdout)
    assert re.search(r"redelivered +0 ", done.stdout)
    assert lines[-1] == "every message is accounted for: lost 0"


def test_in_a_terminal_it_draws_a_picture_and_ctrl_c_ends_it_with_the_account() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(COMMAND, [COMMAND, "queue", "demo", "--seconds", "60"])
    shown = b""
    began = time.monotonic()
    pressed = False
    while time.monotonic() - began < 90 and select.select([terminal], [], [], 60)[0]:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # the other side is gone
            break
        if not pressed and b"SIGKILL" in shown:
            os.write(terminal, b"\x03")
            pressed = True
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    text = shown.decode()
    assert "\033[K" in text
    assert "● " in text
    assert "interrupted: draining" in text
    assert "every message is accounted for: lost 0" in text
    assert text.rstrip().count("\033[?25h") >= 1  # the cursor is back


def test_its_processes_do_not_outlive_it(directory: Path, tmp_path: Path) -> None:
    parent = subprocess.Popen([COMMAND, "queue", "demo", "--seconds", "60"], stdout=subprocess.DEVNULL)
    name = f"demo.{parent.pid}"

    def living() -> int:
        if name not in Queue.list():
            return 0
        return sum(each["alive"] for each in _core.inspect(str(directory), name)["people"])

    until(lambda: living() >= 5)
    parent.kill()
    parent.wait()
    until(lambda: living() == 0)
    Queue.unlink(name)
    (records,) = tmp_path.glob("holdfast-demo.*")
    account = balance(records)  # its records tell the same also then
    assert (account.unmarked, account.invented, account.damaged) == (0, 0, 0)
    shutil.rmtree(records)


def test_keep_leaves_the_records_and_the_queue(tmp_path: Path) -> None:
    done = demo("--seconds", "0.5", "--no-chaos", "--keep", "--json")
    account = json.loads(done.stdout)
    records = Path(account["records"])
    assert balance(records).confirmed == account["confirmed"]
    (name,) = Queue.list()
    Queue.unlink(name)
    shutil.rmtree(records)


# -- the account --------------------------------------------------------------------------------------


def put(records: Path, producer: int, *numbers: int, cut: int = 0) -> None:
    data = b"".join(workers.PUT.pack(number) for number in numbers)
    (records / f"producer.{producer}").write_bytes(data + b"\1" * cut)


def got(records: Path, consumer: int, *records_: tuple[int, int, int], cut: int = 0) -> None:
    data = b"".join(workers.GOT.pack(*record) for record in records_)
    (records / f"consumer.{consumer}").write_bytes(data + b"\1" * cut)


def test_an_account_of_the_living_and_the_dead(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 1, 2, cut=5)  # killed in the middle of writing down its fourth
    put(tmp_path, 2)
    got(
        tmp_path, 3, (1, 0, 0), (1, 0, 1), (1, 0, 3), cut=3
    )  # 1.1 was not settled; 1.3 is the unconfirmed one
    got(tmp_path, 4, (1, 1, 1), (1, 2, 2), (2, 0, 0))
    (tmp_path / "consumer.4.error").write_text("not a record")
    account = balance(tmp_path)
    assert account.balanced
    assert (account.confirmed, account.unconfirmed, account.delivered, account.redelivered) == (3, 2, 5, 2)


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        ([], "lost"),
        ([(1, 0, 0), (1, 0, 1)], "unmarked"),
        ([(1, 1, 0), (1, 1, 0), (1, 0, 1)], "unmarked"),
        ([(1, 0, 1), (1, 0, 1000)], "invented"),
        ([(1, 0, 1), (7, 0, 0)], "invented"),
        ([(1, 0, 1), (0, 0, 0)], "damaged"),
    ],
)
def test_the_account_notices(tmp_path: Path, second: list[tuple[int, int, int]], fault: str) -> None:
    put(tmp_path, 1, 0, 1)
    got(tmp_path, 2, (1, 0, 0))
    got(tmp_path, 3, *second)
    account = balance(tmp_path)
    assert not account.balanced
    faults = {name for name in ("lost", "unmarked", "invented", "damaged") if getattr(account, name)}
    assert faults == {fault}


def test_a_payload_tells_if_a_byte_of_it_changed() -> None:
    good = workers.payload(7, 11, b"filler")
    assert workers.read_payload(memoryview(good)) == (7, 11)
    for index in range(len(good)):
        bad = bytearray(good)
        bad[index] ^= 1
        assert workers.read_payload(memoryview(bad)) == (0, 0)
    assert workers.read_payload(memoryview(b"short")) == (0, 0)


# -- the examples -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ("work_queue.py", "200 of 200 results from 3 workers, of which 1 died"),
        ("asyncio_consumer.py", "40 readings in two tasks"),
        ("dead_letters.py", "in the dead-letter queue: poison, after 3 deaths"),
    ],
)
def test_example(example: str, words: str) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / example], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout
    assert done.stderr == ""
