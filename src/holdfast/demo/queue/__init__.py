"""The demo of the queue alone: `holdfast queue demo`.

Promises upward: an account made of what the processes themselves wrote down, never of the queue's own
counters.
Needs from below: `holdfast.Queue`.
"""

from holdfast.demo.queue.account import Account
from holdfast.demo.queue.show import Settings, run

__all__ = ["Account", "Settings", "run"]
