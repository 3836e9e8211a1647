"""Draws a plot as a matplotlib figure, and turns the figure into SVG for the page.

| mark | x is a number or a time | x is a word |
|---|---|---|
| BARS | vertical bars | horizontal bars with a name above and their value |
| LINE, STEPS, POINTS | a graph with two axes | horizontal bars |

A figure is 380 points wide, which is a phone's width, and grows with the page. Text stays text, and bars have tooltips with their
numbers. On a logarithmic axis zero lies on the axis itself.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence
from itertools import count, pairwise
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Rectangle

from studies.chapter import Mark, Plot
from studies.report.axes import kind_of, set_ticks, show_value, title

WIDTH = 380
AREA_HEIGHT = 240
ROW_HEIGHT = 16.5
CHARS = 50
"""The most characters in a line of text."""

MOST_WITH_ZEROS = 3
"""With more series than this, bars of zero are left out, and a note says so."""

DOTTED_POINTS = 25
"""A line with more points than this has no marker at each point."""

INK, SOFT, LINE = "#1b1f24", "#57606a", "#d5dae0"
COLOURS = ("#1f6fc4", "#d4640b", "#1a8a48", "#9a3fb5", "#c02f2f", "#0b818c", "#84680a", "#66707b")
VARIABLES = {INK: "--ink", SOFT: "--soft", LINE: "--line"} | {colour: f"--s{n}" for n, colour in enumerate(COLOURS)}
"""The page's colours: in SVG they follow the reader's light or dark scheme. Series also differ by dashes and markers."""

DASHES = ("-", (0, (5, 2)), (0, (1.5, 2)), (0, (7, 2, 1.5, 2)))
MARKERS = ("o", "s", "^", "D")

STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "axes.edgecolor": SOFT,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "figure.constrained_layout.h_pad": 0.04,
    "figure.constrained_layout.w_pad": 0.04,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "ytick.left": False,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "svg.fonttype": "none",
    "text.parse_math": False,
}


def draw(plot: Plot) -> Markup:
    """Return a plot as an SVG element for the page. Its ids begin with the plot's id, and it uses the page's colours."""
    with mpl.rc_context(STYLE | {"svg.hashsalt": plot.id}):
        made, hints = figure(plot)
        file = io.StringIO()
        made.savefig(file, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _inlined(plot, file.getvalue(), hints)


def figure(plot: Plot) -> tuple[Figure, dict[str, str]]:
    """Return a plot's figure, and the text for each of its bars by id. Call it under `STYLE`."""
    legend_rows = len(plot.series) if _has_legend(plot) else 0
    rows = legend_rows + (_rows(plot) if _has_words(plot) else 0)
    height = rows * ROW_HEIGHT + (70 if _has_words(plot) else AREA_HEIGHT)
    made = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
    return made, draw_on(made, plot)


def draw_on(figure: FigureBase, plot: Plot) -> dict[str, str]:
    """Draw a plot on a figure or on part of one; see `figure`."""
    axes = figure.subplots()
    hints = _lying_bars(axes, plot) if _has_words(plot) else _on_axes(axes, plot)
    if _has_legend(plot):
        figure.legend(loc="outside upper left", handlelength=2.2, borderaxespad=0.2, labelspacing=0.35)
    return hints


def _has_legend(plot: Plot) -> bool:
    return len(plot.series) > 1 or any(series.name for series in plot.series)


def _has_words(plot: Plot) -> bool:
    return any(isinstance(x, str) for series in plot.series for x in series.xs)


def _names(plot: Plot) -> list[str]:
    return list(dict.fromkeys(str(x) for series in plot.series for x in series.xs))


def _rows(plot: Plot) -> int:
    bars = sum(len(series.xs) for series in plot.series)
    return bars + sum(len(_wrapped(name)) + 1 for name in _names(plot))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, CHARS) or [""]


