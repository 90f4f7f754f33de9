"""Make parts of pages from the code: tables of options, and the tree of folders.

`python -m tests.kit.made_pages` writes them; tests/repo/test_docs.py compares them.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.cli.entry import build
from holdfast.pipeline import options
from tests.kit import ROOT, tidy
from tests.kit.server import config_pages, field_pages, path_pages

NATIVE = {
    "base": "bytes and blocks, checksums, the codec of frames",
    "shm": "segments, participants and their lock bytes, waiting, faults",
    "queue": "the queue: layout, state, operations, recovery",
    "channel": "the channel: hand-over of buffers without a copy; lanes, and the way back of a loop",
    "service": "services: samples, logs and calls; markers; holds of provider and proxies",
    "entry": "entries as Pulsar's clients write them, and their messages",
    "log": "topic tails, rounds, the writer, ledger files, the table for readers",
    "dispatch": "tables of what consumers hold, and may still be sent",
    "wire": "frames of the Pulsar protocol, parsed and built",
    "arrow": "entries as Arrow columns",
}
"""The folders of native/holdfast, from the bottom."""


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Return every command with options of its own, in the order of the help."""
    inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for each in inner:
        for command in each.choices.values():
            yield from commands(command)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def shown(action: argparse.Action) -> str:
    """Return an option or argument as the usage line spells it."""
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    takes = action.nargs != 0
    value = action.metavar or (
        "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    )
    return "`" + ", ".join(action.option_strings) + (f" {value}" if takes else "") + "`"


def rows_of(parser: argparse.ArgumentParser) -> list[str]:
    return [
        f"| {cell(shown(action))} | {cell((action.help or '') % vars(action))} |"
        for action in parser._actions
        if action.help and "--help" not in action.option_strings
    ]


def headed(title: str, rows: list[str]) -> str:
    return "\n".join([f"### {title}", "", "| option | meaning |", "|---|---|", *rows])


def command_tables() -> str:
    """Return a table for each noun with its shared options, and one for each command."""
    nouns: dict[str, dict[str, list[str]]] = {}
    for parser in commands(build()):
        nouns.setdefault(parser.prog.split()[1], {})[parser.prog] = rows_of(parser)
    parts = []
    for noun, tables in nouns.items():
        first, *others = tables.values()
        shared = [row for row in first if others and all(row in rows for rows in others)]
        if shared:
            parts.append(headed(f"every `holdfast {noun}` command", shared))
        for name, rows in tables.items():
            if own := [row for row in rows if row not in shared]:
                parts.append(headed(f"`{name}`", own))
    return "\n\n".join(parts)


def summary(path: Path) -> str:
    """Return the first line of a module's docstring, without its full stop."""
    return (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0].rstrip(".")


def folder_tree() -> str:
    """Return the folders of core and package, in the order of the layers."""
    assert list(NATIVE) == list(tidy.ROOMS), "describe each folder of native/holdfast here"
    lines = ["native/holdfast/"] + [f"  {f'{name}/':14}{words}" for name, words in NATIVE.items()]
    package = ROOT / "src/holdfast"
    lines += ["", "src/holdfast/"]
    for layer in tidy.LAYERS:
        if (package / f"{layer}.py").exists():
            lines.append(f"  {layer:14}{summary(package / f'{layer}.py')}")
        if not (package / layer).is_dir():
            continue
        lines.append(f"  {f'{layer}/':14}{summary(package / layer / '__init__.py')}")
        for inner in sorted((package / layer).glob("*/__init__.py")):
            lines.append(f"    {f'{inner.parent.name}/':12}{summary(inner)}")
    return "\n".join(["```", *lines, "```"])


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "docs/reference/options.md": {
        "settings": config_pages.table,
        "source": lambda: options.table("source"),
        "sink": lambda: options.table("sink"),
        "commands": command_tables,
    },
    "docs/guide/http.md": {"paths": path_pages.served, "missing": path_pages.refused},
    "docs/internals/protocol.md": {"fields": field_pages.table},
    "docs/architecture.md": {"tree": folder_tree},
}


def renewed(page: str, text: str) -> str:
    """Return the text of a page with each part as the code has it now."""
    for name, make in PAGES[page].items():
        pattern = rf"(<!-- {name} begin[^\n]*-->\n).*?(<!-- {name} end -->)"
        assert re.search(pattern, text, re.DOTALL), f"{page}: no place for {name}"
        made = make().replace("\\", r"\\")
        text = re.sub(pattern, rf"\1\n{made}\n\n\2", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    for each in PAGES:
        (ROOT / each).write_text(renewed(each, (ROOT / each).read_text()))
