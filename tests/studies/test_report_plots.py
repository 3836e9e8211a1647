"""Axes and plots: ticks are where they say, everything drawn lies in the drawing, and every number is in it."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from studies.chapter import Mark, Plot, Series
from studies.report.axes import Kind, Scale, domain, kind_of, ticks, title
from studies.report.plot_frame import CHAR_WIDTH, WIDTH
from studies.report.plots import draw
from tests.studies.report_samples import BARS, HISTOGRAM, LINE, POINTS, SHORT_BARS, STEPS

PLOTS = [BARS, SHORT_BARS, HISTOGRAM, LINE, STEPS, POINTS]
VALUES = st.lists(st.floats(min_value=-1e12, max_value=1e12, allow_subnormal=False), min_size=1, max_size=8)


def parsed(plot: Plot) -> ElementTree.Element:
    return ElementTree.fromstring(f'<div xmlns:x="none">{draw(plot)}</div>')[0]


def points(svg: ElementTree.Element, css: str) -> Iterator[tuple[float, float]]:
    """The places that paths of a class go to."""
    for path in svg.iter("path"):
        if path.get("class", "").startswith(css):
            x = y = 0.0
            for command, arguments in re.findall(r"([MLHVh])([-\d. ]*)", path.get("d", "")):
                numbers = [float(number) for number in arguments.split()]
                if command in "ML":
                    x, y = numbers
                elif command == "H":
                    (x,) = numbers
                elif command == "V":
                    (y,) = numbers
                yield x, y


@given(VALUES, st.booleans(), st.booleans(), st.sampled_from(list(Kind)))
def test_ticks_lie_on_the_axis_in_order_and_are_few(values: list[float], log: bool, from_zero: bool, kind: Kind) -> None:
    if kind is Kind.TIME:
        log, from_zero, values = False, False, [abs(value) for value in values]
    low, high = domain(values, log=log, from_zero=from_zero)
    known = [value for value in values if value > 0 or not log]
    assert low < high and all(low <= value <= high for value in known)
    if not from_zero and not log and kind is not Kind.TIME and high - low < 1e-9 * abs(high):
        return  # nothing that a float can step by
    found = ticks(low, high, kind, log=log)
    places = [tick.at for tick in found]
    assert places == sorted(set(places)) and len(places) <= 12
    assert all(low - 1e-6 * (high - low) <= place <= high + 1e-6 * (high - low) for place in places)
    assert len(places) >= 1 or kind in (Kind.TIME, Kind.MILLIS, Kind.BYTES)


@given(st.floats(1e-3, 1e9), st.floats(1.01, 1e9), st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_a_scale_keeps_the_order(low: float, factor: float, a: float, b: float, log: bool) -> None:
    scale = Scale(low, low * factor, 10, 200, log)
    first, last = sorted((a, b))
    at = [low + share * (low * factor - low) for share in (first, last)]
    assert 9.999 <= scale(at[0]) <= scale(at[1]) + 1e-6 <= 200.001


def test_a_logarithmic_scale_puts_zero_on_the_axis() -> None:
    assert Scale(1, 100, 0, 200, log=True)(0) == 0
    assert Scale(1, 100, 0, 200, log=True)(10) == pytest.approx(100)


def test_time_ticks_are_clock_times_and_days() -> None:
    day = 86_400_000
    assert [tick.label for tick in ticks(0, 2 * day, Kind.TIME, wanted=4)] == ["00:00", "12:00", "00:00", "12:00", "00:00"]
    assert [tick.second_line for tick in ticks(0, 2 * day, Kind.TIME, wanted=4)] == ["1 Jan", "", "2 Jan", "", "3 Jan"]
    assert [tick.label for tick in ticks(0, 10 * day, Kind.TIME, wanted=4)] == ["1 Jan", "4 Jan", "7 Jan", "10 Jan"]


def test_units_are_known_by_their_labels() -> None:
    assert kind_of("on disk, bytes") is Kind.BYTES
    assert kind_of("latency (ms)") is Kind.MILLIS
    assert kind_of("messages") is kind_of("items") is Kind.NUMBER
    assert title("latency (ms)", Kind.MILLIS, log=True) == "latency (log scale)"
    assert title("time", Kind.TIME, log=False) == "time (UTC)"


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.id)
def test_what_is_drawn_lies_in_the_drawing(plot: Plot) -> None:
    svg = parsed(plot)
    left, top, width, height = map(float, svg.get("viewBox", "").split())
    assert (left, top, width) == (0, 0, WIDTH)
    for text in svg.iter("text"):
        wide = len(text.text or "") * CHAR_WIDTH
        x, y = float(text.get("x", "")), float(text.get("y", ""))
        start = x - wide * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "start")]
        assert start >= -0.1 and start + wide <= WIDTH + 8, text.text
        assert 10 <= y <= height - 2, text.text
    for rect in svg.iter("rect"):
        x, y, w, h = (float(rect.get(name, "")) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= WIDTH and 0 <= y <= y + h <= height
    for x, y in points(svg, ""):
        assert 0 <= x <= WIDTH and 0 <= y <= height


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.id)
def test_a_plot_has_a_name_and_a_description(plot: Plot) -> None:
    svg = parsed(plot)
    ids = svg.get("aria-labelledby", "").split()
    named = {element.get("id"): element for element in svg.iter() if element.get("id")}
    assert svg.get("role") == "img" and [named[one].tag for one in ids] == ["title", "desc"]
    assert named[ids[0]].text == plot.title
    assert plot.y_label in (named[ids[1]].text or "")


def test_lying_bars_are_as_long_as_their_values() -> None:
    rects = list(parsed(SHORT_BARS).iter("rect"))
    assert [rect.find("title") is not None for rect in rects] == [True, True]
    short, long = (float(rect.get("width", "")) for rect in rects)
    assert short / long == pytest.approx(12 / 1534, abs=0.005)


def test_among_many_bars_zeros_are_left_out_and_said_to_be() -> None:
    series = tuple(Series(f"s{n}", ("one", "two"), (float(n), 0.0)) for n in range(4))
    svg = parsed(Plot("p", "t", series, Mark.BARS, "x", "messages"))
    texts = [text.text for text in svg.iter("text")]
    assert len(list(svg.iter("rect"))) == 3 and texts.count("all 0") == 1
    assert any("a bar that is missing is 0" in (text or "") for text in texts)
    few = parsed(Plot("p", "t", series[:3], Mark.BARS, "x", "messages"))
    assert len(list(few.iter("rect"))) == 6 and "all 0" not in [text.text for text in few.iter("text")]


def test_points_and_lines_go_where_the_numbers_are() -> None:
    xs, ys = (0.0, 10.0, 20.0), (5.0, 0.0, 10.0)
    svg = parsed(Plot("p", "t", (Series("", xs, ys),), Mark.LINE, "x", "y"))
    found = list(points(svg, "line"))
    assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert (found[1][0] - found[0][0]) == pytest.approx(found[2][0] - found[1][0], abs=0.11)
    assert (found[1][1] - found[0][1]) == pytest.approx((found[1][1] - found[2][1]) / 2, abs=0.11)
    steps = parsed(Plot("p", "t", (Series("", xs, ys),), Mark.STEPS, "x", "y"))
    assert [y for _, y in points(steps, "line")] == pytest.approx([found[0][1]] * 2 + [found[1][1]] * 2 + [found[2][1]])


@pytest.mark.parametrize("mark", list(Mark))
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("ys", [(), (0.0,), (7.0,), (-3.0, 4.0), (math.nan, 1.0, 2.0), (0.0, 0.0), (1e15, 1e-9)], ids=str)
@pytest.mark.parametrize("words", [False, True])
def test_any_numbers_can_be_drawn(mark: Mark, log: bool, ys: tuple[float, ...], words: bool) -> None:
    xs: tuple[float | str, ...] = tuple(f"w{n}" if words else float(n) for n in range(len(ys)))
    svg = parsed(Plot("p", "t", (Series("a", xs, ys), Series("b", xs[:1], ys[:1])), mark, "x", "y, bytes", log_x=log, log_y=log))
    assert "nan" not in ElementTree.tostring(svg, encoding="unicode").replace("not a number", "")
