"""Which topics are read, and from where to where: what batches and streams have in common."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from holdfast.columns.files import Place, TopicReader, topic_and_partition
from holdfast.errors import BadConfiguration
from holdfast.errors import DataLoss as DataLoss
from holdfast.names import topic_name
from holdfast.pipeline.options import EARLIEST, LATEST, Positions

log = logging.getLogger("holdfast.pipeline.offsets")
_WAYS = ("topic", "topics", "topicsPattern", "subscribe", "subscribePattern")


class Selection:
    """The topics that the options name."""

    def __init__(self, options: dict[str, Any]) -> None:
        given = [each for each in _WAYS if options[each] is not None]
        if len(given) != 1:
            told = f"both {' and '.join(given)}" if given else "nothing"
            raise BadConfiguration(
                f"the source is told {told} of what to read; give one of {', '.join(_WAYS)}"
            )
        chosen = options[given[0]]
        self._pattern = re.compile(chosen) if "attern" in given[0] else None
        chosen = () if self._pattern else (chosen,) if isinstance(chosen, str) else chosen
        self._names = [topic_name(each) for each in chosen]
        self._partitions = options["partitions"]
        if self._pattern is not None and not self._partitions:
            raise BadConfiguration("partitions=false is for topics that are named, and not by a pattern")

    @classmethod
    def of(cls, names: Sequence[str], options: dict[str, Any]) -> Selection:
        """These topics; of parsed options, what else they say."""
        return cls({**options, **dict.fromkeys(_WAYS), "topics": names})

    def find(self, place: Place) -> list[str]:
        """The full names of the topics and partitions that are there.

        Raises:
            BadConfiguration: a topic stands beside one that looks like its partition 0.
        """
        found = [name for name in place.topics(self._names) if self.matches(name)]
        seen: dict[tuple[str, int], str] = {}
        for name in found:
            other = seen.setdefault(topic_and_partition(name), name)
            if other != name:
                raise BadConfiguration(
                    f"{other} and {name} would both be partition {topic_and_partition(name)[1]} of "
                    f"{topic_and_partition(name)[0]}; read one at a time: {name} by that name, {other} with "
                    "option partitions=false (--no-partitions)"
                )
        return found

    def missing(self, found: list[str]) -> list[str]:
        """Topics that were named and are not there."""
        there = set(found)
        if self._partitions:
            there |= {topic_and_partition(name)[0] for name in found}
        return [name for name in self._names if name not in there]

    def matches(self, name: str) -> bool:
        """Whether a topic or partition of this full name belongs to it."""
        topic = topic_and_partition(name)[0]
        if self._pattern is not None:
            short = topic.removeprefix("persistent://")
            return any(self._pattern.fullmatch(each) for each in (topic, name, short, short.split("/", 2)[2]))
        return name in self._names or (self._partitions and topic in self._names)


def wanted_position(given: str | Positions, name: str, default: int) -> int:
    """EARLIEST, LATEST or a number, for a topic or partition of this full name."""
    if isinstance(given, str):
        return EARLIEST if given == "earliest" else LATEST
    topic, partition = topic_and_partition(name)
    for each, parts in given.items():
        if topic_name(each) in (topic, name) and partition in parts:
            return parts[partition]
    return default


def starting_at(topic: TopicReader, wish: int, options: dict[str, Any]) -> tuple[int, int]:
    """Where reading begins, and behind what position a trim is missed (`Wish.whole`).

    Whoever asks for the beginning, the end or a time takes what there is. Whoever names a position behind the
    beginning has read up to there: a chunked message whose beginning was trimmed is missed.

    Raises:
        DataLoss: the topic ends before it, with option failOnDataLoss.
    """
    position = resolve(topic, wish, options["startingTimestamp"])
    if options["startingTimestamp"] is not None or wish in (EARLIEST, LATEST):
        return position, position
    first, visible = topic.plan()
    position = before_end(topic.name, position, visible, options["failOnDataLoss"], "startingOffsets")
    return position, position if position <= first else 0


def before_end(name: str, position: int, visible: int, fail: bool, option: str) -> int:
    """A position that a user asks for, or the end.

    Raises:
        DataLoss: it lies behind the end, by option failOnDataLoss.
    """
    if position <= visible:
        return position
    words = f"{name} ends before entry {visible}, and {option} asks for {position}"
    if fail:
        raise DataLoss(f"{words}; set failOnDataLoss=false to go on with what is there")
    log.warning("%s; going on with what is there", words)
    return visible


def resolve(topic: TopicReader, position: int, time_ms: int | None = None) -> int:
    """What a wish means now, between the first that is there and the end."""
    first, visible = topic.plan()
    if time_ms is not None:
        return topic.at_time(time_ms)
    if position == EARLIEST:
        return first
    return visible if position == LATEST else position


def require_known(given: str | Positions, found: list[str], option: str) -> None:
    """Raises BadConfiguration: positions for a topic that is not read."""
    if isinstance(given, str):
        return
    for each, parts in given.items():
        for partition in parts:
            if not any(
                topic_name(each) in (topic_and_partition(name)[0], name)
                and topic_and_partition(name)[1] == partition
                for name in found
            ):
                raise BadConfiguration(
                    f"{option} names partition {partition} of {each}, which is not read. Read are: "
                    + (", ".join(found) or "none")
                )


def after_loss(name: str, start: int, first: int, fail: bool) -> int:
    """Where to go on when everything below `first` is gone.

    Raises:
        DataLoss: not at all, by option failOnDataLoss.
    """
    if start >= first:
        return start
    words = f"{name}: entries {start} to {first - 1} were trimmed before they were read"
    if fail:
        raise DataLoss(f"{words}; set failOnDataLoss=false to go on with entry {first}")
    log.warning("%s; going on with entry %d", words, first)
    return first


def behind_latest(progress: dict[str, Any]) -> dict[str, float]:
    """How far a query was behind when a batch ended, in entries, from Spark's `query.lastProgress`.

    Example:
        >>> end, latest = ({"orders": {"0": {"position": place}}} for place in (7, 9))
        >>> behind_latest({"sources": [{"endOffset": end, "latestOffset": latest}]})["maxOffsetsBehindLatest"]
        2
    """
    found = []
    for source in progress["sources"]:
        end, latest = (_offset(source.get(each)) for each in ("endOffset", "latestOffset"))
        for topic, parts in latest.items():
            for partition, each in parts.items():
                read = end.get(topic, {}).get(partition, {})
                if read.get("incarnation") != each.get("incarnation"):
                    read = {}  # of another topic under its name
                begun = max(read.get("position", 0), each.get("from", 0))
                found.append(max(0, each["position"] - begun))
    found = found or [0]
    return {
        "minOffsetsBehindLatest": min(found),
        "maxOffsetsBehindLatest": max(found),
        "avgOffsetsBehindLatest": sum(found) / len(found),
    }


def _offset(told: Any) -> dict[str, Any]:
    """Spark shows an offset as JSON, or as text with JSON in it."""
    found = json.loads(told) if isinstance(told, str) else told
    return found if isinstance(found, dict) else {}
