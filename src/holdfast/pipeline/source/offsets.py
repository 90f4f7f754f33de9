"""Choose topics and positions, for batches and streams."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from typing import Any

from holdfast.columns import Place, TopicReader, topic_and_partition
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
            told = f"has both {' and '.join(given)}" if given else "names no topic"
            raise BadConfiguration(f"the source {told}; give exactly one of {', '.join(_WAYS)}")
        chosen = options[given[0]]
        self._pattern = re.compile(chosen) if "attern" in given[0] else None
        chosen = () if self._pattern else (chosen,) if isinstance(chosen, str) else chosen
        self._names = [topic_name(each) for each in chosen]
        self._partitions = options["partitions"]
        if self._pattern is not None and not self._partitions:
            raise BadConfiguration("partitions=false is for topics given by name, not by a pattern")

    @classmethod
    def of(cls, names: Sequence[str], options: dict[str, Any]) -> Selection:
        """Select these topics, with the other parsed options."""
        return cls({**options, **dict.fromkeys(_WAYS), "topics": names})

    def find(self, place: Place) -> list[str]:
        """Return the full names of the topics and partitions that exist.

        Raises:
            BadConfiguration: a topic and another topic both count as its partition 0.
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
        """List the named topics that do not exist."""
        there = set(found)
        if self._partitions:
            there |= {topic_and_partition(name)[0] for name in found}
        return [name for name in self._names if name not in there]

    def matches(self, name: str) -> bool:
        """Tell whether a topic or partition of this full name is selected."""
        topic = topic_and_partition(name)[0]
        if self._pattern is not None:
            short = topic.removeprefix("persistent://")
            return any(self._pattern.fullmatch(each) for each in (topic, name, short, short.split("/", 2)[2]))
        return name in self._names or (self._partitions and topic in self._names)


def wanted_position(given: str | Positions, name: str, default: int) -> int:
    """Return EARLIEST, LATEST or a number for a topic or partition of this full name."""
    if isinstance(given, str):
        return EARLIEST if given == "earliest" else LATEST
    topic, partition = topic_and_partition(name)
    for each, parts in given.items():
        if topic_name(each) in (topic, name) and partition in parts:
            return parts[partition]
    return default


def starting_at(topic: TopicReader, wish: int, options: dict[str, Any]) -> tuple[int, int]:
    """Return where reading begins, and from which position on a trim is a loss (`Wish.whole`).

    A query from the beginning, the end or a time reads the present entries. A query from a position after the
    beginning has read up to there: a chunked message whose first chunks were trimmed is a loss.

    Raises:
        DataLoss: the topic ends before the position, with option failOnDataLoss.
    """
    position = resolve(topic, wish, options["startingTimestamp"])
    if options["startingTimestamp"] is not None or wish in (EARLIEST, LATEST):
        return position, position
    first, visible = topic.plan()
    position = before_end(topic.name, position, visible, options["failOnDataLoss"], "startingOffsets")
    return position, position if position <= first else 0


def before_end(name: str, position: int, visible: int, fail: bool, option: str) -> int:
    """Limit a wanted position to the end.

    Raises:
        DataLoss: it is after the end, with option failOnDataLoss.
    """
    if position <= visible:
        return position
    words = f"{name} ends before entry {visible}, and {option} asks for {position}"
    if fail:
        raise DataLoss(f"{words}; set failOnDataLoss=false to continue with the present entries")
    log.warning("%s; continuing with the present entries", words)
    return visible


def require_behind_view(topic: TopicReader, stop: int) -> None:
    """Raises BadConfiguration: a batch would end within the compacted view that it is read through."""
    if stop < topic.horizon:
        raise BadConfiguration(
            f"endingOffsets or endingTimestamp ends at entry {stop} of {topic.name}, within its compacted "
            f"view {topic.view}, which stands for all entries below {topic.horizon}. Values that were "
            "replaced later are not in it. Let the batch end at that entry or later, or read without "
            "readCompacted"
        )


def resolve(topic: TopicReader, position: int, time_ms: int | None = None) -> int:
    """Resolve EARLIEST, LATEST or a time to a position."""
    first, visible = topic.plan()
    if time_ms is not None:
        return topic.at_time(time_ms)
    if position == EARLIEST:
        return first
    return visible if position == LATEST else position


def require_known(given: str | Positions, found: list[str], option: str) -> None:
    """Raises BadConfiguration: there are positions of a topic that is not read."""
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
                    + (", ".join(found) or "no topics")
                )


def after_loss(name: str, start: int, first: int, fail: bool) -> int:
    """Return where to continue after all entries below `first` were trimmed.

    Raises:
        DataLoss: wanted entries were trimmed, with option failOnDataLoss.
    """
    if start >= first:
        return start
    words = f"{name}: entries {start} to {first - 1} were trimmed before they were read"
    if fail:
        raise DataLoss(f"{words}; set failOnDataLoss=false to continue with entry {first}")
    log.warning("%s; continuing with entry %d", words, first)
    return first


def behind_latest(progress: dict[str, Any]) -> dict[str, float]:
    """Compute the lag of a query after a batch, in entries, from `query.lastProgress`.

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
                    read = {}  # of a former topic of this name
                begun = max(read.get("position", 0), each.get("from", 0))
                found.append(max(0, each["position"] - begun))
    found = found or [0]
    return {
        "minOffsetsBehindLatest": min(found),
        "maxOffsetsBehindLatest": max(found),
        "avgOffsetsBehindLatest": sum(found) / len(found),
    }


def _offset(told: Any) -> dict[str, Any]:
    """Parse an offset: Spark shows it as JSON, or as text with JSON."""
    found = json.loads(told) if isinstance(told, str) else told
    return found if isinstance(found, dict) else {}
