"""The chart of a table: for each row, how many times ahead Tidelog is, on a logarithmic axis around the peer's line."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench.charts.figures import Table, number

INK, AHEAD, BEHIND, GRID = "#1f2d3d", "#2a7fb8", "#d1495b", "#d8dee4"
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


def draw(table: Table, output: Path) -> None:
    """Write the chart of a table as SVG, on white: it is shown on dark pages, too. The same table gives the same bytes."""
    rows = list(reversed(table.in_order()))
    mpl.rcParams.update(
        {
            "font.size": 9,
            "text.color": INK,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "svg.hashsalt": table.name,
            "svg.fonttype": "none",
        }
    )
    figure, axes = plt.subplots(figsize=(9.2, 0.9 + 0.25 * len(rows)))
    for place, row in enumerate(rows):
        colour = AHEAD if row.ahead >= 1 else BEHIND
        axes.plot([1, row.ahead], [place, place], color=colour, lw=5, solid_capstyle="butt")
        told = f"{number(row.peer)} → {number(row.tidelog)} {row.unit}"
        axes.annotate(
            told,
            (row.ahead, place),
            xytext=(5 if row.ahead >= 1 else -5, 0),
            textcoords="offset points",
            va="center",
            ha="left" if row.ahead >= 1 else "right",
            fontsize=7.5,
            color=colour,
        )
    least, most = min(1.0, *(row.ahead for row in rows)), max(1.0, *(row.ahead for row in rows))
    axes.set_xscale("log")
    axes.set_xlim(least / (4 if least < 1 else 1.2), most * 4)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in TICKS if least / 1.3 <= tick <= most * 1.3]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(rows)), [row.what for row in rows])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=GRID, lw=0.6)
    axes.set_axisbelow(True)
    axes.axvline(1, color=INK, lw=1)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(f"How many times ahead of {table.peer} Tidelog is: {table.title}", loc="right", fontsize=9)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, bbox_inches="tight", facecolor="white", metadata={"Date": None, "Creator": None})
    plt.close(figure)
