"""Threads that make every call of a channel at once, also under sanitizers (test_bindings_sanitised.py).

Several threads share one producer object, and several share one consumer object. Items are released, and
their views, in other threads than those that popped them. At the end each datum was popped once, displaced or
cancelled, and every buffer is free.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast import Channel, ChannelConsumer, ChannelProducer, Empty, Loop, Misuse, Timeout

PRODUCERS, CONSUMERS = 3, 2
"""Threads on one producer object, and on one consumer object."""
EACH = 60
"""Data of each thread that pushes, in a round."""
LARGE = 70_000
"""A size that is copied without the GIL."""
SLOTS, HOLDS, LOANS = 6, 5, 24


class Account:
    """The data that all threads pushed, popped, and got back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.pushed: Counter[bytes] = Counter()
        self.popped: Counter[bytes] = Counter()
        self.back: Counter[bytes] = Counter()

    def note(self, book: Counter[bytes], *data: bytes) -> None:
        with self._lock:
            book.update(each.partition(b".")[0] for each in data)


def datum(name: int, number: int) -> bytes:
    size = LARGE if number % 9 == 0 else number * 31 % 900
    return f"{name}-{number}.".encode() + b"." * size


def produce(producer: ChannelProducer, name: int, account: Account) -> None:
    for number in range(EACH):
        data = datum(name, number)
        account.note(account.pushed, data)
        form = number % 4
        if form == 0:
            took(account, producer.push(data))
        elif form == 1:
            for pushed in producer.push_batch([data]):
                took(account, pushed)
        elif form == 2:
            loan = producer.loan(len(data))
            with loan as buffer:
                buffer[:] = data
            took(account, loan.pushed)
        else:
            pushed = producer.push(data)
            took(account, pushed)
            if producer.cancel(pushed.handle):
                account.note(account.back, data)


def took(account: Account, pushed: Any) -> None:
    if pushed.displaced is not None:
        account.note(account.back, bytes(pushed.displaced.data))
        pushed.displaced.release()


def consume(
    consumer: ChannelConsumer, hand: queue.Queue[Any], stop: threading.Event, account: Account
) -> None:
    """Pop; give every second item to the thread that releases."""
    number = 0
    while not (stop.is_set() and consumer.empty):
        try:
            item = consumer.pop(timeout=0.002)
        except (Empty, Timeout):
            continue
        except Misuse:
            continue  # the other threads hold as many items as the channel allows
        number += 1
        account.note(account.popped, bytes(item.data))
        if number % 2:
            item.release()
        else:
            hand.put((item, item.data))


def release(hand: queue.Queue[Any]) -> None:
    """End views and items of other threads; now one first, now the other."""
    number = 0
    while (given := hand.get()) is not None:
        item, view = given
        number += 1
        if number % 2:
            item.release()
        del item
        view.release()


def look(channel: Channel, stop: threading.Event) -> None:
    while not stop.is_set():
        channel.stats()
        channel.check()


def run(number: int, overflow: bool, kind: type[Channel] = Channel) -> None:
    """Make every call of a channel at once, and check the account."""
    account, done, stop = Account(), threading.Event(), threading.Event()
    hand: queue.Queue[Any] = queue.Queue()
    failures: list[BaseException] = []

    def thread(body: Callable[..., None], *arguments: object) -> threading.Thread:
        def guarded() -> None:
            try:
                body(*arguments)
            except BaseException as failure:
                failures.append(failure)

        made = threading.Thread(target=guarded, daemon=True)
        made.start()
        return made

    name = f"threads{number}"
    with kind.create(
        name, slots=SLOTS, slot_size=LARGE + 20, holds=HOLDS, loans=LOANS, overflow=overflow
    ) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        threads = [thread(produce, producer, n, account) for n in range(PRODUCERS)]
        others = [thread(consume, consumer, hand, done, account) for _ in range(CONSUMERS)]
        helpers = [thread(release, hand), thread(look, channel, stop)]
        for each in threads:
            each.join(60)
        done.set()
        for each in others:
            each.join(60)
        hand.put(None)
        stop.set()
        for each in helpers:
            each.join(60)
        assert not any(each.is_alive() for each in (*threads, *others, *helpers)), "a thread hangs"
        if failures:
            raise failures[0]
        while not consumer.empty:
            with consumer.pop(0) as item:
                account.note(account.popped, bytes(item.data))
        assert account.popped + account.back == account.pushed, "each datum once"
        stats = channel.stats()
        assert (stats.free + stats.returning, stats.held, stats.ready) == (stats.buffers, 0, 0)
        assert (producer.loans, consumer.held, channel.check()) == (0, 0, [])
    kind.unlink(name)


def spin() -> None:
    """Let threads look at a channel without the GIL, while another pushes and pops."""
    stop = threading.Event()

    def look_for_data() -> None:
        while not stop.is_set():
            with contextlib.suppress(Timeout, Empty, Misuse):
                consumer.pop(timeout=consumer.spin).release()

    with Channel.create("spin", slots=2, slot_size=8, holds=4) as channel:
        producer, consumer = channel.producer(), channel.consumer()
        consumer.spin = 0.02
        threads = [threading.Thread(target=look_for_data) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(300):
            producer.push(b"x")
            with contextlib.suppress(Empty, Misuse):
                consumer.pop(timeout=0).release()
        stop.set()
        for thread in threads:
            thread.join()
    Channel.unlink("spin")


def main(rounds: int) -> None:
    spin()
    for number in range(rounds):
        run(number, overflow=number % 2 == 0, kind=Loop if number % 4 > 1 else Channel)
