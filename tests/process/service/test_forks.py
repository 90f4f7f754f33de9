"""Fork while services are in use: the child must connect anew."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from holdfast import Closed, Event, Misuse, Service


class Clock(Service):
    tick = Event(size=8, samples=8)


def test_an_object_of_the_parent_is_refused_in_a_child(runtime_directory: Path) -> None:
    with Clock.offer("a") as skeleton, Clock.find("a") as proxy:
        ticks = proxy.tick.subscribe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                calls: tuple[Callable[[], object], ...] = (
                    lambda: skeleton.tick.send(b"x"),
                    lambda: ticks.take(0),
                )
                for call in calls:
                    try:
                        call()
                    except (Misuse, Closed) as error:
                        status = 0 if "fork" in str(error) else 2
                    else:
                        status = 3
                    if status:
                        break
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                proxy.close()
                skeleton.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        skeleton.tick.send(b"y")
        with ticks.take(0) as sample:
            assert bytes(sample.data) == b"y"


def test_a_child_does_not_wait_for_locks_of_the_parents_threads(runtime_directory: Path) -> None:
    with Clock.offer("a") as skeleton, Clock.find("a") as proxy:
        held, done = threading.Event(), threading.Event()

        def hold() -> None:
            with proxy._lock, skeleton._changed:
                held.set()
                done.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        assert held.wait(20)
        try:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    signal.alarm(30)  # a child that waits for ever is ended
                    with contextlib.suppress(Closed, Misuse):
                        proxy.tick.subscribe()
                    proxy.close()
                    skeleton.close()
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        finally:
            done.set()
            thread.join()
