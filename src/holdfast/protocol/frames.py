"""Frame commands: the type of each is the number of its message's field."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from holdfast._core import frame_command
from holdfast.protocol import pulsar_pb2 as pb

_FIELDS = [field for field in pb.BaseCommand.DESCRIPTOR.fields if field.message_type]
_NAMES = {field.number: field.name for field in _FIELDS}
_KINDS = {field.message_type.full_name: field.number for field in _FIELDS if field.message_type}


def framed(message: Message) -> bytes:
    """Frame a message as the command that it belongs to."""
    return framed_body(_KINDS[message.DESCRIPTOR.full_name], message.SerializeToString())


def framed_body(kind: int, body: bytes) -> bytes:
    """Frame a message that is encoded already.

    Example:
        >>> frame = framed_body(pb.BaseCommand.SUCCESS, pb.CommandSuccess(request_id=7).SerializeToString())
        >>> pb.BaseCommand.FromString(frame[8:]).success.request_id
        7
    """
    return frame_command(b"\x08" + _varint(kind) + _varint(kind << 3 | 2) + _varint(len(body)) + body)


def content(command: pb.BaseCommand) -> Any:
    """Return the message of a command."""
    return getattr(command, _NAMES[command.type])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])
