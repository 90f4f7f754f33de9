"""Copy the state of a serving member: snapshot and growing ledgers, then the journal.

```
 joiner                                             donor
   │ Ask(the lowest position that will do) ───────►  │ pins its newest snapshot
   │ ◄───────────────── Offer(ledgers, snapshot)     │
   │ mark `incomplete`; remove what is not offered   │
   │ Want(file, what I have of it) ───────────────►  │   the snapshot, and ledgers that grow;
   │ ◄──────────────────── chunks, checksum          │   equal beginnings are not sent
   │ Tail(the lowest position now) ───────────────►  │ waits until that is durable, lists its journal,
   │ ◄──────────────────── Offer(journal, token)     │ and then multicasts TransferMark(token)
   │ Want(journal files) …                           │
   │ waits for the mark in the group; all synced     │
   ├─ recovers, serves what is here                  │
   │ Bring(sealed ledger, what I have of it) ─────►  │   any donor, one ledger after the other: see `updating`
   │ ◄──────────────────── chunks, checksum          │
```

**Why the copy belongs to the joiner's order.** At a split a member may deliver its own events that no other
member ever gets. So a donor's last events need not be those of the joiner's side. The donor sends the mark
after it has applied all that it offers. A joiner that gets the mark in its own order has got, or will skip,
exactly the same events before it (I20, I21). Without the mark the copy is thrown away (**I233**).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast._core import crc32c
from holdfast.broker import Broker
from holdfast.broker.events import TransferMark
from holdfast.broker.state import ViewMark
from holdfast.broker.state_codec import sealed_ledgers
from holdfast.cluster.election import knows_more
from holdfast.cluster.hello import Hello
from holdfast.cluster.peers import MESSAGE_MAX, QUIET_S, Channel
from holdfast.cluster.relay import Relay
from holdfast.errors import BadConfiguration, Busy, Closed, Corrupt, HoldfastError
from holdfast.group import Member, Position
from holdfast.ledger import LEDGERS, SNAPSHOTS, Extent, LedgerFile
from holdfast.ledger.copies import CHUNK, Install, Item, file_crc, journal_items, offer
from holdfast.system import File, opened

READY_S = 5.0
"""How long a donor waits until it has, durably, what a joiner needs."""
MARK_S = 10.0
"""How long a joiner waits for the donor's mark in the group."""
READ_BYTES_S = 20e6
"""How fast a donor reads a file, at least, to compare it."""
ATTEMPTS = 10
"""How often a joiner asks for the journal, at most, because it has dropped frames meanwhile."""
OFFER_MAX = 1_000_000
"""Files of an offer, at most."""


class Ask(msgspec.Struct, array_like=True, frozen=True, tag="ask"):
    """Ask for the state of a member."""

    view: int
    index: int


class Offer(msgspec.Struct, array_like=True, frozen=True, tag="offer"):
    """List files to copy. With a token, the list is the journal's."""

    cluster: bytes
    items: list[Item]
    token: bytes = b""
    views: list[ViewMark] = []
    """The last views of the donor; older programs do not tell them."""


class Want(msgspec.Struct, array_like=True, frozen=True, tag="want"):
    """Ask for a file of the offer, from behind what is the same here."""

    path: str
    have: int = 0
    crc: int = 0


class Chunks(msgspec.Struct, array_like=True, frozen=True, tag="chunks"):
    """Announce the bytes of a file from an offset on, and then their checksum."""

    start: int


class Checked(msgspec.Struct, array_like=True, frozen=True, tag="checked"):
    """End a file with the checksum of what was sent."""

    crc: int


class Tail(msgspec.Struct, array_like=True, frozen=True, tag="tail"):
    """Ask for the journal, up to a position at least."""

    view: int
    index: int


class Bring(msgspec.Struct, array_like=True, frozen=True, tag="bring"):
    """Ask for a file of a sealed ledger, from behind what is the same here."""

    topic: int
    ledger: int
    """Its id. The joiner's state names it with this size, and this number of entries."""
    size: int
    entries: int
    index: bool = False
    """The index, else the data."""
    have: int = 0
    crc: int = 0


