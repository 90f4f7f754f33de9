"""Consumers and readers get damage as an error with file and position, or skip it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import Broker
from holdfast.broker.dispatch.read_loops import Reading
from holdfast.broker.telemetry.metrics import metrics
from holdfast.errors import Corrupt, Timeout
from tests.kit.broker.brokers import on_broker

COUNT = 12
TYPES = ("exclusive", "failover", "shared")
TIMEOUT_S = 20.0
"""How long to wait for what must happen."""


def payload(number: int) -> bytes:
    return b"<payload %03d>" % number


def filled(path: Path, *damaged: int) -> list[int]:
    """Create a topic with these entries damaged; return the offsets of the damage."""

    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("t", "s", start="earliest")
        async with broker.producer("t") as p:
            await p.send_many([payload(number) for number in range(COUNT)])

    on_broker(path, work)
    (file,) = (path / "ledgers").glob("*.data")
    data, places = bytearray(file.read_bytes()), []
    for number in damaged:
        places.append(data.index(payload(number)))
        data[places[-1] + 3] ^= 0x40
    file.write_bytes(data)
    return places


async def taken(receiver: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [each.data for each in await receiver.receive_many(count - len(found), timeout=TIMEOUT_S)]
    return found


def require_named(error: pytest.ExceptionInfo[Corrupt], entry: int) -> None:
    assert "ledgers/" in str(error.value)
    assert f"entry {entry}" in str(error.value)
    assert "offset" in str(error.value)


@pytest.mark.parametrize("type_", TYPES)
def test_a_consumer_gets_the_error(tmp_path: Path, type_: Any) -> None:
    filled(tmp_path, 4)

    async def work(broker: Broker) -> None:
        async with broker.consumer("t", "s", type=type_) as c:
            assert await taken(c, 4) == [payload(number) for number in range(4)]
            for _ in range(2):  # and again, until something is done about it
                with pytest.raises(Corrupt) as error:
                    await c.receive(timeout=TIMEOUT_S)
                require_named(error, 4)
            dispatch = broker.admin.subscription_stats("t", "s").dispatch
            assert dispatch is not None
            assert "entry 4" in dispatch.last_error
            (topic,) = broker.topics.values()
            assert topic.damaged == {4}, "front ends do not refuse clients that begin there"
            assert broker.admin.subscription_stats("t", "s").backlog == COUNT

    on_broker(tmp_path, work)


def test_a_reader_gets_the_error_and_goes_on_behind_it(tmp_path: Path) -> None:
    filled(tmp_path, 4)

    async def work(broker: Broker) -> None:
        async with broker.reader("t", start="earliest") as r:
            assert await taken(r, 4) == [payload(number) for number in range(4)]
            with pytest.raises(Corrupt) as error:
                await r.read(timeout=TIMEOUT_S)
            require_named(error, 4)
            (topic,) = broker.topics.values()
            await r.seek(topic.id_of(5))
            assert await taken(r, COUNT - 5) == [payload(number) for number in range(5, COUNT)]

    on_broker(tmp_path, work)


def test_who_waits_already_is_woken(tmp_path: Path) -> None:
    filled(tmp_path, 0)

    async def work(broker: Broker) -> None:
        async with broker.consumer("t", "s") as c:
            with pytest.raises(Corrupt) as error:
                await anext(aiter(c))
            require_named(error, 0)

    on_broker(tmp_path, work)


def test_a_skip_by_hand_leads_past_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without another attempt at what is damaged."""
    filled(tmp_path, 0)
    attempts = []
    failed = Reading._failed

    def counted(self: Reading, read: Any, error: Any) -> bool:
        attempts.append(error)
        return failed(self, read, error)

    monkeypatch.setattr(Reading, "_failed", counted)

    async def work(broker: Broker) -> None:
        async with broker.consumer("t", "s") as c:
            with pytest.raises(Corrupt):
                await c.receive(timeout=TIMEOUT_S)
            await broker.admin.skip("t", "s", 1)
            before = len(attempts)
            assert await taken(c, 2) == [payload(1), payload(2)]
            assert before > 0
            assert len(attempts) == before

    on_broker(tmp_path, work)


