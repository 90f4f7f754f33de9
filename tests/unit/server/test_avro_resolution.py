"""Avro definitions and their resolution, compared with the `avro` library and with real values.

The library parses the same definitions and has the same rules for one pair of types. Its own comparison is
not the measure. It keeps verdicts that it reached while another one was only assumed, so they depend on the
order of types. `Oracle` applies its rules again until nothing changes.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from typing import Any

import avro.errors
import avro.name
import avro.schema
import fastavro
import pytest
from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
)
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from holdfast.errors import BadSchema, IncompatibleSchema
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import avro_definition, compatibility, definition, resolution
from holdfast.server.registry.compatibility import require_compatible
from holdfast.server.registry.resolution import Resolution
from tests.kit.examples import examples
from tests.kit.server.avro_definitions import definitions

FINE = SchemaCompatibilityResult(SchemaCompatibilityType.compatible)
MISFIT = SchemaCompatibilityResult(SchemaCompatibilityType.incompatible)
SETTINGS: dict[str, Any] = {"suppress_health_check": [*HealthCheck]}


# -- the library ---------------------------------------------------------------------------------------


def parsed_by_library(tree: Any) -> avro.schema.Schema | None:
    """Return what the library makes of a definition; None: it refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            names = avro.name.Names(validate_names=False)
            return avro.schema.make_avsc_object(tree, names, validate_names=False)
        except (ValueError, avro.errors.AvroException, TypeError, AttributeError, KeyError):
            return None


def parsed(tree: Any) -> avro_definition.Type | None:
    try:
        return avro_definition.parsed(tree)
    except BadSchema:
        return None


