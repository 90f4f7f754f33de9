"""Each event of exchanges: its effect, its refusals, and that a refusal changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast._core import encode_messages
from holdfast.broker.events import (
    AlternateSet,
    Bind,
    ExchangeAdded,
    ExchangeCreate,
    ExchangeDelete,
    ExchangeGone,
    NamespaceDelete,
    ProducerGone,
    SchemaAdd,
    StageAppend,
    StageOpen,
    SubscriptionCreate,
    SubscriptionDelete,
    TopicCreate,
    TopicDelete,
    TopicTerminate,
    Unbind,
)
from holdfast.broker.exchanges import BINDINGS_MAX, KEY_BYTES_MAX, STEPS_MAX, STEPS_PER_BYTE
from holdfast.broker.state import Policies, TopicState
from holdfast.errors import (
    Busy,
    Exists,
    Fenced,
    HoldfastError,
    LimitReached,
    Misuse,
    NotFound,
    Terminated,
    Unsupported,
)
from holdfast.names import topic_name
from tests.kit.broker.copied_often import copied_often
from tests.kit.broker.events import Publish, Rig, nothing_happens, refused

X = topic_name("x")


def exchange(rig: Rig, name: str = "x", kind: str = "direct", alternate: int = 0, **more: Any) -> int:
    made = rig.do(ExchangeCreate(topic_name(name), bytes(16), kind, alternate, **more))
    return int(made.topic)


def entry(key: str = "", count: int = 1) -> bytes:
    [made] = encode_messages([b"m"] * count, "p", 0, 0, key=key or None, batch=count)
    return made


def publish(rig: Rig, to: int, *entries: bytes, sequence: int = 0) -> Any:
    """Publish through a session, which is opened if necessary."""
    topic = rig.machine.state.topics[to]
    session = next(iter(topic.producers), 0) or rig.producer(topic, "p").session
    return rig.do(Publish(to, session, entries, topic.epoch, sequence=sequence))


def end(rig: Rig, topic: TopicState) -> int:
    return int(rig.machine.state.require_topic(topic.id).ledgers.end)


def count(rig: Rig, x: int) -> tuple[int, int, int, int]:
    found = rig.machine.state.exchanges.all[x].count
    return found.published, found.routed, found.alternate, found.dropped


# -- create and delete ---------------------------------------------------------------------------------


def test_create(rig: Rig) -> None:
    x = exchange(rig, unreplicated=True, deduplication=True)
    state = rig.machine.state
    found = state.exchanges.all[x]
    assert (found.kind, found.unreplicated, found.alternate, found.bindings) == ("direct", True, 0, {})
    assert state.names[X] == x
    assert state.deduplicates(state.topics[x])
    assert rig.last is not None
    assert rig.last.notices == [ExchangeAdded(state.topics[x])]
    assert rig.restarted().state.exchanges.all[x].unreplicated


def test_topics_and_exchanges_share_their_names(rig: Rig) -> None:
    exchange(rig)
    rig.topic("red")
    refused(rig, ExchangeCreate(X, bytes(16), "direct"), Exists, "the exchange .* exists")
    refused(rig, ExchangeCreate(topic_name("red"), bytes(16), "direct"), Exists, "the topic .* exists")
    refused(rig, TopicCreate(X, bytes(16), Policies()), Exists)


@pytest.mark.parametrize(
    ("event", "error", "words"),
    [
        (ExchangeCreate("x", bytes(16), "direct"), Misuse, "in full"),
        (ExchangeCreate(X, b"short", "direct"), Misuse, "16"),
        (ExchangeCreate(X, bytes(16), "headers"), Misuse, "direct, fanout, topic"),
        (ExchangeCreate(X, bytes(16), "direct", 99), NotFound, "no exchange with id 99"),
        (ExchangeCreate(topic_name("t/n/x"), bytes(16), "direct", managed=True), NotFound, "namespace"),
        (ExchangeDelete(99), NotFound, "exchange"),
        (Bind(99, 1), NotFound, "exchange"),
        (Unbind(99, 1), NotFound, "exchange"),
        (AlternateSet(99, topic=1), NotFound, "exchange"),
    ],
)
def test_refusals_without_an_exchange(rig: Rig, event: Any, error: type[HoldfastError], words: str) -> None:
    rig.topic("red")
    refused(rig, event, error, words)


def test_delete_ends_producers_and_bindings(rig: Rig) -> None:
    x, red = exchange(rig), rig.topic("red")
    rig.do(Bind(x, red.id, "r"))
    topic = rig.machine.state.topics[x]
    producer = rig.producer(topic, "p")
    refused(rig, ExchangeDelete(x), Busy, "1 producer")
    rig.do(ExchangeDelete(x, force=True))
    assert rig.last is not None
    assert [type(each) for each in rig.last.notices] == [ProducerGone, ExchangeGone]
    state = rig.machine.state
    assert (state.exchanges.all, X in state.names) == ({}, False)
    with pytest.raises(NotFound):
        rig.do(Publish(x, producer.session, [entry()]))
    assert exchange(rig) > x, "ids are not used again"


def test_an_alternate_is_not_deleted_unless_forced(rig: Rig) -> None:
    dead = exchange(rig, "dead", "fanout")
    x, red = exchange(rig, alternate=dead), rig.topic("red")
    subscription = rig.subscription(red)
    rig.do(AlternateSet(dead, topic=red.id))
    rig.do(AlternateSet(dead, subscription=subscription.id))
    refused(rig, ExchangeDelete(dead), Busy, "alternate of 3")
    rig.do(ExchangeDelete(dead, force=True))
    exchanges = rig.machine.state.exchanges
    assert exchanges.all[x].alternate == exchanges.alternates.of(subscription.id, red.id) == 0
    assert rig.restarted().state.exchanges.all[x].alternate == 0


def test_an_exchange_is_no_topic(rig: Rig) -> None:
    x = exchange(rig)
    refused(rig, SubscriptionCreate(x, "s"), Misuse, "is an exchange")
    refused(rig, TopicDelete(x), Misuse, "as an exchange")
    refused(rig, SchemaAdd(x, b"s"), Misuse, "no schemas")
    rig.do(StageOpen(bytes(16)))
    refused(rig, StageAppend(bytes(16), x, 0, [b"e"]), Misuse, "no staged entries")
    other = exchange(rig, "y")
    refused(rig, Bind(other, x, "k"), Misuse, "cannot be bound")


def test_a_namespace_ends_with_its_exchanges(rig: Rig) -> None:
    x, red = exchange(rig), rig.topic("red")
    rig.do(Bind(x, red.id, "r"))
    refused(rig, NamespaceDelete("public/default"), Busy)
    rig.do(NamespaceDelete("public/default", force=True))
    assert not rig.machine.state.exchanges.all
    assert not rig.machine.state.topics


# -- bindings ------------------------------------------------------------------------------------------


def test_bind_and_unbind(rig: Rig) -> None:
    x, red = exchange(rig), rig.topic("red")
    assert rig.do(Bind(x, red.id, "r")).changed
    assert not nothing_happens(rig, Bind(x, red.id, "r")).changed
    rig.do(Bind(x, red.id, "s"))
    refused(rig, Unbind(x, red.id, "none"), NotFound, f"no binding to {red.name} with the key 'none'")
    rig.do(Unbind(x, red.id, "r"))
    bindings = rig.machine.state.exchanges.all[x].bindings
    assert bindings == {red.id: {"s"}}
    rig.do(Unbind(x, red.id))
    assert bindings == {}
    refused(rig, Unbind(x, red.id), NotFound)
    refused(rig, Bind(x, 99, "r"), NotFound, "topic")
    refused(rig, Bind(x, red.id, "ä" * KEY_BYTES_MAX), Misuse, "255")


def test_bindings_are_limited(rig: Rig) -> None:
    x, red = exchange(rig), rig.topic("red")
    found = rig.machine.state.exchanges.all[x]
    found.bindings[red.id] = {str(n) for n in range(BINDINGS_MAX)}
    refused(rig, Bind(x, red.id, "one more"), LimitReached, "at most")


def test_bindings_end_with_their_topic(rig: Rig) -> None:
    x, red = exchange(rig), rig.topic("red")
    rig.do(Bind(x, red.id, "r"))
    rig.do(AlternateSet(x, topic=red.id))
    rig.do(TopicDelete(red.id))
    exchanges = rig.machine.state.exchanges
    assert (exchanges.all[x].bindings, exchanges.alternates.topics) == ({}, {})
    rig.topic("red")
    publish(rig, x, entry("r"))
    assert count(rig, x) == (1, 0, 0, 1), "a new topic of the same name is not bound"


def test_alternates(rig: Rig) -> None:
    x, y, red = exchange(rig), exchange(rig, "y"), rig.topic("red")
    subscription = rig.subscription(red)
    alternates = rig.machine.state.exchanges.alternates
    rig.do(AlternateSet(x, topic=red.id))
    assert alternates.of(subscription.id, red.id) == x
    rig.do(AlternateSet(y, subscription=subscription.id))
    assert alternates.of(subscription.id, red.id) == y, "a subscription's own comes first"
    nothing_happens(rig, AlternateSet(y, subscription=subscription.id))
    rig.do(SubscriptionDelete(subscription.id))
    assert alternates.subscriptions == {}
    rig.do(AlternateSet(0, topic=red.id))
    assert alternates.topics == {}
    refused(rig, AlternateSet(x, topic=x), Misuse, "its own alternate")
    refused(rig, AlternateSet(x), Misuse, "name one")
    refused(rig, AlternateSet(x, topic=99), NotFound)
    refused(rig, AlternateSet(x, subscription=99), NotFound)


# -- publishing ----------------------------------------------------------------------------------------


def test_a_message_is_once_in_each_topic(rig: Rig) -> None:
    """I242: in all topics of the matching bindings, in one event, once however many match."""
    x, red, blue, other = (
        exchange(rig, kind="topic"),
        rig.topic("red"),
        rig.topic("blue"),
        rig.topic("other"),
    )
    for topic, pattern in ((red, "a.*"), (red, "#"), (red, "*.b"), (blue, "a.b"), (other, "z")):
        rig.do(Bind(x, topic.id, pattern))
    published = publish(rig, x, entry("a.b"), entry("c"))
    assert (published.count, published.first.ledger) == (2, -1)
    assert (end(rig, red), end(rig, blue), end(rig, other)) == (2, 1, 0)
    assert rig.last is not None
    assert {tail.topic for tail in rig.last.tails} == {red.id, blue.id}
    assert count(rig, x) == (2, 2, 0, 0)
    assert rig.machine.state.exchanges.all[x].count.appended == 3
    assert rig.machine.state.topics[x].ledgers.end == 0


def test_the_alternate_is_asked_once(rig: Rig) -> None:
    """Exchanges that are each other's alternates do not pass a message on for ever."""
    x, y, red = exchange(rig), exchange(rig, "y"), rig.topic("red")
    rig.do(AlternateSet(y, topic=x))
    rig.do(AlternateSet(x, topic=y))
    rig.do(Bind(y, red.id, "r"))
    publish(rig, x, entry("r"))
    assert (end(rig, red), count(rig, x), count(rig, y)) == (1, (1, 0, 1, 0), (1, 1, 0, 0))
    publish(rig, x, entry("none"))
    assert (end(rig, red), count(rig, x), count(rig, y)) == (1, (2, 0, 2, 0), (2, 1, 0, 1))


