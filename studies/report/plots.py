"""A plot's series as SVG.

| mark | x is a number or a time | x is a word |
|---|---|---|
| BARS | upright bars | lying bars, named above or beside, with their value |
| LINE, STEPS, POINTS | on two axes | lying bars |

Lying bars have room for words of any length on a phone. On a logarithmic axis zero lies on the axis itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from markupsafe import Markup

from studies.chapter import Mark, Plot, Series
from studies.report.axes import Kind, Scale, domain, kind_of, show_tick, ticks, title
from studies.report.plot_frame import (
    CHAR_WIDTH,
    LINE_HEIGHT,
    WIDTH,
    Canvas,
    Frame,
    number,
    series_class,
    wrapped,
    write_lines,
)

BAR_HEIGHT = 15
BESIDE_CHARS = 15
"""Names up to this length stand beside the bars, longer ones above them."""

MOST_WITH_ZEROS = 3
"""Among more series than that a bar of zero is left out, and said to be."""

DOTTED_POINTS = 25
"""A line of up to so many points shows each of them."""

XY = tuple[float, float]


def draw(plot: Plot) -> Markup:
    """Return a plot as an SVG element."""
    if _has_words(plot):
        return _lying_bars(plot)
    return _on_axes(plot)


def swatch(plot: Plot, index: int) -> Markup:
    """Return a series' sign for the legend, as an SVG element."""
    canvas = Canvas()
    if plot.mark is Mark.BARS or _has_words(plot):
        canvas.add(Markup('<rect x="6" y="1" width="12" height="12" rx="1.5" class="{}"/>').format(series_class(index, "bar")))
    elif plot.mark is Mark.POINTS:
        canvas.path("M12 7h.01", series_class(index, "dots"))
    else:
        canvas.path("M0 7H24", series_class(index, "line"))
    return Markup('<svg class="swatch" viewBox="0 0 24 14" aria-hidden="true">{}</svg>').format(canvas)


def _has_words(plot: Plot) -> bool:
    return any(isinstance(x, str) for series in plot.series for x in series.xs)


def _description(plot: Plot) -> str:
    names = ", ".join(series.name for series in plot.series if series.name)
    return f"{plot.y_label} by {plot.x_label}" + (f": {names}" if names else "")


def _lying_bars(plot: Plot) -> Markup:
    canvas = Canvas()
    kind = kind_of(plot.y_label)
    names = list(dict.fromkeys(str(x) for series in plot.series for x in series.xs))
    values = [{str(x): y for x, y in zip(series.xs, series.ys, strict=True)} for series in plot.series]
    low, high = domain([y for series in plot.series for y in series.ys], log=plot.log_y, from_zero=True)
    # Nobody tells the fifth zero from the sixth.
    sparse = len(plot.series) > MOST_WITH_ZEROS and any(y == 0 for series in plot.series for y in series.ys)
    beside = max(map(len, names)) <= BESIDE_CHARS
    left = CHAR_WIDTH * max(map(len, names)) + 10 if beside else 0.0
    value_chars = max(len(show_tick(y, kind)) for series in plot.series for y in series.ys)
    x = Scale(low, high, left, WIDTH - CHAR_WIDTH * value_chars - 8, plot.log_y)
    zero = x(max(low, 0.0))

    top = write_lines(canvas, wrapped(plot.x_label), 13) + 10
    place = top
    bars = Canvas()
    for name in names:
        if not beside:
            place = write_lines(bars, wrapped(name), place + 12) + 5
        present = [(index, by_name[name]) for index, by_name in enumerate(values) if name in by_name]
        if sparse:
            present = [(index, y) for index, y in present if y]
        if beside:
            bars.text(left - 8, place + len(present) * BAR_HEIGHT / 2 + 4, name, "title", "end")
        if not present:
            bars.text(left + 5, place + BAR_HEIGHT - 3, "all 0", "tick")
            place += BAR_HEIGHT
        for index, y in present:
            if math.isfinite(y):
                end = x(y)
                hint = ", ".join(part for part in (name, plot.series[index].name, f"{y:,.15g}") if part)
                bars.rect(min(zero, end), place + 1, max(abs(end - zero), 1), BAR_HEIGHT - 2, series_class(index, "bar"), hint)
                bars.text(max(zero, end) + 5, place + BAR_HEIGHT - 3, show_tick(y, kind), "tick")
            place += BAR_HEIGHT
        place += 9
    for tick in ticks(low, high, kind, log=plot.log_y, wanted=4):
        at = x(tick.at)
        canvas.line(at, top, at, place, "grid")
        half = CHAR_WIDTH / 2 * len(tick.label)
        canvas.text(min(max(at, half), WIDTH - half), place + 14, tick.label, "tick", "middle")
    canvas.line(zero, top, zero, place, "axis")
    canvas.add(Markup(bars))
    below = title(plot.y_label, kind, plot.log_y) + ("; a bar that is missing is 0" if sparse else "")
    bottom = write_lines(canvas, wrapped(below), place + 14 + LINE_HEIGHT + 2, (left + WIDTH) / 2, "middle")
    return canvas.svg(plot.id, plot.title, _description(plot), bottom + 8)


