"""Encode the rows of a DataFrame as entries.

| column        | type               | in the message                                                      |
|---------------|--------------------|---------------------------------------------------------------------|
| `value`       | string or binary   | the payload; NULL is Pulsar's null value, a tombstone for compaction |
| `key`         | string or binary   | a key of text, or of bytes; NULL: no key                            |
| `topic`       | string             | its topic, if option `topic` is not given                           |
| `properties`  | map<string,string> | its properties                                                      |
| `eventTime`   | timestamp          | its event time, in milliseconds; NULL: no event time                |
| `keyEncoding` | string             | `base64`: a binary `key` is a key of bytes; NULL: it is text        |
| `orderingKey` | binary             | its ordering key; NULL: no ordering key                             |
| `encryption`  | binary             | MessageMetadata of an encrypted message; `value` stays unchanged    |
| `schemaVersion` | bigint           | version of the topic's schema; the topic must have it. NULL: none   |

A batch is encoded in pieces, so that memory does not grow with the batch.
"""

from __future__ import annotations

import base64
import difflib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from holdfast._core import crc32c, encode_messages
from holdfast.errors import BadConfiguration, HoldfastError, Misuse
from holdfast.names import topic_name
from holdfast.protocol import pulsar_pb2 as pb

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_BYTES = 1 << 20
PIECE_ROWS = 16 << 10
"""Limits of a piece, which is encoded at once: about this many bytes, at most this many rows."""

SHARED_BYTES = 128 << 10
"""Most bytes of rows that share an entry, as in Pulsar's clients; a single row may be larger."""

VERSION_BYTES = 8
"""Bytes of a schema's version in a message."""

_TEXT_OR_BYTES = (StringType(), BinaryType())
TYPES: dict[str, tuple[DataType, ...]] = {
    "value": _TEXT_OR_BYTES,
    "key": _TEXT_OR_BYTES,
    "topic": (StringType(),),
    "properties": (MapType(StringType(), StringType()),),
    "eventTime": (TimestampType(),),
    "keyEncoding": (StringType(),),
    "orderingKey": (BinaryType(),),
    "encryption": (BinaryType(),),
    "schemaVersion": (LongType(),),
}
"""The columns that are written."""
READ_ONLY = (
    "partition", "messageId", "publishTime", "producer", "sequenceId", "position", "storedTime", "uniqueId",
    "deliverAt",
)  # fmt: skip
"""Columns of the source that the broker sets itself. They are ignored, so rows can be written as read."""
_HINTS = {
    "value": "to_json(value) for a structure, cast(value as string) for a number",
    "key": "cast(key as string)",
    "topic": "cast(topic as string)",
    "properties": "transform_values(properties, (k, v) -> cast(v as string))",
    "eventTime": "timestamp_millis(eventTime) for a number, cast(eventTime as timestamp) for anything else",
    "keyEncoding": "'base64' for a key of bytes, NULL for text",
    "orderingKey": "cast(orderingKey as binary)",
    "encryption": "the column of the source with includeHeaders",
    "schemaVersion": "cast(schemaVersion as bigint), NULL for messages without a schema",
}


_NO_TEXT = {
    "key": "cast(key as binary) writes a key of bytes",
    "topic": "name a topic",
    "properties": "base64(…) makes text of any bytes",
    "keyEncoding": _HINTS["keyEncoding"],
}