def test_a_retried_publish_is_not_routed_twice(rig: Rig) -> None:
    x, red = exchange(rig, deduplication=True), rig.topic("red")
    rig.do(Bind(x, red.id, "r"))
    publish(rig, x, entry("r"), entry("r"))
    again = publish(rig, x, entry("r"), entry("r"), entry("r"))
    assert (again.count, again.duplicates) == (1, (0, 1))
    assert (end(rig, red), count(rig, x)) == (3, (3, 3, 0, 0))
    d = rig.machine.log.next_d
    assert publish(rig, x, entry("r")).count == 0
    assert rig.machine.log.next_d == d, "duplicates alone take no D"
    assert rig.restarted().digest() == rig.machine.digest()


def test_publishes_that_are_refused(rig: Rig) -> None:
    x, red = exchange(rig), rig.topic("red")
    rig.do(Bind(x, red.id, "r"))
    topic = rig.machine.state.topics[x]
    session = rig.producer(topic, "p").session
    before = rig.everything()
    for entries, given, error in (
        ([entry("r")], 99, Fenced),
        ([entry("r"), b"not an entry"], session, Misuse),
        ([entry("r"), encrypted(entry("r", 2))], session, Unsupported),
    ):
        with pytest.raises(error):
            rig.do(Publish(x, given, entries))
        assert rig.everything() == before
    rig.producer(topic, "q", "exclusive-with-fencing")
    with pytest.raises(Fenced):
        rig.do(Publish(x, session, [entry("r")]))
    rig.do(TopicTerminate(x))
    with pytest.raises(Terminated):
        rig.do(Publish(x, session, [entry("r")]))
    assert end(rig, red) == 0


