"""Rules that linters do not have: functions from a tree of files to complaints.

tests/repo/test_tidy.py runs every rule over the repository, and over a small bad tree that it must reject.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import PurePosixPath

from tests.kit.doors import inner_imports, reaches_behind
from tests.kit.language import unclear_sentences
from tests.kit.tree import Tree

LINES_MAX = 600
FUNCTION_LINES_MAX = 80


# -- dead files ---------------------------------------------------------------------------------------


def dead_headers(tree: Tree) -> Iterator[str]:
    """Find headers that no other file includes."""
    included: set[str] = set()
    for path in tree.matching("native/**.hpp", "native/**.cpp"):
        for name in re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', tree.text(path), re.MULTILINE):
            beside = (PurePosixPath(path).parent / name).as_posix()
            included |= {beside, f"native/{name}"} - {path}
    for path in tree.matching("native/**.hpp"):
        if path not in included:
            yield f"{path}: nothing includes it"


def module_name(path: str) -> str:
    """src/holdfast/memory/queue.py -> holdfast.memory.queue; tests/kit/tidy.py -> tests.kit.tidy."""
    parts = PurePosixPath(path.removeprefix("src/")).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported_modules(tree: Tree, path: str) -> set[str]:
    """Return all names that a file imports or has in a string; `from a import b` is two."""
    package = module_name(path).split(".")
    if not path.endswith("/__init__.py"):
        package.pop()
    names: set[str] = set()
    for node in ast.walk(tree.parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names |= {origin} | {f"{origin}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def dead_modules(tree: Tree) -> Iterator[str]:
    """Find modules that no other module imports, and helpers and benchmarks that nothing uses."""
    paths = tree.matching("src/**.py", "bench/**.py", "tests/**.py")
    users: dict[str, set[str]] = {}
    """Modules by what they import or name."""
    for path in paths:
        for text in imported_modules(tree, path):
            users.setdefault(text, set()).add(path)
    commands = "".join(tree.text(path) for path in ("pyproject.toml", "Makefile") if tree.has(path))
    for path in paths:
        parts = PurePosixPath(path).parts
        if parts[-1] in ("__init__.py", "__main__.py", "conftest.py") or parts[-1].startswith("test_"):
            continue
        module = module_name(path)
        started = ["/".join(parts[at:]) for at in range(1, len(parts))]  # as a program, by its file's name
        using = {user for text in (module, *started) for user in users.get(text, ()) if user != path}
        if path.startswith("src/"):
            using = {user for user in using if user.startswith("src/")}
        called = f"{module}:" in commands or path in commands or f"-m {module}" in commands
        if not called and not using:
            yield f"{path}: nothing imports it"


TEST_MODULE = re.compile(r"tests(?!\.kit\.)(\.\w+)*\.test_\w+(\.\w+)*")


def tests_import_tests(tree: Tree) -> Iterator[str]:
    """Find files that import a test: code that two tests need is in tests/kit."""
    for path in tree.matching("tests/**.py"):
        for name in sorted(imported_modules(tree, path)):
            if TEST_MODULE.fullmatch(name):
                yield f"{path}: imports {name}; move what it needs into tests/kit"
        for node in ast.walk(tree.parsed(path)):  # by a search path that leads into the folder
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            for name in names:
                if name.startswith("test_"):
                    yield f"{path}: imports {name}; move what it needs into tests/kit"


def tests_not_collected(tree: Tree) -> Iterator[str]:
    """Find tests that pytest does not collect: in a wrong file, class or function."""

    def hidden(node: ast.AST, inside: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                if each.name.startswith("test_") and inside:
                    yield each, inside
                yield from hidden(each, f"inside of {each.name}")
            elif isinstance(each, ast.ClassDef) and not inside and each.name.startswith("Test"):
                yield from hidden(each, "")
            else:
                yield from hidden(each, f"in class {each.name}" if isinstance(each, ast.ClassDef) else inside)

    for path in tree.matching("tests/**.py"):
        named = PurePosixPath(path).name.startswith("test_")
        for test, where in hidden(tree.parsed(path), "" if named else "in a file whose name is no test's"):
            yield f"{path}:{test.lineno}: {test.name} is never run: it is {where}"


def sessions_elsewhere(tree: Tree) -> Iterator[str]:
    """Find tests outside tests/spark with a Spark session, which would start another Java."""
    for path in tree.matching("tests/**.py"):
        if path.startswith(("tests/spark/", "tests/kit/")):
            continue
        for node in ast.walk(tree.parsed(path)):
            if not isinstance(node, ast.FunctionDef) or not (node.name[:5] == "test_" or node.decorator_list):
                continue  # neither a test nor a fixture
            if "spark" in {each.arg for each in node.args.args}:
                yield f"{path}:{node.lineno}: {node.name} asks for `spark`; it belongs to tests/spark"


CLOCKS = ("monotonic", "perf_counter", "process_time", "thread_time")


def asserted_durations(tree: Tree) -> Iterator[str]:
    """Find assertions of a duration: tests count, compare within one run, or have virtual time."""
    for path in tree.matching("tests/**.py"):
        if path == "tests/kit/waiting.py":  # a wait is not shorter than its own timeout
            continue
        for node in ast.walk(tree.parsed(path)):
            if not isinstance(node, ast.Assert):
                continue
            for each in ast.walk(node.test):
                if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub) and reads_clock(each.left):
                    yield f"{path}:{node.lineno}: asserts a duration; use `waits_out`, a count or a ratio"


def reads_clock(node: ast.AST) -> bool:
    """Tell whether an expression is a call like `time.monotonic()`."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr.removesuffix("_ns") in CLOCKS


