"""Test the page of an audit with unusual names, and the output without a page."""

from __future__ import annotations

import contextlib
import html
import json
import warnings
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.cli import main
from holdfast.cli.output import print_json
from holdfast.pipeline.audit import AuditReport
from holdfast.pipeline.jobs.audit_counts import Bar, Gap, Latency, Moment, ProducerAudit
from holdfast.pipeline.jobs.audit_page import page, write_report
from tests.kit.slices import pick
from tests.kit.spark.pipeline_world import publish

Capture = pytest.CaptureFixture[str]
NAMES = ("cost$^$x", "$\\foo$", "_hidden", "<b>", "中文", "a\x1b[2J\nsound: all is well", "$$$", "")


def account(topic: str, producer: str, lost: int = 0) -> AuditReport:
    """Of two messages, and as many that are missing."""
    counts = {"messages": 2, "distinct": 2, "last": 1 + lost, "confirmed": None, "lost": lost}
    found = ProducerAudit(topic, producer, **counts, duplicated=0, out_of_order=0, unconfirmed=0)  # type: ignore[arg-type]
    return AuditReport(
        archived=0,
        live=2,
        messages=2,
        foreign=0,
        damaged=0,
        producers=[found],
        latency=[Latency(topic, 2, 1, 1, 1, 1, 1, 1)],
        step_s=1,
        series=[Moment(topic, 1_794_700_000 + at, 1, 2_000, 3_000) for at in range(2)],
        histogram=[Bar(topic, 1_000.0, 1_259.0, 2)],
        gaps=[Gap(topic, producer, 1, lost)] if lost else [],
    )


@pytest.fixture(scope="module", autouse=True)
def drawn_before() -> None:
    """The first page takes longer: fonts are looked for."""
    page(account("t", "a"))


def named(*names: str) -> AuditReport:
    """An account of topics and producers of these names."""
    each = [account(f"persistent://public/default/{name}", name, lost=3) for name in names]
    return replace(
        each[0],
        producers=[found for one in each for found in one.producers],
        latency=[found for one in each for found in one.latency],
        series=[found for one in each for found in one.series],
        histogram=[found for one in each for found in one.histogram],
        gaps=[found for one in each for found in one.gaps],
    )


@pytest.mark.parametrize(
    "names", pick(test=[NAMES[:4], NAMES[4:]], nightly=[NAMES, *([name] for name in NAMES)])
)
def test_names_are_shown_as_they_are(names: Sequence[str]) -> None:
    """A dollar is not math, `_` hides no name, and missing glyphs give no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = page(named(*names))
    assert text.count("<svg") == 4
    drawn = text.split("<h2>Messages over time</h2>")[1].split("</figure>")[0]
    for name in names:
        if name.isascii() and name.isprintable() and name:
            assert f">{html.escape(name)}<" in drawn


def test_a_name_cannot_write_a_verdict() -> None:
    table = account("persistent://public/default/t", "a\nsound: 9 messages\x1b[2J", lost=1).table()
    assert "a\\nsound: 9 messages\\x1b[2J" in table
    assert table.splitlines()[-1].startswith("NOT SOUND: lost 1")
    assert "\x1b" not in table


def test_a_page_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = account("t", "a")
    kept = write_report(found, tmp_path / "page.html").read_text()
    write = Path.write_text

    def full(self: Path, data: str, encoding: str | None = None) -> int:
        write(self, data[:10], encoding)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        write_report(found, tmp_path / "page.html")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == kept


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), ValueError("\n^\nmany lines")])
@pytest.mark.parametrize("lost", [0, 1])
def test_the_account_is_told_without_its_page(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, failure: Exception, lost: int
) -> None:
    """The status is 1; stdout has the account, as one JSON value with --json."""

    @contextlib.contextmanager
    def no_spark(options: Namespace) -> Iterator[tuple[None, SimpleNamespace]]:
        yield None, SimpleNamespace()

    def fail(*_: object) -> None:
        raise failure

    found = account("persistent://public/default/t", "a", lost)
    publish(tmp_path / "data", "t", [b"x"])
    monkeypatch.setattr("holdfast.cli.pipeline.spark_for", no_spark)
    monkeypatch.setattr("holdfast.pipeline.audit.audit", lambda *_, **__: found)
    monkeypatch.setattr("holdfast.pipeline.jobs.audit_page.write_report", lambda _, path: Path(path))
    arguments = ["pipeline", "audit", "t", "--data", str(tmp_path / "data")]
    paged = [*arguments, "--report", str(tmp_path / "page.html")]
    assert main(paged) == lost
    assert capsys.readouterr().out == f"{found.table()}\nreport: {tmp_path / 'page.html'}\n"
    assert main([*paged, "--json"]) == lost
    assert json.loads(capsys.readouterr().out)["report"] == str(tmp_path / "page.html")
    assert main([*arguments, "--json"]) == lost
    assert "report" not in json.loads(capsys.readouterr().out)
    monkeypatch.setattr("holdfast.pipeline.jobs.audit_page.write_report", fail)
    for more, told in (([], found.table()), (["--json"], None)):
        assert main([*paged, *more]) == 1
        shown = capsys.readouterr()
        if told is None:
            answer = json.loads(shown.out)
            assert (answer["sound"], answer["report"]) == (not lost, None)
        else:
            assert shown.out == f"{told}\n"
        assert shown.err.startswith(f"holdfast: the page {tmp_path / 'page.html'} was not written: ")
        assert shown.err.count("\n") == 1


def test_json_has_no_word_for_what_is_no_number(capsys: Capture) -> None:
    print_json({"a": [float("nan"), (1.5, float("inf"))], "b": {"c": -float("inf")}, "d": "NaN"})

    def refuse(word: str) -> None:
        raise AssertionError(word)

    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {"a": [None, [1.5, None]], "b": {"c": None}, "d": "NaN"}
    print_json(replace(account("t", "a"), seconds=float("nan")).record())
    assert json.loads(capsys.readouterr().out, parse_constant=refuse)["seconds"] is None
