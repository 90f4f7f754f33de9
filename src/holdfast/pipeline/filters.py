"""Filters that Spark hands over (option filterPushdown), where the source can do them exactly.

On `position` less is read; on `publishTime` and `key` less is decoded and handed over.
Spark does not look again at what is taken here, so only what is exact is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from holdfast.pipeline.decoding import Wish

MAX = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bounds:
    """Whole numbers from `low` to `high`, both included."""

    low: int = -MAX
    high: int = MAX

    def with_filter(self, kind: type[Filter], value: int) -> Bounds | None:
        """Both; None: this kind of filter is not for numbers in a row."""
        low, high = -MAX, MAX
        if kind in (EqualTo, EqualNullSafe):
            low = high = value
        elif kind in (GreaterThan, GreaterThanOrEqual):
            low = value + (1 if kind is GreaterThan else 0)
        elif kind in (LessThan, LessThanOrEqual):
            high = value - (1 if kind is LessThan else 0)
        else:
            return None
        return Bounds(max(self.low, low), min(self.high, high))


@dataclass(frozen=True)
class Filters:
    """What was taken over."""

    position: Bounds = Bounds()
    published_us: Bounds = Bounds()
    keys: frozenset[bytes] | None = None

    def wish(self, columns: list[str], permissive: bool) -> Wish:
        """For the decoder."""
        low, high = self.published_us.low, self.published_us.high
        return Wish(
            columns,
            permissive,
            None if low == -MAX else low,
            None if high == MAX else high,
            None if self.keys is None else tuple(sorted(self.keys)),
        )

    def take(self, given: Filter) -> Filters | None:
        """This and one more; None: Spark shall do it."""
        attribute, value = getattr(given, "attribute", None), getattr(given, "value", None)
        match attribute:
            case ("position",) if isinstance(value, int):
                found = self.position.with_filter(type(given), value)
                return None if found is None else replace(self, position=found)
            case ("publishTime",) if isinstance(value, datetime) and value.tzinfo is not None:
                moment = (value - _EPOCH) // timedelta(microseconds=1)
                found = self.published_us.with_filter(type(given), moment)
                return None if found is None else replace(self, published_us=found)
            case ("key",):
                return self._take_key(given, value)
        return None

    def _take_key(self, given: Filter, value: Any) -> Filters | None:
        if isinstance(given, EqualTo) and isinstance(value, bytes | bytearray):
            keys = frozenset([bytes(value)])
        elif isinstance(given, In) and all(isinstance(each, bytes | bytearray) for each in given.value):
            keys = frozenset(bytes(each) for each in given.value)
        else:
            return None
        return replace(self, keys=keys if self.keys is None else self.keys & keys)