def comments_at(tree: Tree, path: str) -> dict[int, str]:
    """Return the comments of a Python file by line; neighbouring lines are joined downwards."""
    found: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(tree.text(path)).readline):
        if token.type == tokenize.COMMENT:
            whole = token.line.lstrip().startswith("#")
            line = token.start[0]
            found[line] = (found.get(line - 1, "") + " " if whole else "") + token.string.lstrip("# ")
    return found


def nightly_without_another(tree: Tree) -> Iterator[str]:
    """Find a `mark.nightly` without a named test that finds the same fault in `make test`."""
    for path in tree.matching("tests/**.py"):
        if "mark.nightly" not in tree.text(path):
            continue
        comments, lines = comments_at(tree, path), tree.text(path).splitlines()
        for node in ast.walk(tree.parsed(path)):
            if not (isinstance(node, ast.Attribute) and ast.unparse(node) == "pytest.mark.nightly"):
                continue
            above = node.lineno - 1  # past the other decorators of the test
            while above and lines[above - 1].startswith("@"):
                above -= 1
            said = comments.get(node.lineno) or comments.get(above, "")
            if not re.search(r"\btests?[_/]\w", said):
                yield f"{path}:{node.lineno}: say beside it which test of `make test` finds the same"
            for named in re.findall(r"(?<![/\w])tests/[\w/]+\.\w+", said):
                if not tree.has(named):
                    yield f"{path}:{node.lineno}: {named} does not exist"
            for named in re.findall(r"(?<!/)\btest_\w+\b(?!\.)", said):
                if f"def {named}(" not in tree.text(path):
                    yield f"{path}:{node.lineno}: there is no {named} in this file"


SKIPPING = ("skip", "skipif", "skipIf", "importorskip", "xfail")
SKIPS = {
    "tests/process/queue/test_bad_cases.py": 2,  # root, to mount a small disk and to become another user
    "tests/process/cli/test_doctor.py": 1,  # root, to become another user
    "tests/process/ingest/test_ingest.py": 1,  # root, to make files for another user
    "tests/process/core/test_native.py": 1,  # root, a mount, futex_waitv of the kernel: native/tests say so
    "tests/process/core/test_widths.py": 1,  # a 32-bit compiler: g++-multilib
    "tests/unit/channel/test_no_memory.py": 1,  # `_testcapi`, which some distributions leave out
    "tests/process/bench/test_cluster.py": 1,  # as tests/corosync
    "tests/corosync/conftest.py": 1,  # root and namespaces; .ci/cluster-tools installs Corosync
    "tests/kit/stepping.py": 1,  # x86-64, and a kernel that permits ptrace
}
"""How many tests may be skipped, by file: only for what no package brings."""


