"""Name the possible values of a field whose value was refused."""

from __future__ import annotations

import functools
import re
from typing import Any

from msgspec import inspect

_STEP = re.compile(r"\.(?P<name>[^.\[`]+)|\[[^\]]*\]")
_described = functools.cache(inspect.type_info)


def possible(error: str, body: Any) -> list[str]:
    """Return the possible values of a refused field; empty: the error is about something else.

    Example:
        >>> from typing import Literal
        >>> possible("Invalid enum value 'z' - at `$[0]`", list[Literal["x", "y"]])
        ['x', 'y']
    """
    if not error.startswith("Invalid enum value"):
        return []
    of, place = [_described(body)], error.rpartition("' - at ")[2]
    for step in _STEP.finditer(place.rpartition("`$")[2]):
        of = [inner for each in of for inner in _inner(each, step["name"])]
    if place.startswith("`key`"):
        of = [each.key_type for each in _plain(of) if isinstance(each, inspect.DictType)]
    literals = [each for each in _plain(of) if isinstance(each, inspect.LiteralType)]
    return [str(value) for each in literals for value in each.values]


def _plain(types: list[inspect.Type]) -> list[inspect.Type]:
    """Return types without unions."""
    return [
        inner for each in types for inner in (each.types if isinstance(each, inspect.UnionType) else (each,))
    ]


def _inner(of: inspect.Type, name: str | None) -> list[inspect.Type]:
    """Return the types of a field, or of items."""
    found: list[inspect.Type] = []
    for each in _plain([of]):
        if isinstance(each, inspect.StructType) and name is not None:
            found += [field.type for field in each.fields if field.encode_name == name]
        elif isinstance(each, inspect.ListType):
            found.append(each.item_type)
        elif isinstance(each, inspect.DictType):
            found.append(each.value_type)
    return found
