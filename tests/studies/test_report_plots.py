"""Axes and plots: ticks are few and readable, everything drawn lies in the drawing, and every number is in it."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from studies.chapter import Mark, Plot, Series
from studies.report import plots
from studies.report.axes import Kind, kind_of, set_ticks, title
from studies.report.plots import COLOURS, STYLE, VARIABLES, draw
from tests.examples import IS_SOAK, examples
from tests.studies.report_samples import BARS, HISTOGRAM, LINE, POINTS, SHORT_BARS, STEPS

PLOTS = [BARS, SHORT_BARS, HISTOGRAM, LINE, STEPS, POINTS]
VALUES = st.lists(st.floats(min_value=-1e12, max_value=1e12, allow_subnormal=False), min_size=1, max_size=8)


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with mpl.rc_context(STYLE):
        yield


def drawn(plot: Plot) -> tuple[Figure, Axes]:
    figure, _ = plots.figure(plot)
    FigureCanvasAgg(figure).draw()
    return figure, figure.axes[0]


def parsed(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(draw(plot))


def labels(low: float, high: float, kind: Kind, *, log: bool = False) -> list[str]:
    figure = Figure()
    axes = figure.subplots()
    if log:
        axes.set_xscale("log")
    axes.set_xlim(low, high)
    set_ticks(axes.xaxis, low, high, kind, log=log)
    FigureCanvasAgg(figure).draw()
    places = dict(zip(axes.get_xticks(), (label.get_text() for label in axes.get_xticklabels()), strict=True))
    return [label for place, label in places.items() if low <= place <= high]


@examples(30)
@given(VALUES, st.booleans(), st.booleans(), st.sampled_from([Kind.NUMBER, Kind.BYTES, Kind.MILLIS]))
def test_ticks_are_few_and_different(values: list[float], log: bool, from_zero: bool, kind: Kind) -> None:
    low, high = plots._limits(values, log=log, from_zero=from_zero)
    known = [value for value in values if value > 0 or not log]
    assert low < high and all(low <= value <= high for value in known)
    found = labels(low, high, kind, log=log)
    assert len(found) <= 12
    if high - low > 0.01 * max(abs(low), abs(high)):
        assert len(set(found)) == len(found)


def test_times_are_of_the_clock_and_days() -> None:
    day = 86_400_000
    assert labels(0, 2 * day, Kind.TIME) == ["00:00\n1 Jan", "12:00", "00:00\n2 Jan", "12:00", "00:00\n3 Jan"]
    assert labels(0, 10 * day, Kind.TIME) == ["1 Jan", "4 Jan", "7 Jan", "10 Jan"]
    assert labels(0, 3_600_000, Kind.MILLIS) == ["0", "15 min", "30 min", "45 min", "1 h"]
    assert labels(0, 4096, Kind.BYTES) == ["0 B", "1 KiB", "2 KiB", "3 KiB", "4 KiB"]


def test_units_are_known_by_their_labels() -> None:
    assert kind_of("on disk, bytes") is Kind.BYTES
    assert kind_of("latency (ms)") is Kind.MILLIS
    assert kind_of("messages") is kind_of("items") is Kind.NUMBER
    assert title("latency (ms)", Kind.MILLIS, log=True) == "latency (log scale)"
    assert title("time", Kind.TIME, log=False) == "time (UTC)"


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.id)
def test_what_is_drawn_lies_in_the_drawing(plot: Plot) -> None:
    figure, axes = drawn(plot)
    width, height = figure.canvas.get_width_height()
    ticks = [
        label
        for axis in (axes.xaxis, axes.yaxis)
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        if axis.get_view_interval()[0] <= place <= axis.get_view_interval()[1]
    ]
    texts = [*axes.texts, axes._left_title, axes.xaxis.label, *ticks]  # type: ignore[attr-defined]
    for artist in [*texts, *axes.patches, *axes.lines, *figure.legends]:
        box = artist.get_window_extent()
        if box.width and box.height:
            assert box.x0 >= -3 and box.x1 <= width + 3 and box.y0 >= -3 and box.y1 <= height + 3, artist


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.id)
def test_a_plot_has_a_name_and_a_description(plot: Plot) -> None:
    svg = parsed(plot)
    ids = svg.get("aria-labelledby", "").split()
    named = {element.get("id"): element for element in svg.iter() if element.get("id")}
    assert svg.get("role") == "img" and [named[one].tag for one in ids] == ["title", "desc"]
    assert named[ids[0]].text == plot.title
    assert plot.y_label in (named[ids[1]].text or "")
    texts = {element.text for element in svg.iter("text")}
    assert {series.name for series in plot.series if series.name} <= texts


def test_colours_are_the_pages() -> None:
    """A reader's dark scheme holds for plots, and in the light one they are what a picture of them has."""
    css = (Path(plots.__file__).parent / "page.css").read_text()
    light = dict(re.findall(r"(--[a-z0-9]+): (#[0-9a-f]+)", css[: css.index("@media")]))
    assert {light[name]: name for name in VARIABLES.values()} == VARIABLES
    for plot in PLOTS:
        assert not re.search(r"#[0-9a-f]{6}\b", draw(plot)), "a colour that follows no scheme"


