"""The machine as interfaces: clock, disk and randomness, so that a simulation can own them.

Promises upward: one way to ask for time, chance and files. Needs from below: the operating system.
"""

from holdfast.system.clock import Clock, SystemClock
from holdfast.system.disk import Disk, File, Lock, SystemDisk, SystemFile, in_thread
from holdfast.system.file_steps import opened, read_file, remove, write_all, write_file, write_named_last
from holdfast.system.randomness import Randomness, SystemRandomness

__all__ = [
    "Clock",
    "Disk",
    "File",
    "Lock",
    "Randomness",
    "SystemClock",
    "SystemDisk",
    "SystemFile",
    "SystemRandomness",
    "in_thread",
    "opened",
    "read_file",
    "remove",
    "write_all",
    "write_file",
    "write_named_last",
]