@dataclass(frozen=True)
class Rows:
    """Encoder of rows of one schema. Created in the driver, used in tasks."""

    columns: dict[str, int]
    """Column → its index in the schema."""
    topic: str | None
    """Full name of the topic of all rows; None: column `topic` has it."""
    per_entry: int = 1
    """Most messages in one entry, if rows have only a value."""
    full_names: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    versions: set[tuple[str, int]] = field(default_factory=set, compare=False, repr=False)
    """Topics with the versions of schemas that their rows named so far."""

    @classmethod
    def of(cls, schema: StructType, topic: str | None, per_entry: int = 1) -> Rows:
        """Create the encoder of a schema and the option `topic`.

        Raises:
            BadConfiguration: a column is missing or unknown, or has a wrong type.
        """
        columns: dict[str, int] = {}
        known = {name.lower(): name for name in (*TYPES, *READ_ONLY)}
        for index, column in enumerate(schema.fields):
            name = known.get(column.name.lower())
            if name is None:
                raise BadConfiguration(_unknown(column.name))
            if name in columns:
                raise BadConfiguration(f"there are two columns {name}; select one")
            if name in TYPES:
                _require_type(name, column.dataType)
                columns[name] = index
        if "value" not in columns:
            found = ", ".join(schema.fieldNames()) or "none"
            raise BadConfiguration(
                f"the sink needs a column value, string or binary; the columns are: {found}. Rename one: "
                "df.withColumnRenamed(…, 'value'), or use df.selectExpr('to_json(struct(*)) as value')"
            )
        if topic is None and "topic" not in columns:
            raise BadConfiguration(
                "the rows have no topic; give option topic for all of them, or a column topic"
            )
        return cls(columns, None if topic is None else _full_name(topic, "option topic"), per_entry)

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split a batch into pieces of at most PIECE_BYTES, or of one row.

        It is halved until the pieces fit, because rows differ in size.
        """
        waiting = [batch]
        while waiting:
            piece = waiting.pop()
            rows = piece.num_rows
            if rows > PIECE_ROWS or (rows > 1 and piece.nbytes > PIECE_BYTES):
                waiting += [piece.slice(rows // 2), piece.slice(0, rows // 2)]
            elif rows:
                yield piece

    def entries(
        self, piece: pa.RecordBatch, producer: str, sequence: int, most: int | None = None
    ) -> dict[str, list[bytes]]:
        """Encode a piece to entries by topic, in the order of its rows.

        Args:
            piece: some rows.
            producer: name of the producer in the messages.
            sequence: sequence id of the first row.
            most: largest entry that the broker accepts; rows do not share a larger one.

        Raises:
            Misuse: a row cannot be encoded; the text names the column and the reason.
        """
        now_ms = time.time_ns() // 1_000_000
        values = self._bytes(piece, "value")
        assert values is not None
        nulls = piece.column(self.columns["value"]).null_count
        topics, keys = self._topics(piece, sequence), self._keys(piece, sequence)
        properties, times = self._properties(piece, sequence), self._times(piece)
        orders, headers = self._bytes(piece, "orderingKey"), self._bytes(piece, "encryption")
        versions = self._versions(piece, sequence)
        others = (topics, keys, properties, times, orders, headers, versions)
        if all(each is None for each in others) and not nulls:
            assert self.topic is not None
            plain = [each for each in values if each is not None]
            made = []
            for at, run, batch in self._runs(plain, min(most or SHARED_BYTES, SHARED_BYTES)):
                made += encode_messages(run, producer, sequence + at, now_ms, batch=batch)
            return {self.topic: made}
        out: dict[str, list[bytes]] = {}
        for i, value in enumerate(values):
            topic = self.topic if topics is None else topics[i]
            assert topic is not None
            key = None if keys is None else keys[i]
            told = None if properties is None else properties[i]
            event_ms = 0 if times is None else times[i]
            order = None if orders is None else orders[i]
            header = None if headers is None else headers[i]
            version = None if versions is None else versions[i]
            if version is not None:
                self.versions.add((topic, version))
            if header is not None:
                header = header if "schemaVersion" not in self.columns else with_version(header, version)
                entry = encrypted_entry(producer, sequence + i, now_ms, header, value)
            elif value is None or version is not None:
                more = (value, version, key, told, event_ms, order)
                entry = message_entry(producer, sequence + i, now_ms, *more)
            else:
                entry = encode_messages(
                    (value,),
                    producer,
                    sequence + i,
                    now_ms,
                    key=key,
                    ordering_key=order,
                    properties=told,
                    event_time_ms=event_ms,
                )[0]
            out.setdefault(topic, []).append(entry)
        return out

    def _runs(self, values: list[bytes], most: int) -> Iterator[tuple[int, list[bytes], int]]:
        """Group values: the index of the first, the values, and how many share an entry."""
        if self.per_entry == 1 or not values:
            yield 0, values, 1
            return
        beside = 40  # bytes of metadata per value, and as many per entry
        if (max(map(len, values)) + beside) * self.per_entry + 2 * beside <= most:
            yield 0, values, self.per_entry
            return
        start, size = 0, 0
        for at, value in enumerate(values):
            size += len(value) + beside
            if at > start and (at - start == self.per_entry or size + 2 * beside > most):
                yield start, values[start:at], at - start
                start, size = at, len(value) + beside
        yield start, values[start:], len(values) - start

    # -- columns -------------------------------------------------------------------------------------------

    def _column(self, piece: pa.RecordBatch, name: str) -> pa.Array | None:
        """Return a column; None: it is absent, or all NULL."""
        index = self.columns.get(name)
        if index is None:
            return None
        column = piece.column(index)
        return None if name != "value" and column.null_count == len(column) else column

    def _bytes(self, piece: pa.RecordBatch, name: str) -> list[bytes | None] | None:
        import pyarrow as pa

        column = self._column(piece, name)
        if column is None:
            return None
        if pa.types.is_string(column.type):
            column = column.cast(pa.binary())
        elif pa.types.is_large_string(column.type):
            column = column.cast(pa.large_binary())
        return column.to_pylist()  # type: ignore[no-any-return]

    def _keys(self, piece: pa.RecordBatch, sequence: int) -> list[Any] | None:
        column = self._column(piece, "key")
        if column is None:
            return None
        keys = _texts(column, "key", sequence)
        if "keyEncoding" not in self.columns:
            return keys
        how = _texts(piece.column(self.columns["keyEncoding"]), "keyEncoding", sequence)
        return [_key(*each) for each in zip(keys, how, strict=True)]

    def _topics(self, piece: pa.RecordBatch, sequence: int) -> list[str] | None:
        if self.topic is not None:
            return None
        column = piece.column(self.columns["topic"])
        if column.null_count:
            raise Misuse("column topic is NULL in a row; give each row a topic, or give option topic for all")
        names = _texts(column, "topic", sequence)
        for name in set(names) - self.full_names.keys():
            self.full_names[name] = _full_name(name, "column topic")
        return [self.full_names[name] for name in names]

    def _properties(self, piece: pa.RecordBatch, sequence: int) -> list[dict[str, str] | None] | None:
        column = self._column(piece, "properties")
        if column is None:
            return None
        told = [None if each is None else dict(each) for each in _texts(column, "properties", sequence)]
        for each in told:
            if each and None in each.values():
                name = next(key for key, value in each.items() if value is None)
                raise Misuse(
                    f"property {name!r} is NULL in a row; map_filter(properties, (k, v) -> v is not null)"
                )
        return told

    def _versions(self, piece: pa.RecordBatch, sequence: int) -> list[int | None] | None:
        column = self._column(piece, "schemaVersion")
        if column is None:
            return None
        found: list[int | None] = column.to_pylist()
        for at, each in enumerate(found):
            if each is not None and each < 0:
                raise Misuse(
                    f"column schemaVersion is {each} in row {sequence + at} of its task; a version is 0 or "
                    "more, and NULL for a message without a schema"
                )
        return found

    def _times(self, piece: pa.RecordBatch) -> list[int] | None:
        import pyarrow as pa

        column = self._column(piece, "eventTime")
        if column is None:
            return None
        micros = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        if any(each is not None and each < 0 for each in micros):
            raise Misuse(
                "column eventTime is before 1970 in a row; a message cannot have that: set it to NULL"
            )
        return [0 if each is None else each // 1000 for each in micros]


def _texts(column: pa.Array, name: str, sequence: int) -> list[Any]:
    """Return the strings of a column that are text in the message.

    Raises:
        Misuse: a string of Spark is not UTF-8.
    """
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        for at in range(len(column)):
            try:
                column[at].as_py()
            except UnicodeDecodeError as error:
                raise Misuse(
                    f"column {name} is not text in row {sequence + at} of its task: {error.object!r} is not "
                    f"UTF-8; {_NO_TEXT[name]}, or decode(…, 'ISO-8859-1') if it has another encoding"
                ) from None
        raise


def null_entry(
    producer: str,
    sequence: int,
    publish_time_ms: int,
    key: str | bytes | None,
    properties: dict[str, str] | None,
    event_time_ms: int,
    ordering_key: bytes | None = None,
) -> bytes:
    """Encode a message without a value, as Pulsar's clients do."""
    told = (key, properties, event_time_ms, ordering_key)
    return message_entry(producer, sequence, publish_time_ms, None, None, *told)


