"""The queue at work while its processes are being killed: what `make demo` shows.

Promises upward: an account made of what the processes themselves wrote down, never of the queue's own
counters.
Needs from below: `holdfast.Queue`.
"""

from holdfast.demo.queue.account import Account
from holdfast.demo.queue.show import Settings, run

__all__ = ["Account", "Settings", "run"]