def _on_axes(plot: Plot) -> Markup:
    canvas = Canvas()
    bars = plot.mark is Mark.BARS
    x_kind, y_kind = kind_of(plot.x_label, plot.x_is_time), kind_of(plot.y_label)
    xs = [float(x) for series in plot.series for x in series.xs]
    y_low, y_high = domain([y for series in plot.series for y in series.ys], log=plot.log_y, from_zero=bars)
    x_low, x_high = domain(xs, log=plot.log_x, from_zero=False)
    gap = 0.0
    if plot.x_is_time or bars:
        # Not down to zero: that would be 1970.
        x_low, x_high = (min(xs), max(xs)) if xs else (0.0, 1.0)
        gap = min((b - a for a, b in pairwise(sorted(set(xs)))), default=1.0) if bars else 0.0
        x_low, x_high = x_low - gap / 2, max(x_high + gap / 2, x_low + 1)
    y_ticks = ticks(y_low, y_high, y_kind, log=plot.log_y)
    frame = Frame(canvas, title(plot.y_label, y_kind, plot.log_y), y_ticks)
    log_x = plot.log_x and not bars and not plot.x_is_time
    x = Scale(x_low, x_high, frame.left + 4, frame.right, log_x)
    y = Scale(y_low, y_high, frame.bottom, frame.top + 4, plot.log_y)
    wanted = 4 if x_kind is Kind.TIME else 5
    height = frame.draw(x, y, ticks(x_low, x_high, x_kind, log=log_x, wanted=wanted), title(plot.x_label, x_kind, log_x))
    for index, series in enumerate(plot.series):
        if bars:
            _upright_bars(canvas, plot, index, x, y, gap)
        else:
            _draw_series(canvas, plot, index, [(x(float(a)), y(b)) for a, b in zip(series.xs, series.ys, strict=True)])
    return canvas.svg(plot.id, plot.title, _description(plot), height)


def _upright_bars(canvas: Canvas, plot: Plot, index: int, x: Scale, y: Scale, gap: float) -> None:
    series: Series = plot.series[index]
    room = abs(x(x.low + gap) - x(x.low)) if gap else 20.0
    width = room * 0.84 / len(plot.series)
    zero = y(max(y.low, 0.0))
    for at, value in zip(series.xs, series.ys, strict=True):
        if math.isfinite(value) and value:
            left = x(float(at)) - room * 0.42 + index * width
            top, bottom = sorted((zero, y(value)))
            hint = ", ".join(part for part in (f"{float(at):,.15g}", series.name, f"{value:,.15g}") if part)
            canvas.rect(left, top, max(width - 0.5, 0.5), max(bottom - top, 1), series_class(index, "bar"), hint)


def _draw_series(canvas: Canvas, plot: Plot, index: int, points: Sequence[XY]) -> None:
    if plot.mark is not Mark.POINTS:
        canvas.path("".join(_line(run, plot.mark is Mark.STEPS) for run in _runs(points)), series_class(index, "line"))
    if plot.mark is Mark.POINTS or (plot.mark is Mark.LINE and len(points) <= DOTTED_POINTS):
        places = dict.fromkeys(f"M{number(x)} {number(y)}h.01" for x, y in points if math.isfinite(y))
        canvas.path("".join(places), series_class(index, "dots"))


def _runs(points: Sequence[XY]) -> Iterator[list[XY]]:
    """Yield what is drawn without a break: values that are no number break a line."""
    run: list[XY] = []
    for point in points:
        if math.isfinite(point[1]):
            run.append(point)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _line(points: Sequence[XY], steps: bool) -> str:
    commands = [f"M{number(points[0][0])} {number(points[0][1])}"]
    last = (number(points[0][0]), number(points[0][1]))
    for x, y in points[1:]:
        here = (number(x), number(y))
        # Points that lie on each other on any screen are one.
        if here != last:
            commands.append(f"H{here[0]}V{here[1]}" if steps else f"L{here[0]} {here[1]}")
        last = here
    return "".join(commands)
