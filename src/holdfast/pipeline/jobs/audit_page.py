"""Write an audit as one HTML file: verdict, plots, tables. It loads no other files."""

from __future__ import annotations

import html
import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, StrMethodFormatter

from holdfast.formatting import time_words
from holdfast.pipeline.jobs.summary import readable, short

if TYPE_CHECKING:
    from holdfast.pipeline.audit import AuditReport
    from holdfast.pipeline.jobs.audit_counts import Moment

COLOURS = ("#2f6f9f", "#c8553d", "#5b8c5a", "#8d6a9f", "#b08d2e", "#4c9a9a", "#a0527a", "#666666")
BAD, INK, FAINT, SKEW = "#b3261e", "#1f2933", "#8794a1", "#fbe9e7"
DATES: Any = dates  # without types
PRODUCERS_MAX = 20
"""Most producers in the plot of missing numbers."""
ROWS_MAX = 200
"""Most rows of a table; a note counts the others."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; background: #f4f6f8; margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 0 0 12px; }
.sub { color: #5b6773; margin: 2px 0 20px; }
section, .tile { background: #fff; border: 1px solid #dde3e8; border-radius: 8px; }
section { padding: 18px 20px; margin: 0 0 18px; }
.verdict { color: #fff; border: 0; display: flex; flex-wrap: wrap; align-items: center; gap: 4px 14px; }
.verdict.good { background: #2e7d4f; } .verdict.bad { background: #b3261e; }
.verdict b { font-size: 22px; white-space: nowrap; } .verdict span { opacity: .92; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 0 0 18px; }
.tile { padding: 12px 14px; flex: 1 1 auto; }
.tile i { display: block; font-style: normal; color: #5b6773; font-size: 13px; }
.tile b { font-size: 20px; font-variant-numeric: tabular-nums; } .tile.bad b { color: #b3261e; }
figure { margin: 0; overflow-x: auto; }
figure svg { width: 100%; min-width: 660px; height: auto; display: block; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { text-align: left; color: #5b6773; font-weight: 600; border-bottom: 2px solid #dde3e8; }
th, td { padding: 5px 10px 5px 0; white-space: nowrap; } td { border-bottom: 1px solid #eef1f4; }
.n { text-align: right; } td.bad { color: #b3261e; font-weight: 600; }
p.note { color: #5b6773; font-size: 13px; margin: 10px 0 0; } p.say { margin: 0 0 18px; }
@media (max-width: 640px) { main { padding: 18px 12px 40px; } section { padding: 14px; } }
"""


def write_report(report: AuditReport, path: str | Path, title: str = "Delivery audit") -> Path:
    """Write the page, as a whole or not at all."""
    target = Path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    text, new = page(report, title), target.with_name(f".{target.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)  # partial, if the disk is full
    return target


def page(report: AuditReport, title: str = "Delivery audit") -> str:
    """Return the page as text."""
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    topics = sorted({each.topic for each in report.producers})
    names = ", ".join(map(short, topics)) or "no topic"
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f'<p class="sub">{html.escape(names)} · {made} · computed in {report.seconds:.1f} s</p>',
        _verdict(report),
        _tiles(report),
        *(f'<p class="say">{html.escape(note)}</p>' for note in report.notes),
        *_plots(report, topics),
        _latency_table(report),
        _producer_table(report),
        *_findings(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(sections)
        + "\n</main></body></html>\n"
    )


# -- words and figures --------------------------------------------------------------------------------


def _verdict(report: AuditReport) -> str:
    if report.sound:
        words = f"{report.messages:,} messages: each is stored once, and in the order of its key"
        return f'<section class="verdict good"><b>✓ Sound</b><span>{words}</span></section>'
    words = html.escape(", ".join(report.faults()))
    return f'<section class="verdict bad"><b>✗ Not sound</b><span>{words}</span></section>'


def _tiles(report: AuditReport) -> str:
    tiles: list[tuple[str, int, bool]] = [
        ("messages", report.messages, False),
        *(
            (name, count, False)
            for name, count in (("archived", report.archived), ("live", report.live))
            if count
        ),
        ("producers", len({each.producer for each in report.producers}), False),
        ("lost", report.lost, report.lost > 0),
        ("duplicated", report.duplicated, report.duplicated > 0),
        ("out of order", report.out_of_order, report.out_of_order > 0),
    ]
    unconfirmed = sum(each.unconfirmed for each in report.producers)
    if unconfirmed:
        tiles.append(("unconfirmed", unconfirmed, False))
    if report.foreign:
        tiles.append(("not numbered", report.foreign, not report.foreign_allowed))
    if report.damaged:
        tiles.append(("damaged", report.damaged, True))
    if report.unexpected:
        tiles.append(("producers not expected", report.unexpected, True))
    shown = "".join(
        f'<div class="tile{" bad" if bad else ""}"><i>{name}</i><b>{value:,}</b></div>'
        for name, value, bad in tiles
    )
    return f'<div class="tiles">{shown}</div>'


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[Any]], texts: int, note: str = "", bad: int = 99
) -> str:
    """Build a table.

    The first `texts` columns are aligned left. From column `bad` on, numbers that are not 0 are red.
    """

    def cell(column: int, value: Any) -> str:
        number = isinstance(value, int)
        kind = ("n" if column >= texts else "") + (" bad" if number and value and column >= bad else "")
        return f'<td class="{kind}">{f"{value:,}" if number else html.escape(str(value))}</td>'

    shown = [
        f"<tr>{''.join(cell(column, value) for column, value in enumerate(row))}</tr>"
        for row in rows[:ROWS_MAX]
    ]
    heads = [
        f'<th class="{"n" if at >= texts else ""}">{html.escape(name)}</th>' for at, name in enumerate(head)
    ]
    if len(rows) > ROWS_MAX:
        note = f"{len(rows) - ROWS_MAX:,} more are in the output of --json. {note}"
    foot = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return (
        f'<section><h2>{html.escape(title)}</h2><div class="scroll"><table>'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{''.join(shown)}</tbody></table></div>{foot}</section>"
    )