def message_entry(
    producer: str,
    sequence: int,
    publish_time_ms: int,
    value: bytes | None,
    version: int | None,
    key: str | bytes | None,
    properties: dict[str, str] | None,
    event_time_ms: int,
    ordering_key: bytes | None = None,
) -> bytes:
    """Encode a message that the core does not: without a value, or with a version."""
    metadata = pb.MessageMetadata(producer_name=producer, sequence_id=sequence, publish_time=publish_time_ms)
    if value is None:
        metadata.null_value = True
    if isinstance(key, bytes):
        metadata.partition_key = base64.b64encode(key).decode()
        metadata.partition_key_b64_encoded = True
    elif key is not None:
        metadata.partition_key = key
    for name, text in (properties or {}).items():
        metadata.properties.add(key=name, value=text)
    if event_time_ms:
        metadata.event_time = event_time_ms
    if ordering_key is not None:
        metadata.ordering_key = ordering_key
    if version is not None:
        metadata.schema_version = version.to_bytes(VERSION_BYTES, "big")
    return _entry(metadata, value or b"")


def with_version(header: bytes, version: int | None) -> bytes:
    """Return the metadata of an encrypted message, with this version of its schema."""
    metadata = _metadata(header)
    metadata.ClearField("schema_version")
    if version is not None:
        metadata.schema_version = version.to_bytes(VERSION_BYTES, "big")
    return metadata.SerializeToString()


