"""The queue and the channel in shared memory, and waiting on several of them.

Promises upward: every message that was put, and every buffer of a channel, has exactly one owner at every
moment, also when a process dies.
Needs from below: the core's atomics, and a kernel that drops a dead process's locks.
"""

from holdfast.memory.channel import (
    Channel,
    ChannelConsumer,
    ChannelProducer,
    Displaced,
    Handle,
    Item,
    Loan,
    Pushed,
)
from holdfast.memory.channel_stats import ChannelStats, channel_faults, channel_stats_of
from holdfast.memory.findings import faults_of
from holdfast.memory.loop import Loop
from holdfast.memory.places import names_of
from holdfast.memory.queue import Message, Messages, Queue
from holdfast.memory.stats import Holder, Participant, QueueStats, Recovered, stats_of

__all__ = [
    "Channel",
    "ChannelConsumer",
    "ChannelProducer",
    "ChannelStats",
    "Displaced",
    "Handle",
    "Holder",
    "Item",
    "Loan",
    "Loop",
    "Message",
    "Messages",
    "Participant",
    "Pushed",
    "Queue",
    "QueueStats",
    "Recovered",
    "channel_faults",
    "channel_stats_of",
    "faults_of",
    "names_of",
    "stats_of",
]
