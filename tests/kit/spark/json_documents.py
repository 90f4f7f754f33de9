"""Values that are JSON, nearly JSON, or not: of what a source makes typed columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from holdfast.pipeline.source.json_values import DEPTH_MAX


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


def as_column(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(values, pa.binary())


def norm(found: Any) -> Any:
    """Comparable: NaN is NaN."""
    if isinstance(found, float) and found != found:
        return "NaN"
    if isinstance(found, (list, tuple)):
        return [norm(each) for each in found]
    if isinstance(found, dict):
        return {name: norm(each) for name, each in found.items()}
    return found
