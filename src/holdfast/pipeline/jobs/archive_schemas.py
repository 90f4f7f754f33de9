"""Keep the schemas of archived topics: one file for each version.

```
DIR/_schemas/topic=…/1-5f1c0e6a2b3c4d5e.json   version 1; behind it the beginning of the content's SHA-256
```

A run names the files of its topics. They belong to it as its Parquet files do: written and synced before the
commit, staged until they are moved. The content decides the name. So a version that an earlier run has is not
written again. A topic that was deleted and created again has other files, if it has other schemas.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

import msgspec

from holdfast.errors import Corrupt
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Run, sync
from holdfast.protocol import pulsar_pb2 as pb

FOLDER = "_schemas"
"""Readers of Parquet skip names that begin with an underscore."""
DIGEST_CHARACTERS = 16
_SPECIAL = {"Bool": "BOOLEAN", "KeyAndValue": "KEY_VALUE"}
_TYPES: dict[str, pb.Schema.Type] = {
    _SPECIAL.get(name) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper(): cast("pb.Schema.Type", number)
    for name, number in pb.Schema.Type.items()
}
"""Types by their names in Pulsar's administration."""
_NAMES = {number: name for name, number in _TYPES.items()}


class Definition(msgspec.Struct, frozen=True):
    """The content of a file."""

    version: int
    type: str
    data: str
    """Its definition: Avro for JSON, AVRO and PROTOBUF."""
    properties: dict[str, str] = {}
    name: str = ""
    encoding: Literal["text", "base64"] = "text"
    """The form of `data`: definitions that are not text, such as pairs, are in base64."""

    @classmethod
    def of(cls, version: int, schema: bytes) -> Definition:
        """Read a schema as the broker stores it."""
        found = pb.Schema.FromString(schema)
        try:
            data, is_text = found.schema_data.decode(), found.type != pb.Schema.KeyAndValue
        except UnicodeDecodeError:
            data, is_text = "", False
        return cls(
            version,
            _NAMES[found.type],
            data if is_text else base64.b64encode(found.schema_data).decode(),
            {each.key: each.value for each in found.properties},
            found.name,
            "text" if is_text else "base64",
        )

    def schema(self) -> bytes:
        """Return the schema, as the broker stores it. Raises ValueError: the file is damaged."""
        data = self.data.encode() if self.encoding == "text" else base64.b64decode(self.data, validate=True)
        if self.type not in _TYPES:
            raise ValueError(f"there is no type {self.type!r}")
        made = pb.Schema(name=self.name, type=_TYPES[self.type], schema_data=data)
        for key, value in self.properties.items():
            made.properties.add(key=key, value=value)
        return made.SerializeToString(deterministic=True)


def stage_schemas(
    directory: ArchiveDirectory, run: str, folders: Mapping[str, str], known: Mapping[str, Sequence[bytes]]
) -> dict[str, dict[int, str]]:
    """Write the schemas that the archive lacks into the staging of a run, durably.

    Args:
        directory: a locked archive.
        run: the run's id.
        folders: the names of the topics' folders.
        known: the schemas of each topic by version; an empty one stands for a deletion.

    Returns:
        The files of each topic by version.
    """
    staging, found, new = directory.staging(run), dict[str, dict[int, str]](), set[Path]()
    for topic, schemas in known.items():
        for version, each in enumerate(schemas):
            if not each:
                continue
            data = msgspec.json.format(msgspec.json.encode(Definition.of(version, each)), indent=1)
            name = f"{version}-{_digest(data)}.json"
            file = f"{FOLDER}/{folders[topic]}/{name}"
            found.setdefault(topic, {})[version] = file
            if not (directory.path / file).exists():
                place = staging / file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
                sync(place)
                new.add(place.parent)
    for folder in new:
        for above in (folder, folder.parent, staging, staging.parent):
            sync(above)
    return found


def read_schema(directory: ArchiveDirectory, run: Run, file: str) -> bytes:
    """Read a schema of a run, as the broker stores it.

    Raises:
        Corrupt: its file is missing or damaged.
    """
    place = directory.find(run, file)
    data = place.read_bytes()
    if _digest(data) != place.stem.partition("-")[2]:
        raise Corrupt(f"{place} does not have its digest; restore it from a copy")
    try:
        return msgspec.json.decode(data, type=Definition).schema()
    except (msgspec.MsgspecError, ValueError, binascii.Error) as error:
        raise Corrupt(f"{place} does not decode: {error}; use a newer holdfast") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_CHARACTERS]