def _limits(values: Sequence[float], *, log: bool, from_zero: bool) -> tuple[float, float]:
    """Return the limits of an axis with room for all values. A logarithmic axis ignores values that are not above zero."""
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    if not known:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        # Keep the bar of the smallest value visible: it must not end on the axis.
        low = 10.0 ** math.floor(math.log10(low) - 0.05) if from_zero else low / 1.2
        return low, max(high * 1.2, low * 10)
    if from_zero or 0 < low < 0.4 * high:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        # Wide enough for a float to distinguish the two limits.
        return (low - max(1.0, abs(low) * 1e-6), high + max(1.0, abs(high) * 1e-6)) if low else (0.0, 1.0)
    room = (high - low) * 0.02
    return (low if low == 0 else low - room), (high if high == 0 else high + room)


def _lying_bars(axes: Axes, plot: Plot) -> dict[str, str]:
    kind = kind_of(plot.y_label)
    values = [{str(x): y for x, y in zip(series.xs, series.ys, strict=True)} for series in plot.series]
    low, high = _limits([y for series in plot.series for y in series.ys], log=plot.log_y, from_zero=True)
    zero = max(low, 0.0)
    # More than five equal lines cannot be told apart.
    sparse = len(plot.series) > MOST_WITH_ZEROS and any(y == 0 for series in plot.series for y in series.ys)
    hints: dict[str, str] = {}
    place = 0.0
    unlabelled = set(range(len(plot.series)))
    for name in _names(plot):
        lines = _wrapped(name)
        axes.text(0, place + len(lines) / 2, "\n".join(lines), va="center", transform=axes.get_yaxis_transform())
        place += len(lines) + 0.55
        shown = [(index, one[name]) for index, one in enumerate(values) if name in one and not (sparse and not one[name])]
        if not shown:
            axes.annotate("all 0", (zero, place), (4, 0), textcoords="offset points", va="center", color=SOFT)
            place += 1
        for index, y in shown:
            length = 0.0 if not math.isfinite(y) or (plot.log_y and y < low) else y - zero
            (bar,) = axes.barh(place, length, 0.86, left=zero, color=COLOURS[index % len(COLOURS)])
            if index in unlabelled:
                unlabelled.remove(index)
                bar.set_label(plot.series[index].name)
            _hint(bar, hints, name, plot.series[index].name, y)
            end = (zero + max(length, 0.0), place)
            axes.annotate(show_value(y, kind), end, (4, 0), textcoords="offset points", va="center", color=SOFT, size=10)
            place += 1
        place += 0.45
    if plot.log_y:
        axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(max(place, 1.0), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(True)
    axes.spines["left"].set_position(("data", zero))
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0)
    axes.grid(axis="x")
    set_ticks(axes.xaxis, low, high, kind, log=plot.log_y)
    axes.set_title("\n".join(_wrapped(plot.x_label)))
    below = title(plot.y_label, kind, plot.log_y) + ("; a bar that is missing is 0" if sparse else "")
    axes.set_xlabel("\n".join(_wrapped(below)))
    return hints


