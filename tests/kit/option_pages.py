"""Make the tables of docs/reference/options.md from the code: server settings, Spark options, commands.

`python -m tests.kit.option_pages` writes them; tests/repo/test_docs.py compares them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator

from holdfast.cli.entry import build
from holdfast.pipeline import options
from tests.kit import ROOT
from tests.kit.server import config_pages

PAGE = ROOT / "docs/reference/options.md"


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


TABLES: dict[str, Callable[[], str]] = {
    "settings": config_pages.table,
    "source": lambda: options.table("source"),
    "sink": lambda: options.table("sink"),
    "commands": command_tables,
}


def renewed(page: str) -> str:
    """Return the page with each table as the code has it now."""
    for name, table in TABLES.items():
        pattern = rf"(<!-- {name} begin[^\n]*-->\n).*?(<!-- {name} end -->)"
        assert re.search(pattern, page, re.DOTALL), f"no place for {name}"
        made = table().replace("\\", r"\\")
        page = re.sub(pattern, rf"\1\n{made}\n\n\2", page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
