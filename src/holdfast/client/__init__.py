"""`holdfast.client.Client`: a small blocking client for what Pulsar clients cannot do."""

from holdfast.client.client import Client, Progress, Stage, StageReceipt

__all__ = ["Client", "Progress", "Stage", "StageReceipt"]
