"""A hostile peer overwrites the mapping of a service; the others must survive. `make fuzz-service`.

    python -m tests.kit.service.fuzz                      # every word, in every state
    python -m tests.kit.service.fuzz --random 100000      # several words at once, as many as you like
    python -m tests.kit.service.fuzz --seed 7 --only held

The victim offers the instance, and has a proxy and a tracer of it. Words are overwritten before it offers,
before it connects, or while it uses them. tests/kit/overwriting.py has the rest.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy

from holdfast import Proxy, Service, Skeleton, Subscription
from holdfast.cli import service as command_line
from tests.kit import overwriting
from tests.kit.overwriting import Plot, Victim
from tests.kit.service.hostile import CHOICES, NAME, PLACES, Rig, Scene

SHORT_S = 0.002
Calls = list[tuple[str, Callable[[], Any]]]


class ServiceVictim(Victim):
    """Makes every call of a service."""

    choices = CHOICES
    quiet = (*Victim.quiet, "PeerDied", "NotFound")

    def act(self) -> None:
        logging.disable(logging.CRITICAL)
        threading.excepthook = self.thread_failed
        doing, where = self.judge.doing, self.scene.directory
        self.strike("before opening")
        handlers: dict[str, Any] = {"echo": lambda data: data, "label": lambda value: value}
        skeleton = doing(
            "offer",
            lambda: Rig.offer("i", handlers=handlers, on_departed=repr, directory=where),
        )
        self.strike("before connecting")
        doing("of", lambda: Service.of(NAME, directory=where))
        doing("find_all", lambda: Rig.find_all(directory=where))
        found = doing("find", lambda: Rig.find("i", 0, directory=where))
        if found is not None:
            doing("close", found.close)
        proxies = [
            doing("connect", partial(Proxy, where, NAME, "victim", Rig._elements, tracer))
            for tracer in (False, True)
        ]
        self.use(skeleton, [each for each in proxies if each is not None])
        for each in self.random.sample([skeleton, *proxies], 3):
            if each is not None:
                doing("close", each.close)
        self.command()

    def thread_failed(self, failure: threading.ExceptHookArgs) -> None:
        self.judge.problems.append(f"a thread ended with {failure.exc_value!r}")

    def use(self, skeleton: Skeleton | None, proxies: list[Proxy]) -> None:
        doing = self.judge.doing
        subscriptions: list[Subscription] = []
        for proxy in proxies:
            for element in (proxy.frame, proxy.image, proxy.gain):
                made = doing("subscribe", partial(element.subscribe, self.random.randint(1, 2), history=3))
                if made is not None:
                    subscriptions.append(made)
        kept = [doing("take", partial(each.take, 0)) for each in subscriptions[::2]]
        loan = skeleton and doing("loan", skeleton.frame.loan)
        self.strike("in use")
        calls: Calls = [] if skeleton is None else self.sends(skeleton)
        for proxy in proxies:
            calls += self.calls(proxy)
        for subscription in subscriptions:
            calls += self.takes(subscription)
        self.random.shuffle(calls)
        kept += [doing(what, call) for what, call in calls]
        if loan is not None:
            doing("publish", loan.publish)
        for sample in kept:
            if hasattr(sample, "release"):
                doing("data", partial(bytes, sample.data))
                doing("release", sample.release)
        del kept
        if self.random.random() < 0.5:  # else with the proxy
            for subscription in subscriptions:
                doing("unsubscribe", subscription.close)

    def sends(self, skeleton: Skeleton) -> Calls:
        def in_place() -> None:
            with skeleton.image.loan() as image:
                image[:] = 1

        calls: Calls = [("send", lambda: skeleton.frame.send(b"x")) for _ in range(3)]
        return [
            *calls,
            ("send of an array", lambda: skeleton.image.send(numpy.ones((2, 3), "f4"))),
            ("loan", in_place),
            ("update", lambda: skeleton.gain.update(2.0)),
            ("value", lambda: skeleton.gain.value),
            ("sequence", lambda: skeleton.frame.sequence),
            ("reap", skeleton.reap),
            ("stats", skeleton.stats),
            ("check", partial(self.check, skeleton)),
        ]

    def calls(self, proxy: Proxy) -> Calls:
        return [
            ("call", lambda: proxy.echo(b"x", timeout=SHORT_S)),
            ("call at once", lambda: proxy.echo(b"x", timeout=0)),
            ("set", lambda: proxy.gain.set(3.0, timeout=SHORT_S)),
            ("set bytes", lambda: proxy.label.set(b"y", timeout=SHORT_S)),
            ("get", proxy.gain.get),
            ("get bytes", lambda: proxy.label.get(timeout=SHORT_S)),
            ("offered", lambda: (proxy.offered, proxy.provider_pid, proxy.epoch)),
            ("reap", proxy.reap),
            ("stats", proxy.stats),
            ("check", partial(self.check, proxy)),
        ]

    def check(self, user: Skeleton | Proxy) -> None:
        self.judge.told |= bool(user.check())

    def takes(self, subscription: Subscription) -> Calls:
        def taken(timeout: float) -> None:
            with subscription.take(timeout) as sample:
                assert len(bytes(sample.data)) == len(sample)
                repr((sample, sample.sequence, sample.missed))

        def arrays() -> None:
            for sample in subscription.take_new():
                if sample.element == 1:
                    sample.array.tobytes()
                sample.release()

        waiting: Calls = [("take that waits", partial(taken, SHORT_S))]
        return [
            ("take", partial(taken, 0)),
            *(waiting if self.random.random() < 0.25 else []),
            ("take all", arrays),
            ("take and keep", lambda: subscription.take(0)),
        ]

    def command(self) -> None:
        """Run the commands that look at services."""
        for verb in (command_line.show, command_line.doctor, command_line.ls):
            as_json = self.random.random() < 0.5
            options = argparse.Namespace(directory=self.scene.directory, name=NAME, json=as_json)
            with contextlib.redirect_stdout(io.StringIO()):
                self.judge.doing(f"service {verb.__name__}", partial(verb, options))


PLOT = Plot("service", __file__, tuple(PLACES), "held", Scene, ServiceVictim)

if __name__ == "__main__":
    sys.exit(overwriting.main(PLOT))