def _on_axes(axes: Axes, plot: Plot) -> dict[str, str]:
    bars = plot.mark is Mark.BARS
    x_kind, y_kind = kind_of(plot.x_label, plot.x_is_time), kind_of(plot.y_label)
    log_x = plot.log_x and not bars and not plot.x_is_time
    xs = [float(x) for series in plot.series for x in series.xs]
    y_low, y_high = _limits([y for series in plot.series for y in series.ys], log=plot.log_y, from_zero=bars)
    x_low, x_high = _limits(xs, log=log_x, from_zero=False)
    gap = 0.0
    if plot.x_is_time or bars:
        # Do not begin at zero: that would be 1970.
        gap = min((b - a for a, b in pairwise(sorted(set(xs)))), default=1.0)
        x_low, x_high = (min(xs), max(xs)) if xs else (0.0, 1.0)
        room = gap / 2 if bars else (x_high - x_low) * 0.01
        x_low, x_high = x_low - room, max(x_high + room, x_low + 1)
    if log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log", nonpositive="clip")
    axes.set_xlim(x_low, x_high)
    axes.set_ylim(y_low, y_high)
    set_ticks(axes.xaxis, x_low, x_high, x_kind, log=log_x)
    set_ticks(axes.yaxis, y_low, y_high, y_kind, log=plot.log_y)
    axes.grid(axis="y")
    axes.set_title("\n".join(_wrapped(title(plot.y_label, y_kind, plot.log_y))))
    axes.set_xlabel("\n".join(_wrapped(title(plot.x_label, x_kind, log_x))))
    hints: dict[str, str] = {}
    for index, series in enumerate(plot.series):
        colour = COLOURS[index % len(COLOURS)]
        # On a logarithmic axis, values that are not above zero lie on the axis.
        points = [max(float(x), x_low) if log_x else float(x) for x in series.xs]
        ys = [max(y, y_low) if plot.log_y and math.isfinite(y) else y for y in series.ys]
        if bars:
            width = gap * 0.84 / len(plot.series)
            places = [x - gap * 0.42 + index * width for x in points]
            zero = max(y_low, 0.0)
            drawn = axes.bar(places, [y - zero for y in ys], width, zero, align="edge", color=colour, label=series.name)
            for bar, x, y in zip(drawn, points, series.ys, strict=True):
                _hint(bar, hints, f"{x:,.15g}", series.name, y)
            continue
        look: dict[str, Any] = {"color": colour, "label": series.name, "clip_on": False, "markersize": 4.5}
        marker = MARKERS[index % len(MARKERS)]
        if plot.mark is Mark.POINTS:
            axes.plot(points, ys, marker, **look)
        else:
            dots = marker if plot.mark is Mark.LINE and len(points) <= DOTTED_POINTS else ""
            axes.plot(
                points,
                ys,
                drawstyle="steps-post" if plot.mark is Mark.STEPS else "default",
                linestyle=DASHES[index % len(DASHES)],
                marker=dots,
                linewidth=1.8,
                **look,
            )
    return hints


def _hint(bar: Rectangle, hints: dict[str, str], name: str, series: str, value: float) -> None:
    """Give a bar a tooltip with its numbers."""
    bar.set_gid(f"bar{len(hints)}")
    hints[f"bar{len(hints)}"] = ", ".join(part for part in (name, series, f"{value:,.15g}") if part)


def _inlined(plot: Plot, svg: str, hints: dict[str, str]) -> Markup:
    """Turn matplotlib's SVG file into an element of the page, with a name, the page's colours and unique ids."""
    numbers = count()
    names: dict[str, str] = {}

    def own(found: re.Match[str]) -> str:
        name = names.setdefault(found[2], f"{plot.id}-{next(numbers)}")
        return found[1] + name + found[3]

    body = re.sub(r"<style.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL)  # It would apply to the whole page.
    head, body = body[: body.index(">")], body[body.index(">") + 1 :]
    for bar, hint in hints.items():
        body = body.replace(f'<g id="{bar}">', f'<g id="{bar}">' + str(Markup("<title>{}</title>").format(hint)), 1)
    body = re.sub(r'( id=")([^"]+)(")', own, body)
    body = re.sub(r'( (?:xlink:)?href="#)([^"]+)(")', own, body).replace(" xlink:href=", " href=")
    body = re.sub(r"(url\(#)([^)]+)(\))", own, body)
    body = re.sub("|".join(VARIABLES), lambda found: f"var({VARIABLES[found[0]]})", body)
    view = re.search(r'viewBox="[^"]+"', head)
    assert view is not None
    opening = Markup(
        '<svg class="plot" {} role="img" aria-labelledby="{}-t {}-d"><title id="{}-t">{}</title><desc id="{}-d">{}</desc>'
    ).format(Markup(view[0]), plot.id, plot.id, plot.id, plot.title, plot.id, _description(plot))
    return opening + Markup(body.strip())


def _description(plot: Plot) -> str:
    names = ", ".join(series.name for series in plot.series if series.name)
    return f"{plot.y_label} by {plot.x_label}" + (f": {names}" if names else "")
