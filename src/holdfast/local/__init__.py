"""Local ingest: publish to a broker on this machine through shared memory, without a socket."""

from holdfast.local.producer import Producer

__all__ = ["Producer"]