class Oracle(ReaderWriterCompatibilityChecker):
    """The library's rules for one pair of types, applied to all pairs until none changes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fits: dict[tuple[int, int], bool] = {}
        self.pairs: list[tuple[avro.schema.Schema, avro.schema.Schema]] = []

    def get_compatibility(
        self,
        reader: avro.schema.Schema,
        writer: avro.schema.Schema,
        reference_token: str = "/",  # no password
        location: list[str] | None = None,
    ) -> SchemaCompatibilityResult:
        key = id(reader), id(writer)
        if key not in self.fits:
            self.fits[key] = True
            self.pairs.append((reader, writer))
        return FINE if self.fits[key] else MISFIT

    def verdict(self, reader: avro.schema.Schema, writer: avro.schema.Schema) -> bool:
        self.get_compatibility(reader, writer)
        changed = True
        while changed:
            changed = False
            for pair in self.pairs:  # grows
                found = self.calculate_compatibility(*pair, [])
                fits = found.compatibility is SchemaCompatibilityType.compatible
                changed |= self.fits[id(pair[0]), id(pair[1])] != fits
                self.fits[id(pair[0]), id(pair[1])] = fits
        return self.fits[id(reader), id(writer)]


@examples(50, 4000, **SETTINGS)
@given(definitions())
def test_the_verdict_is_that_of_the_librarys_rules(pair: tuple[Any, Any]) -> None:
    ours, theirs = [[parse(each) for each in pair] for parse in (parsed, parsed_by_library)]
    assert [each is None for each in ours] == [each is None for each in theirs]
    if None in ours or None in theirs:
        return
    for reader, writer in ((0, 1), (1, 0), (0, 0), (1, 1)):
        found = Resolution(lambda steps: None)
        verdict = found.fits(ours[reader], ours[writer])  # type: ignore[arg-type]
        assert verdict == Oracle().verdict(theirs[reader], theirs[writer])  # type: ignore[arg-type]
        if not verdict:
            assert found.explained(ours[reader], ours[writer])  # type: ignore[arg-type]


# -- real values ---------------------------------------------------------------------------------------


class Endless(Exception):
    """A type that contains itself has no value of this depth."""


def value_of(draw: Callable[[st.SearchStrategy[Any]], Any], type_: avro_definition.Type, depth: int) -> Any:
    """Return a value that a writer may write."""
    if depth == 0:
        raise Endless
    if isinstance(type_, avro_definition.Primitive):
        return draw(PLAIN[type_.kind])
    if isinstance(type_, avro_definition.Fixed):
        return bytes(type_.size)
    if isinstance(type_, avro_definition.Enum):
        return draw(st.sampled_from(sorted(type_.symbols)))
    if isinstance(type_, avro_definition.Record):
        return {each.name: value_of(draw, each.type, depth - 1) for each in type_.fields}
    if isinstance(type_, avro_definition.Union):
        if not type_.branches:
            raise Endless
        return value_of(draw, draw(st.sampled_from(type_.branches)), depth - 1)
    if draw(st.booleans()):
        return [] if isinstance(type_, avro_definition.Array) else {}
    inner = value_of(draw, type_.inner, depth - 1)
    return [inner] if isinstance(type_, avro_definition.Array) else {"k": inner}


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.sampled_from([0.0, 1.5]),
    "double": st.sampled_from([0.0, 1.5]),
    "bytes": st.just(b"b"),
    "string": st.sampled_from(["", "s"]),
}


@examples(50, 4000, **SETTINGS)
@given(definitions(plain=True), st.data())
def test_what_fits_is_decoded(pair: tuple[Any, Any], data: st.DataObject) -> None:
    reader, writer = map(parsed, pair)
    if reader is None or writer is None or not Resolution(lambda steps: None).fits(reader, writer):
        return
    try:
        value = value_of(data.draw, writer, 8)
    except Endless:
        return
    file = io.BytesIO()
    fastavro.schemaless_writer(file, pair[1], value)
    file.seek(0)
    fastavro.schemaless_reader(file, pair[1], pair[0])
    assert not file.read()


# -- what differs from the library ---------------------------------------------------------------------


def record(name: str, *fields: Any, **more: Any) -> dict[str, Any]:
    """Return a record; a field is a type, or an object with its name."""
    made = [
        each
        if isinstance(each, dict) and "type" in each and "name" in each
        else {"name": f"f{at}", "type": each}
        for at, each in enumerate(fields)
    ]
    return {"type": "record", "name": name, "fields": made, **more}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}
FIXED = {"type": "fixed", "name": "F", "size": 1}


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (
            record("A", field("x", record("B")), field("y", record("n.C", field("z", "B")))),
            "Java's clients name a type without namespace alone; the library looks only into the namespace",
        ),
        (
            record("n.A", field("x", {**ENUM, "namespace": ""}), field("y", ENUM)),
            "an empty namespace is none, as Avro says; the library takes the one around it",
        ),
        (
            {"type": "error", "name": "n.A", "fields": [field("x", FIXED), field("y", "n.F")]},
            "an error has a namespace for its fields, as a record; the library forgets it",
        ),
        ({"type": "int", "logicalType": {"a": 1}}, "logical types are not looked at; the library fails"),
    ],
)
def test_definitions_that_the_library_refuses(tree: Any, why: str) -> None:
    assert parsed(tree) is not None, why
    assert parsed_by_library(tree) is None, why


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        ({**ENUM, "symbols": "AB"}, "symbols are a list, no text"),
        ({**ENUM, "symbols": ["a-b.C"]}, "a symbol is a name, without a path in front"),
        ({**ENUM, "symbols": ["A\n"]}, "a symbol is a name, without an end of line"),
        ({**FIXED, "size": True}, "a size is a number"),
    ],
)
def test_definitions_that_the_library_accepts(tree: Any, why: str) -> None:
    assert parsed(tree) is None, why
    assert parsed_by_library(tree) is not None, why


def fits(reader: Any, writer: Any) -> bool:
    return Resolution(lambda steps: None).fits(avro_definition.parsed(reader), avro_definition.parsed(writer))


def by_library(reader: Any, writer: Any) -> bool:
    ours, theirs = map(parsed_by_library, (reader, writer))
    assert ours is not None
    assert theirs is not None
    return Oracle().verdict(ours, theirs)


def test_an_alias_without_namespace_has_that_of_its_type() -> None:
    """So says Avro. The library compares it with the full name."""
    new, old = record("n.New", aliases=["Old"]), record("n.Old")
    assert fits(new, old)
    assert not by_library(new, old)
    assert not fits(record("m.New", aliases=["Old"]), old)
    assert fits(record("m.New", aliases=["n.Old"]), old)


def test_a_name_of_a_primitive_type_is_that_type() -> None:
    """Avro reserves these names in every namespace. The library prefers a type that took one."""
    taken = record("n.A", field("x", {"type": "fixed", "name": "int", "size": 1}), field("y", "int"))
    plain = record(
        "n.A", field("x", {"type": "fixed", "name": "int", "size": 1}), field("y", {"type": "int"})
    )
    assert fits(taken, plain)
    assert not by_library(taken, plain)


def test_errors_are_compared_as_records() -> None:
    """The library cannot compare them."""
    error = {"type": "error", "name": "A", "fields": [field("x", "int")]}
    assert fits(error, error)
    assert fits(record("A", field("x", "long")), error)
    assert not fits(error, record("A", field("x", "long")))
    with pytest.raises(avro.errors.AvroRuntimeException):
        by_library(error, error)


def test_aliases_that_are_no_list_have_no_effect() -> None:
    """The library takes each letter of a text for an alias."""
    reader, writer = record("A", field("y", "int", aliases="x")), record("A", field("x", "int"))
    assert not fits(reader, writer)
    assert by_library(reader, writer)


def test_a_verdict_does_not_follow_from_one_that_was_assumed() -> None:
    """The library's own comparison keeps such verdicts; so its rules are applied by `Oracle`."""
    inner = record("B", field("a", "A"))
    reader = record("A", field("u", [inner, "null"]), field("x", "int"))
    writer = record("A", field("u", [inner, "null"]), field("x", "string"))
    assert not fits(reader, writer)
    assert not by_library(reader, writer)


