"""Store the schemas of topics for consumers. Compatibility is not checked yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker import Topic
from holdfast.protocol import framed
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar import lookup
from holdfast.server.pulsar.commands import Refused

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection

VERSION_BYTES = 8


async def store(connection: Connection, topic: Topic, schema: pb.Schema) -> bytes:
    """Store a topic's schema; return its version, which is empty for plain bytes."""
    if schema.type in (pb.Schema.Bytes, pb.Schema.AutoConsume):
        return b""
    packed = schema.SerializeToString(deterministic=True)
    version = await connection.broker.add_schema(topic, packed)
    return version.to_bytes(VERSION_BYTES, "big")


async def get(connection: Connection, command: pb.CommandGetSchema) -> bytes:
    """GET_SCHEMA: return the schema of a version, or the newest."""
    topic = await lookup.topic_for(connection, command.topic, "lookup", create=False)
    known = topic.schemas
    version = len(known) - 1
    if command.HasField("schema_version") and command.schema_version:
        version = int.from_bytes(command.schema_version[:VERSION_BYTES], "big")
        if len(command.schema_version) != VERSION_BYTES:
            raise Refused(
                pb.MetadataError,
                f"the version of a schema needs {VERSION_BYTES} bytes, not {len(command.schema_version)}",
            )
    if not 0 <= version < len(known):
        raise Refused(pb.TopicNotFound, f"{topic.name} has no schema of version {max(version, 0)}")
    answer = pb.CommandGetSchemaResponse(
        request_id=command.request_id,
        schema=pb.Schema.FromString(known[version]),
        schema_version=version.to_bytes(VERSION_BYTES, "big"),
    )
    return framed(answer)


def not_got(request: int, refused: Refused) -> bytes:
    return framed(
        pb.CommandGetSchemaResponse(request_id=request, error_code=refused.code, error_message=str(refused))
    )


async def get_or_create(connection: Connection, command: pb.CommandGetOrCreateSchema) -> bytes:
    """GET_OR_CREATE_SCHEMA: return the version of a schema, which is stored if it is new."""
    topic = await lookup.topic_for(connection, command.topic, "produce")
    version = await store(connection, topic, command.schema)
    return framed(pb.CommandGetOrCreateSchemaResponse(request_id=command.request_id, schema_version=version))


def not_created(request: int, refused: Refused) -> bytes:
    return framed(
        pb.CommandGetOrCreateSchemaResponse(
            request_id=request, error_code=refused.code, error_message=str(refused)
        )
    )
