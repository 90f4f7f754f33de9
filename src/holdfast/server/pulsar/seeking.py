"""Serve SEEK and GET_LAST_MESSAGE_ID."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core import parse_entry
from holdfast.broker import Start, messages_at
from holdfast.ids import BATCH_MESSAGES_MAX, EARLIEST
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar import commands
from holdfast.server.pulsar.commands import Refused, id_data, id_of

if TYPE_CHECKING:
    from holdfast.broker import CompactedReading, Topic
    from holdfast.server.pulsar.connection import Connection

READ_BYTES = 1 << 20

BATCH_WORDS_MAX = BATCH_MESSAGES_MAX // 64
"""Words of an ack set: as many bits as the largest batch has messages."""


async def seek(connection: Connection, command: pb.CommandSeek) -> bytes | None:
    """SEEK: close all consumers of the subscription, reset it, then answer.

    A client may subscribe again before the answer to its SEEK. It then needs the answer to SUBSCRIBE first,
    or it would wait for its SEEK forever.
    """
    consumer = connection.consumers.require(command.consumer_id)
    dispatcher, topic = consumer.dispatcher, consumer.topic
    if len(command.message_id.ack_set) > BATCH_WORDS_MAX:
        raise Refused(
            pb.MetadataError,
            f"the ack set has {len(command.message_id.ack_set)} words; at most {BATCH_WORDS_MAX} are allowed",
        )
    open_ = commands.bits_of(command.message_id.ack_set)
    view = dispatcher.compacted
    target = await (view or topic).place(_target(command))
    if target in topic.damaged:
        await topic.require_whole(target)
    for each in list(connection.server.attached.get(dispatcher, ())):
        each.expel(keep=True)
    await dispatcher.reset(target)
    if open_ and target < topic.visible:  # into a batch: only its open messages are delivered
        open_ &= (1 << await messages_at(topic, view, target)) - 1  # the mask may be longer than the batch
        if open_:
            await dispatcher.narrow(target, open_)
    connection.consumers.answer(command.consumer_id, commands.success(command.request_id))
    return None


def _target(command: pb.CommandSeek) -> Start:
    if command.HasField("message_publish_time"):
        return command.message_publish_time * 1_000_000
    if not command.HasField("message_id"):
        raise Refused(pb.MetadataError, "SEEK has neither a message id nor a publish time; send one of them")
    return id_of(command.message_id)


async def last_message_id(connection: Connection, command: pb.CommandGetLastMessageId) -> bytes:
    """GET_LAST_MESSAGE_ID: return the id of the last message, with its index in a batch."""
    consumer = connection.consumers.require(command.consumer_id)
    topic, found = consumer.topic, consumer.dispatcher.damage
    if found is not None:
        await topic.require_whole(found[0])
    view = consumer.dispatcher.compacted
    last = await _last(connection, topic) if view is None else await _last_compacted(view)
    if consumer.partition is not None:
        last.partition = consumer.partition
    return commands.last_message_id(command.request_id, last, id_data(consumer.mark_delete()))


async def _last(connection: Connection, topic: Topic) -> pb.MessageIdData:
    if topic.visible <= topic.first:
        return id_data(topic.last_id())
    ordinal = topic.visible - 1
    known = connection.server.last_indexes.get(topic)
    if known is None or known[0] != ordinal:  # read once for all requests: the entry can be large
        info = parse_entry((await topic.read(ordinal, 1, READ_BYTES)).entry(0))
        known = (ordinal, info.messages - 1 if info.batch else -1)
        connection.server.last_indexes[topic] = known
    return id_data(topic.id_of(ordinal), known[1])


async def _last_compacted(view: CompactedReading) -> pb.MessageIdData:
    """Return the id of the last message of the view: clients wait for no others."""
    of = (view.last(), view.number)
    if of[0] < 0:
        return id_data(EARLIEST)
    if view.last_index is None or view.last_index[:2] != of:  # read once for all requests
        entries = await view.read_last()
        if entries is None:
            return id_data(EARLIEST)
        info = parse_entry(entries.entry(0))
        masks = dict(entries.open_masks())
        index = masks[0].bit_length() - 1 if 0 in masks else info.messages - 1 if info.batch else -1
        view.last_index = (*of, index)
    return id_data(view.id_of(view.last_index[0]), view.last_index[2])