class Sorry(msgspec.Struct, array_like=True, frozen=True, tag="sorry"):
    """Refuse, and say why."""

    reason: str


Message: TypeAlias = Ask | Offer | Want | Chunks | Checked | Tail | Bring | Sorry
_decoder = msgspec.msgpack.Decoder(Message)


async def _tell(channel: Channel, message: Message) -> None:
    data = msgspec.msgpack.encode(message)
    parts = [data[at : at + MESSAGE_MAX // 2] for at in range(0, len(data), MESSAGE_MAX // 2)]
    for number, part in enumerate(parts, 1):
        await channel.send((b"\x01" if number == len(parts) else b"\x00") + part)


async def _hear(channel: Channel, expected: type, timeout: float | None = None) -> Message:
    """Return the next message.

    Raises:
        Busy: the peer refused.
        Corrupt: it is another message than expected.
    """
    data = b""
    while True:
        part = await (channel.receive() if timeout is None else channel.receive(timeout))
        data += part[1:]
        if len(data) > 64 * MESSAGE_MAX:
            raise Corrupt("a member sent an endless message; update it")
        if part[:1] == b"\x01":
            break
    try:
        message: Message = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Corrupt(f"a member sent a message that does not decode: {error}; update it") from error
    if isinstance(message, Sorry):
        raise Busy(message.reason)
    if not isinstance(message, expected):
        wanted = getattr(expected, "__name__", str(expected))
        raise Corrupt(f"a member sent {type(message).__name__} in place of {wanted}; update it")
    return message


# -- the donor ----------------------------------------------------------------------------------------


async def donate(broker: Broker | None, channel: Channel) -> None:
    """Serve one joiner. Ends when it has all, or with an error of the connection."""
    ask = await _hear(channel, Ask | Bring)  # type: ignore[arg-type]
    if isinstance(ask, Bring):
        await _bring_all(broker, channel, ask)
        return
    assert isinstance(ask, Ask)
    try:
        if broker is None:
            raise Busy("this member does not serve yet; ask another")
        await _reach(broker, Position(ask.view, ask.index))
    except HoldfastError as error:
        await _tell(channel, Sorry(str(error)))
        return
    store = broker.store
    with store.pin() as meta:
        items = await offer(store.disk, meta)
        await _tell(channel, Offer(store.incarnation, items, views=broker.machine.state.history))
        sizes = {item.path: item.size for item in items}
        while True:
            message = await _hear(channel, Want | Tail, 600.0)  # type: ignore[arg-type]
            if isinstance(message, Want):
                await _offered(broker, channel, message, sizes)
            elif isinstance(message, Tail):
                await _reach(broker, Position(message.view, message.index))
                items = await journal_items(store, meta)
                token = broker.random.token(16)
                broker.engine.announce(TransferMark(token))
                sizes = {item.path: item.size for item in items}
                await _tell(channel, Offer(store.incarnation, items, token))


async def _reach(broker: Broker, position: Position) -> None:
    """Wait until a position is applied and durable here."""
    waited = 0.0
    while broker.engine.position < position:
        if broker.engine.ended is not None or waited > READY_S:
            raise Busy(f"this member is at {broker.engine.position}, not yet at {position}; ask another")
        await broker.clock.sleep(0.01)
        waited += 0.01
    _require_member(broker)
    await broker.store.flush()


def _require_member(broker: Broker) -> None:
    if broker.engine.ended is not None:
        raise Closed("this member is out of its group; ask another")


async def _bring_all(broker: Broker | None, channel: Channel, first: Message) -> None:
    """Send sealed ledgers, until the connection ends."""
    while True:
        assert isinstance(first, Bring)
        try:
            path, size = await _sealed(broker, first)
            if not 0 <= first.have <= size:
                raise Busy(f"ledger {first.ledger} has {size} bytes here, not {first.have}")
            assert broker is not None
            async with opened(broker.store.disk, path) as file:  # from here on it may be trimmed
                await _send(file, path, channel, first.have, first.crc, size, broker)
        except (Busy, FileNotFoundError) as error:
            await _tell(channel, Sorry(str(error)))
        first = await _hear(channel, Bring, 600.0)


async def _sealed(broker: Broker | None, bring: Bring) -> tuple[str, int]:
    """Return path and size of a sealed ledger's file that is durable here.

    Raises:
        Busy: it is not here, not sealed, or trimmed already.
    """
    if broker is None or broker.engine.ended is not None:
        raise Busy("this member does not serve yet; ask another")
    topic = broker.machine.state.topics.get(bring.topic)
    info = None if topic is None else topic.ledgers.find(bring.ledger)
    if info is None or not info.sealed or (info.size, info.entries) != (bring.size, bring.entries):
        raise Busy(f"this member does not have ledger {bring.ledger} of topic {bring.topic} like that")
    await broker.store.flush()
    file = await broker.store.file_of(info.file)
    if bring.index:
        return file.index_path, Extent(info.size, info.entries).index_size
    return file.data_path, info.size


async def _offered(broker: Broker, channel: Channel, want: Want, sizes: dict[str, int]) -> None:
    """Send a file of the offer."""
    size = sizes.get(want.path)
    if size is None or not 0 <= want.have <= size:
        await _tell(channel, Sorry(f"{want.path} is not offered"))
        raise Corrupt(f"a joiner wants {want.path}, which is not offered; update it")
    async with opened(broker.store.disk, want.path) as file:
        await _send(file, want.path, channel, want.have, want.crc, size, broker)


async def _send(
    file: File, path: str, channel: Channel, have: int, have_crc: int, size: int, broker: Broker
) -> None:
    """Send a file from behind what the joiner has, if that is the same.

    Raises:
        Closed: this member was lost meanwhile. Its next life may have replaced the file by another one.
    """
    same = have and await file_crc(file, path, have) == have_crc
    done = start = have if same else 0
    await _tell(channel, Chunks(start))
    crc = 0
    while done < size:
        data = await file.read(done, min(CHUNK, size - done))
        if not data:
            raise Corrupt(f"{path} ends at offset {done}, but {size} bytes were offered")
        await channel.send(data)
        crc = crc32c(data, crc)
        done += len(data)
    _require_member(broker)
    await _tell(channel, Checked(crc))


# -- the joiner ---------------------------------------------------------------------------------------


@dataclass
class Progress:
    """The progress of a copy."""

    donor: int = 0
    received: int = 0
    """Bytes of files that came over the connection."""
    kept: int = 0
    """Bytes that were here already."""
    total: int = 0


async def fetch(
    channel: Channel,
    donor: Member,
    relay: Relay,
    install: Install,
    progress: Progress,
    check: Callable[[Offer], bytes],
) -> set[int]:
    """Replace the directory by a copy of the donor's, without sealed ledgers; return their numbers.

    After an error, and while a ledger is missing, it is incomplete. `check` gets the offer before anything
    is changed. It raises, or returns the mark to write.

    Raises:
        OSError: the connection or the disk failed, or the donor is quiet.
        HoldfastError: the donor refused, or what it sent is not right.
    """
    assert relay.view is not None
    needed = relay.view.position
    await _tell(channel, Ask(*needed))
    first = await _hear(channel, Offer, 2 * READY_S)
    assert isinstance(first, Offer)
    if len(first.items) > OFFER_MAX or len(first.cluster) != 16:
        raise Corrupt("a member sent an offer that cannot be; update it")
    await install.begin(check(first), first.cluster, [item.path for item in first.items])
    progress.total = sum(item.size for item in first.items)
    later = await _get_snapshot(channel, install, first.items, progress)
    for item in first.items:
        if ledger_of(item) not in later and not item.path.startswith(SNAPSHOTS):
            await get(channel, install, item, progress)
    journal = await _get_journal(channel, install, relay, progress, needed)
    await _marked(relay, donor, journal.token)
    await (install.settle() if later else install.finish())
    return later


def ledger_of(item: Item) -> int | None:
    """Return the ledger of a file; None: it is another file."""
    directory, _, name = item.path.partition("/")
    parsed = LedgerFile.parse(name) if directory == LEDGERS else None
    return None if parsed is None else parsed[0].ledger


async def _get_snapshot(
    channel: Channel, install: Install, items: list[Item], progress: Progress
) -> set[int]:
    """Get the snapshot; return the ledgers that may come later: they are sealed in it."""
    later: set[int] = set()
    for item in items:
        if item.path.startswith(SNAPSHOTS):
            await get(channel, install, item, progress)
            later |= sealed_ledgers((await install.snapshot(item.path)).parts)
    return later.intersection(found for found in map(ledger_of, items) if found is not None)


async def _get_journal(
    channel: Channel, install: Install, relay: Relay, progress: Progress, needed: Position
) -> Offer:
    """Get the journal, again if frames were dropped meanwhile: memory is bounded.

    A joiner that is slower than the publishers keeps all frames after some attempts. A file that has not
    grown is not asked for again: else each attempt takes longer than the one before.
    """
    attempts, got = 0, set[Item]()
    while True:
        attempts += 1
        relay.drops = attempts < ATTEMPTS
        upto = max(needed, relay.dropped)
        await _tell(channel, Tail(*upto))
        journal = await _hear(channel, Offer, 2 * READY_S)
        assert isinstance(journal, Offer)
        progress.total += sum(item.size for item in journal.items if item not in got)
        for item in journal.items:
            if item not in got:
                await get(channel, install, item, progress)
                got.add(item)
        if relay.dropped <= upto:
            relay.drops = False  # what comes from now on is not in this journal
            return journal


async def get(
    channel: Channel, install: Install, item: Item, progress: Progress, bring: Bring | None = None
) -> None:
    """Get a file of the offer, or of a sealed ledger, without an equal beginning.

    Raises:
        Busy: the donor does not have it.
        Corrupt: it came damaged, and was removed.
    """
    have, crc = await install.have(item.path, item.size)
    want = Want(item.path, have, crc) if bring is None else replace(bring, have=have, crc=crc)
    await _tell(channel, want)
    begin = await _hear(channel, Chunks, QUIET_S + have / READ_BYTES_S)  # the donor reads as much
    assert isinstance(begin, Chunks)
    if begin.start not in (0, have):
        raise Corrupt(f"a member sends {item.path} from offset {begin.start}; update it")
    progress.kept += begin.start

    async def receive() -> bytes:
        data = await channel.receive()
        progress.received += len(data)
        return data

    received = await install.put(item.path, item.size, begin.start, receive)
    checked = await _hear(channel, Checked)
    assert isinstance(checked, Checked)
    if checked.crc != received:
        await install.discard(item.path)
        raise Corrupt(f"{item.path} came damaged; it is copied again")


async def _marked(relay: Relay, donor: Member, token: bytes) -> None:
    """Wait for the donor's mark: its last events are this member's, too."""
    async with asyncio.timeout(MARK_S):
        while (donor, token) not in relay.marks:
            if relay.lost is not None:
                raise Closed(f"this member is out of its group: {relay.lost}")
            await relay.change()


def require_same_cluster(mine: bytes | None) -> Callable[[bytes], None]:
    """Return a check that refuses to replace a store of another cluster."""

    def check(theirs: bytes) -> None:
        if mine is not None and mine != theirs:
            raise BadConfiguration(
                f"this directory holds data of cluster {mine.hex()}, and the others serve {theirs.hex()}; "
                "it is not overwritten: use an empty directory, or correct the addresses"
            )

    return check


def require_shared(mine: Hello, views: list[ViewMark], nodes: int) -> None:
    """Refuse to replace a directory that has confirmed messages which the donor lacks.

    That is possible only if a survivor was chosen, or a node was served outside of its cluster.

    Raises:
        BadConfiguration: the last view here had one node, and the cluster has more. Or a view that is known
            to be stable here is not among the donor's.
    """
    last = mine.last_view
    if not mine.complete or last is None:
        return
    if len(last.nodes) == 1 < nodes or (views and knows_more(mine, views)):
        where = f"nodes {', '.join(map(str, last.nodes))} alone" if len(last.nodes) > 1 else "this node alone"
        raise BadConfiguration(
            f"this directory was served by {where}, and the others lack what it confirmed; it is not "
            "overwritten. To keep that, stop all nodes, and choose this one with `holdfast cluster survive`. "
            "To discard it, use an empty directory"
        )