# -- cost ----------------------------------------------------------------------------------------------


def steps_of(reader: Any, writer: Any) -> tuple[int, bool, str]:
    """Return the steps that a comparison takes, its verdict, and why it does not fit."""
    taken = [0]

    def take(steps: int) -> None:
        taken[0] += steps

    found = Resolution(take)
    pair = avro_definition.parsed(reader), avro_definition.parsed(writer)
    verdict = found.fits(*pair)
    return taken[0], verdict, "" if verdict else found.explained(*pair)


def chain(length: int, last: Any, space: str = "") -> Any:
    """Return records, each with a field of the record before it."""
    names = [f"{space}R{at}" for at in range(length)]
    return record(
        "Top",
        *[
            field(f"f{at}", record(names[at], field("next", names[at - 1] if at else last)))
            for at in range(length)
        ],
    )


def test_a_chain_of_names_takes_a_step_for_each() -> None:
    """It does not take the stack: names chain any number of types."""
    steps, verdict, _ = steps_of(chain(1000, "long"), chain(1000, "int"))
    assert verdict
    assert steps < 2500
    steps, verdict, why = steps_of(chain(1000, "int"), chain(1000, "long"))
    assert not verdict
    assert steps < 2500
    assert why == "field f0.next: a reader of int cannot decode long"
    long_way = record("Top", field("x", {"type": "array", "items": chain(500, "int")["fields"][0]["type"]}))
    assert steps_of(long_way, long_way)[1]


def wide(count: int, prefix: str, *fields: Any) -> list[Any]:
    return [record(f"{prefix}{at}.X", *fields) for at in range(count)]


def test_a_wide_union_takes_a_step_for_each_pair_of_branches() -> None:
    steps, verdict, why = steps_of(wide(50, "a", "int"), wide(50, "b", "string"))
    assert not verdict
    assert 50 * 50 <= steps < 4000
    assert why == "the schema: a reader of a union of " + why.partition("a union of ")[2]
    assert why.count("…") == 2
    assert steps_of(wide(50, "a", "long"), wide(50, "b", "int"))[1]


def circles(length: int, *more: Any) -> Any:
    """Return a circle of types of the same name: each contains the next one."""
    made: Any = "c0.X"
    for at in range(length - 1, -1, -1):
        made = record(f"c{at}.X", field("next", ["null", made]), *more)
    return made


def test_circles_take_a_step_for_each_pair_that_meets() -> None:
    steps, verdict, _ = steps_of(circles(7), circles(8))
    assert verdict
    assert steps <= 8 * 7 * 8
    steps, verdict, why = steps_of(circles(6, field("more", "int")), circles(8))
    assert not verdict
    assert steps <= 8 * 6 * 8
    assert why.endswith("more: the reader has no default for it, and the writer does not have it")


def test_fields_of_large_records_are_counted() -> None:
    """Else a few small versions would have the largest record compared with each of thousands."""
    large = record("X", *[field(f"f{at}", "int", default=0) for at in range(200)])
    steps, verdict, _ = steps_of(large, wide(100, "b"))
    assert verdict
    assert steps > 100 * 20


