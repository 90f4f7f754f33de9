"""Commands of the Pulsar protocol and ours, generated from `pulsar.proto`.

Example:
    >>> from holdfast.protocol import pulsar_pb2 as pb
    >>> flow = pb.BaseCommand(type=pb.BaseCommand.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=9))
    >>> pb.BaseCommand.FromString(flow.SerializeToString()).flow.messagePermits
    9
"""

from holdfast.protocol.frames import content, framed, framed_body
from holdfast.protocol.sizes import (
    COMMIT_BYTES_MAX,
    COMMIT_PARTS_MAX,
    ENTRY_PADDING_BYTES,
    FRAME_PADDING_BYTES,
)

__all__ = [
    "COMMIT_BYTES_MAX",
    "COMMIT_PARTS_MAX",
    "ENTRY_PADDING_BYTES",
    "FRAME_PADDING_BYTES",
    "content",
    "framed",
    "framed_body",
]
