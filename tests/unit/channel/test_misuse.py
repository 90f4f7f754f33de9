"""Wrong use of a channel is refused, and views never show another's data."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from holdfast import (
    Channel,
    ChannelConsumer,
    ChannelProducer,
    Closed,
    Exists,
    Full,
    LayoutMismatch,
    Misuse,
    NotFound,
    TooManyParticipants,
)

Pair = tuple[Channel, ChannelProducer, ChannelConsumer]


@pytest.fixture
def pair(runtime_directory: object) -> Iterator[Pair]:
    with Channel.create("c", slots=2, slot_size=16, loans=2, holds=2) as channel:
        yield channel, channel.producer(), channel.consumer()


CREATE: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "slots=0": (lambda: Channel.create("n", slots=0, slot_size=8), Misuse, "slots, loans and holds"),
    "no size": (lambda: Channel.create("n", slots=1), Misuse, "needs slot_size"),
    "text": (lambda: Channel.create("n", slots="2", slot_size=8), Misuse, "slots must be a whole number"),  # type: ignore[arg-type]
    "name": (lambda: Channel.create("../n", slots=1, slot_size=8), Misuse, "not a valid name"),
    "overflow": (lambda: Channel.create("n", slots=1, slot_size=8, overflow=2), Misuse, "True or False"),  # type: ignore[arg-type]
    "laps": (lambda: Channel.create("n", slots=1, slot_size=8, laps=0), Misuse, "laps must be"),
    "mode": (lambda: Channel.create("n", slots=1, slot_size=8, mode=0o7777), Misuse, "mode must be"),
    "shape": (lambda: Channel.create("n", slots=1, slot_size=8, shape=(2,)), Misuse, "shape needs dtype"),
    "producers": (lambda: Channel.create("n", slots=1, slot_size=8, producers=17), Misuse, "1 to 16"),
    "priorities": (lambda: Channel.create("n", slots=1, slot_size=8, priorities=0), Misuse, "1 to 8"),
    "exists": (lambda: Channel.create("c", slots=2, slot_size=16), Exists, "exists already"),
    "other": (
        lambda: Channel.create("c", slots=3, slot_size=16, loans=2, holds=2, exist_ok=True),
        LayoutMismatch,
        "slots is 2, not 3",
    ),
    "missing": (lambda: Channel.open("absent"), NotFound, "there is no channel named"),
}


@pytest.mark.parametrize("case", CREATE)
def test_parameters(pair: Pair, case: str) -> None:
    call, error, words = CREATE[case]
    with pytest.raises(error, match=words):
        call()


def test_the_same_parameters_open_what_exists(pair: Pair) -> None:
    with Channel.create("c", slots=2, slot_size=16, loans=2, holds=2, exist_ok=True) as other:
        with pytest.raises(Misuse, match=r"has a producer already: pid \d+ \(this process\)"):
            other.producer()
        with pytest.raises(Misuse, match="has a consumer already"):
            other.consumer()
    assert Channel.list() == ["c"]


CALLS: dict[str, tuple[Callable[[Pair], object], type[Exception], str]] = {
    "too large": (lambda pair: pair[1].push(b"x" * 17), Misuse, "17 bytes is too large for channel c"),
    "not bytes": (lambda pair: pair[1].push(3), TypeError, "bytes-like"),  # type: ignore[arg-type]
    "large loan": (lambda pair: pair[1].loan(17), Misuse, "too large"),
    "huge loan": (lambda pair: pair[1].loan(1 << 70), Misuse, "too large"),
    "negative loan": (lambda pair: pair[1].loan(-1), Misuse, "at least 0"),
    "large batch": (lambda pair: pair[1].push_batch([b"x"] * 3), Misuse, "a batch of 3 is too large"),
    "not a function": (lambda pair: pair[1].push_batch([b"x"], 3), TypeError, "must be a function"),  # type: ignore[arg-type]
    "priority": (lambda pair: pair[1].push(b"x", priority=1), Misuse, "has only 0. Create it with more"),
    "timeout": (lambda pair: pair[1].push(b"x", timeout=-1), Misuse, "timeout must be"),
    "not a handle": (lambda pair: pair[1].cancel(3), TypeError, "needs the `handle`"),  # type: ignore[arg-type]
    "an array of bytes": (lambda pair: (pair[1].push(b"x"), pair[2].pop(0).array), Misuse, "is not typed"),
}


@pytest.mark.parametrize("case", CALLS)
def test_calls(pair: Pair, case: str) -> None:
    call, error, words = CALLS[case]
    with pytest.raises(error, match=words):
        call(pair)
    assert pair[0].check() == []
    assert pair[1].loans == 0


@pytest.mark.parametrize("call", ["push", "push_batch", "loan", "cancel", "apush", "apush_batch", "full"])
def test_a_consumer_has_no_call_of_a_producer(pair: Pair, call: str) -> None:
    with pytest.raises(AttributeError, match=call):
        getattr(pair[2], call)


@pytest.mark.parametrize("call", ["pop", "apop", "behind", "empty", "held", "__iter__"])
def test_a_producer_has_no_call_of_a_consumer(pair: Pair, call: str) -> None:
    with pytest.raises(AttributeError, match=call):
        getattr(pair[1], call)


def test_a_closed_role_has_no_descriptor(pair: Pair) -> None:
    for role in pair[1:]:
        role.close()
        with pytest.raises(Closed, match="of channel c was closed"):
            role.fileno()


def test_a_batch_that_fails_gives_all_buffers_back(pair: Pair) -> None:
    channel, producer, _ = pair
    for _ in range(10):
        with pytest.raises(Misuse):
            producer.push_batch([b"good", b"x" * 17])
    assert channel.stats().free == channel.stats().buffers


def test_a_handle_or_loan_of_another_channel(pair: Pair) -> None:
    _, producer, _ = pair
    with Channel.create("other", slots=2, slot_size=16) as other:
        stranger = other.producer()
        with pytest.raises(Misuse, match="handle is of another channel than c"):
            producer.cancel(stranger.push(b"x").handle)
        with pytest.raises(Misuse, match="this loan is of channel other"):
            producer.push(stranger.loan())


def test_more_loans_than_agreed(pair: Pair) -> None:
    _, producer, _ = pair
    kept = [producer.loan(), producer.loan()]
    for call in (producer.loan, lambda: producer.push(b"x"), lambda: producer.push_batch([b"x"])):
        with pytest.raises(Misuse, match=r"at most 2 buffers at once\. 2 are lent"):
            call()
    kept.pop().release()
    producer.push(b"x")


def test_more_items_than_agreed(pair: Pair) -> None:
    _, producer, consumer = pair
    producer.push_batch([b"1", b"2"])
    items = [consumer.pop(0), consumer.pop(0)]
    producer.push(b"3")
    with pytest.raises(Misuse, match="holds 2 items, as many as the channel's `holds` allows"):
        consumer.pop()
    view = items[0].data
    items.pop(0).release()
    with pytest.raises(Misuse, match="holds 2 items"):
        consumer.pop()
    view.release()
    assert bytes(consumer.pop(0).data) == b"3"


def test_a_release_is_done_once(pair: Pair) -> None:
    _, producer, consumer = pair
    producer.push(b"x")
    item = consumer.pop(0)
    with item:
        item.release()
    with pytest.raises(Misuse, match="was released before"):
        item.release()
    for use in (lambda: item.data, lambda: bytes(item), item.__enter__):
        with pytest.raises(Misuse, match="was released, and its buffer may be another's"):
            use()
    assert consumer.held == 0


def test_a_view_keeps_its_bytes_after_the_release(pair: Pair) -> None:
    channel, producer, consumer = pair
    producer.push(b"mine")
    with consumer.pop(0) as item:
        view = item.data
        part = view[1:3]
    del item
    view.release()
    for n in range(50):
        producer.push(b"%16d" % n)
        assert bytes(part) == b"in"
    assert channel.stats().held == 1
    part.release()
    assert channel.stats().held == 0


def test_a_loan_with_live_views_is_not_pushed(pair: Pair) -> None:
    channel, producer, consumer = pair
    loan = producer.loan()
    part = loan.data[:4]
    part[:] = b"mine"
    with pytest.raises(Misuse, match="1 views or arrays of this loan are alive"), loan as buffer:
        assert len(buffer) == 16
    assert consumer.empty
    assert producer.loans == 1
    for n in range(20):
        producer.push(b"%16d" % n)
        assert bytes(part) == b"mine"
    part.release()
    assert producer.loans == 0
    assert channel.check() == []


def test_a_loan_is_pushed_once(pair: Pair) -> None:
    _, producer, consumer = pair
    loan = producer.loan(1)
    with loan as buffer:
        buffer[0] = 65
    for use in (lambda: producer.push(loan), lambda: producer.push_batch([loan])):
        with pytest.raises(Misuse, match="was pushed or released before"):
            use()
    twice = producer.loan(1)
    with pytest.raises(Misuse, match="in this batch twice"):
        producer.push_batch([twice, twice])
    with pytest.raises(Misuse, match="was pushed"):
        bytes(loan)
    with consumer.pop(0) as item:
        assert bytes(item) == b"A"


def test_use_after_close(pair: Pair) -> None:
    channel, producer, consumer = pair
    handle = producer.push(b"x").handle
    producer.close()
    producer.close()
    consumer.close()
    uses: list[Callable[[], object]] = [
        lambda: producer.push(b"x"),
        lambda: producer.push_batch([b"x"]),
        producer.loan,
        lambda: producer.cancel(handle),
        lambda: producer.full,
        consumer.pop,
        lambda: consumer.empty,
    ]
    for use in uses:
        with pytest.raises(Closed, match="was closed; call Channel"):
            use()
    channel.close()
    for call in (channel.producer, channel.consumer, channel.stats, channel.check):
        with pytest.raises(Misuse, match="channel c was closed"):
            call()


def test_views_outlive_close(pair: Pair) -> None:
    """The next producer never gets a buffer that a program still looks at."""
    channel, producer, consumer = pair
    producer.push(b"item")
    item = consumer.pop(0)
    view = item.data
    loan = producer.loan(4)
    mine = loan.data
    mine[:] = b"loan"
    consumer.close()
    producer.close()
    assert channel.stats().held == 2
    producer, consumer = channel.producer(), channel.consumer()
    for n in range(30):
        producer.push(b"%16d" % n)
        assert (bytes(view), bytes(mine)) == (b"item", b"loan")
    mine[:] = b"good"  # its own still
    view.release()
    mine.release()
    stats = channel.stats()
    assert stats.held == 0
    assert len(stats.participants) == 2
    assert channel.check() == []


def test_a_loan_whose_producer_is_closed_is_not_pushed(pair: Pair) -> None:
    channel, producer, consumer = pair
    with pytest.raises(Closed), producer.loan(1):
        producer.close()
    assert consumer.empty
    stats = channel.stats()
    assert (stats.held, stats.producer, stats.free) == (0, None, stats.buffers)


def popped_and_closed(channel: Channel) -> memoryview:
    """Return a view of the next datum; its consumer is closed."""
    with channel.consumer() as consumer:
        return consumer.pop(0).data


def test_closed_roles_with_views_use_up_the_slots(runtime_directory: object) -> None:
    channel = Channel.create("many", slots=2, slot_size=8, loans=80)
    producer = channel.producer()
    views = []
    for _ in range(63):
        producer.push(b"x")
        views.append(popped_and_closed(channel))
    with pytest.raises(TooManyParticipants):
        channel.consumer()
    del views
    channel.consumer().close()
    assert channel.stats().held == 0
    channel.close()


def test_no_buffer_is_left(pair: Pair) -> None:
    """Views of closed roles may keep all buffers: a push then fails at once."""
    channel, producer, consumer = pair
    consumer.close()
    views = []
    for _ in range(channel.stats().buffers):
        producer.push(b"x")
        views.append(popped_and_closed(channel))
    with pytest.raises(Full, match="no free buffer for this push: views of data are kept"):
        producer.push(b"x")
    del views
    producer.push(b"x")
