"""Find front ends that go past the broker's face, by an import or an attribute.

tests/kit/tidy.py lists the rule; tests/repo/test_tidy.py shows that it can fail.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.kit.tree import Tree

FRONT_ENDS = (
    *(f"src/holdfast/{room}/**.py" for room in ("client", "local", "columns", "server", "pipeline", "demo")),
    *("src/holdfast/cli/**.py", "bench/**.py", "examples/**.py"),
)
FACE = "holdfast.broker"
PARTS = {"admin", "clock", "options", "random", "rates", "recovered", "sessions", "stages", "topics"}
"""Attributes of a broker that belong to its face, beside its methods and properties."""
BEHIND_TOPIC = {"state", "dispatchers", "traffic"}
BEHIND_DISPATCHER = {"revision"}
TOPICS = {"topic", "topics", "where"}
OWNERS = {"broker", "dispatcher", *TOPICS}
"""Names of variables and attributes that hold objects of the broker."""


def reaches_behind(tree: Tree) -> Iterator[str]:
    """Find imports and attributes of front ends that lie behind the broker's face."""
    inside = broker_attributes(tree) - PARTS
    for path in tree.matching(*FRONT_ENDS):
        for node in ast.walk(tree.parsed(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for module in modules(tree, node):
                    if module.startswith(f"{FACE}."):
                        yield f"{path}:{node.lineno}: imports {module}; import from {FACE}"
            elif isinstance(node, ast.Attribute):
                owner = name_of(node.value)
                behind = {"broker": inside, "dispatcher": BEHIND_DISPATCHER}.get(owner, set())
                if owner in TOPICS:
                    behind = BEHIND_TOPIC
                if node.attr in behind or (owner in OWNERS and node.attr.startswith("_")):
                    yield f"{path}:{node.lineno}: reaches behind the {owner}: .{node.attr}"


def modules(tree: Tree, node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that a statement imports, also by `from holdfast.broker import engine`."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if node.module != FACE:
        return [node.module or ""]
    inside = {path.removeprefix("src/holdfast/broker/").partition("/")[0] for path in tree.paths()}
    return [f"{FACE}.{each.name}" for each in node.names if {each.name, f"{each.name}.py"} & inside]


def name_of(node: ast.expr) -> str:
    """Return the last name of `self._broker`, `broker.topic(…)` or `broker.topics[…]`, plain."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr.lstrip("_")
    return node.id.lstrip("_") if isinstance(node, ast.Name) else ""


def broker_attributes(tree: Tree) -> set[str]:
    """Return the attributes that `Broker.__init__` sets."""
    path = "src/holdfast/broker/broker.py"
    if path not in tree.paths():
        return set()
    return {
        target.attr
        for cls in ast.walk(tree.parsed(path))
        if isinstance(cls, ast.ClassDef) and cls.name == "Broker"
        for node in ast.walk(cls)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute) and name_of(target.value) == "self"
    }
