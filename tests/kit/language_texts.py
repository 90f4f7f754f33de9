"""Find the texts of a file: docstrings, comments, errors, help, strings, settings and pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from tests.kit.tree import Tree

STRINGS = ("native/holdfast/", "native/bindings/", "native/model/")
"""Folders of C++ whose string literals are read, too."""
NATIVE_TOKEN = re.compile(
    r'//[^\n]*|\'(?:[^\'\\\n]|\\.)+\'|^#include[^\n]*|"(?:[^"\\\n]|\\.)*"', re.MULTILINE
)
ESCAPES = {"n": "\n", "t": "\t"}
PRINTED = re.compile(r'\b(?:echo|fail|\.ci/progress \w+) "([^"]*)"')


@dataclass(frozen=True)
class Text:
    """A paragraph, and its line in the file."""

    line: int
    words: str
    kind: str
    """summary, docstring, comment, error, help, string, setting, page or heading."""


def paragraphs(text: str, line: int, kind: str) -> Iterator[Text]:
    """Split prose at blank lines, list items and table rows; leave out examples and drawings."""
    gathered: list[str] = []
    first, example = line, False

    def finish() -> Iterator[Text]:
        if gathered:
            yield Text(first, " ".join(gathered), kind)
            gathered.clear()

    for number, raw in enumerate(text.splitlines(), line):
        here = raw.strip()
        if not here or here.startswith(">>>"):
            yield from finish()
            example = here.startswith(">>>")
            continue
        drawn = re.search(r"\S {2,}\S|[─│┌└►▼◄┐┘├┤]|^[-=~|+ ]+$|^\s*\.\.\. ", raw.strip())
        if example or drawn:
            yield from finish()
            continue
        if re.match(r"(?:[-*•]|\d+[.)])\s", here):
            yield from finish()
            here = re.sub(r"^\S+\s+", "", here)
        if not gathered:
            first = number
        gathered.append(here)
    yield from finish()


def docstrings(nodes: list[ast.AST]) -> Iterator[Text]:
    for node in nodes:
        body = getattr(node, "body", None)
        if not isinstance(body, list):  # neither a block nor a definition
            continue
        for each in body:
            if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
                continue
            text = each.value.value
            if not isinstance(text, str) or not text.strip():
                continue
            owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if owner and each is body[0]:
                yield Text(each.lineno, text.strip().splitlines()[0], "summary")
            yield from paragraphs(text, each.lineno, "docstring")


def literal(node: ast.AST) -> str:
    """Return a string with a letter for each value in it; empty for other expressions."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(each.value) if isinstance(each, ast.Constant) else "N" for each in node.values)
    if isinstance(node, ast.BinOp):
        return literal(node.left) + literal(node.right)
    return ""


def spoken(nodes: list[ast.AST]) -> Iterator[Text]:
    """Find the texts of errors that are raised, and of command help."""
    for node in nodes:
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                yield from paragraphs(literal(argument), argument.lineno, "error")
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in ("help", "description", "epilog"):
                    yield from paragraphs(literal(keyword.value), keyword.value.lineno, "help")


