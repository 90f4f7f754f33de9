"""JSON values as typed columns: what Spark's `from_json` makes of them, whatever they stand beside."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.pipeline import json_values
from holdfast.pipeline.json_values import DEPTH_MAX, decode_fast, decode_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = (
    "a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e INT, f FLOAT, l ARRAY<INT>, m MAP<STRING, INT>, "
    "n DECIMAL(5,2), s STRUCT<x: INT, y: STRING>, t TIMESTAMP, u TIMESTAMP_NTZ, w DATE, z BINARY, "
    "q ARRAY<STRUCT<x: INT>>, g SMALLINT"
)
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


def nest(depth: int) -> bytes:
    """A document of this depth that has a field that is wanted."""
    return b'{"a":1,"more":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


DOCUMENTS = [
    b"", b" ", b"\n\t\r ", b"\x0b", b"1 2", b"null", b"5", b'"x"', b"[1]", b'[{"a":1}]', b"{}", b"no json",
    b"{", b"}", b'{"a":1}{"a":2}', b'{"a":1} xx', b' {"a":1}\n{"a":2}', b'{"a":1}},{"a":2}', b'{"a":1}\xff',
    b'{"a":[', b'{"b":1}]}', b'{"a":1', b'{"a":1,"b":', b'{"a":1,"b":"x" "c"}', b'{"a":1,}', b'{"a":1,,}',
    b"{a:1}", b'{"a":01}', b'// c\n{"a":1}', b'{"a":1,"a":2}', b'{"a":1,"a":null}', b'{"a":1,"a":"x"}',
    b'{"a":"x","a":3}', b'{"s":{"x":1},"s":{"y":"2"}}', b'{"s":{"x":1,"x":"q"}}', b'{"s":{"x":1},"s":null}',
    b'{"m":{"a":1},"m":{"b":2}}', b'{"m":{"a":1,"b":"x"}}', b'{"a":"7"}', b'{"a":7.0}', b'{"a":1e2}',
    b'{"a":9223372036854775807}', b'{"a":9223372036854775808}', b'{"A":4}',
    b'{"a":-9223372036854775809,"b":"kept"}', b'{"e":2147483648,"g":32768}',
    b'{"e":-2147483648,"g":-32768}', b'{"a":-0}', b'{"b":5}', b'{"b":true}',
    b'{"b": {"x" : [1, 2 ], "x": null} }', b'{"b":"\\ud800"}', b'{"b":"\\udc00x"}', b'{"b":1.5}',
    b'{"b":"\\ud83d\\ude00"}', b'{"b":"\\ud800\\ud800"}', b'{"b":"a\x01b"}', b'{"b":"a\tb"}',
    b'{"b":"\\q"}', b'{"b":"\\u00"}', b'{"b":"\xff\xe2\x82"}', b'{"b":"\xf4\x90\x80\x80"}',
    b'\xff{"b":"x"}', b'\xef\xbb\xbf{"b":"x"}', b'{"b":"a\\/b\\u0000"}', b'{"b":NaN}',
    b'{"c":NaN,"f":-Infinity}', b'{"c":"NaN","f":"+INF"}', b'{"c":"INF"}', b'{"c":"1.5"}', b'{"c":""}',
    b'{"c":1e400,"f":-1e400}', b'{"c":1e-400}', b'{"f":1e39}', b'{"f":9007199791611905}',
    b'{"f":16777217.0000001}', b'{"c":' + b"9" * 400 + b"}", b'{"a":' + b"9" * 900 + b',"b":"kept"}',
    b'{"c":.5}', b'{"c":+5}', b'{"c":1e}', b'{"c":-}', b'{"n":1.005}', b'{"n":"1.5"}', b'{"n":1000}',
    b'{"n":999.995}', b'{"n":1e400}', b'{"n":"1,000"}', b'{"n":"NaN"}', b'{"n":" 1"}', b'{"n":-1.005}',
    b'{"n":".5"}', b'{"n":"1."}', b'{"n":"1e2"}', b'{"n":true}', b'{"n":1e-300}', b'{"l":[1,"x",3]}',
    b'{"l":[1,null]}', b'{"l":5,"q":[{"x":1},{"x":"y"},null]}', b'{"q":[{"x":1},5]}', b'{"l":[1,2}',
    b'{"s":[1]}', b'{"s":""}', b'{"s":{"x":"q","y":"r"}}', b'{"s":{"y":{"k": [1 , 2]}}}',
    b'{"m":{"a":null}}', b'{"m":5}', b'{"d":1}', b'{"d":"true"}', b'{"d":true,"l":[1.5,2]}',
    b'{"z":"aGk="}', b'{"z":"aGk"}', b'{"z":"!!"}', b'{"z":5}', b'{"z":""}', nest(DEPTH_MAX),
    b'{"b":[' + nest(DEPTH_MAX - 2) + b"]}", nest(1200), nest(100_000),
    b"[" * 100_000,
]  # fmt: skip
TIMES = [
    "2020-01-01T00:00:00Z", "2020-01-01 00:00:00", "2020", "2020-01", "2020-1-1 1:2:3",
    "2020-01-01T00:00:00+01:00", "2020-01-01T00:00:00.123456789", "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z", "now", "2020-02-30", "", " 2020-01-01 ", "20200101", "2020-W01-1",
    "2020-01-01T24:00:00", "2020-01-01T00:00", "2020-01-01T00", "today", "1577836800",
    "2020-01-01T00:00:00 Europe/Berlin", "2020-01-01T00:00:00[UTC]", "2020-01-01x", "2020-13-01",
    "2020-01-01T00:00:00-18:01", "2020-01-01T00:00:00 ../../etc/passwd", "2020-01-01T00:00:00+5:30",
    "2020-01-01T",
]  # fmt: skip
DIFFERENT: list[tuple[bytes, dict[str, Any], str]] = [
    (b"{'a': 1}", {}, "single quotes"),
    (b'{"c":+Infinity,"b":"x"}', {}, "only NaN, Infinity and -Infinity"),
    (b'{"t":"10:00"}', {"t": None}, "a time without a day"),
    (b'{"t":"10000-01-01","w":"0000-01-01"}', {}, "the years 1 to 9999"),
    (b'{"t":253402300800,"w":"5"}', {}, "the same, and days as a number"),
    (b'{"b":1.10}', {"b": "1.10"}, "numbers as they stand"),
    (nest(DEPTH_MAX + 1), {}, "not so deep"),
    (b'{"a":1,"b":' + b'{"b":' * 5000, {}, "not so deep"),
]
"""What docs/source.md says is not as in Spark."""


def as_column(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def hostile(seed: int, count: int) -> list[bytes]:
    """Documents, cut, joined and changed at random."""
    choose = random.Random(seed)
    words = rb'{ } [ ] , : " "a" "b": "l":[1] null -1 0 \u0041'.split(b" ")
    out = []
    for _ in range(count):
        text = bytearray(choose.choice(DOCUMENTS[:-3]))
        for _ in range(choose.randrange(4)):
            at = choose.randrange(len(text) + 1)
            match choose.randrange(3):
                case 0:
                    text[at:at] = choose.choice(words)
                case 1:
                    del text[at : at + choose.randrange(1, 4)]
                case 2:
                    text += choose.choice(DOCUMENTS[:40])
        out.append(bytes(text))
    return [each for each in out if b"'" not in each and b"+I" not in each and b"." not in each]


def norm(found: Any) -> Any:
    """Comparable: NaN is NaN."""
    if isinstance(found, float) and found != found:
        return "NaN"
    if isinstance(found, (list, tuple)):
        return [norm(each) for each in found]
    if isinstance(found, dict):
        return {name: norm(each) for name, each in found.items()}
    return found


def breaks_off(value: bytes) -> bool:
    """Of such a document Spark sometimes keeps what stood before."""
    try:
        json.JSONDecoder().raw_decode(value.decode(errors="replace").lstrip())
    except ValueError:
        return True
    return False


def test_every_value_is_what_from_json_makes_of_it(spark: SparkSession) -> None:
    """I159, with the differences that the page tells."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    times = [json.dumps(dict.fromkeys("tu" if each.isdigit() else "tuw", each)).encode() for each in TIMES]
    values = [*DOCUMENTS, *times, b'{"t":5,"u":5,"w":5}', b'{"t":-5}', b'{"t":true}', *hostile(1, 1500)]
    frame = spark.createDataFrame(list(enumerate(map(bytearray, values))), "i int, v binary")
    parsed = functions.from_json(functions.col("v").cast("string"), DDL)
    expected = frame.select("i", parsed.alias("x")).orderBy("i").toArrow().column("x").to_pylist()
    kind = to_arrow_type(StructType.fromDDL(DDL), timezone="UTC")
    found = decode_values(as_column(values), kind).to_pylist()
    nothing = dict.fromkeys(field.name for field in kind)
    wrong = []
    for value, one, two in zip(values, found, expected, strict=True):
        if norm(one) != norm(two) and not (one == nothing and two is not None and breaks_off(value)):
            wrong.append((value, one, two))
    assert wrong == []


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
    """As deep as it may be, also for who stands deep in the stack already."""
    inside = b'{"q":' * (DEPTH_MAX - 1) + b"1" + b"}" * (DEPTH_MAX - 1)

    def at(depth: int) -> Any:
        return at(depth - 1) if depth else decode_values(as_column([b'{"b":' + inside + b"}", None]), AB)

    assert at(300).to_pylist() == [{"a": None, "b": inside.decode()}, None]