def _latency_table(report: AuditReport) -> str:
    rows = [
        (
            *(short(each.topic), each.count),
            *map(time_words, (each.min, *each.shares, each.max)),
            each.skewed,
        )
        for each in report.latency
    ]
    note = (
        "From sent_ns, the producer's clock, to storedTime, the broker's. Below 0 is clock skew: the clocks "
        "differ by that or more."
    )
    head = ("topic", "messages", "least", "50 %", "90 %", "99 %", "99.9 %", "most", "clock skew")
    return _table("Latency", head, rows, 1, note, bad=8)


def _producer_table(report: AuditReport) -> str:
    rows = [
        (
            short(each.topic),
            each.producer,
            each.messages,
            each.confirmed_words,
            each.lost,
            each.duplicated,
            each.out_of_order,
        )
        for each in report.producers
    ]
    head = ("topic", "producer", "messages", "confirmed", "lost", "duplicated", "out of order")
    unsaid = "No expected counts were given: every number up to a producer's highest is expected."
    return _table("Producers", head, rows, 2, "" if report.said else unsaid, bad=4)


def _findings(report: AuditReport) -> Iterator[str]:
    if report.gaps:
        gaps = [(short(g.topic), g.producer, g.first, g.last, g.last - g.first + 1) for g in report.gaps]
        yield _table("Missing numbers", ("topic", "producer", "from", "to", "how many"), gaps, 2)
    for title, found in (("Duplicates", report.repeated), ("Out of order", report.overtaken)):
        if found:
            rows = [(short(each.topic), each.producer, each.number, each.position) for each in found]
            yield _table(title, ("topic", "producer", "number", "at position"), rows, 2)
    if report.strange:
        odd = [(short(each.topic), each.what, each.position) for each in report.strange]
        yield _table("Not numbered messages", ("topic", "what", "at position"), odd, 2)


# -- plots --------------------------------------------------------------------------------------------


def _plots(report: AuditReport, topics: list[str]) -> Iterator[str]:
    if not report.series:
        return
    yield _figure("Messages over time", lambda axes: _rate(axes, report, topics))
    yield _figure("Latency over time", lambda axes: _latency_curve(axes, report, topics))
    yield _figure("How long it took", lambda axes: _histogram(axes, report, topics))
    if report.gaps:
        lines = len({(gap.topic, gap.producer) for gap in report.gaps})
        height = 0.8 + 0.3 * min(lines, PRODUCERS_MAX)
        yield _figure("Where numbers are missing", lambda axes: _holes(axes, report), height)


