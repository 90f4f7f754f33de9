"""Read topics as a stream. An offset has a position per topic and partition.

An offset is {topic: {partition: {…}}} with these fields:

- `incarnation`: of the topic.
- `position`: where the next batch begins.
- `from`: where the batch that ended here began. It differs from the position before it if the topic is new,
  was created again or became shorter, or if the subscription was reset.
- `subscription`, `reset`: name and reset number of the named subscription; -1 without one.
- `plain`: the topic has no partitions.
- `whole`: entries trimmed after this position are a loss.
- `short`: only if the topic ends before `position`: where it ended when this was first seen.

So the two offsets of a batch define what it reads, and Spark can ask again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from holdfast.columns import Address, Floor, Place, TopicReader, open_place, topic_and_partition
from holdfast.errors import (
    BadConfiguration,
    Closed,
    HoldfastError,
    NoQuorum,
    NotFound,
    Timeout,
    TooManyConnections,
)
from holdfast.pipeline.options import EARLIEST, LATEST
from holdfast.pipeline.source.batch import Planned, Split, cut, read_split
from holdfast.pipeline.source.offsets import (
    DataLoss,
    Selection,
    after_loss,
    require_known,
    starting_at,
    wanted_position,
)
from holdfast.pipeline.source.subscription import Subscription

if TYPE_CHECKING:
    from holdfast.client import Progress

log = logging.getLogger("holdfast.pipeline.stream")

Offset = dict[str, dict[str, dict[str, Any]]]
"""The form that Spark stores, in JSON."""
Flat = dict[str, dict[str, Any]]
"""The same, by the full names of topics and partitions."""
Ranges = dict[str, tuple[TopicReader, int, int]]
"""Topic → its reader, the first position to read, and the end."""
NO_SUBSCRIPTION = -1
GROW_S = 0.1
"""How often a topic is read that should grow."""
SHOWN_S = 2.0
"""Time within which entries that clients know are visible in the files."""
STEPS = 16
"""Limits in bytes are exact to 1/16."""
_AWAY = (Timeout, Closed, NoQuorum, TooManyConnections)


def flat(offset: Offset) -> Flat:
    """Convert an offset to full names."""
    return {
        topic if each["plain"] else f"{topic}-partition-{number}": each
        for topic, parts in offset.items()
        for number, each in parts.items()
    }


def nested(offsets: Flat) -> Offset:
    """Convert to the form that Spark stores, sorted, because Spark compares the text."""
    out: Offset = {}
    for name in sorted(offsets):
        topic, partition = topic_and_partition(name)
        out.setdefault(topic, {})[str(partition)] = offsets[name]
    return out


def begins(name: str, start: Flat, end: dict[str, Any]) -> int:
    """Return where the batch with this end begins."""
    before = start.get(name)
    if before is None or any(before[each] != end[each] for each in ("incarnation", "reset")):
        return int(end["from"])
    # A start after the end: the topic has lost its end since.
    return int(before["position"] if before["position"] <= end["position"] else end["from"])


def in_turn(counts: dict[str, int], last: str) -> list[str]:
    """Sort the topics that have entries by name, beginning after `last`."""
    return sorted((name for name, count in counts.items() if count), key=lambda name: (name <= last, name))


def share(waiting: dict[str, int], limit: int, last: str = "") -> dict[str, int]:
    """Divide a limit among topics in proportion to their waiting entries.

    Each topic with entries gets at least one, if the limit allows it. Otherwise topics take turns by name,
    beginning after `last`.
    """
    if sum(waiting.values()) <= limit:
        return dict(waiting)
    turns = in_turn(waiting, last)[:limit]
    rest = limit - len(turns)
    more = max(1, sum(waiting[name] - 1 for name in turns))
    shares = dict.fromkeys(waiting, 0) | {name: 1 + (waiting[name] - 1) * rest // more for name in turns}
    left = limit - sum(shares.values())
    for name in [name for name in turns if shares[name] < waiting[name]][:left]:
        shares[name] += 1  # the remainder of rounding down
    return shares


def reach(topic: TopicReader, start: int, stop: int, size: int) -> int:
    """Find the end of about `size` bytes, at least one entry."""
    weights, step = topic.weights(start, stop), max(1, size // STEPS)
    known = (start, start)
    while True:
        over = next((edge for edge in pairwise(weights) if edge[1][1] > size), None)
        if over is None:
            return weights[-1][0]
        (low, before), (high, after) = over
        if high - low == 1 or after - before <= step or (low, high) == known:
            return max(start + 1, low + (high - low) * (size - before) // (after - before))
        # Entries differ in size: look closer within this ledger.
        known = (low, high)
        weights = [(at, before + more) for at, more in topic.weights(low, high, step)]


def _short_words(name: str, position: int, visible: int) -> str:
    return (
        f"{name} ends before entry {visible}, and was read up to entry {position}: it was restored from a "
        "backup, or lost its end in a power cut, or its broker was not started since"
    )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of `spark.readStream`."""

    def __init__(self, options: dict[str, Any], schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._selection = Selection(options)
        if options["endingOffsets"] != "latest" or options["endingTimestamp"] is not None:
            raise BadConfiguration("a stream has no end: leave out endingOffsets and endingTimestamp")
        if options["readCompacted"]:
            raise BadConfiguration(
                "readCompacted is for batches: a stream repeats a planned batch after a restart, and its "
                "compacted view may be gone by then. Read a batch with readCompacted, and a stream without it"
            )
        self._subscription: Subscription | None = None
        if (name := options["predefinedSubscription"]) is not None:
            starting = options["startingOffsets"]
            if isinstance(starting, dict) or options["startingTimestamp"] is not None:
                raise BadConfiguration(
                    "predefinedSubscription says where a query begins: leave out startingTimestamp and "
                    "positions in startingOffsets. earliest or latest is where a new subscription starts"
                )
            address = Address.beside(options, "predefinedSubscription")
            self._subscription = Subscription(
                address, name, "earliest" if starting == "earliest" else "latest"
            )
            self._later = Subscription(address, name, "earliest")  # for topics that are created later
        self._held: Place | None = None
        self._floors: dict[str, Floor] = {}
        """Topic → how far the subscription may advance."""
        self._last = ""
        """The topic that had the last turn, if a limit allows less than one entry each."""
        self._target: Flat | None = None
        """The end of available-now."""
        self._waiting_since: float | None = None
        """The time since which there are too few entries for minOffsetsPerTrigger."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None, "_floors": {}}  # a task opens the files itself

    @property
    def _place(self) -> Place:
        if self._held is None:
            self._held = open_place(self._options["path"], self._options["service.url"], self._options)
        return self._held

    # -- offsets ---------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return the start of a new query."""
        options = self._options
        names = self._selection.find(self._place)
        starting = options["startingOffsets"] or "latest"
        require_known(starting, names, "startingOffsets")
        if missing := self._selection.missing(names):
            log.warning("%s: no such topic yet; it will be read when it exists", ", ".join(missing))
        out: Flat = {}
        for name in names:
            topic = self._place.open(name)
            wish = wanted_position(starting, name, EARLIEST if isinstance(starting, dict) else LATEST)
            position, whole = starting_at(topic, wish, options)
            out[name] = self._entry(topic, position, whole)
            if self._subscription is not None:
                at = self._subscription.at(name, topic.incarnation)
                out[name] = self._subscribed(topic, at)
        return nested(out)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch. All before `start` is done."""
        begun = flat(start)
        try:
            entries, ranges = self._waiting(begun)
        except _AWAY as error:
            log.warning("no new batch while the broker is unreachable: %s", error)
            return start
        if not isinstance(limit, ReadAllAvailable):
            noted = any(
                each.get("short") != begun.get(name, each).get("short") for name, each in entries.items()
            )
            if not noted and self._too_little(sum(stop - begin for _, begin, stop in ranges.values())):
                return start
            ranges = self._limited(ranges)
        for name, (_, begin, stop) in ranges.items():
            if stop > begin:
                entries[name] = {**entries[name], "position": stop}
        return start if entries == begun else nested(entries)

    def _waiting(self, begun: Flat) -> tuple[Flat, Ranges]:
        """Return the offset of each topic, and its waiting entries. Deleted topics are left out."""
        entries: Flat = {}
        ranges: Ranges = {}
        begun = {name: each for name, each in begun.items() if self._is_chosen(name)}
        # Also topics that the listing missed: only opening a topic proves that it is deleted.
        for name in sorted({*self._selection.find(self._place), *begun}):
            found = self._looked_at(name, begun.get(name))
            if found is None:
                continue
            topic, entry, first, visible = found
            if self._target is not None:
                if name not in begun and name not in self._target:
                    continue  # created after available-now began
                ending = self._target.get(name, entry)
                same = ending["incarnation"] == entry["incarnation"]
                visible = min(visible, max(entry["position"], ending["position"] if same else 0))
            entries[name], begin = self._shortened(name, entry, visible)
            begin = after_loss(name, begin, first, self._options["failOnDataLoss"])
            ranges[name] = (topic, begin, max(begin, visible))
            if entries[name]["position"] < entry["position"]:
                ranges[name] = (topic, begin, begin)  # log first that the position went back
        for name in begun.keys() - entries.keys():
            self._lost(name, begun[name])
        return entries, ranges

    def _looked_at(
        self, name: str, before: dict[str, Any] | None
    ) -> tuple[TopicReader, dict[str, Any], int, int] | None:
        """Return a topic, its offset and its readable range; None: it was deleted.

        NotFound may come from something else. The topic is opened again to find out.
        """
        for last in (False, True):
            try:
                topic = self._place.open(name)
                entry = self._standing(topic, before)
                return topic, entry, *self._extent(topic, entry)
            except DataLoss:
                raise
            except NotFound:
                try:
                    self._place.open(name).plan()
                except NotFound:
                    return None  # deleted, perhaps just now
                if last:
                    raise
        raise AssertionError

    def _is_chosen(self, name: str) -> bool:
        if not self._selection.matches(name):
            log.warning("%s is no longer a topic of this query; reading it stops", name)
            return False
        return True

    def _extent(self, topic: TopicReader, entry: dict[str, Any]) -> tuple[int, int]:
        """Return the readable range. The files may show a subscription's position a moment later."""
        deadline = time.monotonic() + SHOWN_S
        while True:
            first, visible = topic.plan()
            if entry["position"] <= visible or "short" in entry or time.monotonic() >= deadline:
                return first, visible
            time.sleep(GROW_S)

    def _standing(self, topic: TopicReader, before: dict[str, Any] | None) -> dict[str, Any]:
        """Return the offset from which a topic is read."""
        if before is not None and before["incarnation"] != topic.incarnation.hex():
            self._lost(topic.name, before)
            before = None
        if self._subscription is None:
            if before is not None:
                return before
            first, _ = topic.plan()
            return self._entry(topic, first, first)
        known = before is not None and before.get("subscription") == self._subscription.name
        at = self._asked(topic, create=not known)
        if before is None:
            return self._subscribed(topic, at)
        if not known:  # new in the options: the subscription follows the checkpoint
            named = {"subscription": self._subscription.name, "reset": at.reset_number}
            return {**before, **named, "from": before["position"]}
        if at.reset_number != before["reset"]:
            return self._subscribed(topic, at)
        self._follow(topic, before["position"], at)
        return before

    def _follow(self, topic: TopicReader, position: int, at: Progress) -> None:
        """Advance the subscription behind finished entries, but not past an incomplete message (I157)."""
        if at.acked_to < position <= topic.plan()[1]:
            remembered = self._floors.setdefault(topic.name, Floor())
            floor = remembered.below(topic, at.acked_to, position, at.log_time)
            try:
                self._later.finished(topic.name, at, floor)
            except NotFound:
                self._asked(topic, create=False)  # raises the reason

    def _asked(self, topic: TopicReader, create: bool) -> Progress:
        """Return the progress of the subscription.

        Raises:
            NotFound: the topic was deleted.
            BadConfiguration: the topic exists, and the subscription does not.
        """
        deadline = time.monotonic() + SHOWN_S
        while True:
            try:
                return self._later.at(topic.name, topic.incarnation, create)
            except NotFound as error:
                topic.plan()
                if time.monotonic() >= deadline:  # before that, the files may still show a deleted topic
                    raise BadConfiguration(str(error)) from error
                time.sleep(GROW_S)

    def _shortened(self, name: str, entry: dict[str, Any], visible: int) -> tuple[dict[str, Any], int]:
        """Handle a topic that ends before the read position; return offset and start.

        New entries will have positions that were read before. But perhaps the broker was only not started
        since a power cut, and will show the rest. So the stream waits until the topic grows. The offset keeps
        where it ended, because it may grow while no query runs.
        """
        position: int = entry["position"]
        seen: int | None = entry.get("short")
        plain = {key: each for key, each in entry.items() if key != "short"}
        if position <= visible:
            return plain, position
        words = _short_words(name, position, visible)
        if self._options["failOnDataLoss"]:
            raise DataLoss(f"{words}; start its broker; if that does not help, set failOnDataLoss=false")
        if seen is None or visible <= seen:
            log.warning("%s; waiting for it to grow", words)
            return {**plain, "short": visible}, position
        log.warning("%s; continuing with entry %d, the first new one", words, seen)
        return {**plain, "from": seen, "position": seen}, seen

    def _too_little(self, count: int) -> bool:
        least = self._options["minOffsetsPerTrigger"]
        if least is None or self._target is not None:
            return False
        now = time.monotonic()
        if count >= least:
            self._waiting_since = None
            return False
        if count == 0 or self._waiting_since is None:
            self._waiting_since = None if count == 0 else now
            return True
        if now - self._waiting_since < self._options["maxTriggerDelay"]:
            return True
        self._waiting_since = None
        return False

    def _limited(self, ranges: Ranges) -> Ranges:
        """Apply the limits of a batch."""
        if (most := self._options["maxOffsetsPerTrigger"]) is not None:
            waiting = {name: stop - begin for name, (_, begin, stop) in ranges.items()}
            shares = share(waiting, most, self._last)
            self._last = (in_turn(shares, self._last) or [self._last])[-1]
            ranges = {name: (each[0], each[1], each[1] + shares[name]) for name, each in ranges.items()}
        if (size := self._options["maxBytesPerTrigger"]) is not None:
            part = max(1, size // max(1, sum(begin < stop for _, begin, stop in ranges.values())))
            ranges = {
                name: (topic, begin, reach(topic, begin, stop, part))
                for name, (topic, begin, stop) in ranges.items()
            }
        return ranges

    def _lost(self, name: str, before: dict[str, Any]) -> None:
        words = f"{name} was deleted or created again, and was read up to entry {before['position']}"
        if self._options["failOnDataLoss"]:
            raise DataLoss(f"{words}; set failOnDataLoss=false to continue with the present entries")
        log.warning("%s; continuing with the present entries", words)

    def _subscribed(self, topic: TopicReader, at: Progress) -> dict[str, Any]:
        """Return the offset at the cursor of the subscription."""
        assert self._subscription is not None
        named = {"subscription": self._subscription.name, "reset": at.reset_number}
        return {**self._entry(topic, at.acked_to, at.acked_to), **named}

    def _entry(self, topic: TopicReader, position: int, whole: int) -> dict[str, Any]:
        return {
            "from": position,
            "incarnation": topic.incarnation.hex(),
            "plain": topic_and_partition(topic.name)[0] == topic.name,
            "position": position,
            "reset": NO_SUBSCRIPTION,
            "whole": whole,
        }

    # -- limits ----------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits; Spark needs one, and all of them apply."""
        options = self._options
        if options["maxOffsetsPerTrigger"] is not None:
            return ReadMaxRows(options["maxOffsetsPerTrigger"])
        if options["maxBytesPerTrigger"] is not None:
            return ReadMaxBytes(options["maxBytesPerTrigger"])
        if options["minOffsetsPerTrigger"] is not None:
            return ReadMinRows(options["minOffsetsPerTrigger"])
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Take the present end of each topic as the end of the query."""
        self._target = self._latest()

    def reportLatestOffset(self) -> Offset | None:
        """Return the ends of the topics for Spark's progress and `behind_latest`. None: not known."""
        try:
            return nested(self._latest())
        except (HoldfastError, OSError) as error:  # reading will raise the error
            log.warning("the lag of this query is not known now: %s", error)
            return None

    def _latest(self) -> Flat:
        out: Flat = {}
        for name in self._selection.find(self._place):
            try:
                topic = self._place.open(name)
                first, visible = topic.plan()
            except NotFound:
                continue  # deleted just now
            out[name] = {**self._entry(topic, visible, first), "from": first}
        return out

    # -- one batch -------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan the tasks between two offsets, the same at each call."""
        begun, ended = flat(start), flat(end)
        fail, place = (
            self._options["failOnDataLoss"],
            self._place,
        )  # outside of try: a missing directory is not a lost topic
        ranges = []
        for name, each in ended.items():
            begin, stop = begins(name, begun, each), each["position"]
            if begin >= stop:
                continue
            try:
                topic = place.open(name)
                first, visible = topic.plan()
                if topic.incarnation.hex() != each["incarnation"]:
                    raise NotFound(f"{name} was deleted and created again")
                visible = visible if stop <= visible else self._grown(topic, stop)
                begin, whole = min(begin, visible), each.get("whole", 0)
                wanted = max(begin, whole) < first and self._reset_since(topic, each)
            except DataLoss:
                raise
            except NotFound:
                self._lost(name, {"position": begin})
                continue
            begin = after_loss(name, begin, first, fail and not wanted)
            ranges.append(Planned(topic, begin, min(stop, visible), first if wanted else whole))
        return cut(ranges, self._options["minPartitions"], self._options.get("cores"))

    def _reset_since(self, topic: TopicReader, end: dict[str, Any]) -> bool:
        """Tell whether the subscription was reset after this batch was planned.

        Then trimmed entries are not a loss. Otherwise a batch that Spark logged could never finish.
        """
        if self._subscription is None or end.get("subscription") != self._subscription.name:
            return False
        try:
            return self._asked(topic, create=False).reset_number != int(end["reset"])
        except _AWAY:
            return False

    def _grown(self, topic: TopicReader, stop: int) -> int:
        """Wait for a topic that is shorter than a planned batch; return its end.

        Raises:
            DataLoss: the topic is too short, with option failOnDataLoss.
        """
        deadline = time.monotonic() + self._options["timeout"]
        while True:
            _, visible = topic.plan()
            if visible >= stop:
                return visible
            words = _short_words(topic.name, stop, visible)
            if self._options["failOnDataLoss"]:
                raise DataLoss(f"{words}; start its broker; if that does not help, set failOnDataLoss=false")
            if time.monotonic() >= deadline:
                log.warning("%s; continuing with the present entries", words)
                return visible
            time.sleep(GROW_S)

    def read(self, partition: InputPartition) -> Any:
        """Read one range, in a task."""
        assert isinstance(partition, Split)
        return read_split(partition, self._options, self._schema)

    def stop(self) -> None:
        """Close the connections of the query."""
        if self._subscription is not None:
            self._subscription.close()
            self._later.close()
