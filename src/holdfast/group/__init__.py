"""Ordered events between brokers, and the clock, chance and disk beside them.

Promises upward: one order of events, the same on all members; views in that order; the word that a majority
holds what was delivered. Needs from below: nothing for `local`, a seed for `holdfast.group.sim`.
"""

from holdfast.group.clock import Clock, SystemClock
from holdfast.group.disk import Disk, File, Lock, SystemDisk
from holdfast.group.interface import (
    BEGINNING,
    EVENT_SIZE_MAX,
    WINDOW_BYTES,
    Group,
    GroupStats,
    Listener,
    Member,
    Position,
    View,
)
from holdfast.group.local import LocalGroup
from holdfast.group.randomness import Randomness, SeededRandomness, SystemRandomness

__all__ = [
    "BEGINNING",
    "EVENT_SIZE_MAX",
    "WINDOW_BYTES",
    "Clock",
    "Disk",
    "File",
    "Group",
    "GroupStats",
    "Listener",
    "LocalGroup",
    "Lock",
    "Member",
    "Position",
    "Randomness",
    "SeededRandomness",
    "SystemClock",
    "SystemDisk",
    "SystemRandomness",
    "View",
]
