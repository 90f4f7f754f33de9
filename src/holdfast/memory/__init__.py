"""The queue in shared memory, and waiting on several queues.

Promises upward: every message that was put has exactly one owner at every moment, also when a process dies.
Needs from below: the core's atomics, and a kernel that drops a dead process's locks.
"""

from holdfast.memory.queue import Message, Messages, Queue
from holdfast.memory.stats import Holder, Participant, QueueStats, Recovered

__all__ = ["Holder", "Message", "Messages", "Participant", "Queue", "QueueStats", "Recovered"]
