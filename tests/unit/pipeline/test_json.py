"""Test JSON values as typed columns without Spark: each in its row, in linear time."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from holdfast.pipeline.source.json_values import DEPTH_MAX, decode_each, decode_fast, decode_values
from tests.kit.examples import examples
from tests.kit.spark.json_documents import DOCUMENTS, as_column, nest, norm

KIND = pa.struct(
    [
        ("a", pa.int64()), ("b", pa.string()), ("c", pa.float64()), ("d", pa.bool_()), ("e", pa.int32()),
        ("f", pa.float32()), ("l", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int32())),
        ("n", pa.decimal128(5, 2)), ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("t", pa.timestamp("us", "UTC")), ("u", pa.timestamp("us")), ("w", pa.date32()), ("z", pa.binary()),
        ("q", pa.list_(pa.struct([("x", pa.int32())]))), ("g", pa.int16()),
    ]
)  # fmt: skip
"""The same for Arrow."""


PLAIN = pa.struct(
    [
        ("a", pa.int64()),
        ("b", pa.string()),
        ("c", pa.float64()),
        ("d", pa.bool_()),
        ("l", pa.list_(pa.int32())),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)


AB = pa.struct([("a", pa.int64()), ("b", pa.string())])


DIFFERENT: list[tuple[bytes, dict[str, Any], str]] = [
    (b"{'a': 1}", {}, "single quotes"),
    (b'{"c":+Infinity,"b":"x"}', {}, "only NaN, Infinity and -Infinity"),
    (b'{"t":"10:00"}', {"t": None}, "a time without a day"),
    (b'{"t":"10000-01-01","w":"0000-01-01"}', {}, "the years 1 to 9999"),
    (b'{"t":253402300800,"w":"5"}', {}, "the same, and days as a number"),
    (b'{"b":1.10}', {"b": "1.10"}, "numbers keep their digits"),
    (b'{"b":NaN}', {"b": "NaN"}, "a text is not quoted twice"),
    (b'{"a":1,"a":"x"}', {}, "of a field that comes twice the last counts"),
    (b'{"s":{"x":1,"x":"q"}}', {"s": {"x": None, "y": None}}, "the same"),
    (b'{"b":{"x":1,"x":2}}', {"b": '{"x":2}'}, "the same"),
    (b'{"n":" 1"}', {"n": Decimal("1.00")}, "blanks around a number"),
    (b'{"t":"2020","u":"2020-01","w":"2020-1-1"}', {}, "a day has ten characters"),
    (b'{"t":"2020-01-01T00:00:00 Europe/Berlin"}', {}, "a zone is an offset"),
    (b'{"t":"2020-01-01T00:00:00+5:30"}', {}, "an offset has two digits each"),
    (b'{"w":"2020-01-01T"}', {}, "a day with half a time"),
    (nest(DEPTH_MAX + 1), {}, "not so deep"),
    (b'{"a":1,"b":' + b'{"b":' * 5000, {}, "not so deep"),
]
"""The differences to Spark that docs/guide/source.md lists."""


def test_what_the_page_says_is_different() -> None:
    for value, own, why in DIFFERENT:
        (found,) = decode_values(as_column([value]), KIND).to_pylist()
        assert found == {**dict.fromkeys(field.name for field in KIND), **own}, why


@pytest.mark.parametrize(
    "values",
    [
        [b'{"a":1}{"a":2}', b"", b'{"a":3}'],
        [b'{"a":[', b'{"b":1}]}', b'{"a":1}{"a":2}'],
        [b'{"a":1}{"a":2}', b"   ", b'{"a":3}'],
        [b'{"a":1} {"a":2}', b"{", b'{"a":3}'],
        [b'{"a":1,"b":"x', b'"}', b'{"a":1}{"a":2}'],
        [b'{"a":1,"b":"x\n"}', b'{"a":1}{"a":2}'],
        [b'{"a":1}\n{"a":2}', b"", b'{"a":3}'],
        [b'{"a":1}\r{"a":2}', b'{"a":[1,{"a":3}', b'{"a":4}]}'],
        [b'{"q":[', b'{"x":1}]}', b'{"q":[]}{"q":[{"x":2}]}'],
        [b'{"q":[]}{"q":[{"x":2}]}', b'{"q":[', b'{"x":1}]}'],
    ],
)
def test_a_value_of_several_documents_keeps_to_its_row(values: list[bytes]) -> None:
    """I159."""
    kind = pa.struct([*AB, ("q", pa.list_(pa.struct([("x", pa.int32())])))])
    alone = [decode_values(as_column([each]), kind)[0].as_py() for each in values]
    assert decode_values(as_column(values), kind).to_pylist() == alone


def test_what_is_nested_needs_little_of_the_stack() -> None:
    """At the largest depth, also with a deep call stack."""
    inside = b'{"q":' * (DEPTH_MAX - 1) + b"1" + b"}" * (DEPTH_MAX - 1)

    def at(depth: int) -> Any:
        return at(depth - 1) if depth else decode_values(as_column([b'{"b":' + inside + b"}", None]), AB)

    assert at(300).to_pylist() == [{"a": None, "b": inside.decode()}, None]


@pytest.mark.parametrize(
    ("begin", "repeated", "end"),
    [
        (b'{"a":1,"b":' + b"[" * (DEPTH_MAX + 1) + b'"', b'\\"', b""),
        (b'{"a":1,"b":' + b"[" * (DEPTH_MAX + 1) + b'"', b'\\"', b"\\"),
        (b'{"a":1,"n":"', b"1", b'x"}'),
    ],
    ids=["a text that does not end", "nor its last mark", "digits"],
)
def test_a_value_takes_time_as_its_length(begin: bytes, repeated: bytes, end: bytes) -> None:
    """I159, and it delays no batch: the time is linear.

    If the decoder tried each beginning up to the end, 15 times the length would take 225 times as long.
    """

    def seconds(count: int) -> float:
        value, began = begin + repeated * count + end, time.process_time()
        found = decode_values(as_column([b'{"a":2}', value]), KIND).to_pylist()
        taken = time.process_time() - began
        assert found[0]["a"] == 2
        assert found[1]["a"] == (1 if value.endswith(b"}") else None)
        assert found[1]["n"] is None
        return taken

    seconds(1)  # what is done once
    short, long = (min(seconds(count) for _ in range(5)) for count in (2_000, 30_000))
    assert long < 60 * short


VALUES = st.one_of(
    st.sampled_from([each for each in DOCUMENTS if len(each) < 5000]),
    st.binary(max_size=12),
    st.text('{}[]:,"ab 1\\ud80\n', max_size=16).map(str.encode),
    st.fixed_dictionaries(
        {},
        optional={
            "a": st.integers(-(1 << 64), 1 << 64) | st.text(max_size=3),
            "b": st.text(max_size=8),
            "c": st.floats() | st.integers(),
            "d": st.booleans() | st.none(),
            "l": st.lists(st.integers(-5, 1 << 31) | st.none(), max_size=4),
            "s": st.fixed_dictionaries({}, optional={"x": st.integers(0, 9), "y": st.text(max_size=3)}),
        },
    ).map(lambda found: json.dumps(found, ensure_ascii=len(found) % 2 == 0).encode("utf-8", "surrogatepass")),
)


@examples(80, 3000, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES | st.none(), max_size=6))
def test_neighbours_change_nothing(values: list[bytes | None]) -> None:
    """I159: a batch is its values, each by itself and without Arrow's parser."""
    alone = decode_each(as_column(values), PLAIN)
    found = decode_values(as_column(values), PLAIN)
    found.validate(full=True)
    assert norm(found.to_pylist()) == norm(alone.to_pylist())


def test_a_sound_batch_is_decoded_at_once() -> None:
    values = [
        b'{"a":%d,"b":"\xc3\xa4\\u00e4","c":1.5,"l":[1],"s":{"x":1},"more":{}}' % i for i in range(1000)
    ]
    column = as_column([b"{", *values, b"{"])[1:-1]
    found = decode_fast(column, PLAIN)
    assert found is not None
    assert found.to_pylist()[7] == {
        "a": 7, "b": "ää", "c": 1.5, "d": None, "l": [1], "s": {"x": 1, "y": None}
    }  # fmt: skip
