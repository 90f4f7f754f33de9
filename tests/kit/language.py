"""Find sentences that break the language rules of CONTRIBUTING.md, in code, errors, help and pages.

`python -m tests.kit.language` prints counts by folder; with paths as arguments it prints each complaint.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.kit import ROOT
from tests.kit.tree import Tree

SUMMARY_WORDS_MAX = 15
SENTENCE_WORDS_MAX = 25
SOURCES = ("src/**.py", "bench/**.py", "tests/**.py", "examples/**.py", "native/**.hpp", "native/**.cpp")
PAGES = ("docs/**.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
EXEMPT = ("_pb2.py", "docs/reference/glossary.md")
"""Generated code, and the page that lists words to avoid."""
WORDS = {
    r"who": "name the component",
    r"whoever|whatever|somebody|someone|anybody|nobody|everybody": "name the component",
    r"so (?:many|much|long) (?:as|of)\b|(?:for|about|than) so (?:many|much|long)": "say at most N",
    r"(?:it|this|that|there) is none|none of (?:it|them|that)": "say what is absent",
    r"let(?:s|ting)? go of": "release",
    r"comes? again": "say retry or redeliver",
    r"(?<!there )(?:is|are|was|were) no (?!longer|more|less|other|such)": "say not an X",
}
FORBIDDEN = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): instead for words, instead in WORDS.items()}


@dataclass(frozen=True)
class Text:
    """A paragraph, and its line in the file."""

    line: int
    words: str
    kind: str
    """summary, docstring, comment, error, help, page or heading."""


# -- where text stands --------------------------------------------------------------------------------


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


def texts(tree: Tree, path: str) -> tuple[Text, ...]:
    """Return every paragraph of a file that the rules are about."""
    text = tree.text(path)
    if path.endswith(".md"):
        return tuple(page_texts(text))
    if path.endswith(".py"):
        nodes = list(ast.walk(tree.parsed(path)))
        return (*docstrings(nodes), *spoken(nodes), *python_comments(nodes, text))
    return tuple(native_comments(text))


# -- the rules ----------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Return the text with code, links and emphasis reduced to words."""
    text = re.sub(r"``?[^`]+``?", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*+|<[^>]+>", "", text)


def sentences(text: str) -> list[str]:
    return [each for each in re.split(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)[\"')\]]*\s+", text) if each]


def count_words(sentence: str) -> int:
    return sum(1 for each in sentence.split() if re.search(r"\w", each))


def article(kind: str) -> str:
    return f"an {kind}" if kind == "error" else f"a {kind}"


def complaints_of(text: Text) -> Iterator[str]:
    words = plain(text.words)
    if text.kind == "summary":
        if (n := count_words(words)) > SUMMARY_WORDS_MAX:
            yield f"the docstring's first line has {n} words, over {SUMMARY_WORDS_MAX}: {words}"
        return
    if text.kind == "page":  # items of a list and of a table end with a semicolon
        words = words.replace("; ", ". ")
    for sentence in sentences(words):
        if (n := count_words(sentence)) > SENTENCE_WORDS_MAX and text.kind != "heading":
            yield f"a sentence of {n} words in {article(text.kind)}, over {SENTENCE_WORDS_MAX}: {sentence}"
        if re.match(r"What\b", sentence) and "?" not in sentence and text.kind != "heading":
            yield f"{article(text.kind)} whose subject is 'what' (name the component): {sentence}"
        for pattern, instead in FORBIDDEN.items():
            if found := pattern.search(sentence):
                yield f"'{found[0]}' in {article(text.kind)} ({instead}): {sentence}"


@cache
def complaints(tree: Tree, path: str) -> list[str]:
    """Return the complaints about a file, with lines."""
    return [f"{path}:{text.line}: {each}" for text in texts(tree, path) for each in complaints_of(text)]


def checked(tree: Tree) -> list[str]:
    """Return the files that the rules are about."""
    return [path for path in tree.matching(*SOURCES, *PAGES) if not path.endswith(EXEMPT)]


def unclear_sentences(tree: Tree) -> Iterator[str]:
    """Find sentences that break the rules."""
    for path in checked(tree):
        yield from complaints(tree, path)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.language", description=__doc__)
    parser.add_argument("paths", nargs="*", help="files or folders whose complaints are printed")
    options = parser.parse_args(arguments)
    tree = Tree(ROOT)
    found = {path: complaints(tree, path) for path in checked(tree)}
    for path, each in found.items():
        if path.startswith(tuple(options.paths)) and options.paths:
            print(*each, sep="\n", end="\n" if each else "")
    if not options.paths:
        counts, files = Counter[str](), Counter[str]()
        for path, each in found.items():
            deep = 3 if path.startswith(("src/", "native/holdfast/")) else 2
            folder = "/".join(path.split("/")[:-1][:deep]) or path
            counts[folder] += len(each)
            files[folder] += bool(each)
        for folder, n in sorted(counts.items()):
            print(f"{n:6} in {files[folder]:4} files  {folder}")
        print(f"{sum(counts.values()):6} in {sum(files.values()):4} files")


if __name__ == "__main__":
    main(sys.argv[1:])