def unlisted_skips(tree: Tree) -> Iterator[str]:
    """Find skips that are not listed: install the tools, or make the test nightly."""
    for path in tree.matching("tests/**.py"):
        named = [
            (node.lineno, ast.unparse(node))
            for node in ast.walk(tree.parsed(path))
            if isinstance(node, ast.Attribute) and node.attr in SKIPPING
        ]
        found = [line for line, name in named if name.startswith(("pytest.", "mark.", "unittest."))]
        if len(found) != SKIPS.get(path, 0) and (found or path in SKIPS):
            yield f"{path}: skips at {found}, listed are {SKIPS.get(path, 0)} (tests/kit/tidy.py)"


def dead_examples(tree: Tree) -> Iterator[str]:
    """Find examples that no test, page or command names."""
    readers = tree.matching("tests/**.py", "docs/**.md", "src/**.py", "README.md", "Makefile")
    for path in tree.matching("examples/**.py"):
        if not any(PurePosixPath(path).name in tree.text(reader) for reader in readers):
            yield f"{path}: no test, page or command names it"


def site_navigation(tree: Tree) -> Iterator[str]:
    """Find pages that are not in the site's navigation, and entries without a page."""
    if not tree.has("mkdocs.yml"):
        return
    entries = set(re.findall(r"^\s*-\s.*?(\S+\.md)\s*$", tree.text("mkdocs.yml"), re.MULTILINE))
    pages = {path.removeprefix("docs/") for path in tree.matching("docs/**.md")}
    for page in sorted(pages - entries):
        yield f"docs/{page}: not in the nav of mkdocs.yml"
    for entry in sorted(entries - pages):
        yield f"mkdocs.yml: the nav names {entry}, which does not exist"


# -- files that outgrew their concept -----------------------------------------------------------------


def long_files(tree: Tree) -> Iterator[str]:
    """Find source files that are too long for one concept."""
    for path in tree.matching("**.py", "**.hpp", "**.cpp"):
        lines = tree.text(path).count("\n")
        if lines > LINES_MAX:
            yield f"{path}: {lines} lines; a file of over {LINES_MAX} wants to be two"


def blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def blank_comments(code: str) -> str:
    """Replace the inside of comments and literals of C++ by blanks; lines keep their numbers."""
    pattern = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'"
    return re.sub(pattern, blank, code, flags=re.DOTALL)


def native_functions(code: str) -> Iterator[tuple[str, int, int]]:
    """Find (head, first line, lines) of each function body in a namespace or a class."""
    directive = r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"  # with its continuation lines
    code = re.sub(directive, blank, blank_comments(code), flags=re.MULTILINE)
    scopes: list[tuple[str, str, int]] = []  # kind, head, line of the opening brace
    head_start = 0
    for found in re.finditer(r"[{};]", code):
        line = code.count("\n", 0, found.start()) + 1
        if found[0] == "{":
            head = " ".join(code[head_start : found.start()].split())
            inside_body = any(kind == "body" for kind, _, _ in scopes)
            if re.match(r"(inline )?(namespace|extern)\b", head) or re.search(
                r"(^|> |\bexport )(class|struct|union|enum)\b(?!.*\()", head
            ):
                kind = "scope"
            else:
                kind = "inner" if inside_body or "(" not in head else "body"
            scopes.append((kind, head, line))
        elif found[0] == "}" and scopes:
            kind, head, first = scopes.pop()
            if kind == "body":
                yield head, first, line - first + 1
        head_start = found.end()


