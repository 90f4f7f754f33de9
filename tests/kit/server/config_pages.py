"""Generate the table of settings (docs/reference/options.md) and deploy/holdfast.toml from the code.

`python -m tests.kit.server.config_pages` writes the example, and unit/server/test_config.py compares it.
The page is written by `tests.kit.made_pages`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from typing import Any, get_args, get_origin, get_type_hints

from holdfast.server.config import Config
from holdfast.server.settings import leaves, toml_value
from tests.kit import ROOT

EXAMPLE = ROOT / "deploy/holdfast.toml"
BEGIN, END = "settings begin", "settings end"


def words_of(of: type) -> dict[str, str]:
    """Return the docstring below each field of a class, or of its base classes."""
    found: dict[str, str] = {}
    for base in reversed(of.__bases__):
        if base is not object:
            found |= words_of(base)
    [body] = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(body, ast.ClassDef)
    for field, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def sections(of: type = Config, prefix: str = "") -> list[tuple[str, type]]:
    """Return every table of settings, with its key."""
    found = [(prefix.rstrip("."), of)]
    for field in dataclasses.fields(of):
        kind = get_type_hints(of)[field.name]
        if dataclasses.is_dataclass(kind):
            assert isinstance(kind, type)
            found += sections(kind, f"{prefix}{field.name}.")
    return found


def tables_of(kind: Any) -> type | None:
    """Return the class of the items of a list of tables."""
    if get_origin(kind) is tuple and dataclasses.is_dataclass(get_args(kind)[0]):
        part = get_args(kind)[0]
        assert isinstance(part, type)
        return part
    return None


def default_words(key: str, default: Any) -> str:
    if default is None:
        return "`off`" if key.endswith("port") else ""
    if default in ("", ()):
        return ""
    if key.endswith("_bytes") and default >= 1024:
        for size, unit in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
            if default % size == 0:
                return f"`{default // size}{unit}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def table() -> str:
    """Return the table of all settings, for the page."""
    known = leaves()
    lines = ["| key | default | what |", "|---|---|---|"]
    for section, of in sections():
        words = words_of(of)
        for field in dataclasses.fields(of):
            key = f"{section}.{field.name}".lstrip(".")
            if key not in known:
                continue
            part = tables_of(known[key].kind)
            lines.append(
                f"| `{f'[[{key}]]' if part else key}` | {default_words(key, known[key].default)} "
                f"| {words.get(field.name, '')} |"
            )
            if part is not None:
                inner = words_of(part)
                lines += [f"| `… {each.name}` | | {inner[each.name]} |" for each in dataclasses.fields(part)]
    return "\n".join(lines)


def example() -> str:
    """Return all settings as a file, commented out."""
    lines: list[str] = []
    for section, of in sections():
        if section:
            heading = (inspect.getdoc(of) or "").split("\n\n")[0]
            lines += ["", *wrapped(" ".join(heading.split())), f"[{section}]"]
        words = words_of(of)
        for field in dataclasses.fields(of):
            kind = get_type_hints(of)[field.name]
            if dataclasses.is_dataclass(kind) or tables_of(kind):
                continue
            key = f"{section}.{field.name}".lstrip(".")
            lines += wrapped(words.get(field.name, ""))
            unset = field.default is None and not key.endswith("port")
            lines.append(f"#{field.name} = {toml_value('' if unset else field.default)}")
    return "\n".join(lines)


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="# ")


def place(text: str) -> re.Match[str]:
    """Find the settings in a text: the line before them, the settings, the line after."""
    pattern = rf"^([^\n]*{BEGIN}[^\n]*\n)(.*?)(^[^\n]*{END})"
    found = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert found is not None, "no place for the settings"
    return found


def uncommented(text: str) -> str:
    """Return the example with its settings in force."""
    return re.sub(r"^#(?=\w+ = )", "", place(text)[2], flags=re.MULTILINE)


def renewed(text: str) -> str:
    """Return the example as it should be."""
    found = place(text)
    return text[: found.end(1)] + f"{example()}\n" + text[found.start(3) :]


if __name__ == "__main__":
    EXAMPLE.write_text(renewed(EXAMPLE.read_text()))
