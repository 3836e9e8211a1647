"""A plot's SVG around its series: size, axes, grid and text.

A plot is drawn 380 units wide, which is a phone's width, with text of 13.5: it is readable there, and grows with the page.
Text stays text. The title of the vertical axis lies above it, not on its side, so that the plot keeps the width.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from markupsafe import Markup, escape

from studies.report.axes import Scale, Tick

WIDTH = 380
LINE_HEIGHT = 16
CHAR_WIDTH = 8.2
"""Of that text, on the wide side: no font is the same everywhere."""


class Canvas:
    """Collects a plot's elements."""

    def __init__(self) -> None:
        self._elements: list[Markup] = []

    def __html__(self) -> str:
        """Return the elements alone, as a template or Markup takes them."""
        return Markup("\n").join(self._elements)

    def add(self, element: Markup) -> None:
        """Draw something that is SVG already."""
        self._elements.append(element)

    def text(self, x: float, y: float, text: str, css: str = "", anchor: str = "start") -> None:
        """Write a line of text; `y` is its baseline."""
        where = Markup('<text x="{}" y="{}"').format(number(x), number(y))
        if css:
            where += Markup(' class="{}"').format(css)
        if anchor != "start":
            where += Markup(' text-anchor="{}"').format(anchor)
        self.add(where + Markup(">{}</text>").format(text))

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """Draw a straight line."""
        ends = (number(x1), number(y1), number(x2), number(y2))
        self.add(Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(*ends, css))

    def rect(self, x: float, y: float, width: float, height: float, css: str, hint: str) -> None:
        """Draw a rectangle that tells `hint` when pointed at."""
        sides = (number(x), number(y), number(width), number(height))
        self.add(
            Markup('<rect x="{}" y="{}" width="{}" height="{}" rx="1.5" class="{}"><title>{}</title></rect>').format(
                *sides, css, hint
            )
        )

    def path(self, commands: str, css: str) -> None:
        """Draw a path."""
        if commands:
            self.add(Markup('<path d="{}" class="{}"/>').format(commands, css))

    def svg(self, plot_id: str, title: str, description: str, height: float) -> Markup:
        """Return the whole; its ids start with the plot's, which is unique in the page."""
        opening = Markup(
            '<svg class="plot" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-t {}-d">'
            '<title id="{}-t">{}</title><desc id="{}-d">{}</desc>'
        ).format(WIDTH, number(height), plot_id, plot_id, plot_id, title, plot_id, description)
        return opening + Markup(self) + Markup("</svg>")


class Frame:
    """The area in which series with two numeric axes lie."""

    AREA_HEIGHT = 190

    def __init__(self, canvas: Canvas, y_title: str, y_ticks: Sequence[Tick]) -> None:
        self._canvas = canvas
        self._y_ticks = y_ticks
        self.top = write_lines(canvas, wrapped(y_title), 13) + 8.0
        self.bottom = self.top + self.AREA_HEIGHT
        self.left = 10 + CHAR_WIDTH * max((len(tick.label) for tick in y_ticks), default=1)
        self.right = WIDTH - 14.0

    def draw(self, x: Scale, y: Scale, x_ticks: Sequence[Tick], x_title: str) -> float:
        """Draw grid, ticks and titles; return the height of the whole plot."""
        canvas = self._canvas
        for tick in self._y_ticks:
            place = y(tick.at)
            canvas.line(self.left, place, self.right, place, "grid")
            canvas.text(self.left - 6, place + 4.5, tick.label, "tick", "end")
        canvas.line(self.left, self.bottom, self.right, self.bottom, "axis")
        free_from = float("-inf")
        for tick in x_ticks:
            place = x(tick.at)
            canvas.line(place, self.bottom, place, self.bottom + 4, "axis")
            half = CHAR_WIDTH / 2 * max(len(tick.label), len(tick.second_line))
            # What would lie on the label before it is left out, what would stick out is moved.
            middle = min(max(place, half), WIDTH - half)
            if middle - half < free_from:
                continue
            free_from = middle + half + 4
            canvas.text(middle, self.bottom + 18, tick.label, "tick", "middle")
            if tick.second_line:
                canvas.text(middle, self.bottom + 18 + LINE_HEIGHT, tick.second_line, "tick", "middle")
        lines = 2 if any(tick.second_line for tick in x_ticks) else 1
        below = self.bottom + 18 + LINE_HEIGHT * lines + 4
        return write_lines(canvas, wrapped(x_title), below, (self.left + self.right) / 2, "middle") + 8


def wrapped(text: str, width: float = WIDTH) -> list[str]:
    """Return a text in lines that fit a width."""
    return textwrap.wrap(text, max(8, int(width / CHAR_WIDTH)))


def write_lines(canvas: Canvas, lines: Sequence[str], baseline: float, x: float = 0.0, anchor: str = "start") -> float:
    """Write lines, the first one at `baseline`; return the last one's."""
    for count, line in enumerate(lines):
        if anchor == "middle":
            half = CHAR_WIDTH / 2 * len(line)
            x = min(max(x, half), WIDTH - half)
        canvas.text(x, baseline + count * LINE_HEIGHT, line, "title", anchor)
    return baseline + max(len(lines) - 1, 0) * LINE_HEIGHT


def number(value: float) -> str:
    """Return a coordinate: a tenth of a unit is finer than any screen."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def series_class(index: int, mark: str) -> str:
    """Return the classes of a series: its colour, and its pattern."""
    return str(escape(f"{mark} s{index % 8} p{index % 4}"))
