"""Taps of a real `holdfast serve`: providers and servers are killed, gaps are counted."""

from __future__ import annotations

import shutil
import signal
import struct
from pathlib import Path

import holdfast
from tests.kit.processes import Start, hear, tell, until
from tests.kit.served import served
from tests.kit.server.tap_world import TAP, accounted, camera, figure, messages, numbers


def test_a_provider_is_killed_and_comes_back(tmp_path: Path, start: Start) -> None:
    """The server starts first. Every sample is stored or counted as missed, over both lives."""
    with served(tmp_path / "data", *TAP, http=True) as server:
        assert figure(server, "connected") == 0
        first = start(camera)
        assert first.hear() is False
        until(lambda: figure(server, "connected") == 1)
        first.tell((50, 0.002))
        assert first.hear() == 50
        until(lambda: accounted(server) == 50)
        first.kill()
        until(lambda: figure(server, "connected") == 0)
        second = start(camera)
        assert second.hear() is True
        second.tell((50, 0.002))
        assert second.hear() == 100
        until(lambda: accounted(server) == 100)
        found = messages(server)
        assert server.end() == 0
        assert "Traceback" not in server.logs()
    told = numbers(found)
    assert sum(1 + missed for _, missed in told) == told[-1][0] == 100
    assert [sequence for sequence, _ in told] == sorted({sequence for sequence, _ in told})
    for message in found:
        sequence = int(message.properties["holdfast.sequence"])
        pid = first.pid if sequence <= 50 else second.pid
        assert struct.unpack("<QQ", message.data) == (sequence, pid)
        assert message.properties["holdfast.dtype"] == "<u8"
        assert message.properties["holdfast.shape"] == "2"
        assert message.properties["holdfast.source"] == "Camera.left/frame"
    epochs = [int(message.properties["holdfast.epoch"]) for message in found]
    assert epochs == sorted(epochs)
    assert epochs[-1] == epochs[0] + 1


def test_a_stopped_server_does_not_stop_the_provider(tmp_path: Path, start: Start) -> None:
    """The provider sends more samples than the tap holds; the tap counts those it missed."""
    with served(tmp_path / "data", *TAP, http=True) as server:
        provider = start(camera)
        provider.hear()
        until(lambda: figure(server, "connected") == 1)
        provider.tell((1, 0))
        assert provider.hear() == 1
        until(lambda: figure(server, "messages_total") == 1)
        server.process.send_signal(signal.SIGSTOP)
        provider.tell((1000, 0))
        assert provider.hear() == 1001
        server.process.send_signal(signal.SIGCONT)
        until(lambda: accounted(server) == 1001)
        told = numbers(messages(server))
        assert server.end() == 0
    assert sum(1 + missed for _, missed in told) == told[-1][0] == 1001
    assert max(missed for _, missed in told) > 900


def test_numbers_go_on_after_a_restart_of_the_server(tmp_path: Path, start: Start) -> None:
    """Samples that were sent meanwhile are a gap in the numbers; nothing is stored twice."""
    provider = start(camera)
    provider.hear()
    for life, number in enumerate((signal.SIGKILL, signal.SIGTERM)):
        with served(tmp_path / "data", *TAP, http=True) as server:
            until(lambda server=server: figure(server, "connected") == 1)  # type: ignore[misc]
            provider.tell((20, 0.005))
            assert provider.hear() == 30 * life + 20
            until(lambda server=server: accounted(server) == 20)  # type: ignore[misc]
            server.end(number)
        provider.tell((10, 0))
        assert provider.hear() == 30 * life + 30
    with served(tmp_path / "data") as server:
        told = [sequence for sequence, _ in numbers(messages(server))]
        assert server.end() == 0
    assert told == sorted({*told})
    assert {*told} <= {*range(1, 21), *range(31, 51)}
    assert told[-1] == 50


def test_a_full_disk_is_logged_once_and_waited_out(tmp_path: Path, start: Start) -> None:
    everything = shutil.disk_usage(tmp_path).total  # so much can never be free
    with served(tmp_path / "data", *TAP, http=True) as server:
        provider = start(camera)
        provider.hear()
        provider.tell((1, 0))
        assert provider.hear() == 1
        until(lambda: figure(server, "messages_total") == 1)
        server.end(signal.SIGKILL)
    reserve = ("--set", f"broker.reserve_bytes={everything}")
    with served(tmp_path / "data", *TAP, *reserve, http=True) as server:
        until(lambda: figure(server, "connected") == 1)
        provider.tell((500, 0.001))
        assert provider.hear() == 501
        until(lambda: figure(server, "errors_total") > 3)
        assert figure(server, "messages_total") == 0
        server.end(signal.SIGKILL)
        assert server.logs().count("a tap cannot store samples") == 1


def test_fields_and_wrong_elements(tmp_path: Path, start: Start) -> None:
    def amplifier() -> None:
        class Camera(holdfast.Service):
            gain = holdfast.Field("f8", initial=1.0)

        with Camera.offer("left") as skeleton:
            tell("offered")
            while True:
                skeleton.gain.value = hear()

    taps = ("--tap", "Camera.left/gain=gains", *TAP)
    with served(tmp_path / "data", *taps, http=True) as server:
        provider = start(amplifier)
        provider.hear()
        until(lambda: "has no event or field" in server.logs())
        until(lambda: figure(server, "messages_total") == 1)
        provider.tell(2.5)
        until(lambda: figure(server, "messages_total") == 2)
        found = messages(server, "gains")
        assert server.end() == 0
        assert server.logs().count("has no event or field 'frame'; those that it has: gain") == 1
    assert [struct.unpack("<d", each.data)[0] for each in found] == [1.0, 2.5]
    assert numbers(found) == [(1, 0), (2, 0)]
