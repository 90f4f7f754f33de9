"""Every mutant fits the sources: its text occurs there, and its names exist.

The mutants themselves run in tests/mutants. This takes seconds, and finds a reworded line or a renamed name.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.kit import ROOT
from tests.kit.channel.binding_mutants import MUTANTS as CHANNEL_BINDINGS
from tests.kit.channel.lane_mutants import NATIVE_MUTANTS, PYTHON_MUTANTS
from tests.kit.channel.mutants import MUTANTS as CHANNEL
from tests.kit.native import NATIVE, Mutant, patched, with_all
from tests.kit.native_mutants import MUTANTS as CORE
from tests.kit.pipeline.typed_mutants import MUTANTS as TYPED
from tests.kit.queue import binding_mutants, layout_mutants
from tests.kit.queue.mutants import MUTANTS as QUEUE
from tests.kit.server.auth_mutants import MUTANTS as GUARDS
from tests.kit.server.auth_mutants import break_it
from tests.kit.service.mutants import MUTANTS as SERVICE
from tests.kit.service.python_mutants import MUTANTS as SERVICE_PYTHON
from tests.kit.step_mutants import MUTANTS as STEPS

FILES = sorted([*ROOT.glob("tests/mutants/*.py"), *ROOT.glob("tests/kit/**/*mutants.py")])
ALONE = [
    *(pytest.param("holdfast", each, id=each.name) for each in CORE if each.alone),
    *(pytest.param("holdfast", each, id=each.name) for each in layout_mutants.MUTANTS),
    *(pytest.param("bindings", each, id=each.name) for each in binding_mutants.MUTANTS),
    *(pytest.param("", each, id=each.name) for each in CHANNEL_BINDINGS),
    *(pytest.param("", each, id=each.name) for each in NATIVE_MUTANTS),
    *(pytest.param("../src/holdfast", each, id=each.name) for each in PYTHON_MUTANTS),
    *(pytest.param("..", each, id=each.name) for each in (*SERVICE_PYTHON, *TYPED)),
]


@pytest.mark.parametrize(
    "mutants", [CORE, QUEUE, CHANNEL, SERVICE, STEPS], ids=["core", "queue", "channel", "service", "steps"]
)
def test_texts_of_mutants_that_are_compiled_together_occur_once(
    mutants: tuple[Mutant, ...], tmp_path: Path
) -> None:
    together = [each for each in mutants if not each.alone]
    assert len(with_all(together, tmp_path)) == len(together)


@pytest.mark.parametrize(("folder", "mutant"), ALONE)
def test_the_text_of_a_mutant_that_is_compiled_alone_occurs_once(folder: str, mutant: Mutant) -> None:
    text = (NATIVE / folder / mutant.file).read_text()
    assert patched(text, mutant) != text


@pytest.mark.parametrize("bug", GUARDS)
def test_the_text_of_a_broken_guard_occurs_once(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, right, wrong, *_ = GUARDS[bug]
    break_it(monkeypatch, owner, name, right, wrong)


# -- names ------------------------------------------------------------------------------------------------


def imported(tree: ast.Module) -> dict[str, str]:
    """Return the dotted path of each name that a file imports, also inside of functions."""
    paths: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            paths |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        if isinstance(node, ast.Import):
            paths |= {each.asname: each.name for each in node.names if each.asname}
    return {name: path for name, path in paths.items() if path.startswith(("holdfast", "tests.kit"))}


def replaced(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Find (line, path of the owner, name) of what `setattr` and tables replace."""
    paths = imported(tree)
    for node in ast.walk(tree):
        given: list[ast.expr] = []
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "setattr"
        ):
            given = node.args
            if any(each.arg == "raising" for each in node.keywords):
                continue
            if given and isinstance(given[0], ast.Constant):
                owner, _, name = str(given[0].value).rpartition(".")
                yield node.lineno, owner, name
                continue
        elif isinstance(node, ast.Tuple) and len(node.elts) >= 3:
            given = node.elts
        match given:
            case [ast.Name() | ast.Attribute() as owner_node, ast.Constant(value=str(name)), *_]:
                first, _, rest = ast.unparse(owner_node).partition(".")
                if first in paths and name.isidentifier():
                    yield owner_node.lineno, f"{paths[first]}.{rest}".rstrip("."), name


def resolved(path: str) -> Any:
    """Return the module, or the object of a module, at a dotted path."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise LookupError(f"{path} is not a module, nor an object of one")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_names_that_mutants_replace_exist(path: Path) -> None:
    missing = [
        f"{path.name}:{line}: {owner} has no {name}; rename it in the mutant"
        for line, owner, name in replaced(ast.parse(path.read_text()))
        if isinstance(resolved(owner), type | ModuleType) and not hasattr(resolved(owner), name)
    ]
    assert not missing, "\n".join(missing)


def test_a_name_that_is_gone_is_found() -> None:
    text = "from holdfast import broker\nTABLE = (broker, 'Broker', 1), (broker.Broker, 'no_such', 1)\n"
    text += "def f(patch):\n    patch.setattr(broker, 'gone', 1)\n"
    text += "    patch.setattr('holdfast.broker.Broker', 1)\n"
    found = {(owner, name): hasattr(resolved(owner), name) for _, owner, name in replaced(ast.parse(text))}
    assert found == {
        ("holdfast.broker", "Broker"): True,
        ("holdfast.broker.Broker", "no_such"): False,
        ("holdfast.broker", "gone"): False,
    }