def python_comments(nodes: list[ast.AST], text: str) -> Iterator[Text]:
    """Find comments; one behind code has two blanks before it, as the formatter wants."""
    strings = {
        line
        for node in nodes
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno != node.lineno
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    yield from joined_comments(text, re.compile(r"(?:^\s*|\S  )#+:?(?: (.*)|$)"), strings)


def native_comments(text: str) -> Iterator[Text]:
    yield from joined_comments(text, re.compile(r"(?:^\s*|[;{},)\w]  )//+(?: (.*)|$)"), set())


def joined_comments(text: str, pattern: re.Pattern[str], strings: set[int]) -> Iterator[Text]:
    """Find comments by line; those on neighbouring lines without code are one text."""
    block: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        found = pattern.search(line) if number not in strings else None
        alone = found is not None and not line[: found.start()].strip() and line.lstrip()[0] in "#/"
        if block and not alone:
            yield from paragraphs("\n".join(block), number - len(block), "comment")
            block = []
        if found is None:
            continue
        words = found[1] or ""
        if re.match(r"noqa|type:|!/|-- |--+$|pragma|NOLINT|clang-format", words):
            words = ""
        words = re.sub(r"pairs with: [^.(]*", "", words)
        if alone:
            block.append(words)
        else:
            yield from paragraphs(words, number, "comment")


def page_texts(text: str) -> Iterator[Text]:
    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]+", "", found[0])

    text = re.sub(r"^( *)```.*?^\1```[^\n]*$|<!--.*?-->", blank, text, flags=re.MULTILINE | re.DOTALL)
    prose: list[str] = []
    first = 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        apart = line.startswith(("#", "|"))
        if not apart:
            prose.append(line)
        if apart or number > text.count("\n"):
            yield from paragraphs("\n".join(prose), first, "page")
            prose, first = [], number + 1
        if line.startswith("#"):
            yield Text(number, line.lstrip("# "), "heading")
        elif line.startswith("|"):
            for each in re.split(r"(?<!\\)\|", line.strip().strip("|")):
                yield from paragraphs(re.sub(r"\s+", " ", each), number, "page")


def native_strings(text: str) -> Iterator[Text]:
    """Find string literals; those that `+` joins are one text, with "N" for values."""
    parts: list[str] = []
    first, end = 0, 0
    for found in NATIVE_TOKEN.finditer(text):
        if not found[0].startswith('"'):
            continue
        between = text[end : found.start()]
        words = re.sub(r"\\(.)", lambda escaped: ESCAPES.get(escaped[1], escaped[1]), found[0][1:-1])
        if parts and not re.fullmatch(r"(?:\s*\+[^;{}?]*?\+)?\s*", re.sub(r"//[^\n]*", "", between)):
            yield from paragraphs("".join(parts), first, "string")
            parts = []
        if not parts:
            first = text.count("\n", 0, found.start()) + 1
        elif between.strip():
            parts.append("N")
        parts.append(words)
        end = found.end()
    yield from paragraphs("".join(parts), first, "string")


def script_texts(text: str) -> Iterator[Text]:
    """Find comments, help of targets and printed texts of a shell script or Makefile."""
    yield from joined_comments(text, re.compile(r"(?:^|\s)#+(?: (.*)|$)"), set())
    for number, line in enumerate(text.splitlines(), 1):
        for found in PRINTED.finditer(line):
            yield Text(number, re.sub(r"\$\{?\w+\S*|\$\([^)]*\)", "N", found[1]), "string")


def setting_texts(text: str) -> Iterator[Text]:
    """Find comments, titles and descriptions of a file of settings."""
    yield from joined_comments(text, re.compile(r"(?:^\s*|\s\s)#+(?: (.*)|$)"), set())
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"\s*\"?(?:title|summary|description|Description)\"?\s*[:=]\s*(.*)", line):
            yield Text(number, re.sub(r"\{\{.*?\}\}", "N", found[1]).strip(' ",'), "setting")


def texts(tree: Tree, path: str) -> tuple[Text, ...]:
    """Return every paragraph of a file that the rules are about."""
    text = tree.text(path)
    if path.endswith(".md"):
        return tuple(page_texts(text))
    if path.endswith((".py", ".pyi")) or text.startswith("#!/usr/bin/env python"):
        nodes = list(ast.walk(tree.parsed(path)))
        return (*docstrings(nodes), *spoken(nodes), *python_comments(nodes, text))
    if path.startswith("deploy/") or path in ("CMakeLists.txt", "pyproject.toml", "mkdocs.yml"):
        return tuple(setting_texts(text))
    if path.startswith(".ci/") or path == "Makefile":
        return tuple(script_texts(text))
    if path.startswith(STRINGS):
        return (*native_comments(text), *native_strings(text))
    return tuple(native_comments(text))