def test_a_reason_makes_no_other_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long way to the first reason has many others beside it."""
    made: list[object] = []
    shown = resolution._shown

    def count(path: Any) -> str:
        made.append(path)
        return shown(path)

    monkeypatch.setattr(resolution, "_shown", count)
    missing = [field(f"f{at}", "int") for at in range(300)]
    reader = record("r.X", field("next", "r.X"), *missing)
    _, verdict, why = steps_of(reader, chain_of_one_name(20))
    assert not verdict
    assert len(made) == 1
    assert why.startswith(f"field {'next.' * 20}")


def chain_of_one_name(length: int) -> Any:
    made: Any = record("w.X", field("next", "int"))
    for at in range(length):
        made = record(f"w{at}.X", field("next", made))
    return made


def schema(tree: Any) -> pb.Schema:
    return pb.Schema(name="s", type=pb.Schema.Avro, schema_data=json.dumps(tree).encode())


def test_steps_have_an_end_over_all_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "STEPS_MAX", 1_000)
    large = record("X", *[field(f"f{at}", "int", default=0) for at in range(100)])
    old = [schema(record("Top", field("u", wide(40, f"v{at}n")))) for at in range(8)]
    new = schema(record("Top", field("u", large)))
    require_compatible("BACKWARD", old, new)
    with pytest.raises(IncompatibleSchema, match="need more than 1,000 comparisons"):
        require_compatible("BACKWARD_TRANSITIVE", old, new)


# -- words ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "writer", "words"),
    [
        ("int", "string", "the schema: a reader of int cannot decode string"),
        ("int", ["int", "null"], "the schema: a reader of int cannot decode a union of int, null"),
        (
            record("A", field("y", ["A"])),
            record("A", field("y", ["null", "A"])),
            "field y: a reader of a union of A cannot decode a union of null, A",
        ),
        (
            record("A", field("y", [record("B", field("x", "A"))])),
            record("A", field("y", ["null", record("B", field("x", "A"))])),
            "field y: a reader of a union of B cannot decode a union of null, B",
        ),
        (
            record("A", field("y", ["null", "A"]), field("z", "int")),
            record("A", field("y", ["null", "A"])),
            "field z: the reader has no default for it, and the writer does not have it",
        ),
        (
            record("A", field("m", {"type": "map", "values": {"type": "array", "items": "int"}})),
            record("A", field("m", {"type": "map", "values": {"type": "array", "items": "float"}})),
            "field m[][]: a reader of int cannot decode float",
        ),
        (
            {"type": "array", "items": FIXED},
            {"type": "array", "items": {**FIXED, "size": 2}},
            "field []: a reader of F cannot decode F",
        ),
        (
            {**ENUM, "name": "n.E"},
            {**ENUM, "symbols": ["B", "A", "C"]},
            "the schema: the reader has no symbol B, C, and no default",
        ),
        (
            record("A", field("x", record("B", field("z", "int", aliases=["y"])))),
            record("A", field("x", record("B", field("y", "boolean")))),
            "field x.z: a reader of int cannot decode boolean",
        ),
        (
            record("A", field("x", ["null", record("B", field("y", "int"))])),
            record("A", field("x", ["null", record("C", field("y", "int"))])),
            "field x: the record is named B, and C for the writer",
        ),
    ],
)
def test_the_words_of_a_reason(reader: Any, writer: Any, words: str) -> None:
    assert steps_of(reader, writer)[1:] == (False, words)


def test_fields_of_the_same_types_are_compared_once() -> None:
    """So a hundred versions of a record with hundreds of fields can be compared."""
    fields = [field(f"f{at}", "int") for at in range(400)]
    steps, verdict, _ = steps_of(
        record("Order", *fields, field("x", "long")), record("Order", *fields, field("x", "int"))
    )
    assert verdict
    assert 2 * 100 * steps < compatibility.STEPS_MAX


def test_wide_unions_in_many_fields_are_counted() -> None:
    """Their branches are the same pairs again, and each is noted."""

    def of(prefix: str) -> Any:
        names = [f"{prefix}{at}.X" for at in range(30)]
        return record("Top", field("u", wide(30, prefix)), *[field(f"g{at}", names) for at in range(20)])

    assert steps_of(of("a"), of("b"))[0] > 30 * 30 + 20 * 30 * 30 // 3


def test_each_definition_is_parsed_once_for_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def count(data: bytes, type_: str) -> avro_definition.Type:
        parsed.append(data)
        return definition.record(data, type_)

    monkeypatch.setattr(compatibility, "record", count)
    known = [schema(record("X", field(f"f{at}", "int", default=0))) for at in range(10)]
    require_compatible("FULL_TRANSITIVE", known, schema(record("X")))
    assert len(parsed) == len({*parsed}) == 11
