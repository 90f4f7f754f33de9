"""Whether a schema may follow the others of its topic.

A *reader* is a schema that decodes messages of a *writer*. The strategy of the topic chooses the readers.

- BACKWARD: the new schema must read messages of the last one.
- FORWARD: the last schema must read messages of the new one.
- FULL: both. With the ending _TRANSITIVE: the same, with all schemas of the topic.
- ALWAYS_COMPATIBLE: all schemas are allowed. ALWAYS_INCOMPATIBLE: no other schema is.

Types that have no rules of evolution must stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from holdfast.broker import Strategy
from holdfast.errors import IncompatibleSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import native
from holdfast.server.registry.definition import RECORDS, pair, record, shown
from holdfast.server.registry.resolution import Resolution

DEFAULT: Strategy = "FULL"
STEPS_MAX = 100_000
"""Comparisons of two types for one schema. Unions within unions could need more than a machine has.

Of Protobuf, one is the comparison of up to ten fields."""


def require_compatible(
    strategy: Strategy, known: Sequence[pb.Schema], new: pb.Schema, first: int = 0
) -> None:
    """Raise IncompatibleSchema if a schema may not follow the known ones.

    They are versions from `first` on; the last one of them is the newest.

    Example:
        >>> text, number = (pb.Schema(name="s", type=each, schema_data=b"") for each in (1, 8))
        >>> require_compatible("FULL", [text], number)
        Traceback (most recent call last):
        holdfast.errors.IncompatibleSchema: the topic has messages of type STRING, and the new schema is INT32
    """
    if strategy == "ALWAYS_COMPATIBLE" or not known:
        return
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise IncompatibleSchema(
            "the strategy ALWAYS_INCOMPATIBLE allows only the schema that the topic has; change it first"
        )
    steps = _Steps()
    for version in range(len(known) - 1, -1, -1):
        old = known[version]
        if old.type != new.type:
            raise IncompatibleSchema(
                f"the topic has messages of type {shown(old.type)}, and the new schema is {shown(new.type)}"
            )
        whose = "the newest schema" if version == len(known) - 1 else f"version {first + version}"
        if not strategy.startswith("FORWARD"):
            _require(misfit(new, old, steps), f"it cannot read messages of {whose}", strategy)
        if not strategy.startswith("BACKWARD"):
            _require(misfit(old, new, steps), f"{whose} cannot read its messages", strategy)
        if not strategy.endswith("TRANSITIVE"):
            return


def _require(why: str | None, what: str, strategy: str) -> None:
    if why is not None:
        raise IncompatibleSchema(f"the schema is not compatible ({strategy}): {what}: {why}")


class _Steps:
    """Counts comparisons, so that a schema cannot occupy the broker."""

    def __init__(self) -> None:
        self.left = STEPS_MAX
        self.record = lru_cache(maxsize=4)(record)
        """A new schema is parsed once for all versions, and each of them once for both directions."""

    def take(self, steps: int = 1) -> None:
        self.left -= steps
        if self.left < 0:
            raise IncompatibleSchema(
                f"the schemas need more than {STEPS_MAX:,} comparisons; use smaller types, "
                "or ALWAYS_COMPATIBLE"
            )


def misfit(reader: pb.Schema, writer: pb.Schema, steps: _Steps | None = None) -> str | None:
    """Return why a reader cannot decode messages of a writer; None: it can."""
    steps = steps or _Steps()
    if reader.type != writer.type:
        return f"{shown(reader.type)} is not {shown(writer.type)}"
    if reader.type in RECORDS:
        name, found = shown(reader.type), Resolution(steps.take)
        ours, theirs = steps.record(reader.schema_data, name), steps.record(writer.schema_data, name)
        return None if found.fits(ours, theirs) else found.explained(ours, theirs)
    if reader.type == pb.Schema.KeyAndValue:
        for side, ours_, theirs_ in zip(("key", "value"), pair(reader), pair(writer), strict=True):
            if why := misfit(ours_, theirs_, steps):
                return f"{side}: {why}"
        return None
    if reader.type == pb.Schema.ProtobufNative:
        return native.misfit(native.root(reader.schema_data), native.root(writer.schema_data), steps.take)
    return None
