"""The machine as interfaces: clock, disk and randomness, so that a simulation can own them.

Promises upward: one way to ask for time, chance and files. Needs from below: the operating system.
"""

from holdfast.system.clock import Clock, SystemClock
from holdfast.system.disk import Disk, File, Lock, SystemDisk
from holdfast.system.randomness import Randomness, SystemRandomness

__all__ = [
    "Clock",
    "Disk",
    "File",
    "Lock",
    "Randomness",
    "SystemClock",
    "SystemDisk",
    "SystemRandomness",
]
