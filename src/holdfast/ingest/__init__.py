"""Local ingest: publish to a broker on this machine through shared memory, without a socket."""

from holdfast.ingest.producer import Producer

__all__ = ["Producer"]
