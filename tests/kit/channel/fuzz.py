"""A hostile peer overwrites the mapping of a channel; the others must survive. `make fuzz-channel`.

    python -m tests.kit.channel.fuzz                      # every word, in every state
    python -m tests.kit.channel.fuzz --random 100000      # several words at once, as many as you like
    python -m tests.kit.channel.fuzz --seed 7 --only held

A state is made once, by processes that died in it, and kept as the bytes of the file. For each case the bytes
are restored, and a victim opens the channel. Words are overwritten before it opens, before it takes the
roles, or while it uses them. Then the victim makes every call that a channel has, and those of the command
line. It neither crashes nor hangs, and raises only holdfast's own errors.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import mmap
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy

from holdfast import Channel
from holdfast.cli import channel as command_line
from tests.kit import overwriting
from tests.kit.channel.hostile import CHOICES, PLACES, Scene
from tests.kit.overwrites import Case
from tests.kit.overwriting import Plot, Victim


class ChannelVictim(Victim):
    """Makes every call of a channel."""

    choices = CHOICES

    def __init__(self, scene: Scene, mapping: mmap.mmap, case: Case, seed: int) -> None:
        super().__init__(scene, mapping, case, seed)
        self.typed = scene.name == "typed"
        self.slots = PLACES[scene.name][0]["slots"]

    def act(self) -> None:
        doing = self.judge.doing
        self.strike("before opening")
        channel = doing("open", lambda: self.scene.kind.open("c", directory=self.scene.directory))
        if channel is not None:
            self.strike("before the roles")
            self.use(channel)
            self.look(channel)
            doing("close", channel.close)
        again = doing("open again", lambda: self.scene.kind.open("c", directory=self.scene.directory))
        if again is not None:
            self.use(again)
            doing("close", again.close)
        self.command()

    def look(self, channel: Channel) -> None:
        self.judge.doing("stats", channel.stats)
        faults = self.judge.doing("check", channel.check)
        self.judge.told |= bool(faults)

    def command(self) -> None:
        """Run the commands that look at a channel."""
        for verb in (command_line.stat, command_line.doctor, command_line.ls):
            for as_json in (False, True):
                options = argparse.Namespace(
                    directory=self.scene.directory, name="c", json=as_json, watch=None
                )
                with contextlib.redirect_stdout(io.StringIO()):
                    self.judge.doing(f"channel {verb.__name__}", partial(verb, options))

    def use(self, channel: Channel) -> None:
        doing = self.judge.doing
        producer = doing("producer", channel.producer)
        consumer = doing("consumer", channel.consumer)
        held = consumer and doing("pop", lambda: consumer.pop(0))
        loan = producer and doing("loan", producer.loan)
        self.strike("in use")
        calls: list[tuple[str, Callable[[], Any]]] = []
        if producer is not None:
            calls += self.pushes(producer)
        if consumer is not None:
            calls += self.pops(consumer)
        self.random.shuffle(calls)
        kept = [doing(what, call) for what, call in calls]
        self.look(channel)
        if loan is not None and producer is not None:
            doing("push of a loan", lambda: producer.push(loan, timeout=0))
        if held is not None:
            doing("data", lambda: bytes(held.data))
            doing("release", held.release)
        del kept
        if self.random.random() < 0.5:  # else with the channel
            for role in (producer, consumer):
                if role is not None:
                    doing("close", role.close)

    def pushes(self, producer: Any) -> list[tuple[str, Callable[[], Any]]]:
        datum: Any = numpy.ones((2, 3), "f4") if self.typed else b"x"
        size = None if self.typed else 5

        def in_place() -> None:
            with producer.loan(size, timeout=0) as room:
                room[:] = bytes(len(room)) if isinstance(room, memoryview) else 0

        def withdrawn() -> None:
            producer.cancel(producer.push(datum, timeout=0).handle)

        def looked_at() -> list[bytes]:
            pushed = [producer.push(datum, timeout=0.001) for _ in range(3)]
            return [bytes(each.displaced.data) for each in pushed if each.displaced is not None]

        return [
            ("push", lambda: producer.push(datum, timeout=0)),
            ("pushes", looked_at),
            ("batch", lambda: producer.push_batch([datum] * self.slots, timeout=0)),
            ("batch to a function", lambda: producer.push_batch([datum], lambda each: bytes(each.data), 0)),
            ("loan", in_place),
            ("cancel", withdrawn),
            ("full", lambda: producer.full),
        ]

    def pops(self, consumer: Any) -> list[tuple[str, Callable[[], Any]]]:
        def taken(timeout: float) -> None:
            with consumer.pop(timeout) as item:
                assert len(bytes(item.data)) == len(item)
                if self.typed:
                    item.array.tobytes()
                repr((item, item.lost, item.position))

        calls: list[tuple[str, Callable[[], Any]]] = [("pop", partial(taken, 0)) for _ in range(4)]
        return [
            *calls,
            ("pop that waits", partial(taken, 0.001)),
            ("pop and keep", lambda: consumer.pop(0)),
            ("empty", lambda: consumer.empty),
        ]


PLOT = Plot("channel", __file__, tuple(PLACES), "held", Scene, ChannelVictim)

if __name__ == "__main__":
    sys.exit(overwriting.main(PLOT))
