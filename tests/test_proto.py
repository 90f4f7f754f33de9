"""The protocol's description: its generated code is that of its sources, and the official client agrees."""

from __future__ import annotations

from pathlib import Path

from generate_proto import FILES, SOURCE, generate
from holdfast.wire.proto import pulsar_pb2 as pb


def test_the_generated_code_is_that_of_its_sources(tmp_path: Path) -> None:
    assert [path.name for path in FILES] == ["common.proto", "private.proto", "pulsar.proto"]
    for made in generate(tmp_path):
        assert (tmp_path / made).read_bytes() == (SOURCE / made).read_bytes(), (
            f"{made} is old: run `python tests/generate_proto.py`"
        )


def test_each_type_of_command_has_its_field_under_the_same_number() -> None:
    command = pb.BaseCommand.DESCRIPTOR
    types = {value.number for value in pb.BaseCommand.Type.DESCRIPTOR.values}
    assert types == {field.number for field in command.fields} - {1}
    for field in command.fields:
        assert field.number == 1 or field.message_type is not None