def encrypted(batch: bytes) -> bytes:
    """Add a field of encryption keys to the metadata of an entry."""
    at = 6 if batch[:2] == b"\x0e\x01" else 0
    size = int.from_bytes(batch[at : at + 4], "big")
    more = b"\x6a\x00"
    metadata = batch[at + 4 : at + 4 + size] + more
    return len(metadata).to_bytes(4, "big") + metadata + batch[at + 4 + size :]


def test_a_key_that_takes_too_many_steps_is_refused(rig: Rig) -> None:
    """Else one message stops the loops of all members for a minute."""
    x, topic = exchange(rig, kind="topic"), rig.topic("bound")
    words = itertools.chain.from_iterable(itertools.product("*#a", repeat=length) for length in range(1, 7))
    for pattern in words:
        rig.state.exchanges.all[x].bind(topic.id, ".".join(pattern))
    assert publish(rig, x, entry("a.a.a")).count == 1
    before = end(rig, topic)
    with pytest.raises(Unsupported, match="too many steps"):
        publish(rig, x, entry(".".join("a" * 2000)), sequence=1)
    assert end(rig, topic) == before
    assert rig.state.exchanges.all[x].steps < STEPS_MAX + STEPS_PER_BYTE * 5000 + 1100
    assert publish(rig, x, entry("a.a", count=1000), sequence=2).count == 1


