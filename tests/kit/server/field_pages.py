"""Make the table of fields in docs/internals/protocol.md from the code; `tests.kit.made_pages` writes it."""

from __future__ import annotations

from itertools import groupby

from holdfast.server.pulsar.fields import HONOURED, IGNORED, REFUSED


def table() -> str:
    """Return a row for each message, and for each group without effect."""
    rows = []
    for name, honoured in HONOURED.items():
        short = name.removeprefix("Command")
        rows.append(f"| {short} | {_code(honoured.split())} | as in Pulsar |")
        ignored = [(why, field) for (of, field), why in IGNORED.items() if of == name]
        rows += [
            f"| {short} | {_code([field for _, field in group])} | no effect: {why} |"
            for why, group in groupby(ignored, lambda each: each[0])
        ]
        refused = [(words, field) for (of, field), (_, words) in REFUSED.items() if of == name]
        rows += [
            f"| {short} | {_code([field for _, field in group])} | **refused**: {words} |"
            for words, group in groupby(refused, lambda each: each[0])
        ]
    return "\n".join(["| message | fields | effect |", "|---|---|---|", *rows])


def _code(names: list[str]) -> str:
    return ", ".join(f"`{each}`" for each in names)