def _figure(title: str, draw: Callable[[Axes], None], height: float = 2.6) -> str:
    """Draw a plot as SVG for the page, without a window system or global state."""
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": title,
        "font.family": "sans-serif",
        "font.size": 9.5,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": "#c3ccd4",
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#eef1f4",
        "text.parse_math": False,  # a dollar in a user's name is not math
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the browser has the glyphs
        figure = Figure(figsize=(10.2, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace("<svg ", f'<svg role="img" aria-label="{html.escape(title)}" ', 1)
    return f"<section><h2>{html.escape(title)}</h2><figure>{svg}</figure></section>"


def _times(report: AuditReport, topic: str) -> tuple[list[float], list[Moment | None]]:
    """Return every step of time, and one after the last; None: no message was stored."""
    found = {each.at_s: each for each in report.series if each.topic == topic}
    steps = range(min(found), max(found) + 2 * report.step_s, report.step_s) if found else range(0)
    at = [float(DATES.date2num(datetime.fromtimestamp(step, UTC))) for step in steps]
    return at, [found.get(step) for step in steps]


def _clock(axes: Axes) -> None:
    locator = DATES.AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(DATES.ConciseDateFormatter(locator, tz=UTC))


def _rate(axes: Axes, report: AuditReport, topics: list[str]) -> None:
    lines: list[Any] = []
    for colour, topic in zip(cycle(COLOURS), topics, strict=False):
        at, found = _times(report, topic)
        rates = [each.count / report.step_s if each else 0.0 for each in found]
        lines += axes.step(at, rates, where="post", color=colour, linewidth=1.6, label=short(topic))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("messages per second")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _clock(axes)
    _legend(axes, lines)


def _latency_curve(axes: Axes, report: AuditReport, topics: list[str]) -> None:
    lines: list[Any] = []
    for colour, topic in zip(cycle(COLOURS), topics, strict=False):
        at, found = _times(report, topic)
        for share, width, dashes in (("p50", 1.6, "-"), ("p99", 1.1, "--")):
            # There is no line where no message was published.
            took = [getattr(each, share) / 1000 if each else math.nan for each in found]
            if len(took) > 1:
                took[-1] = took[-2]
            label = f"{short(topic)}, {share[1:]} %"
            style: dict[str, Any] = {"color": colour, "linewidth": width, "linestyle": dashes}
            lines += axes.step(at, took, where="post", label=label, **style)
    shares = [share for each in report.series for share in (each.p50, each.p99)]
    if _powers(axes.yaxis, axes.set_yscale, min(shares)):
        axes.axhspan(min(axes.get_ylim()[0], min(shares) / 1000), 0, color=SKEW, zorder=0)
    else:
        low, high = axes.get_ylim()
        if high < low * 10:
            axes.set_ylim(low / 3, high * 3)
    axes.set_ylabel("latency (below 0: clock skew)" if min(shares) < 0 else "latency")
    _clock(axes)
    _legend(axes, lines)


def _histogram(axes: Axes, report: AuditReport, topics: list[str]) -> None:
    shown: list[Any] = []
    for colour, topic in zip(cycle(COLOURS), topics, strict=False):
        bars = [each for each in report.histogram if each.topic == topic]
        drawn = axes.bar(
            [each.low / 1000 for each in bars],
            [each.count for each in bars],
            width=[(each.high - each.low) / 1000 for each in bars],
            align="edge",
            color=colour,
            alpha=0.75,
            label=short(topic),
        )
        shown.append(drawn)
    least = min(each.low for each in report.histogram)
    if _powers(axes.xaxis, axes.set_xscale, least):
        axes.axvspan(min(axes.get_xlim()[0], least / 1000), 0, color=SKEW, zorder=0)
    axes.set_xlabel("latency (below 0: clock skew)" if least < 0 else "latency")
    axes.set_ylabel("messages")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _legend(axes, shown)


def _holes(axes: Axes, report: AuditReport) -> None:
    """Draw a line for each producer over its numbers; missing ones are red."""
    missing = {(gap.topic, gap.producer) for gap in report.gaps}
    shown = [each for each in report.producers if (each.topic, each.producer) in missing][:PRODUCERS_MAX]
    for row, each in enumerate(shown):
        axes.barh(row, max(each.last, each.confirmed or 0) + 1, height=0.5, color="#cfd8e0")
        for gap in report.gaps:
            if (gap.topic, gap.producer) == (each.topic, each.producer):
                axes.barh(
                    row,
                    gap.last - gap.first + 1,
                    left=gap.first,
                    height=0.5,
                    color=BAD,
                    edgecolor=BAD,
                    linewidth=1,
                )
    axes.set_yticks(range(len(shown)), [f"{short(each.topic)} · {readable(each.producer)}" for each in shown])
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("number")
    axes.invert_yaxis()


def _powers(axis: Any, set_scale: Callable[..., None], least: float) -> bool:
    """Set a logarithmic scale in milliseconds. Return whether values are below 0.

    Those are mirrored; between both halves the scale is linear for 1 µs.
    """
    if least > 0:
        set_scale("log")
        axis.set_major_locator(LogLocator(numticks=9))
    else:
        set_scale("symlog", linthresh=0.001)
    axis.set_major_formatter(FuncFormatter(lambda value, _: time_words(value * 1000)))
    axis.set_minor_formatter(NullFormatter())
    return least < 0


def _legend(axes: Axes, drawn: Sequence[Any]) -> None:
    axes.legend(
        drawn,
        [each.get_label() for each in drawn],  # given: otherwise a name that begins with _ would be left out
        frameon=False,
        fontsize=8.5,
        ncols=4,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        borderaxespad=0,
    )
