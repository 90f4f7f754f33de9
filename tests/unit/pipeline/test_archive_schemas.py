"""The schemas of an archive and of a replay (I189), without Spark: files, crashes, versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.errors import Corrupt, IncompatibleSchema, Misuse
from holdfast.pipeline.archive import ARCHIVED, digested, folders_of
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Kind, Range, Run
from holdfast.pipeline.jobs.archive_schemas import Definition, read_schema, stage_schemas
from holdfast.pipeline.jobs.replay_schemas import Version, add_schemas
from holdfast.protocol import pulsar_pb2 as pb

ORDERS, BILLS = "persistent://public/default/orders", "persistent://public/default/bills"
FOLDER = "_schemas/topic=persistent%3A%2F%2Fpublic%2Fdefault%2Forders"


def schema(definition: str = "", kind: pb.Schema.Type = pb.Schema.Avro, **properties: str) -> bytes:
    made = pb.Schema(name="s", type=kind, schema_data=definition.encode())
    for key, value in properties.items():
        made.properties.add(key=key, value=value)
    return made.SerializeToString(deterministic=True)


ONE, TWO, THREE = schema('{"type": "int"}'), schema('{"type": "long"}'), schema('"string"', pb.Schema.Json)


def run_of(
    directory: ArchiveDirectory, number: int, known: dict[str, Sequence[bytes]], kind: Kind = "archive"
) -> Run:
    """Return a run without rows whose schemas are staged."""
    ident = f"run-{number}"
    files = stage_schemas(directory, ident, folders_of(known), known)
    topics = {topic: Range("aa", 0, 0) for topic in known}
    return Run(3, kind, number, ident, "now", topics, [], files)


def added(directory: ArchiveDirectory, number: int, *known: bytes, kind: Kind = "archive") -> Run:
    with directory.changing():
        run = run_of(directory, number, {ORDERS: known}, kind)
        directory.commit(run)
        directory.place(run)
        return run


def files(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.glob("_schemas/*/*"))


# -- definitions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(pb.Schema.Type.values()), ids=pb.Schema.Type.Name)
def test_each_type_comes_back(kind: Any) -> None:
    for data in (b"", b'{"name": "\xc3\xa4"}', b"\x00\x00\x00\x01x\xff\x80"):
        made = pb.Schema(name="n", type=kind, schema_data=data)
        made.properties.add(key="key.schema.type", value="STRING")
        encoded = made.SerializeToString(deterministic=True)
        found = Definition.of(3, encoded)
        assert (found.version, found.schema()) == (3, encoded)
        assert found.type == found.type.upper()


def test_a_file_is_for_people_and_tools(tmp_path: Path) -> None:
    run = added(ArchiveDirectory(tmp_path), 1, schema('{"type": "int"}', by="shop"))
    (file,) = files(tmp_path)
    assert file.startswith(f"{FOLDER}/0-")
    found = json.loads((tmp_path / file).read_text())
    assert found == {
        "version": 0,
        "type": "AVRO",
        "data": '{"type": "int"}',
        "properties": {"by": "shop"},
        "name": "s",
        "encoding": "text",
    }
    assert run.schemas == {ORDERS: {0: file}}


# -- runs ----------------------------------------------------------------------------------------------


def test_a_version_is_written_once(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path)
    first = added(directory, 1, ONE)
    before = (tmp_path / first.schemas[ORDERS][0]).stat().st_ino
    second = added(directory, 2, ONE, b"", TWO)
    assert second.schemas[ORDERS].keys() == {0, 2}, "a deletion has no file"
    assert second.schemas[ORDERS][0] == first.schemas[ORDERS][0]
    assert (tmp_path / first.schemas[ORDERS][0]).stat().st_ino == before
    third = added(directory, 3, TWO)  # the topic was deleted and created again
    assert third.schemas[ORDERS][0] != first.schemas[ORDERS][0]
    assert len(files(tmp_path)) == 3
    there = ArchiveDirectory.there(tmp_path)
    found = {run.number: read_schema(there, run, run.schemas[ORDERS][0]) for run in there.runs()}
    assert found == {1: ONE, 2: ONE, 3: TWO}


def test_what_was_not_committed_goes(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path)
    with directory.changing():
        run_of(directory, 1, {ORDERS: [ONE]})  # and then it was killed
    with directory.changing() as recovered:
        assert recovered.removed == 1
    assert files(tmp_path) == []


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_what_was_committed_is_finished(tmp_path: Path, moved: int) -> None:
    directory = ArchiveDirectory(tmp_path)
    with directory.changing():
        run = run_of(directory, 1, {ORDERS: [ONE, TWO]})
        directory.commit(run)
        # Readers find them before they have moved.
        assert [read_schema(directory, run, each) for each in run.schema_files] == [ONE, TWO]
        for file in run.schema_files[:moved]:  # and then it was killed
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (directory.staging(run.id) / file).replace(tmp_path / file)
    with directory.changing() as recovered:
        assert recovered.moved == 2 - moved
    assert files(tmp_path) == sorted(run.schema_files)
    directory.require_files([run])


def test_files_that_are_missing_or_damaged(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path)
    run = added(directory, 1, ONE, TWO)
    one, two = (tmp_path / each for each in run.schema_files)
    two.write_bytes(two.read_bytes().replace(b"long", b"int "))
    with pytest.raises(Corrupt, match=r"1-\w+\.json does not have its digest; restore it from a copy"):
        read_schema(directory, run, run.schema_files[1])
    one.unlink()
    for work in (
        lambda: directory.require_files([run]),
        lambda: read_schema(directory, run, run.schema_files[0]),
    ):
        with pytest.raises(Corrupt, match=r"0-\w+\.json is missing, a file of run 1"):
            work()


def test_a_result_has_the_schemas_of_its_last_run(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path, "compacted")
    added(directory, 1, ONE, TWO, kind="compacted")
    last = added(directory, 2, ONE, THREE, kind="compacted")
    with directory.changing():
        assert [run.number for run in directory.runs()] == [2]
    assert files(tmp_path) == sorted(last.schema_files)


def test_runs_of_former_versions() -> None:
    made = {"version": 2, "kind": "archive", "number": 1, "id": "a", "made": "", "topics": {}, "parts": []}
    run = msgspec.convert(made, Run)
    assert (run.schemas, run.schema_files) == ({}, [])
    assert {*ARCHIVED} - {*digested(run)} == {"schemaVersion"}
    assert {*ARCHIVED} - {*digested(msgspec.structs.replace(run, version=1))} == {
        "schemaVersion",
        "storedTime",
    }
    assert digested(msgspec.structs.replace(run, version=3)) == [*ARCHIVED]


# -- replays -------------------------------------------------------------------------------------------


class Registry:
    """A broker's schemas; topics may have some already."""

    def __init__(self, **known: list[bytes]) -> None:
        self.known = {f"persistent://public/default/{name}": each for name, each in known.items()}

    def add_schema(self, topic: str, schema: bytes) -> int:
        if topic.endswith("exchange"):
            raise Misuse(f"{topic} is an exchange and has no schemas")
        known = self.known.setdefault(topic, [])
        if schema == THREE and known and THREE not in known:
            raise IncompatibleSchema("value: type string is not long")
        if schema not in known:
            known.append(schema)
        return known.index(schema)


