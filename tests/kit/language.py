"""Find sentences that break the language rules of CONTRIBUTING.md, in code, settings and pages.

`python -m tests.kit.language` prints counts by folder; with paths as arguments it prints each complaint.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tests.kit import ROOT
from tests.kit.language_texts import Text, texts
from tests.kit.tree import Tree

SUMMARY_WORDS_MAX = 15
SENTENCE_WORDS_MAX = 25
SOURCES = (
    "src/**.py",
    "bench/**.py",
    "tests/**.py",
    "examples/**.py",
    "native/**.hpp",
    "native/**.cpp",
    "src/**.proto",
    "src/**.pyi",
)
BESIDE = (".ci/*", "Makefile", "deploy/*", "CMakeLists.txt", "pyproject.toml", "mkdocs.yml")
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
    return [path for path in tree.matching(*SOURCES, *BESIDE, *PAGES) if not path.endswith(EXEMPT)]


def unclear_sentences(tree: Tree) -> Iterator[str]:
    """Find sentences that break the rules."""
    for path in checked(tree):
        yield from complaints(tree, path)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.language", description=__doc__)
    parser.add_argument("paths", nargs="*", help="files or folders whose complaints are printed")
    options = parser.parse_args(arguments)
    tree = Tree(ROOT)
    paths = [path for path in checked(tree) if path.startswith(tuple(options.paths or [""]))]
    found = {path: complaints(tree, path) for path in paths}
    if options.paths:
        for each in found.values():
            print(*each, sep="\n", end="\n" if each else "")
    else:
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