def long_functions(tree: Tree) -> Iterator[str]:
    """Find functions that do not fit on a page."""
    for path in tree.matching("**.py"):
        for node in ast.walk(tree.parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                documentation = ast.get_docstring(node, clean=False) or ""
                lines = (node.end_lineno or node.lineno) - node.lineno + 1 - len(documentation.splitlines())
                if lines > FUNCTION_LINES_MAX:
                    yield f"{path}:{node.lineno}: {node.name} has {lines} lines, over {FUNCTION_LINES_MAX}"
    for path in tree.matching("native/**.hpp", "native/**.cpp"):
        for head, first, lines in native_functions(tree.text(path)):
            if lines > FUNCTION_LINES_MAX:
                name = head.partition("(")[0].split()[-1]
                yield f"{path}:{first}: {name} has {lines} lines, over {FUNCTION_LINES_MAX}"


# -- memory orders ------------------------------------------------------------------------------------

ORDER = re.compile(r"\bmemory_order(?:_|::)(?:acquire|release|acq_rel|seq_cst)\b|\.fence\(\)")
PAIRS = re.compile(r"pairs with:\s*(.*)")


def partners(comment: str) -> list[str]:
    """Return the names after "pairs with:", up to a full stop, dash or bracket."""
    named = re.split(r"\.\s|\.$|\s[-–—]\s|\(|:\s", comment)[0]
    return [
        name.strip().removesuffix("()")
        for name in re.split(r"[,/;&]|\b(?:and|in|of|by)\b", named)
        if name.strip()
    ]


def statement_comments(lines: list[str], code: list[str], at: int) -> str:
    """Return the comments on the lines of the statement here, and directly above it."""

    def ends(index: int) -> bool:
        return (
            not code[index].strip() or code[index].rstrip()[-1] in ";{}:" or lines[index].lstrip()[0] == "#"
        )

    first = at
    while first > 0 and not ends(first - 1):
        first -= 1
    above = first
    while above > 0 and lines[above - 1].lstrip().startswith("//"):
        above -= 1
    last = at
    while last + 1 < len(lines) and not ends(last):
        last += 1
    return "\n".join(lines[above : last + 1])


def unpaired_orders(tree: Tree) -> Iterator[str]:
    """Find acquire, release or stronger orders without a partner, or with an unknown one."""
    natives = tree.matching("native/**.hpp", "native/**.cpp")
    identifiers = {word for path in natives for word in re.findall(r"\w+", blank_comments(tree.text(path)))}
    for path in tree.matching("native/holdfast/**.hpp"):
        lines = tree.text(path).splitlines()
        code = blank_comments(tree.text(path)).splitlines()
        for at in (index for index, line in enumerate(code) if ORDER.search(line)):
            found = PAIRS.findall(statement_comments(lines, code, at))
            if not found:
                yield f"{path}:{at + 1}: a memory order without `// pairs with: <name>`"
            names = [name for comment in found for name in partners(comment)]
            if found and not names:
                yield f"{path}:{at + 1}: `pairs with:` names no partner"
            for name in names:
                words = re.fullmatch(r"\w+(?:::\w+)*", name)
                if not words or not set(name.split("::")) <= identifiers:
                    yield f"{path}:{at + 1}: pairs with {name!r}, which is not a name in native/"


# -- claims and their proof ---------------------------------------------------------------------------


INVARIANT = r"[CIR]\d+"
"""Numbers of invariants: C and R are those of the channel and its roles."""


def uncited_invariants(tree: Tree) -> Iterator[str]:
    """Find invariants that no test or model cites, and citations that no page states."""
    stated = {
        number: page
        for page in tree.matching("docs/**.md")
        for number in re.findall(rf"\*\*({INVARIANT})\*\*", tree.text(page))
    }
    provers = tree.matching("tests/**.py", "native/model/**pp", "native/tests/**pp")
    provers = [path for path in provers if PurePosixPath(path).name != "test_tidy.py"]
    cited = {number for path in provers for number in re.findall(rf"\b{INVARIANT}\b", tree.text(path))}
    for number, page in sorted(stated.items()):
        if number not in cited:
            yield f"{page}: no test or model cites {number}"
    for path in [*provers, *tree.matching("native/holdfast/**.hpp")] if stated else []:
        for number in sorted(set(re.findall(rf"\b{INVARIANT}\b", tree.text(path))) - set(stated)):
            yield f"{path}: cites {number}, which no page states"


def requirement_rows(tree: Tree) -> Iterator[str]:
    """Find rows of docs/requirements.md without a test, or with a file that does not exist."""
    page = "docs/requirements.md"
    if not tree.has(page):
        return
    lines = tree.text(page).splitlines()
    rulers = {
        number for number, line in enumerate(lines) if line.startswith("|") and set(line) <= set("|-: ")
    }
    for number, line in enumerate(lines):
        if not line.startswith("|") or {number, number + 1} & rulers or "not yet" in line:
            continue  # not a row, the ruler or the head of a table, or a row that claims nothing
        named = re.findall(r"`([\w./-]+\.(?:py|hpp|cpp|md|toml|txt)|[\w-]+/[\w./-]*)(?:::(\w+))?`", line)
        if not any(path.startswith(("tests/", "native/model/", "native/tests/")) for path, _ in named):
            yield f"{page}:{number + 1}: the row names no test"
        for path, function in named:
            if not tree.has(path):
                yield f"{page}:{number + 1}: {path} does not exist"
            elif function and not re.search(rf"\b{function}\b", tree.text(path)):
                yield f"{page}:{number + 1}: {path} has no {function}"


LIMITS = "docs/reference/limits.md"
PACKED = re.compile(r"\bstruct\.(?:Struct|(?:iter_)?(?:un)?pack(?:_from|_into)?|calcsize)\(\s*f?\"([^\"]+)\"")
SIZED = re.compile(r"static_assert\(sizeof\((\w+)\) ==")
WIRED = re.compile(r"^\s*(?:required|optional|repeated)\s+[us]?(?:int|fixed)\d+\s+(\w+)\s*=", re.MULTILINE)


def limit_rows(tree: Tree) -> Iterator[str]:
    """Find rows of the limits without an existing test, and packed fields without a row."""
    if not tree.has(LIMITS):
        return
    lines = tree.text(LIMITS).splitlines()
    code = set(re.findall(r"`([^`\n]+)`", tree.text(LIMITS)))
    configs = "".join(tree.text(path) for path in tree.matching("native/model/**.cpp"))
    spaces = set(re.findall(r'\.name = "([\w-]+)"', configs))
    rulers = {at for at, line in enumerate(lines) if line.startswith("|") and set(line) <= set("|-: ")}
    for at, line in enumerate(lines):
        if not line.startswith("|") or {at, at + 1} & rulers:
            continue
        proofs, last = line.strip().removesuffix("|").rpartition("|")[2].strip(), ""
        if proofs == "the same":
            continue
        if not proofs:
            yield f"{LIMITS}:{at + 1}: the row names no test"
        for name in re.findall(r"`([^`]+)`", proofs):
            path, _, function = name.partition("::")
            path = path or last
            last = path if "/" in path else last
            if "/" not in path and name not in spaces:
                yield f"{LIMITS}:{at + 1}: the explorer has no space {name}"
            elif "/" in path and not tree.has(path):
                yield f"{LIMITS}:{at + 1}: {path} does not exist"
            elif function and not re.search(rf"\bdef {function}\b", tree.text(path)):
                yield f"{LIMITS}:{at + 1}: {path} has no {function}"
    for path, field in packed_fields(tree):
        if field not in code:
            yield f"{path}: {LIMITS} does not name `{field}`: its width, and what happens at its end"


def packed_fields(tree: Tree) -> Iterator[tuple[str, str]]:
    """Find formats of `struct`, layouts of the core, numbers of the wire and of records."""
    for path in tree.matching("src/**.py"):
        if "/bench/" in path:  # formats of other software
            continue
        for found in PACKED.findall(tree.text(path)):
            if "{" not in found:
                yield path, found
        for node in ast.walk(ast.parse(tree.text(path))):
            if isinstance(node, ast.ClassDef) and "/events/" not in path and has_numbers(node):
                yield path, node.name
    for path in tree.matching("native/holdfast/**.hpp"):
        for found in SIZED.findall(tree.text(path)):
            yield path, found
    for path in tree.matching("src/holdfast/protocol/*.proto"):
        for found in WIRED.findall(tree.text(path)):
            yield path, found


def has_numbers(node: ast.ClassDef) -> bool:
    """Return whether a class is a stored record with a number in it."""
    return any("Struct" in ast.unparse(base) for base in node.bases) and any(
        isinstance(each, ast.AnnAssign)
        and re.search(r"\bint\b", ast.unparse(each.annotation))
        and "ClassVar" not in ast.unparse(each.annotation)
        for each in node.body
    )


def unknown_commands(tree: Tree) -> Iterator[str]:
    """Find `make` commands on pages that the Makefile does not have."""
    targets = set(
        re.findall(r"^([\w-]+):", tree.text("Makefile") if tree.has("Makefile") else "", re.MULTILINE)
    )
    for path in tree.matching("README.md", "CONTRIBUTING.md", "docs/**.md"):
        text = tree.text(path)
        code = re.findall(r"^```.*?^```|`[^`\n]+`", text, re.MULTILINE | re.DOTALL)
        for arguments in re.findall(r"\bmake((?: [a-z][a-z-]*\b(?!=))+)", "\n".join(code)):
            for target in arguments.split():
                if target not in targets:
                    yield f"{path}: `make {target}` is not a target of the Makefile"


# -- what must not stand in any file ------------------------------------------------------------------

# Written so that this file does not match itself.
FORBIDDEN = {
    "a path of somebody's machine": r"(?<![\w.$}*-])/(?:roo[t]|hom[e]/\w+|wor[k]|opt/pyp[i])\b(?!-)",
    "a package registry's address": r"pypi\.or[g]|pythonhosted\.or[g]|index-ur[l]\s*=|extra-index-ur[l]",
    "a place that was never filled": r"^[A-Z]+(?:_[A-Z]+)+$",
    "an unfinished spot": r"\b(?:TOD[O]|FIXM[E]|XX[X]|HAC[K])\b",
}


def forbidden_words(tree: Tree) -> Iterator[str]:
    """Find paths of a machine, addresses of a registry, and notes of unfinished work."""
    for path in tree.paths():
        if path == "LICENSE":
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            for what, pattern in FORBIDDEN.items():
                if found := re.search(pattern, line):
                    yield f"{path}:{number}: {what}: {found[0]}"


LAYERS = (
    *(
        "errors",
        "_core",
        "arguments",
        "formatting",
        "ids",
        "lazy",
        "names",
        "system",
        "memory",
        "group",
        "ledger",
    ),
    *("packing", "broker", "cluster", "protocol", "client", "local", "columns", "server", "pipeline"),
    *("demo", "cli"),
)
"""Modules and packages of src/holdfast, from the bottom. Each imports only those before it."""
ROOMS = ("base", "shm", "queue", "channel", "service", "entry", "log", "dispatch", "wire", "arrow")
"""Folders of native/holdfast, bindings and tests, from the bottom. Each includes those before it alone."""


def looks_up(tree: Tree) -> Iterator[str]:
    """Find layers that import one above them, and folders that are not a layer."""
    for path in tree.matching("src/holdfast/**.py"):
        here = PurePosixPath(path).relative_to("src/holdfast").parts[0].removesuffix(".py")
        if here == "__init__" or "/template/" in path:
            continue
        if here not in LAYERS:
            yield f"{path}: {here} is not among LAYERS (tests/kit/tidy.py)"
            continue
        for node in ast.walk(tree.parsed(path)):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            within = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in [f"{within}{alias.name}" for alias in node.names]:
                first, _, rest = name.partition(".")
                there = rest.partition(".")[0]
                if first == "holdfast" and there in LAYERS and LAYERS.index(there) > LAYERS.index(here):
                    yield f"{path}:{node.lineno}: {here} imports {name}, which is above it"
    for path in tree.matching("native/**.hpp", "native/**.cpp"):
        part, here, *inside = PurePosixPath(path).relative_to("native").parts
        if part not in ("holdfast", "bindings", "tests") or (not inside and part != "holdfast"):
            continue
        if here not in ROOMS:
            yield f"{path}: {here} is not among ROOMS (tests/kit/tidy.py)"
            continue
        # A test may use what is above it.
        for name in re.findall(r'#include "(?:holdfast|bindings)/(\w+)/', tree.text(path)):
            if part != "tests" and (name not in ROOMS or ROOMS.index(name) > ROOMS.index(here)):
                yield f"{path}: {here} includes {name}, which is above it"


def names_three_times(tree: Tree) -> Iterator[str]:
    """A module name that three folders of the package have."""
    folders: dict[str, list[str]] = {}
    for path in tree.matching("src/holdfast/**.py"):
        pure = PurePosixPath(path)
        if not pure.stem.startswith("__"):
            folders.setdefault(pure.stem, []).append(pure.parent.name)
    for name, found in folders.items():
        if len(found) > 2:
            yield f"{name}.py is in {', '.join(sorted(found))}: give one of them another name"


RULES: list[Callable[[Tree], Iterator[str]]] = [
    dead_headers,
    dead_modules,
    looks_up,
    names_three_times,
    inner_imports,
    reaches_behind,
    sessions_elsewhere,
    tests_import_tests,
    tests_not_collected,
    asserted_durations,
    nightly_without_another,
    unlisted_skips,
    dead_examples,
    site_navigation,
    long_files,
    long_functions,
    unpaired_orders,
    uncited_invariants,
    requirement_rows,
    limit_rows,
    unknown_commands,
    forbidden_words,
    unclear_sentences,
]