def test_copies_of_an_entry_are_bounded(rig: Rig) -> None:
    """Else a small message would cost the loops of all members seconds."""
    copied_often(rig)


def test_a_fanout_reads_nothing(rig: Rig) -> None:
    """Entries that it cannot parse are passed on as they are."""
    x, red = exchange(rig, kind="fanout"), rig.topic("red")
    rig.do(Bind(x, red.id))
    publish(rig, x, b"not an entry", encrypted(entry("r", 2)))
    assert (end(rig, red), count(rig, x)) == (2, (2, 2, 0, 0))


def test_terminated_topics_take_nothing(rig: Rig) -> None:
    x, red = exchange(rig, kind="fanout"), rig.topic("red")
    rig.do(Bind(x, red.id))
    rig.do(TopicTerminate(red.id))
    publish(rig, x, entry())
    assert (end(rig, red), count(rig, x)) == (0, (1, 0, 0, 1))


def test_a_frame_mixes_publishes_of_both_kinds(rig: Rig) -> None:
    """Outcomes stand in the order of the events, those of exchanges among them."""
    x, red = exchange(rig), rig.topic("red")
    rig.do(Bind(x, red.id, "r"))
    to_topic, to_exchange = rig.producer(red, "a"), rig.producer(rig.machine.state.topics[x], "a")
    applied = rig.apply(
        Publish(red.id, to_topic.session, [b"1"], producer="a"),
        Publish(x, to_exchange.session, [entry("r")], producer="a"),
        Publish(red.id, 99, [b"2"], producer="a"),
        Publish(red.id, to_topic.session, [b"3"], producer="a"),
    )
    assert [type(each).__name__ for each in applied.outcomes] == [
        "Published",
        "Published",
        "Fenced",
        "Published",
    ]
    assert [applied.outcomes[0].ordinal, applied.outcomes[3].ordinal] == [0, 2]
    assert applied.events == [None] * 4
    assert end(rig, red) == 3
    assert rig.restarted().digest() == rig.machine.digest()
