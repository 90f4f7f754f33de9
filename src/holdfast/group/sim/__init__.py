"""The `sim` engine: a whole cluster in one thread, in virtual time, the same for the same seed.

Promises upward: what `Group`, `Clock`, `Randomness` and `Disk` promise, and no more: what Corosync and a disk
may lose is lost here, often.
"""

from holdfast.group.sim.disk import Platter, SimDisk, SimFile
from holdfast.group.sim.faults import Trouble, storm
from holdfast.group.sim.group import SimGroup
from holdfast.group.sim.loop import SimLoop
from holdfast.group.sim.network import Delivered, Weather
from holdfast.group.sim.trace import Trace
from holdfast.group.sim.world import Program, Sim, SimClock, SimNode

__all__ = [
    "Delivered",
    "Platter",
    "Program",
    "Sim",
    "SimClock",
    "SimDisk",
    "SimFile",
    "SimGroup",
    "SimLoop",
    "SimNode",
    "Trace",
    "Trouble",
    "Weather",
    "storm",
]
