"""A blocking client: stages, sinks, progress of subscriptions, and topics for the commands."""

from holdfast.client.client import Client, Progress, Stage, StageReceipt
from holdfast.client.endpoints import LATEST, Consumer, Producer, Reader, entry_of, messages_of

__all__ = [
    "LATEST",
    "Client",
    "Consumer",
    "Producer",
    "Progress",
    "Reader",
    "Stage",
    "StageReceipt",
    "entry_of",
    "messages_of",
]
