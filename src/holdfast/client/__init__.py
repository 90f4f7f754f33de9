"""A blocking client: stages, sinks, progress of subscriptions, and topics for the commands."""

from holdfast.client.client import Client, Progress, Stage, StageReceipt

__all__ = ["Client", "Progress", "Stage", "StageReceipt"]