def encrypted_entry(
    producer: str, sequence: int, publish_time_ms: int, header: bytes, value: bytes | None
) -> bytes:
    """Encode an encrypted entry with its own metadata, which has the keys.

    Producer, sequence id and publish time are new.

    Raises:
        Misuse: the metadata does not decode, or is of a message that is not encrypted.
    """
    metadata = _metadata(header)
    if not metadata.encryption_keys or value is None:
        raise Misuse("column encryption is of a message that is not encrypted; set it to NULL there")
    if metadata.HasField("highest_sequence_id"):
        metadata.highest_sequence_id += sequence - metadata.sequence_id
    metadata.producer_name, metadata.sequence_id = producer, sequence
    metadata.publish_time = publish_time_ms
    return _entry(metadata, value)


def _metadata(header: bytes) -> pb.MessageMetadata:
    try:
        return pb.MessageMetadata.FromString(header)
    except DecodeError as error:
        raise Misuse(
            f"column encryption is not a MessageMetadata in a row: {error}; set it to NULL there"
        ) from None


def parts(entry: bytes, most: int | None) -> list[bytes]:
    """Split an entry that is too large into chunks, as Pulsar's clients do."""
    if most is None or len(entry) <= most:
        return [entry]
    size = int.from_bytes(entry[6:10], "big")
    metadata, payload = pb.MessageMetadata.FromString(entry[10 : 10 + size]), entry[10 + size :]
    metadata.uuid = f"{metadata.producer_name}-{metadata.sequence_id}"
    metadata.total_chunk_msg_size = len(payload)
    metadata.num_chunks_from_msg = metadata.chunk_id = (1 << 31) - 1  # their longest encoding
    step = most - 10 - metadata.ByteSize()
    if metadata.HasField("num_messages_in_batch") or metadata.encryption_keys or step <= 0:
        return [entry]  # cannot be split: the broker refuses it
    metadata.num_chunks_from_msg = -(-len(payload) // step)
    made = []
    for number in range(metadata.num_chunks_from_msg):
        metadata.chunk_id = number
        made.append(_entry(metadata, payload[number * step : (number + 1) * step]))
    return made


def _entry(metadata: pb.MessageMetadata, payload: bytes) -> bytes:
    head = metadata.SerializeToString()
    body = len(head).to_bytes(4, "big") + head + payload
    return b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body


def _key(key: str | bytes | None, encoding: str | None) -> str | bytes | None:
    """Convert a key by column keyEncoding."""
    if encoding not in (None, "base64"):
        raise Misuse(f"column keyEncoding is {encoding!r} in a row; it must be base64 or NULL")
    if key is None or (encoding is None) == isinstance(key, str):
        return key
    if isinstance(key, str):
        return key.encode()
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key  # not text


def _full_name(name: str, where: str) -> str:
    try:
        return topic_name(name)
    except HoldfastError as error:
        raise Misuse(f"{where}: {error}") from None


def _require_type(name: str, found: DataType) -> None:
    wanted = TYPES[name]
    if isinstance(found, StringType):  # any collation, char and varchar
        found = StringType()
    if isinstance(found, MapType):
        found = MapType(found.keyType, found.valueType)
    if found not in wanted:
        right = " or ".join(each.simpleString() for each in wanted)
        raise BadConfiguration(f"column {name} is {found.simpleString()}; it must be {right}: {_HINTS[name]}")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in TYPES], 1, 0.6)
    meant = next((f"; did you mean {each}?" for each in TYPES if each.lower() in near), ".")
    return (
        f"the sink has no column {name!r}{meant} It writes: {', '.join(TYPES)}; drop other columns, or put "
        "them into value or properties"
    )


__all__ = ["READ_ONLY", "TYPES", "Rows", "encrypted_entry", "message_entry", "null_entry", "parts"]