Runs = Callable[..., tuple[ArchiveDirectory, dict[int, Run]]]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Return an archive whose runs have these schemas."""

    def made(*known: Sequence[bytes]) -> tuple[ArchiveDirectory, dict[int, Run]]:
        directory = ArchiveDirectory(tmp_path)
        return directory, {number: added(directory, number, *each) for number, each in enumerate(known, 1)}

    return made


def give(
    registry: Registry, there: tuple[ArchiveDirectory, dict[int, Run]], to: str, *named: tuple[int, int]
) -> dict[tuple[int, int], int]:
    client: Any = registry
    found = add_schemas(client, *there, [Version(ORDERS, *each) for each in named], to)
    assert {each.topic for each in found} <= {ORDERS}
    return {(each.run, each.version): version for each, version in found.items()}


def test_versions_of_another_topic(runs: Runs) -> None:
    """The target has one of the schemas under another number."""
    registry, there = Registry(again=[TWO]), runs([ONE, TWO])
    assert give(registry, there, "*-again", (1, 0), (1, 1)) == {(1, 0): 0, (1, 1): 1}
    assert registry.known[f"{ORDERS}-again"] == [ONE, TWO]
    assert give(registry, there, "again", (1, 0), (1, 1)) == {(1, 0): 1, (1, 1): 0}
    assert give(registry, there, "again", (1, 0), (1, 1)) == {(1, 0): 1, (1, 1): 0}, "started again"


def test_schemas_are_added_up_to_the_last_that_is_named(runs: Runs) -> None:
    registry, there = Registry(), runs([ONE, TWO, THREE])
    assert give(registry, there, "again", (1, 1)) == {(1, 0): 0, (1, 1): 1}
    assert registry.known["persistent://public/default/again"] == [ONE, TWO]


def test_a_topic_that_was_created_again(runs: Runs) -> None:
    """Version 0 of its first life is not version 0 of its second one."""
    registry, there = Registry(), runs([ONE], [TWO])
    assert give(registry, there, "again", (1, 0), (2, 0)) == {(1, 0): 0, (2, 0): 1}


def test_versions_without_a_definition(runs: Runs) -> None:
    """A producer named a version that its topic did not have."""
    assert give(Registry(), runs([ONE], []), "again", (1, 9), (2, 0)) == {(1, 0): 0}


def test_a_schema_that_does_not_fit_its_target(runs: Runs) -> None:
    there = runs([ONE, THREE])
    words = "the schema of version 1 of .*/orders does not fit .*/again: value: type.*ALWAYS_COMPATIBLE"
    with pytest.raises(IncompatibleSchema, match=words):
        give(Registry(), there, "again", (1, 1))
    assert give(Registry(), there, "an-exchange", (1, 1)) == {}, "an exchange has no schemas"