def test_lying_bars_are_as_long_as_their_values_and_say_them() -> None:
    _, axes = drawn(SHORT_BARS)
    assert [bar.get_width() for bar in axes.patches] == [12, 1534]
    hints = [title.text for title in parsed(SHORT_BARS).iter("title")]
    assert hints == ["Missed", "CreateTime, 12", "LogAppendTime, 1,534"]


def test_among_many_bars_zeros_are_left_out_and_said_to_be() -> None:
    series = tuple(Series(f"s{n}", ("one", "two"), (float(n), 0.0)) for n in range(4))
    _, axes = drawn(Plot("p", "t", series, Mark.BARS, "x", "messages"))
    assert len(axes.patches) == 3 and [text.get_text() for text in axes.texts].count("all 0") == 1
    assert "a bar that is missing is 0" in axes.get_xlabel()
    _, few = drawn(Plot("p", "t", series[:3], Mark.BARS, "x", "messages"))
    assert len(few.patches) == 6 and "all 0" not in [text.get_text() for text in few.texts]


def test_a_logarithmic_axis_has_zero_on_it() -> None:
    _, axes = drawn(Plot("p", "t", (Series("", (1.0, 2.0, 3.0), (0.0, 10.0, 1000.0)),), Mark.LINE, "x", "y", log_y=True))
    (line,) = axes.lines
    low, _ = axes.get_ylim()
    assert list(line.get_ydata()) == [low, 10.0, 1000.0]  # type: ignore[arg-type]


@pytest.mark.parametrize("mark", [Mark.LINE, Mark.STEPS, Mark.POINTS])
def test_lines_go_where_the_numbers_are(mark: Mark) -> None:
    xs, ys = (0.0, 10.0, 20.0), (5.0, math.nan, 10.0)
    _, axes = drawn(Plot("p", "t", (Series("a", xs, ys), Series("b", xs, xs)), mark, "x", "y"))
    for line, values, colour in zip(axes.lines, (ys, xs), COLOURS, strict=False):
        assert list(line.get_xdata()) == list(xs) and repr(list(map(float, line.get_ydata()))) == repr(list(values))  # type: ignore[arg-type]
        assert line.get_color() == colour
        assert line.get_drawstyle() == ("steps-post" if mark is Mark.STEPS else "default")
    assert len({(line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 2, "colour alone tells them apart"


WAYS = [*((mark, False) for mark in Mark), (Mark.BARS, True), (Mark.LINE, True)]
NUMBERS = [(), (0.0,), (7.0,), (-3.0, 4.0), (math.nan, 1.0, 2.0), (0.0, 0.0), (1e15, 1e-9)]
DRAWN = [
    (mark, words, log, ys)
    for one, (mark, words) in enumerate(WAYS)
    for other, ys in enumerate(NUMBERS)
    for log in (False, True)
    # Each pair is there: a way and its axis, numbers and their axis, a way and its numbers.
    if IS_SOAK or log == bool((one + other) % 2)
]


@pytest.mark.parametrize(("mark", "words", "log", "ys"), DRAWN, ids=str)
def test_any_numbers_can_be_drawn(mark: Mark, words: bool, log: bool, ys: tuple[float, ...]) -> None:
    xs: tuple[float | str, ...] = tuple(f"w{n}" if words else float(n) for n in range(len(ys)))
    svg = parsed(Plot("p", "t", (Series("a", xs, ys), Series("b", xs[:1], ys[:1])), mark, "x", "y, bytes", log_x=log, log_y=log))
    paths = [path.get("d", "") for path in svg.iter("path")]
    assert paths and not any("nan" in path or "inf" in path for path in paths)
