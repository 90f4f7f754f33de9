"""Random Avro definitions of a reader and a writer that have much in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
ZEROS: dict[str, Any] = {
    "null": None,
    "boolean": False,
    "int": 0,
    "long": 0,
    "float": 0.0,
    "double": 0.0,
    "bytes": "",
    "string": "",
}


class Maker:
    """Draws a definition of a writer, and the changed one of a reader."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any], plain: bool) -> None:
        self.draw = draw
        self.plain = plain
        """Aliases are of names that have changed, and no others."""
        spaces = self.one_of([""], ["n.", "m.k."])
        self.names = [space + name for space in spaces for name in "ABCD"]
        self.known: list[str] = []
        self.left = 12
        """Named types that may still be made."""

    def one_of(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def type(self, depth: int, around: str, in_union: bool = False) -> Any:
        kinds = ["primitive", "primitive", "known"]
        if depth and self.left:
            kinds += ["record", "record", "enum", "fixed", "array", "map"]
            kinds += [] if in_union else ["union", "optional"]
        kind = self.one_of(*kinds)
        if kind == "known" and self.known:
            return self.short(self.one_of(*self.known), around)
        if kind == "record":
            return self.record(depth, around)
        if kind == "enum":
            return self.named("enum", around) | self.symbols()
        if kind == "fixed":
            return self.named("fixed", around) | {"size": self.one_of(1, 2)}
        if kind in ("array", "map"):
            return {"type": kind, "items" if kind == "array" else "values": self.type(depth - 1, around)}
        if kind == "union":
            return [self.type(depth - 1, around, in_union=True) for _ in range(self.one_of(0, 1, 2, 2, 3))]
        if kind == "optional":
            return ["null", self.type(depth - 1, around, in_union=True)]
        return self.one_of(*PRIMITIVES)

    def short(self, full: str, around: str) -> str:
        """Return a full name, or the short one where that means the same."""
        space, _, name = full.rpartition(".")
        return name if space == around and self.one_of(True, False) else full

    def named(self, kind: str, around: str) -> dict[str, Any]:
        self.left -= 1
        free = [each for each in self.names if each not in self.known] or self.names
        full = self.one_of(*(free if self.one_of(*[True] * 9, False) else self.names))
        self.known.append(full)
        space, _, name = full.rpartition(".")
        made: dict[str, Any] = {"type": kind, "name": self.short(full, around)}
        if space and self.one_of(True, False):
            made |= {"name": name, "namespace": space}
        if not self.plain and self.one_of(
            True, False, False
        ):  # aliases in full: the library does not complete them
            made["aliases"] = [self.one_of(*self.names)]
        return made

    def symbols(self) -> dict[str, Any]:
        symbols = [each for each in "PQR" if self.one_of(True, True, False)] or ["P"]
        return {"symbols": symbols} | ({"default": symbols[-1]} if self.one_of(True, False) else {})

    def record(self, depth: int, around: str) -> dict[str, Any]:
        made = self.named("record", around)
        inside = self.known[-1].rpartition(".")[0]
        made["fields"] = [
            self.field(name, self.type(depth - 1, inside)) for name in "xyz" if self.one_of(True, True, False)
        ]
        return made

    def field(self, name: str, type_: Any) -> dict[str, Any]:
        made = {"name": name, "type": type_}
        if not self.plain and self.one_of(True, False, False):
            made["aliases"] = [self.one_of(*"wxyz")]
        if self.one_of(True, False):
            made |= default_of(type_)
        return made

    def changed(self, tree: Any, around: str = "") -> Any:
        """Return a definition with some of its parts changed, as the next version."""
        if self.one_of(*[False] * 9, True):
            return self.type(1, around)
        if isinstance(tree, list):
            return [self.changed(each, around) for each in tree if self.one_of(*[True] * 6, False)]
        if isinstance(tree, str):
            wider = {"int": "long", "long": "double", "string": "bytes", "float": "double"}
            return wider.get(tree, tree) if self.one_of(True, False) else tree
        made = dict(tree)
        for part in ("items", "values"):
            if part in made:
                made[part] = self.changed(made[part], around)
        if made["type"] == "enum" and self.one_of(True, False, False):
            made = {name: part for name, part in made.items() if name != "default"} | self.symbols()
        if made["type"] == "record":
            inside = full_name(made, around).rpartition(".")[0]
            kept = [each for each in made["fields"] if self.one_of(*[True] * 5, False)]
            made["fields"] = [self.changed_field(each, inside) for each in kept]
            if self.one_of(True, False, False):
                made["fields"].append(self.field("w", self.type(1, inside)))
        if "name" in made and self.one_of(*[False] * 5, True):
            made |= {"aliases": [full_name(made, around)], "name": made["name"] + "2"}
        return made

    def changed_field(self, field: dict[str, Any], around: str) -> dict[str, Any]:
        made = field | {"type": self.changed(field["type"], around)}
        made.pop("default", None)
        made |= default_of(made["type"]) if self.one_of(True, False) else {}
        if self.one_of(*[False] * 5, True):
            made |= {"name": field["name"] + "2", "aliases": [field["name"]]}
        return made


def full_name(made: dict[str, Any], around: str) -> str:
    space = made.get("namespace", around)
    return str(made["name"] if "." in made["name"] or not space else f"{space}.{made['name']}")


def default_of(type_: Any) -> dict[str, Any]:
    """Return a default for a field, if there is a simple one."""
    kind = type_.get("type") if isinstance(type_, dict) else type_[:1] if isinstance(type_, list) else type_
    first = kind[0] if isinstance(kind, list) and kind and isinstance(kind[0], str) else kind
    if isinstance(first, str) and first in ZEROS:
        return {"default": ZEROS[first]}
    if kind in ("array", "map"):
        return {"default": [] if kind == "array" else {}}
    return {"default": type_["symbols"][0]} if kind == "enum" else {}


@st.composite
def definitions(draw: Callable[[st.SearchStrategy[Any]], Any], plain: bool = False) -> tuple[Any, Any]:
    """Return definitions of a reader and a writer that have much in common."""
    maker = Maker(draw, plain)
    writer = maker.record(3, "") if maker.one_of(True, True, True, False) else maker.type(3, "")
    maker.left += 4
    reader = maker.changed(writer)
    return reader, writer
