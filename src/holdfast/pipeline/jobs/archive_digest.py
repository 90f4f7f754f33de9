"""Compute a digest of rows that ignores their order.

The digests of parts add up to the digest of the whole.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F  # noqa: N812

SHARE = 1 << 28
"""Each row adds its hash modulo this: the sum of 2^35 rows does not overflow."""


@dataclass(frozen=True)
class Digest:
    """Count of rows, sum and exclusive-or of their hashes. Equal digests mean equal rows.

    Example:
        >>> str(Digest(2, 30, 5) + Digest(1, 2, 4))
        '3.32.0000000000000001'
    """

    rows: int = 0
    sum: int = 0
    xor: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(self.rows + other.rows, self.sum + other.sum, self.xor ^ other.xor)

    def __str__(self) -> str:
        return f"{self.rows}.{self.sum}.{self.xor & (1 << 64) - 1:016x}"

    @classmethod
    def of(cls, row: Row | dict[str, Any]) -> Digest:
        """Read the columns of `aggregates`, which are null without rows."""
        return cls(row["rows"], row["hashSum"] or 0, row["hashXor"] or 0)

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Parse the text that `str` returns."""
        rows, total, xor = text.split(".")
        value = int(xor, 16)
        return cls(int(rows), int(total), value - (1 << 64) if value >> 63 else value)

    @classmethod
    def total(cls, parts: Iterable[Digest]) -> Digest:
        found = cls()
        for part in parts:
            found += part
        return found


def aggregates(columns: Sequence[str]) -> list[Column]:
    """Return the aggregates for a `Digest` of rows with these columns."""
    # Spark does not hash maps: hash the sorted entries.
    values = [F.sort_array(F.map_entries(name)) if name == "properties" else F.col(name) for name in columns]
    # Spark's hash skips NULL: hash which columns are NULL, too.
    bits = [F.when(F.col(name).isNull(), 1 << at).otherwise(0) for at, name in enumerate(columns)]
    missing = reduce(operator.add, bits)
    hashed = F.xxhash64(missing, *values)
    return [
        F.count(F.lit(1)).alias("rows"),
        F.sum(F.pmod(hashed, F.lit(SHARE))).alias("hashSum"),
        F.bit_xor(hashed).alias("hashXor"),
    ]
