"""Run the tidy rules over the repository, and show that each can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit import ROOT, doors, language, tidy
from tests.kit.tree import Tree

Rule = Callable[[Tree], Iterator[str]]
REPOSITORY = Tree(ROOT)


@pytest.mark.parametrize("rule", tidy.RULES, ids=lambda rule: rule.__name__)
def test_repository(rule: Rule) -> None:
    complaints = list(rule(REPOSITORY))
    assert not complaints, "\n" + "\n".join(complaints)


def plant(root: Path, files: dict[str, str]) -> Tree:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Tree(root)


# Built at run time, so that this file is not itself a finding.
UNFINISHED = "TO" + "DO"
SOMEBODYS_PATH = "/ho" + "me/somebody/x"
REGISTRY = "py" + "pi.org"

LONG_PYTHON = "def f():\n" + "    x = 1\n" * 85
LONG_NATIVE = (
    "namespace n {\nstruct S {\n    int f(int a) const {\n" + "        a++;\n" * 85 + "    }\n};\n}\n"
)
LONG_MACRO = (
    "#define CHECK(x) \\\n    if (!(x)) { \\\n        die(); \\\n" + "\n" * 100 + "int f() { return 1; }\n"
)
DOCUMENTED = 'def f():\n    """Says.\n' + "    More.\n" * 85 + '    """\n    return 1\n'
MANY_SHORT = "namespace n {\n" + "int f() {\n    if (x) {\n        g();\n    }\n}\n" * 40 + "}\n"
TABLE = "| id | where |\n|---|---|\n"
ACQUIRE = "x.load(w, std::memory_order_acquire);"

BROKER = "class Broker:\n    def __init__(self):\n        self.engine = self.admin = None\n"
LONG_SENTENCE = "It " + "more and " * 12 + "more."

LATE = "@pytest.mark.timeout(9)\n@pytest.mark.nightly\ndef test_late(): ...\n"
LISTED = next(iter(tidy.SKIPS))

# rule, a tree that it must reject, a word of the complaint
REJECTED: list[tuple[Rule, dict[str, str], str]] = [
    (tidy.dead_headers, {"native/holdfast/a.hpp": "#pragma once\n"}, "a.hpp"),
    (tidy.dead_headers, {"native/holdfast/a.hpp": '#include "a.hpp"\n'}, "a.hpp"),
    (tidy.names_three_times, {f"src/holdfast/{at}/stats.py": "" for at in "abc"}, "stats.py is in a, b, c"),
    (tidy.looks_up, {"src/holdfast/ledger/a.py": "from holdfast.broker import Broker"}, "ledger imports"),
    (tidy.looks_up, {"src/holdfast/ledger/a.py": "def f():\n    import holdfast.cli"}, "ledger imports"),
    (tidy.looks_up, {"src/holdfast/lost/a.py": ""}, "not among LAYERS"),
    (tidy.looks_up, {"native/holdfast/base/a.hpp": '#include "holdfast/log/b.hpp"'}, "base includes log"),
    (tidy.looks_up, {"native/bindings/queue/a.cpp": '#include "bindings/log/b.hpp"'}, "queue includes log"),
    (tidy.looks_up, {"native/tests/new/a.cpp": ""}, "new is not among ROOMS"),
    (
        doors.reaches_behind,
        {"src/holdfast/cli/a.py": "def f():\n    from holdfast.broker.events import Ack"},
        "a.py:2: imports holdfast.broker.events",
    ),
    (
        doors.inner_imports,
        {"src/holdfast/cli/a.py": "from holdfast.ledger.acks import AckState"},
        "imports holdfast.ledger.acks; import from its package",
    ),
    (doors.reaches_behind, {"bench/a.py": "import holdfast.broker.broker"}, "imports holdfast.broker.broker"),
    (
        doors.reaches_behind,
        {"src/holdfast/server/a.py": "x = call.broker.engine.ended", "src/holdfast/broker/broker.py": BROKER},
        "behind the broker: .engine",
    ),
    (doors.reaches_behind, {"src/holdfast/local/a.py": "self._broker._close()"}, "the broker: ._close"),
    (
        doors.reaches_behind,
        {"src/holdfast/server/a.py": "x = broker.topic(n).state.id"},
        "the topic: .state",
    ),
    (
        doors.reaches_behind,
        {"src/holdfast/server/a.py": "await dispatcher.revision.closed()"},
        "the dispatcher: .revision",
    ),
    (doors.reaches_behind, {"src/holdfast/cli/a.py": "dispatcher._reading.pump()"}, "dispatcher: ._reading"),
    (doors.reaches_behind, {"src/holdfast/demo/a.py": "broker.topics[3].state"}, "the topics: .state"),
    (
        doors.reaches_behind,
        {"bench/a.py": "from holdfast.broker import engine", "src/holdfast/broker/engine.py": ""},
        "imports holdfast.broker.engine",
    ),
    (tidy.dead_modules, {"src/holdfast/__init__.py": "", "src/holdfast/lost.py": ""}, "lost.py"),
    (
        tidy.dead_modules,
        {"src/holdfast/lost.py": "", "tests/test_lost.py": "import holdfast.lost"},
        "lost.py",
    ),
    (tidy.dead_modules, {"tests/aid.py": "", "tests/test_x.py": "import other"}, "aid.py"),
    (
        tidy.tests_import_tests,
        {"tests/unit/test_a.py": "from tests.unit.test_b import helper"},
        "imports tests.unit.test_b",
    ),
    (
        tidy.tests_import_tests,
        {"tests/unit/test_a.py": "from tests.unit import test_b"},
        "imports tests.unit.test_b",
    ),
    (tidy.tests_import_tests, {"tests/unit/test_a.py": "from . import test_b"}, "imports tests.unit.test_b"),
    (tidy.tests_import_tests, {"tests/kit/a.py": "import tests.unit.test_b as b"}, "tests/kit/a.py"),
    (tidy.tests_import_tests, {"tests/unit/test_a.py": "import test_b"}, "imports test_b"),
    (tidy.tests_import_tests, {"tests/unit/test_a.py": "from test_b import c"}, "imports test_b"),
    (tidy.tests_not_collected, {"tests/unit/a.py": "def test_x(): ..."}, "a file whose name is no test's"),
    (tidy.tests_not_collected, {"tests/unit/test_a.py": "class A:\n    def test_x(self): ..."}, "in class A"),
    (tidy.tests_not_collected, {"tests/unit/test_a.py": "def f():\n    def test_x(): ..."}, "inside of f"),
    (
        tidy.tests_import_tests,
        {"tests/a.py": "import_module('tests.unit.test_b')"},
        "imports tests.unit.test_b",
    ),
    (
        tidy.sessions_elsewhere,
        {"tests/mutants/test_x.py": "def test_it(spark, tmp_path):\n    pass\n"},
        "belongs to tests/spark",
    ),
    (
        tidy.asserted_durations,
        {"tests/a.py": "began = time.monotonic()\nassert time.monotonic() - began < 5"},
        "tests/a.py:2: asserts a duration",
    ),
    (
        tidy.asserted_durations,
        {"tests/a.py": "assert clock.monotonic_ns() - since >= 9"},
        "asserts a duration",
    ),
    (tidy.nightly_without_another, {"tests/a.py": LATE}, "tests/a.py:2: say beside it which test"),
    (tidy.nightly_without_another, {"tests/a.py": f"# slow\n{LATE}"}, "tests/a.py:3: say beside it"),
    (tidy.nightly_without_another, {"tests/a.py": f"# tests/b.py finds it\n{LATE}"}, "tests/b.py does not"),
    (tidy.nightly_without_another, {"tests/a.py": f"# test_b finds it\n{LATE}"}, "there is no test_b"),
    (tidy.nightly_without_another, {"tests/a.py": "p = param(1, marks=pytest.mark.nightly)\n"}, "a.py:1"),
    (tidy.unlisted_skips, {"tests/a.py": "pytest.skip('not here')\n"}, "tests/a.py: skips at [1]"),
    (tidy.unlisted_skips, {"tests/a.py": "@pytest.mark.skipif(True, reason='')\ndef f(): ...\n"}, "a.py"),
    (tidy.unlisted_skips, {"tests/a.py": "clang = pytest.importorskip('clang')\n"}, "a.py"),
    (tidy.unlisted_skips, {LISTED: "pytest.skip('root')\n" * (tidy.SKIPS[LISTED] + 1)}, LISTED),
    (tidy.unlisted_skips, {LISTED: ""}, "skips at []"),
    (tidy.dead_examples, {"examples/forgotten.py": "", "README.md": "nothing"}, "forgotten.py"),
    (tidy.site_navigation, {"mkdocs.yml": "nav:\n  - A: a.md\n", "docs/a.md": "", "docs/b.md": ""}, "b.md"),
    (tidy.site_navigation, {"mkdocs.yml": "nav:\n  - A: a.md\n  - gone.md\n", "docs/a.md": ""}, "gone.md"),
    (tidy.long_files, {"native/model/big.cpp": "\n" * 601}, "big.cpp"),
    (tidy.long_functions, {"src/a.py": LONG_PYTHON}, "f has 86 lines"),
    (tidy.long_functions, {"native/holdfast/a.hpp": LONG_NATIVE}, "f has 87 lines"),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": ACQUIRE}, "a.hpp:1"),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": "// pairs with: x\n\n" + ACQUIRE}, "a.hpp:3"),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": "// pairs with: x\ny();\n" + ACQUIRE}, "a.hpp:3"),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": ACQUIRE + " // pairs with: nobody"}, "'nobody'"),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": ACQUIRE + " // pairs with: "}, "names no partner"),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": "memory.fence();"}, "a.hpp:1"),
    (
        tidy.uncited_invariants,
        {"docs/guide/queue.md": "**I1** holds", "tests/test_a.py": "# I11"},
        "cites I1",
    ),
    (tidy.uncited_invariants, {"docs/guide/queue.md": "**I1**", "tests/test_a.py": "# I1 I7"}, "cites I7"),
    (tidy.uncited_invariants, {"docs/internals/handover.md": "**C1** holds"}, "no test or model cites C1"),
    (tidy.uncited_invariants, {"docs/a.md": "**C1**", "native/model/m.hpp": "// C1 R1"}, "cites R1"),
    (tidy.requirement_rows, {"docs/requirements.md": TABLE + "| S0.1 | somewhere |\n"}, "no test"),
    (
        tidy.requirement_rows,
        {"docs/requirements.md": TABLE + "| S0.1 | `tests/test_a.py` |\n"},
        "does not exist",
    ),
    (
        tidy.requirement_rows,
        {
            "docs/requirements.md": TABLE + "| 1 | `tests/test_a.py::test_b` |\n",
            "tests/test_a.py": "def test_c()",
        },
        "has no test_b",
    ),
    (tidy.limit_rows, {tidy.LIMITS: TABLE + "| a field | |\n"}, "no test"),
    (tidy.limit_rows, {tidy.LIMITS: TABLE + "| a field | `tests/unit/test_a.py` |\n"}, "does not exist"),
    (tidy.limit_rows, {tidy.LIMITS: TABLE + "| a field | spaces `last-lap` |\n"}, "no space last-lap"),
    (
        tidy.limit_rows,
        {
            tidy.LIMITS: TABLE + "| a field | `tests/test_a.py::test_c`, `::test_b` |\n",
            "tests/test_a.py": "def test_c()",
        },
        "has no test_b",
    ),
    (tidy.limit_rows, {tidy.LIMITS: "", "src/holdfast/a.py": 'struct.Struct("<QI")'}, "`<QI`"),
    (tidy.limit_rows, {tidy.LIMITS: "", "src/holdfast/a.py": "class R(Struct):\n    n: int"}, "`R`"),
    (
        tidy.limit_rows,
        {tidy.LIMITS: "", "native/holdfast/a.hpp": "static_assert(sizeof(Row) == 8);"},
        "`Row`",
    ),
    (
        tidy.limit_rows,
        {tidy.LIMITS: "", "src/holdfast/protocol/a.proto": "  required uint64 number = 1;\n"},
        "`number`",
    ),
    (tidy.unknown_commands, {"Makefile": "test: x\n", "README.md": "```\nmake test fly\n```\n"}, "make fly"),
    (tidy.unknown_commands, {"Makefile": "test: x\n", "docs/a.md": "Say `make tea`."}, "make tea"),
    (tidy.forbidden_words, {"a.txt": f"see {SOMEBODYS_PATH}"}, "machine"),
    (tidy.forbidden_words, {"a.txt": f"from {REGISTRY}"}, "registry"),
    (tidy.forbidden_words, {"a.py": f"# {UNFINISHED}: later"}, "unfinished"),
    (tidy.forbidden_words, {"docs/a.md": "The figures:\n\nALL_FIGURES\n"}, "never filled"),
    (language.unclear_sentences, {"src/a.py": f'"""{"Say " * 16}."""'}, "first line has 16 words"),
    (
        language.unclear_sentences,
        {"src/a.py": f'"""A.\n\n{LONG_SENTENCE}\n"""'},
        "src/a.py:3: a sentence of 26",
    ),
    (language.unclear_sentences, {"src/a.py": "x = 1  #" + " for whoever asks"}, "'whoever' in a comment"),
    (language.unclear_sentences, {"src/a.py": "# nobody\n# asks\n"}, "src/a.py:1: 'nobody'"),
    (language.unclear_sentences, {"src/a.py": 'raise E(f"{x} is no name")'}, "in an error (say not an X)"),
    (language.unclear_sentences, {"src/a.py": 'f(help="about so many of them")'}, "in a help"),
    (language.unclear_sentences, {"src/a.py": 'x = 1\n"""What it has."""'}, "whose subject is 'what'"),
    (language.unclear_sentences, {"native/a.hpp": "int a;  // it is none\n"}, "in a comment"),
    (
        language.unclear_sentences,
        {"native/holdfast/a.hpp": 'f(a);\nfail("queue " + quoted(name) + // why\n  ": so many " "of them");'},
        "native/holdfast/a.hpp:2: 'so many of' in a string (say at most N): queue N: so many of them",
    ),
    (language.unclear_sentences, {"src/a.proto": "  int32 a = 1;  // whoever asks\n"}, "in a comment"),
    (language.unclear_sentences, {".ci/a": "#!/bin/sh\n# What it does.\n"}, ".ci/a:2: a comment"),
    (language.unclear_sentences, {".ci/a": 'echo "$x: nobody"\n'}, ".ci/a:1: 'nobody' in a string"),
    (language.unclear_sentences, {".ci/a": '#!/usr/bin/env python3\n"""Who?"""\n'}, "'Who' in a docstring"),
    (language.unclear_sentences, {"Makefile": "test: ## for everybody\n"}, "'everybody' in a comment"),
    (language.unclear_sentences, {"deploy/a.toml": "# somebody\n#a = 1\n"}, "deploy/a.toml:1: 'somebody'"),
    (language.unclear_sentences, {"deploy/a.yml": f'  summary: "{LONG_SENTENCE}"'}, "words in a setting"),
    (
        language.unclear_sentences,
        {"pyproject.toml": "a = 1  #" + " whoever asks\n"},
        "pyproject.toml:1: 'whoever'",
    ),
    (language.unclear_sentences, {"src/a.pyi": '"""Who?"""\n'}, "'Who' in a docstring"),
    (language.unclear_sentences, {"deploy/a.json": ' "title": "Who",'}, "'Who' in a setting"),
    (
        language.unclear_sentences,
        {"docs/a.md": "```\ncode\n```\nIt lets go\nof it."},
        "docs/a.md:4: 'lets go of'",
    ),
    (
        language.unclear_sentences,
        {"docs/a.md": f"|a|\n|-|\n| {LONG_SENTENCE} |\n"},
        "docs/a.md:3: a sentence",
    ),
]

ACCEPTED: list[tuple[Rule, dict[str, str]]] = [
    (
        tidy.dead_headers,
        {
            "native/holdfast/a.hpp": "",
            "native/holdfast/b.hpp": '#include "a.hpp"',
            "native/x/c.cpp": '#include "holdfast/b.hpp"',
        },
    ),
    (tidy.dead_modules, {"src/holdfast/used.py": "", "src/holdfast/__init__.py": "from . import used"}),
    (tidy.dead_modules, {"src/holdfast/used.py": "", "src/holdfast/__init__.py": "from .used import name"}),
    (tidy.dead_modules, {"src/holdfast/cli.py": "", "pyproject.toml": 'holdfast = "holdfast.cli:main"'}),
    (tidy.dead_modules, {"tests/kit/queue/storm.py": "", "Makefile": "\tpython -m tests.kit.queue.storm"}),
    (tidy.dead_modules, {"tests/kit/queue/child.py": "", "tests/test_x.py": 'run("queue/child.py")'}),
    (
        tidy.tests_import_tests,
        {"tests/unit/test_a.py": "from tests.kit.b import c, test_me\n# tests.unit.test_b"},
    ),
    (tidy.sessions_elsewhere, {"tests/spark/test_x.py": "def test_it(spark):\n    pass\n"}),
    (tidy.asserted_durations, {"tests/a.py": "assert time.monotonic() < limit, 'it hangs'"}),
    (tidy.asserted_durations, {"tests/a.py": "assert exp(time.time() - 30)"}),
    (
        tidy.nightly_without_another,
        {
            "tests/a.py": f"# In `make test`:\n# tests/b.py\n{LATE}",
            "tests/b.py": "LATE = 'pytest.mark.nightly'",
        },
    ),
    (
        tidy.nightly_without_another,
        {"tests/a.py": "a = [pytest.mark.nightly]  # test_b finds it\ndef test_b(): ...\n"},
    ),
    (tidy.unlisted_skips, {"tests/a.py": "skip = 1  # pytest.skip\n"}),
    (tidy.unlisted_skips, {LISTED: "pytest.skip('root')\n" * tidy.SKIPS[LISTED]}),
    (tidy.long_functions, {"native/holdfast/a.hpp": MANY_SHORT}),
    (tidy.long_functions, {"native/holdfast/a.hpp": LONG_MACRO}),
    (tidy.long_functions, {"src/a.py": DOCUMENTED}),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": ACQUIRE + "  // pairs with: load in x"}),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": "// Why. pairs with: x::load\n// and why\n" + ACQUIRE}),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": "f(a,  // pairs with: f (that one)\n  " + ACQUIRE}),
    (tidy.unpaired_orders, {"native/holdfast/a.hpp": "// memory_order_acquire would be too weak here\n"}),
    (tidy.uncited_invariants, {"docs/guide/queue.md": "**I1** holds", "native/model/m.hpp": "// I1"}),
    (
        tidy.requirement_rows,
        {
            "docs/requirements.md": TABLE + "| 1 | `tests/test_a.py::test_b` |\n| 2 | not yet |\n",
            "tests/test_a.py": "def test_b()",
        },
    ),
    (
        tidy.limit_rows,
        {
            tidy.LIMITS: TABLE
            + "| `<Q` and `R` | `tests/test_a.py::test_b`; space `last-lap` |\n| x | the same |\n",
            "tests/test_a.py": "def test_b()",
            "native/model/a.cpp": '{.name = "last-lap",',
            "src/holdfast/a.py": 'struct.pack("<Q", 1)\nclass R(Struct):\n    n: int\nclass S(Struct): ...',
        },
    ),
    (tidy.unknown_commands, {"Makefile": "test: x\n", "README.md": "`make test` and make sure"}),
    (tidy.forbidden_words, {"a.md": "$XDG/home/x, a/work/b and framework/ and rooted/"}),
    (language.unclear_sentences, {"src/a.py": "x = '# nobody'  # noqa: who\n"}),
    (language.unclear_sentences, {"src/a.py": '"""A.\n\n>>> who()\nnobody\n"""\ny = """\n# who\n"""'}),
    (language.unclear_sentences, {"native/tests/a.cpp": 'f("nobody");'}),
    (language.unclear_sentences, {"native/model/a.cpp": '#include "who.hpp"\nchar a = \'"\'; who("a");'}),
    (language.unclear_sentences, {"Makefile": "# echo\n\t@echo who $x\n", "deploy/a.toml": "#who = 1\n"}),
    (language.unclear_sentences, {"docs/a.md": f"```\n{LONG_SENTENCE}\n```\nThere is no `who`. What is it?"}),
]


@pytest.mark.parametrize(
    ("rule", "files", "word"), REJECTED, ids=lambda value: getattr(value, "__name__", "")
)
def test_rule_rejects(rule: Rule, files: dict[str, str], word: str, tmp_path: Path) -> None:
    complaints = list(rule(plant(tmp_path, files)))
    assert any(word in complaint for complaint in complaints), complaints


@pytest.mark.parametrize(("rule", "files"), ACCEPTED, ids=lambda value: getattr(value, "__name__", ""))
def test_rule_accepts(rule: Rule, files: dict[str, str], tmp_path: Path) -> None:
    assert not list(rule(plant(tmp_path, files)))


def test_every_rule_is_shown_to_fail() -> None:
    assert {rule for rule, _, _ in REJECTED} == set(tidy.RULES)