@pytest.mark.parametrize(
    "value",
    [
        b'{"a":1,"b":' + b"[" * (DEPTH_MAX + 1) + b'"' + b'\\"' * 30_000,
        b'{"a":1,"b":' + b"[" * (DEPTH_MAX + 1) + b'"' + b'\\"' * 30_000 + b"\\",
        b'{"a":1,"n":"' + b"1" * 30_000 + b'x"}',
    ],
    ids=["a text that does not end", "nor its last mark", "digits"],
)
def test_a_value_takes_time_as_its_length(value: bytes) -> None:
    """I159, and it holds up no batch. Milliseconds; if each beginning were tried to the end, ten seconds."""
    began = time.process_time()
    found = decode_values(as_column([b'{"a":2}', value]), KIND).to_pylist()
    assert time.process_time() - began < 3
    assert found[0]["a"] == 2
    assert found[1]["a"] == (1 if value.endswith(b"}") else None)
    assert found[1]["n"] is None


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


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES | st.none(), max_size=6))
def test_neighbours_change_nothing(values: list[bytes | None]) -> None:
    """I159: a batch is its values, each by itself and without Arrow's parser."""
    convert = json_values._converter(PLAIN)
    alone = pa.array([json_values._value(each, convert) for each in values], PLAIN)
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
