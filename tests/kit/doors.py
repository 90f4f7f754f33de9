"""Find code that goes past the face of a layer.

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
FACED = ("system", "memory", "group", "ledger", "protocol", "client", "columns")
"""Layers whose package has all names that others use. Of the layers above them, users import the modules."""
PARTS = {
    "admin",
    "clock",
    "housekeeping",
    "limiting",
    "membership",
    "options",
    "partitioned",
    "random",
    "rates",
    "recovered",
    "sessions",
    "stages",
    "topics",
    "unreplicated",
    "volatile",
}
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


def inner_imports(tree: Tree) -> Iterator[str]:
    """Find imports of a module inside another layer.

    The face of a layer is its package, or a package in it."""
    packages = {path.removesuffix("/__init__.py") for path in tree.matching("src/holdfast/**/__init__.py")}
    for path in tree.matching("src/holdfast/**.py"):
        here = path.removeprefix("src/holdfast/").partition("/")[0].removesuffix(".py")
        for node in ast.walk(tree.parsed(path)):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            first, *rest = node.module.split(".")
            if first != "holdfast" or len(rest) < 2 or rest[0] == here or rest[0] not in FACED:
                continue
            if "/".join(["src/holdfast", *rest]) not in packages:
                yield f"{path}:{node.lineno}: imports {node.module}; import from its package"


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
