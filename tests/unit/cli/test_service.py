"""`holdfast service ...`: instances are listed, shown, watched, called, checked and removed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Event, Field, Method, Service, Skeleton
from holdfast.cli.entry import main


class Camera(Service):
    frame = Event(size=16, samples=8)
    gain = Field("f8", initial=1.5)
    zoom = Field(("i4", (2,)))
    label = Method(16, 16)
    reset = Method()


def refuse() -> None:
    raise RuntimeError("not now")


@pytest.fixture
def skeleton(runtime_directory: Path) -> Iterator[Skeleton]:
    handlers: dict[str, Callable[..., Any]] = {"label": lambda data: data[::-1], "reset": refuse}
    with Camera.offer("left", handlers=handlers) as made:
        yield made


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["service", *words])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_ls(skeleton: Skeleton, runtime_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Camera.find("left", 0):
        (only,) = json.loads(asked(capsys, "ls", "--json")[1])["services"]
        assert (only["name"], only["offered"], only["provider"]) == ("Camera.left", True, os.getpid())
        assert (only["users"], only["state"]) == (1, "sound")
        assert only["elements"] == ["frame", "gain", "zoom", "label", "reset"]
        text = asked(capsys, "ls")[1]
        assert "Camera.left" in text
        assert "frame, gain" in text
    skeleton.close()
    assert asked(capsys, "ls")[1] == f"no services in {runtime_directory}\n"
    missing = str(runtime_directory / "missing")
    told = asked(capsys, "ls", "--directory", missing)
    assert told[:2] == (0, f"no services in {missing}: the directory does not exist\n")


def test_show(skeleton: Skeleton, capsys: pytest.CaptureFixture[str]) -> None:
    with Camera.find("left", 0, application="viewer") as proxy:
        frames = proxy.frame.subscribe(max_samples=2)
        skeleton.frame.send(b"x")
        sample = frames.take(0)
        text = asked(capsys, "show", "Camera.left")[1]
        assert "service Camera.left: offered, 1 offer so far" in text
        assert "event frame: 8 samples of 16 B, 7 free, 1 held; newest 1; 1 subscriber of 8" in text
        assert f"proxy: pid {os.getpid()}" in text
        assert "viewer" in text
        found = json.loads(asked(capsys, "show", "Camera.left", "--json")[1])
        assert found["sent"] == 2  # and the field's initial value
        assert found["elements"][0]["granted"] == 2
        sample.release()
    status, _, error = asked(capsys, "show", "Camera.lift")
    assert status == 1
    assert "Camera.left" in error


def test_call(skeleton: Skeleton, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "call", "Camera.left", "label", '"abc"')[:2] == (0, '"cba"\n')
    assert asked(capsys, "call", "Camera.left", "gain")[:2] == (0, "1.5\n")
    assert asked(capsys, "call", "Camera.left", "gain", "2.25")[:2] == (0, "2.25\n")
    assert skeleton.gain.value == 2.25
    assert asked(capsys, "call", "Camera.left", "zoom", "[1, 2]")[:2] == (0, "[1, 2]\n")
    assert json.loads(asked(capsys, "call", "Camera.left", "zoom", "--json")[1]) == {"result": [1, 2]}
    status, _, error = asked(capsys, "call", "Camera.left", "reset")
    assert (status, "RuntimeError: not now" in error) == (1, True)
    for words, told in (
        (["frame"], "no method or field frame; it has gain, zoom, label, reset"),
        (["gain", "loud"], "is not JSON"),
        (["gain", '"loud"'], "takes float64"),
        (["label", "5"], "takes bytes"),
    ):
        status, _, error = asked(capsys, "call", "Camera.left", *words)
        assert (status, told in error) == (1, True), error
    skeleton.close()
    status, _, error = asked(capsys, "call", "Camera.left", "gain", "--timeout", "0.01")
    assert status == 1
    assert "Camera.left" in error


def test_watch(skeleton: Skeleton, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "watch", "--for", "0.01")[:2] == (0, "Camera.left: offered\n")
    text = asked(capsys, "watch", "Camera", "--for", "0.01", "--json")[1]
    assert json.loads(text) == {"name": "Camera.left", "offered": True}
    assert asked(capsys, "watch", "Other", "--for", "0.01")[:2] == (0, "")


def test_doctor(skeleton: Skeleton, runtime_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = asked(capsys, "doctor", "Camera.left")
    assert status == 0
    assert text.endswith("sound\n")
    assert json.loads(asked(capsys, "doctor", "Camera.left", "--json")[1])["sound"]
    assert main(["doctor", "Camera.left"]) == 0
    with Camera.find("left", 0):
        file = runtime_directory / "holdfast.service.Camera.left"
        with file.open("r+b") as opened:  # in place: a truncated file would be a SIGBUS
            opened.seek(4096)
            opened.write(b"?")  # into the name of the first element
        status, text, _ = asked(capsys, "doctor", "Camera.left")
        assert (status, "table of elements is damaged" in text) == (1, True)
        assert main(["doctor", "--json"]) == 1
        assert not json.loads(capsys.readouterr().out)["services"][0]["sound"]


def test_rm(skeleton: Skeleton, runtime_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = asked(capsys, "rm", "Camera.left")
    assert (status, "in use by living processes: Camera.left" in error) == (1, True)
    file = runtime_directory / "holdfast.service.Camera.left"
    content = file.read_bytes()
    skeleton.close()
    file.write_bytes(content)  # as a provider that died leaves it
    assert asked(capsys, "rm", "Camera.left")[:2] == (0, "removed Camera.left\n")
    assert list(runtime_directory.iterdir()) == []
    assert asked(capsys, "rm", "Camera.left")[0] == 1
    status, _, error = asked(capsys, "show", "Camera.left")
    assert (status, "`Service.offer()` in a program creates one" in error) == (1, True)