@pytest.mark.parametrize("damaged", [(4,), (0,), (COUNT - 1,), (3, 4, 5), (0, 2, 7, 11)])
@pytest.mark.parametrize("type_", TYPES)
def test_by_choice_it_is_left_out_and_counted(tmp_path: Path, type_: Any, damaged: tuple[int, ...]) -> None:
    filled(tmp_path, *damaged)

    async def work(broker: Broker) -> None:
        async with broker.consumer("t", "s", type=type_) as c:
            good = [number for number in range(COUNT) if number not in damaged]
            messages: list[Any] = []
            while len(messages) < len(good):
                messages += await c.receive_many(COUNT, timeout=TIMEOUT_S)
            assert [each.data for each in messages] == [payload(number) for number in good]
            await c.ack_many(messages, receipt=True)
            with pytest.raises(Timeout):
                await c.receive(timeout=0.05)
            stats = broker.admin.subscription_stats("t", "s")
            assert stats.dispatch is not None
            assert stats.dispatch.entries_damaged == len(damaged)
            assert stats.backlog == 0, "what is damaged keeps the cursor"
            (told,) = re.findall(
                r"^holdfast_subscription_entries_damaged_total\{.*\} (.*)$", metrics(broker), re.M
            )
            assert int(told) == len(damaged)

    on_broker(tmp_path, work, skip_damaged=True)


def test_what_is_left_out_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    test_by_choice_it_is_left_out_and_counted(tmp_path, "shared", (3, 4))
    said = [each.getMessage() for each in caplog.records if each.name == "holdfast.broker"]
    assert len(said) == 2
    assert all("skipped" in each and "ledgers/" in each for each in said), said


def test_a_reader_skips_by_the_same_choice(tmp_path: Path) -> None:
    filled(tmp_path, 2, 3)

    async def work(broker: Broker) -> None:
        async with broker.reader("t", start="earliest") as r:
            assert await taken(r, COUNT - 2) == [payload(n) for n in range(COUNT) if n not in (2, 3)]
            assert not await r.has_more()

    on_broker(tmp_path, work, skip_damaged=True)


# -- the faults, brought back ---------------------------------------------------------------------------


def test_a_silent_wait_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former fault: the read is retried, and consumers get no error."""
    failed = Reading._failed

    def silent(self: Reading, read: Any, error: Any) -> bool:
        self._damage = lambda _: None
        return failed(self, read, error)

    monkeypatch.setattr(Reading, "_failed", silent)
    monkeypatch.setattr(sys.modules[__name__], "TIMEOUT_S", 0.3)
    with pytest.raises(Timeout):
        test_a_consumer_gets_the_error(tmp_path, "exclusive")


def test_an_error_without_a_place_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former fault: the error names the damage, but not the file."""
    failed = Reading._failed

    def nameless(self: Reading, read: Any, error: Any) -> bool:
        return failed(self, read, Corrupt("an entry is damaged") if isinstance(error, Corrupt) else error)

    monkeypatch.setattr(Reading, "_failed", nameless)
    with pytest.raises(AssertionError):
        test_a_consumer_gets_the_error(tmp_path, "exclusive")


def skip_uncounted(self: Reading, read: Any) -> None:
    skip(self, read)
    self.damaged = 0


def skip_that_stays(self: Reading, read: Any) -> None:
    """The read passes a damaged entry, and the cursor stays before it."""
    self.damaged += 1
    self._one_by_one = False
    self.position = max(self.position, read.start + 1)


skip = Reading._skip


@pytest.mark.parametrize("mutant", [skip_uncounted, skip_that_stays])
def test_a_skip_without_an_account_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutant: Any
) -> None:
    monkeypatch.setattr(Reading, "_skip", mutant)
    with pytest.raises(AssertionError):
        test_by_choice_it_is_left_out_and_counted(tmp_path, "exclusive", (4,))
