"""Answer GET_SCHEMA and GET_OR_CREATE_SCHEMA; admit producers and consumers by their schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker import Topic
from holdfast.errors import NotFound
from holdfast.names import partition_name
from holdfast.protocol import framed
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar import lookup
from holdfast.server.pulsar.commands import Refused
from holdfast.server.registry import versions

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection

VERSION_BYTES = 8


async def admit_producer(connection: Connection, topic: Topic, command: pb.CommandProducer) -> bytes:
    """Add a producer's schema if it is new, and return its version.

    Empty for plain bytes.
    """
    schema = command.schema if command.HasField("schema") else None
    return packed(await versions.admit_producer(connection.broker, topic, schema))


def packed(version: int | None) -> bytes:
    """Return a version as messages have it."""
    return b"" if version is None else version.to_bytes(VERSION_BYTES, "big")


async def get(connection: Connection, command: pb.CommandGetSchema) -> bytes:
    """GET_SCHEMA: return the schema of a version, or the newest."""
    topic = await lookup.topic_for(connection, _holder(connection, command.topic), "lookup", create=False)
    wanted = None
    if command.HasField("schema_version") and command.schema_version:
        wanted = int.from_bytes(command.schema_version[:VERSION_BYTES], "big")
        if len(command.schema_version) != VERSION_BYTES:
            raise Refused(
                pb.MetadataError,
                f"the version of a schema needs {VERSION_BYTES} bytes, not {len(command.schema_version)}",
            )
    try:
        version, schema = versions.find(topic, wanted)
    except NotFound as error:
        raise Refused(pb.TopicNotFound, str(error)) from None
    answer = pb.CommandGetSchemaResponse(
        request_id=command.request_id,
        schema=schema,
        schema_version=packed(version),
    )
    return framed(answer)


def _holder(connection: Connection, name: str) -> str:
    """Return the topic that has a topic's schemas: of a partitioned one, partition 0."""
    full = lookup.full_name(name)
    return partition_name(full, 0) if connection.broker.partitioned.count(full) else full


def not_got(request: int, refused: Refused) -> bytes:
    return framed(
        pb.CommandGetSchemaResponse(request_id=request, error_code=refused.code, error_message=str(refused))
    )


async def get_or_create(connection: Connection, command: pb.CommandGetOrCreateSchema) -> bytes:
    """GET_OR_CREATE_SCHEMA: return the version of a schema, which is stored if it is new."""
    topic = await lookup.topic_for(connection, _holder(connection, command.topic), "produce")
    version = await versions.admit_producer(connection.broker, topic, command.schema)
    answer = pb.CommandGetOrCreateSchemaResponse(
        request_id=command.request_id, schema_version=packed(version)
    )
    return framed(answer)


def not_created(request: int, refused: Refused) -> bytes:
    return framed(
        pb.CommandGetOrCreateSchemaResponse(
            request_id=request, error_code=refused.code, error_message=str(refused)
        )
    )
