"""The one order of events: its interface, and the group of a single broker.

Promises upward: one order of events, the same on all members; views in that order; notice when a majority
holds the delivered events. Needs from below: nothing for `local`, a seed for `tests.kit.sim`.
"""

from holdfast.group.interface import (
    BEGINNING,
    EVENT_SIZE_MAX,
    FRAME_BYTES,
    WINDOW_BYTES,
    Group,
    GroupStats,
    Listener,
    Member,
    Position,
    View,
)
from holdfast.group.local import LocalGroup

__all__ = [
    "BEGINNING",
    "EVENT_SIZE_MAX",
    "FRAME_BYTES",
    "WINDOW_BYTES",
    "Group",
    "GroupStats",
    "Listener",
    "LocalGroup",
    "Member",
    "Position",
    "View",
]
