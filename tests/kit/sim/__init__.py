"""The `sim` engine: a cluster in one thread, in virtual time, repeated by its seed.

Promises upward: what `Group`, `Clock`, `Randomness` and `Disk` promise, and no more. Data that Corosync and a
disk may lose is often lost here.
"""

from tests.kit.sim.disk import Platter, SimDisk, SimFile
from tests.kit.sim.faults import EVERYTHING, Trouble, storm, strike
from tests.kit.sim.group import SimGroup
from tests.kit.sim.loop import SimLoop
from tests.kit.sim.network import Delivered, Weather
from tests.kit.sim.trace import Trace
from tests.kit.sim.world import Program, Sim, SimClock, SimNode

__all__ = [
    "EVERYTHING",
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
    "strike",
]
